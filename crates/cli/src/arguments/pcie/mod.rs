//! The command line of `haul pcie`.
//!
//! From the bottom up:
//!
//! - `sweep`: the command line of `haul pcie sweep`;
//! - `watch`: the command line of `haul pcie watch`.

mod sweep;
pub(crate) mod watch;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use haul_model::Sizes;
use haul_model::pcie::{self, BenchNic, Histogram, Link, Nic, Offered, Packets, Version};

use super::sizes::packets;

pub(crate) use sweep::{Rates, Sweep};

#[derive(Debug, Subcommand)]
pub(crate) enum Pcie {
    List(List),
    Estimate(Box<Estimate>),
    Explain(Box<Explain>),
    Sweep(Box<Sweep>),
    Bandwidth(Bandwidth),
    Watch(Box<watch::Watch>),
}

/// Lists the links of this machine's network devices, and what limits them.
///
/// Lists the network devices on PCIe: present and possible speed of each link, settings, and nearby
/// processors. For each problem, a sentence says what is wrong. An unknown value is marked, with
/// the reason: reading MPS and MRRS needs CAP_SYS_ADMIN. A virtual function shows the values of
/// its physical function.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  haul pcie list\n  haul pcie list --nics\n  haul pcie list --json"
)]
pub(crate) struct List {
    /// List the NICs that an estimate knows, with their options and sources, instead of this
    /// machine's devices
    #[arg(long, conflicts_with = "json")]
    pub(crate) nics: bool,
    /// Print each device as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A link and its settings.
#[derive(Debug, Args)]
pub(crate) struct LinkArguments {
    /// Generation of the link, 1 to 5, and its width
    #[arg(long, value_name = "LINK", default_value = "gen3x8")]
    pub(crate) link: Link,
    /// Maximum payload size, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 256, value_parser = whole)]
    pub(crate) mps: u32,
    /// Maximum read request size, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 512, value_parser = whole)]
    pub(crate) mrrs: u32,
}

/// Shows the transactions of a packet workload on a link, term by term.
///
/// Lists the transactions of a workload on its link, by the rules of the NIC's driver in DPDK:
/// number per second, bytes of data and of headers, sums as the processors' counters show them, and
/// the rate at which the link is full. Nothing is measured.
///
/// Sizes are those in memory, as DPDK counts them; with --with-fcs they are frame sizes, which are
/// 4 B longer.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  haul pcie estimate --nic ice --driver dpdk-22.11 --mode vector --rate 10M --sizes 64 \\\n    \
    --histogram 0:5,4:10 --link gen3x8 --mps 256 --mrrs 512\n  \
    haul pcie estimate --nic ena --rate 5M --mix imix --with-fcs --link gen4x8 --json\n  \
    haul pcie estimate --nic ice --rate 10M --sizes 60..130:1\n  \
    haul pcie estimate --nic ice --rate 100Gbit/s --mix imix --link gen4x16\n\n\
    NICs and their options: haul pcie list --nics shows each, with its sources."
)]
pub(crate) struct Estimate {
    #[command(flatten)]
    pub(crate) subject: Subject,
    /// Rules of the estimate: haul (the driver's), recipe (VTune's cookbook), or pcie-bench (its
    /// public model)
    #[arg(long = "as", value_name = "WHOSE", default_value = "haul")]
    pub(crate) rules: Rules,
    /// Print each record as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Shows the parts of a workload's bytes, what would let the link carry more, and why two estimates
/// differ.
///
/// Shows the parts of a workload's bytes, term by term, whether its rate fits, and what would let
/// the link carry more packets: settings, batches, the read completion boundary, and the link
/// itself. Every advice is the estimate repeated with one value changed. Advice is ranked by the
/// rate at which the link is then full; a change that does not raise the rate is not shown.
///
/// With --baseline, compares the terms with the terms of a saved estimate or sweep, or with its
/// sums if it has no terms, and shows which terms make the difference. Two saved files are
/// compared with each other.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  haul pcie explain --nic ice --driver dpdk-22.11 --mode vector --rate 10M --sizes 64 \\\n    \
    --histogram 0:5,4:10\n  \
    haul pcie estimate --nic ice --rate 10M --sizes 64 --json > before.jsonl\n  \
    haul pcie explain --nic ice --rate 10M --sizes 64 --histogram 4:1 --baseline before.jsonl\n  \
    haul pcie explain before.jsonl after.jsonl"
)]
pub(crate) struct Explain {
    /// Two files of records to compare, instead of a workload: shows how the second differs from
    /// the first
    #[arg(value_name = "FILE", num_args = 2, conflicts_with_all = OF_A_WORKLOAD)]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) subject: Subject,
    /// File of records with an estimate to compare with
    #[arg(long, value_name = "FILE")]
    pub(crate) baseline: Option<PathBuf>,
    /// Print each record as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Every option of [`Subject`], and `--baseline`: clap has no group that contains them all.
const OF_A_WORKLOAD: [&str; 23] = [
    "nic",
    "driver",
    "mode",
    "option",
    "rx_free",
    "tx_rs",
    "link",
    "mps",
    "mrrs",
    "rcb",
    "completions",
    "rate",
    "sizes",
    "mix",
    "capture",
    "with_fcs",
    "histogram",
    "tx_histogram",
    "traffic",
    "segments",
    "context",
    "offset",
    "baseline",
];

/// The subject of an estimate: a NIC with its driver, a workload and a link.
#[derive(Debug, Args)]
pub(crate) struct Subject {
    #[command(flatten)]
    pub(crate) nic: NicArguments,
    /// Packets per second in each direction, such as 10M, 14.88Mpps or 250k; or bits per second of
    /// the line, preamble and gap included, such as 100Gbit/s or 25Gbps
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<Offered>,
    /// Size of the packets; `estimate` also accepts a range FIRST..LAST:STEP, for the sums of each
    /// size
    #[arg(long, value_name = "SIZES", value_parser = packets, conflicts_with_all = ["mix", "capture"])]
    pub(crate) sizes: Option<Sizes>,
    /// Mix of packet sizes as SIZE:WEIGHT, such as 64:7,594:4,1518:1, or imix (these three)
    #[arg(long, value_name = "MIX", conflicts_with = "capture")]
    pub(crate) mix: Option<Packets>,
    /// Take packet sizes from this capture (pcap or pcapng), without the frame check sequence
    #[arg(long, value_name = "FILE", conflicts_with = "with_fcs")]
    pub(crate) capture: Option<PathBuf>,
    /// Sizes are frame sizes with the check sequence, which NICs strip
    #[arg(long)]
    pub(crate) with_fcs: bool,
    /// Polls by how many packets each returned, as BATCH:POLLS [default: 32:1]
    #[arg(long, value_name = "HISTOGRAM")]
    pub(crate) histogram: Option<Histogram>,
    /// Sending calls by how many packets each sent, as BATCH:CALLS [default: as received]
    #[arg(long, value_name = "HISTOGRAM")]
    pub(crate) tx_histogram: Option<Histogram>,
    /// Direction of the packets: both (as many sent as received), rx or tx
    #[arg(long, value_name = "WHICH", default_value = "both")]
    pub(crate) traffic: Traffic,
    /// Buffers per packet
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole)]
    pub(crate) segments: u32,
    /// Each sent packet has a context descriptor, as for offloads
    #[arg(long)]
    pub(crate) context: bool,
    /// Offset of each buffer within its cache line, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = whole)]
    pub(crate) offset: u32,
}

