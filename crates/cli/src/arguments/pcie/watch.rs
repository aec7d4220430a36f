//! The command line of `haul pcie watch`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use haul::telemetry::Wish;
use haul_experiments::pcie::profile::Overrides;
use haul_model::pcie::{Nic, Version};

use crate::arguments::time::time;
use crate::arguments::users::Allowed;

/// Shows the bursts of a running DPDK program and their PCIe traffic, live.
///
/// Shows the bursts of a running DPDK program live: packets per second, packets returned by each
/// poll, the traffic that they cause on the link by the rules of the NIC's driver, and what this
/// machine's counters show of it. The program needs no change, but must be started with the probe:
/// `-d libhaul_dpdk_burst.so`.
///
/// The probe is attached while this command runs, or stays attached if it already was. Ctrl-C
/// ends the command and keeps the records.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  haul pcie watch\n  haul pcie watch --file-prefix pmd1 --for 10s --out watched\n  \
    haul pcie watch --socket /var/run/dpdk/rte/dpdk_telemetry.v2 --for 5s --json\n  \
    haul pcie watch --pid 4711 --nic ice --link gen4x16"
)]
pub(crate) struct Watch {
    /// Telemetry socket of the program [default: the socket of the only program found]
    #[arg(long, value_name = "PATH", conflicts_with_all = ["pid", "file_prefix"])]
    pub(crate) socket: Option<PathBuf>,
    /// Process number of the program
    #[arg(long, value_name = "PROCESS", value_parser = super::whole, conflicts_with = "file_prefix")]
    pub(crate) pid: Option<u32>,
    /// The program's own --file-prefix
    #[arg(long, value_name = "PREFIX")]
    pub(crate) file_prefix: Option<String>,
    /// Another user whose program may be observed: a name, a number, or any; may be given several
    /// times [default: only programs of this user and of root]
    #[arg(long, value_name = "USER", value_parser = Allowed::parse)]
    pub(crate) allow_user: Vec<Allowed>,
    /// Running time, such as 5s, 500ms or 2m [default: until Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = time::<50, 604_800>)]
    pub(crate) time: Option<Duration>,
    /// Interval between two readings, such as 1s
    #[arg(long, value_name = "TIME", value_parser = time::<50, 604_800>, default_value = "1s")]
    pub(crate) every: Duration,
    /// The NIC, by its driver in DPDK: ixgbe, i40e, ice, iavf, idpf, igb, e1000e, mlx5, bnxt or ena
    /// [default: by the port's driver]
    #[arg(long, value_name = "NAME", value_parser = super::nic)]
    pub(crate) nic: Option<&'static Nic>,
    /// Release of the driver [default: the program's]
    #[arg(long, value_name = "dpdk-YY.MM")]
    pub(crate) driver: Option<Version>,
    /// Burst mode of the driver: scalar, bulk or vector [default: as the driver reports]
    #[arg(long, value_name = "MODE")]
    pub(crate) mode: Option<String>,
    /// Build or start option of the driver; several may be given
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) option: Vec<String>,
    /// The link, such as gen3x8 [default: the device's]
    #[arg(long, value_name = "LINK")]
    pub(crate) link: Option<haul_model::pcie::Link>,
    /// Maximum payload size, in bytes [default: the device's]
    #[arg(long, value_name = "BYTES", value_parser = super::whole)]
    pub(crate) mps: Option<u32>,
    /// Maximum read request size, in bytes [default: the device's]
    #[arg(long, value_name = "BYTES", value_parser = super::whole)]
    pub(crate) mrrs: Option<u32>,
    /// Receive free threshold [default: the driver's]
    #[arg(long, value_name = "PACKETS", value_parser = super::whole)]
    pub(crate) rx_free: Option<u32>,
    /// Report-status threshold [default: the driver's]
    #[arg(long, value_name = "PACKETS", value_parser = super::whole)]
    pub(crate) tx_rs: Option<u32>,
    /// Folder for watch.jsonl (the records) and watch.html (the page)
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print each record as one line of JSON, and nothing else
    #[arg(long)]
    pub(crate) json: bool,
}

impl Watch {
    /// The program to observe.
    pub(crate) fn program(&self) -> Wish {
        match (&self.socket, self.pid, &self.file_prefix) {
            (Some(socket), ..) => Wish::Socket(socket.clone()),
            (_, Some(process), _) => Wish::Process(process),
            (.., Some(prefix)) => Wish::Prefix(prefix.clone()),
            _ => Wish::Any,
        }
    }

    /// The values that override the values of the program and the device.
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides {
            nic: self.nic,
            driver: self.driver,
            mode: self.mode.clone(),
            options: self.option.clone(),
            link: self.link.as_ref().map(ToString::to_string),
            mps: self.mps,
            mrrs: self.mrrs,
            rx_free: self.rx_free,
            tx_rs: self.tx_rs,
        }
    }
}
