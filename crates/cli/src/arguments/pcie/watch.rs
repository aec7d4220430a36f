//! The command line of `haul pcie watch`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use haul::telemetry::Wish;
use haul_experiments::pcie::profile::Overrides;
use haul_model::pcie::{Nic, Version};

use super::super::time::time;
use super::super::users::Allowed;

/// Shows the bursts of a running DPDK program, live: packets a second, how many packets each poll
/// returned, what that moves across the link by the rules of the NIC's driver, and what counters of
/// this machine say of it. The program needs no change, but to be started with the probe:
/// `-d libhaul_dpdk_burst.so`.
///
/// The probe is attached for as long as this runs, unless it was before. Ctrl-C ends it and keeps
/// what was recorded.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  haul pcie watch\n  haul pcie watch --file-prefix pmd1 --for 10s --out watched\n  \
    haul pcie watch --socket /var/run/dpdk/rte/dpdk_telemetry.v2 --for 5s --json\n  \
    haul pcie watch --pid 4711 --nic ice --link gen4x16"
)]
pub(crate) struct Watch {
    /// The program's telemetry socket [default: that of the only program that is there]
    #[arg(long, value_name = "PATH", conflicts_with_all = ["pid", "file_prefix"])]
    pub(crate) socket: Option<PathBuf>,
    /// The program's process
    #[arg(long, value_name = "PROCESS", value_parser = super::whole, conflicts_with = "file_prefix")]
    pub(crate) pid: Option<u32>,
    /// The program's own option of that name
    #[arg(long, value_name = "PREFIX")]
    pub(crate) file_prefix: Option<String>,
    /// Another user whose program may be asked, by name or number, or any; may be given several
    /// times [default: programs of this user and of root alone]
    #[arg(long, value_name = "USER", value_parser = Allowed::parse)]
    pub(crate) allow_user: Vec<Allowed>,
    /// How long, such as 5s, 500ms or 2m [default: until Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = time::<50, 604_800>)]
    pub(crate) time: Option<Duration>,
    /// How often rates are taken, such as 1s
    #[arg(long, value_name = "TIME", value_parser = time::<50, 604_800>, default_value = "1s")]
    pub(crate) every: Duration,
    /// The NIC to estimate for [default: by the port's driver]
    #[arg(long, value_name = "NAME", value_parser = super::nic)]
    pub(crate) nic: Option<&'static Nic>,
    /// The driver's release [default: the program's]
    #[arg(long, value_name = "dpdk-YY.MM")]
    pub(crate) driver: Option<Version>,
    /// The driver's burst mode: scalar, bulk or vector [default: as the driver says]
    #[arg(long, value_name = "MODE")]
    pub(crate) mode: Option<String>,
    /// How the driver is built or started; several may be given
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
    /// The receive free threshold [default: the driver's]
    #[arg(long, value_name = "PACKETS", value_parser = super::whole)]
    pub(crate) rx_free: Option<u32>,
    /// The report-status threshold [default: the driver's]
    #[arg(long, value_name = "PACKETS", value_parser = super::whole)]
    pub(crate) tx_rs: Option<u32>,
    /// Write the records and a page into this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print each record as one line of JSON, and nothing else
    #[arg(long)]
    pub(crate) json: bool,
}

impl Watch {
    /// Which program.
    pub(crate) fn program(&self) -> Wish {
        match (&self.socket, self.pid, &self.file_prefix) {
            (Some(socket), ..) => Wish::Socket(socket.clone()),
            (_, Some(process), _) => Wish::Process(process),
            (.., Some(prefix)) => Wish::Prefix(prefix.clone()),
            _ => Wish::Any,
        }
    }

    /// What the user knows better.
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