/// A NIC with its driver, and its link.
#[derive(Debug, Args)]
pub(crate) struct NicArguments {
    /// The NIC, by its driver in DPDK: ixgbe, i40e, ice, iavf, idpf, igb, e1000e, mlx5, bnxt or ena
    #[arg(long, value_name = "NAME", value_parser = nic)]
    pub(crate) nic: Option<&'static Nic>,
    /// Release of the driver; an unknown one has the rules of the nearest known release [default:
    /// dpdk-26.07]
    #[arg(long, value_name = "dpdk-YY.MM")]
    pub(crate) driver: Option<Version>,
    /// Burst mode of the driver: scalar, bulk or vector [default: the one that the driver chooses]
    #[arg(long, value_name = "MODE")]
    pub(crate) mode: Option<String>,
    /// Build or start option of the driver; several may be given
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) option: Vec<String>,
    /// Receive free threshold [default: the driver's]
    #[arg(long, value_name = "PACKETS", value_parser = whole)]
    pub(crate) rx_free: Option<u32>,
    /// Report-status threshold [default: the driver's]
    #[arg(long, value_name = "PACKETS", value_parser = whole)]
    pub(crate) tx_rs: Option<u32>,
    #[command(flatten)]
    pub(crate) link: LinkArguments,
    /// Read completion boundary, in bytes: 64 or 128
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = whole)]
    pub(crate) rcb: u32,
    /// Where the host splits completions: rcb (the most headers), or mps (the fewest)
    #[arg(long, value_name = "HOW", default_value = "rcb")]
    pub(crate) completions: Completions,
}

