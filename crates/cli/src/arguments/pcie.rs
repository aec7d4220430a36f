//! The command line of `haul pcie`.
//!
//! From the bottom up:
//!
//! - `sweep`: that of `haul pcie sweep`;
//! - `watch`: that of `haul pcie watch`.

mod sweep;
pub(crate) mod watch;

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use haul_model::Sizes;
use haul_model::pcie::{self, BenchNic, Histogram, Link, Nic, Offered, Packets, Version};

pub(crate) use sweep::Sweep;

#[derive(Debug, Subcommand)]
pub(crate) enum Pcie {
    /// The links of this machine's network devices, and what is wrong with them
    List(List),
    /// What a packet workload moves across a link, term by term
    Estimate(Box<Estimate>),
    /// What a workload's bytes go to, what would let the link carry more, and why two estimates
    /// differ
    Explain(Box<Explain>),
    /// A modelled NIC at one rate after the other: counted beside estimated
    Sweep(Box<Sweep>),
    /// How much packet data a link carries at most, by the public model of pcie-bench
    Bandwidth(Bandwidth),
    /// The bursts of a running DPDK program, and what they move across PCIe, live
    Watch(Box<watch::Watch>),
}

/// The network devices behind PCIe: what each link does now and could do, what is set, and which
/// processors are near. Says in a sentence what is wrong. What cannot be read is said to be not
/// known, and why: MPS and MRRS take CAP_SYS_ADMIN. A virtual function has its physical one's.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haul pcie list\n  haul pcie list --json")]
pub(crate) struct List {
    /// Print each device as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A link and its settings.
#[derive(Debug, Args)]
pub(crate) struct LinkArguments {
    /// The link's generation, 1 to 5, and its width
    #[arg(long, value_name = "LINK", default_value = "gen3x8")]
    pub(crate) link: Link,
    /// Maximum payload size, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 256, value_parser = whole)]
    pub(crate) mps: u32,
    /// Maximum read request size, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 512, value_parser = whole)]
    pub(crate) mrrs: u32,
}

/// Lists the transactions that a workload costs on its link, by the rules of the NIC's driver in
/// DPDK: how many a second, bytes of data and of headers, their sums as processors' counters show
/// them, and the rate at which the link is full. Nothing is measured.
///
/// Sizes are those in memory, as DPDK counts them; with --with-fcs those of frames, which are 4 B
/// longer.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  haul pcie estimate --nic ice --driver dpdk-22.11 --mode vector --rate 10M --sizes 64 \\\n    \
    --histogram 0:5,4:10 --link gen3x8 --mps 256 --mrrs 512\n  \
    haul pcie estimate --nic ena --rate 5M --sizes imix --with-fcs --link gen4x8 --json\n  \
    haul pcie estimate --nic ice --rate 10M --sizes 60..130\n  \
    haul pcie estimate --nic ice --rate 100Gbit/s --sizes imix --link gen4x16\n\n\
    NICs and their options: haul pcie estimate --list shows each, with the sources of its numbers."
)]
pub(crate) struct Estimate {
    #[command(flatten)]
    pub(crate) subject: Subject,
    /// By whose rules: haul's (the driver's), recipe (VTune's cookbook), or pcie-bench (its public
    /// model)
    #[arg(long = "as", value_name = "WHOSE", default_value = "haul")]
    pub(crate) rules: Rules,
    /// Show the NICs that are known, and estimate nothing
    #[arg(long, conflicts_with_all = ["nic", "rate", "sizes", "capture", "json"])]
    pub(crate) list: bool,
    /// Print each record as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Says what a workload's bytes go to, term by term, whether its rate fits, and what would let the
/// link carry more packets: settings, batches, the read completion boundary, and the link itself.
/// Every advice is the estimate made again with one thing changed, and they are ranked by the rate
/// at which the link is full then; what does not raise that rate is not shown.
///
/// With --against the terms are compared with those of a saved estimate or sweep, or with its sums
/// alone where it has no terms: which of them make the difference. Two saved files are compared
/// with each other.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  haul pcie explain --nic ice --driver dpdk-22.11 --mode vector --rate 10M --sizes 64 \\\n    \
    --histogram 0:5,4:10\n  \
    haul pcie estimate --nic ice --rate 10M --sizes 64 --json > before.jsonl\n  \
    haul pcie explain --nic ice --rate 10M --sizes 64 --histogram 4:1 --against before.jsonl\n  \
    haul pcie explain before.jsonl after.jsonl"
)]
pub(crate) struct Explain {
    /// Two files of records to compare, instead of a workload: the first, and what differs in the
    /// second
    #[arg(value_name = "FILE", num_args = 2, conflicts_with_all = OF_A_WORKLOAD)]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) subject: Subject,
    /// Compare with the estimate in this file of records
    #[arg(long, value_name = "FILE")]
    pub(crate) against: Option<PathBuf>,
    /// Print each record as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Every option of [`Subject`], and `--against`: clap knows no group that holds them all.
const OF_A_WORKLOAD: [&str; 22] = [
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
    "capture",
    "with_fcs",
    "histogram",
    "tx_histogram",
    "traffic",
    "segments",
    "context",
    "offset",
    "against",
];

/// What is estimated: a NIC with its driver, a workload and a link.
#[derive(Debug, Args)]
pub(crate) struct Subject {
    #[command(flatten)]
    pub(crate) nic: NicArguments,
    /// Packets a second in each direction, such as 10M, 14.88Mpps or 250k; or bits of the line,
    /// preamble and gap included, such as 100Gbit/s or 25Gbps
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<Offered>,
    /// Packet sizes in bytes: one, a mix of SIZE:WEIGHT such as 64:7,594:4,1518:1, or imix (these
    /// three); `estimate` takes FIRST..LAST as well, for the sums of every size, byte by byte
    #[arg(long, visible_alias = "size", value_name = "SIZES", conflicts_with = "capture")]
    pub(crate) sizes: Option<PacketSizes>,
    /// Sizes as in this capture (pcap or pcapng), which are those in memory
    #[arg(long, value_name = "FILE", conflicts_with = "with_fcs")]
    pub(crate) capture: Option<PathBuf>,
    /// The sizes are those of frames with their check sequence, which NICs take off
    #[arg(long)]
    pub(crate) with_fcs: bool,
    /// Polls by how many packets each returned, as BATCH:POLLS [default: 32:1]
    #[arg(long, value_name = "HISTOGRAM")]
    pub(crate) histogram: Option<Histogram>,
    /// The same of calls that send [default: as received]
    #[arg(long, value_name = "HISTOGRAM")]
    pub(crate) tx_histogram: Option<Histogram>,
    /// Which packets: both (as many sent as received), rx or tx
    #[arg(long, value_name = "WHICH", default_value = "both")]
    pub(crate) traffic: Traffic,
    /// Buffers that each packet is spread over
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole)]
    pub(crate) segments: u32,
    /// Each sent packet has a context descriptor, as for offloads
    #[arg(long)]
    pub(crate) context: bool,
    /// How far into a cache line each buffer begins, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = whole)]
    pub(crate) offset: u32,
}

/// A NIC with its driver, and its link.
#[derive(Debug, Args)]
pub(crate) struct NicArguments {
    /// The NIC, by its driver in DPDK: ixgbe, i40e, ice, iavf, idpf, igb, e1000e, mlx5, bnxt or ena
    #[arg(long, value_name = "NAME", value_parser = nic)]
    pub(crate) nic: Option<&'static Nic>,
    /// The driver's release; one that is not known takes the nearest one's rules [default:
    /// dpdk-26.07]
    #[arg(long, value_name = "dpdk-YY.MM")]
    pub(crate) driver: Option<Version>,
    /// The driver's burst mode: scalar, bulk or vector [default: the one it takes by itself]
    #[arg(long, value_name = "MODE")]
    pub(crate) mode: Option<String>,
    /// How the driver is built or started; several may be given
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) option: Vec<String>,
    /// The receive free threshold [default: the driver's]
    #[arg(long, value_name = "PACKETS", value_parser = whole)]
    pub(crate) rx_free: Option<u32>,
    /// The report-status threshold [default: the driver's]
    #[arg(long, value_name = "PACKETS", value_parser = whole)]
    pub(crate) tx_rs: Option<u32>,
    #[command(flatten)]
    pub(crate) link: LinkArguments,
    /// Read completion boundary, in bytes: 64 or 128
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = whole)]
    pub(crate) rcb: u32,
    /// How the host cuts what is read: by rcb (the most headers), or by mps (the fewest)
    #[arg(long, value_name = "HOW", default_value = "rcb")]
    pub(crate) completions: Completions,
}