/// Shows the most packet data that a link carries, by the public model of pcie-bench.
///
/// Shows how much packet data a link carries in each direction, by the public model of pcie-bench
/// (SIGCOMM'18) of three NICs: an upper bound. Sizes are frame sizes; the check sequence of 4 B
/// does not cross the link. For its dpdk NIC, also shows the result of haul pcie estimate --nic
/// ixgbe for the same card and driver, and why the two differ.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  haul pcie bandwidth --model pcie-bench --model-nic dpdk --link gen3x8 --mps 256 --mrrs 512 --sizes 64,512\n  \
    haul pcie bandwidth --link gen4x16 --sizes 64..1024 --json"
)]
pub(crate) struct Bandwidth {
    /// The model: pcie-bench as published, which omits the descriptor request of each received
    /// packet, or mended
    #[arg(long, value_name = "MODEL", default_value = "mended")]
    pub(crate) model: Model,
    /// NIC of the model: simple, kernel or dpdk; several may be given [default: all]
    #[arg(long, value_name = "NAME", value_parser = bench_nic, value_delimiter = ',')]
    pub(crate) model_nic: Vec<BenchNic>,
    #[command(flatten)]
    pub(crate) link: LinkArguments,
    /// Sizes of frames: a list such as 64,512, or a range FIRST..LAST[:STEP]
    #[arg(long, value_name = "SIZES", default_value = "64..1024")]
    pub(crate) sizes: Sizes,
    /// Direction of the packets: both (as many sent as received), rx or tx
    #[arg(long, value_name = "WHICH", default_value = "both")]
    pub(crate) traffic: Traffic,
    /// Print each record as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The rules that an estimate follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Rules {
    Haul,
    Recipe,
    PcieBench,
}

/// Form of the public model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Model {
    PcieBench,
    Mended,
}

/// Direction of the packets that cross the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Traffic {
    Both,
    Rx,
    Tx,
}

/// Where completions are split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Completions {
    Rcb,
    Mps,
}

impl From<Traffic> for pcie::Traffic {
    fn from(traffic: Traffic) -> Self {
        match traffic {
            Traffic::Both => Self::Both,
            Traffic::Rx => Self::Rx,
            Traffic::Tx => Self::Tx,
        }
    }
}

impl From<Completions> for pcie::Completions {
    fn from(completions: Completions) -> Self {
        match completions {
            Completions::Rcb => Self::Boundary,
            Completions::Mps => Self::Payload,
        }
    }
}

fn nic(text: &str) -> Result<&'static Nic, pcie::PcieError> {
    text.parse()
}

/// A whole number; the estimate checks its limits.
fn whole(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| {
        format!("{text:?} is not a whole number up to {}; write only digits, such as 128", u32::MAX)
    })
}

fn bench_nic(text: &str) -> Result<BenchNic, String> {
    let found = BenchNic::ALL.into_iter().find(|nic| nic.name() == text);
    found.ok_or_else(|| "write simple, kernel or dpdk, the NICs of the public model".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command};

    use super::Explain;

    #[test]
    fn two_files_conflict_with_every_workload_option() {
        let command = Explain::augment_args(Command::new("explain"));
        let files = command.get_arguments().find(|it| it.get_id() == "files").unwrap();
        let refused = command.get_arg_conflicts_with(files);
        for option in
            command.get_arguments().filter(|it| !["files", "json"].contains(&it.get_id().as_str()))
        {
            assert!(refused.iter().any(|it| it.get_id() == option.get_id()), "{option}");
        }
    }
}