/// What `--sizes` asks for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PacketSizes {
    /// One workload: a size, or a mix of some.
    Mix(Packets),
    /// A workload each.
    Each(ByteSizes),
}

impl FromStr for PacketSizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains("..") {
            return text.parse().map(Self::Each);
        }
        text.parse().map(Self::Mix).map_err(|error: pcie::PcieError| error.to_string())
    }
}

/// Sizes from one to another, each byte of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByteSizes {
    pub(crate) first: u32,
    pub(crate) last: u32,
}

impl FromStr for ByteSizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || {
            format!(
                "{text:?} is no range of packet sizes: write FIRST..LAST, 1 to 65535 B each, such as 60..130"
            )
        };
        let (first, last) = text.split_once("..").ok_or_else(refused)?;
        let number = |part: &str| part.trim().parse::<u32>().map_err(|_| refused());
        let (first, last) = (number(first)?, number(last)?);
        match (1..=65_535).contains(&first) && (first..=65_535).contains(&last) {
            true => Ok(Self { first, last }),
            false => Err(refused()),
        }
    }
}

/// How much packet data a link carries in each direction, by the public model of pcie-bench
/// (SIGCOMM'18) of three NICs: an upper bound. Sizes are those of frames, whose check sequence of
/// 4 B stays off the link. Beside its dpdk NIC stands what haul pcie estimate --nic ixgbe, which is
/// of the same card and driver, gives, and why the two differ.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  haul pcie bandwidth --model pcie-bench --nic dpdk --link gen3x8 --mps 256 --mrrs 512 --sizes 64,512\n  \
    haul pcie bandwidth --link gen4x16 --sizes 64..1024 --json"
)]
pub(crate) struct Bandwidth {
    /// The model: pcie-bench as it is published, which forgets each received packet's descriptor
    /// request, or mended
    #[arg(long, value_name = "MODEL", default_value = "mended")]
    pub(crate) model: Model,
    /// simple, kernel or dpdk; several may be given [default: all]
    #[arg(long, value_name = "NAME", value_parser = bench_nic, value_delimiter = ',')]
    pub(crate) nic: Vec<BenchNic>,
    #[command(flatten)]
    pub(crate) link: LinkArguments,
    /// Sizes of frames: a list such as 64,512, or FIRST..LAST for the powers of two
    #[arg(long, value_name = "SIZES", default_value = "64..1024")]
    pub(crate) sizes: Sizes,
    /// Which packets: both (as many sent as received), rx or tx
    #[arg(long, value_name = "WHICH", default_value = "both")]
    pub(crate) traffic: Traffic,
    /// Print each record as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Whose rules an estimate follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Rules {
    Haul,
    #[value(alias = "seed")]
    Recipe,
    PcieBench,
}

/// Which form of the public model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Model {
    PcieBench,
    Mended,
}

/// Which packets cross the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Traffic {
    Both,
    Rx,
    Tx,
}

/// How completions are cut.
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

/// A number whose limits are said by what takes it.
fn whole(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| {
        format!("{text:?} is no whole number up to {}: write digits alone, such as 128", u32::MAX)
    })
}

fn bench_nic(text: &str) -> Result<BenchNic, String> {
    let found = BenchNic::ALL.into_iter().find(|nic| nic.name() == text);
    found.ok_or_else(|| "the public model has the NICs simple, kernel and dpdk".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command};

    use super::Explain;

    #[test]
    fn two_files_are_explained_without_any_option_of_a_workload() {
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
