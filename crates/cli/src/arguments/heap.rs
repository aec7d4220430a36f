//! The command line of `haul heap`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use haul_experiments::heap::trace::OPERATIONS_MAX;
use haul_experiments::heap::{Part, Peer, Test};
use haul_model::{Bytes, Sizes};

use super::engine::usable;
use super::number::number;
use super::time::budget;
use crate::summary::Printing;

#[derive(Debug, Subcommand)]
pub(crate) enum Heap {
    Bench(Bench),
    Replay(Replay),
    Map(Map),
    Record(Record),
    Info(Info),
    List(List),
    /// Drives one heap; `haul heap bench` and `replay` start it
    #[command(hide = true)]
    Drive(Drive),
}

/// Measures allocation side by side with libc, the general heaps and DPDK.
///
/// Measures haul's heap side by side with the installed C library's malloc, with mimalloc, jemalloc
/// and tcmalloc preloaded instead of it, and with DPDK's rte_malloc. Each heap runs in its own
/// process, all interleaved in one run; the first baseline is also measured against itself, as
/// the noise floor. A peer that is not installed is left out; a note names it and its package.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  haul heap bench --test growth --sizes 4KiB --align 4KiB --against dpdk,libc\n  \
    haul heap bench --test pairs --sizes 64 --threads 16 --json > pairs.jsonl\n  \
    haul heap bench --test bulk --sizes 64,4KiB,128KiB --shared\n\n\
    Tests: growth (rounds of allocations, nothing freed between), mixed (the same with twice the \
    size in turn), regrow (freed after each round), bulk, no-bulk and realloc (ByteDance's \
    rte_malloc test), pairs (a block and its free), lifetimes (random), remote (another thread frees), latency (single \
    allocations while the heap grows), zeroed (blocks of zeros, by the caller or by --engine)."
)]
pub(crate) struct Bench {
    /// Tests to run on the heaps; several may be given
    #[arg(long, value_name = "TEST", default_value = "growth,pairs", value_delimiter = ',')]
    pub(crate) test: Vec<Test>,
    /// The peers: dpdk, mimalloc, jemalloc, tcmalloc, libc
    #[arg(
        long,
        value_name = "PEERS",
        default_value = "dpdk,mimalloc,jemalloc,tcmalloc,libc",
        value_delimiter = ','
    )]
    pub(crate) against: Vec<Peer>,
    /// Sizes of the blocks: a list such as 64,4KiB, or a range FIRST..LAST[:STEP] [default:
    /// 4KiB for growth, mixed, regrow and latency, 16KiB at most for lifetimes, 4MiB for zeroed,
    /// otherwise 64]
    #[arg(long, value_name = "SIZES")]
    pub(crate) sizes: Option<Sizes>,
    /// Alignment of the blocks: a power of two, or `size` for the natural alignment of each size
    /// [default: size for growth, mixed, regrow and latency, otherwise 16]
    #[arg(long, value_name = "BYTES")]
    pub(crate) align: Option<Align>,
    /// Number of rounds of growth, mixed and regrow
    #[arg(long, value_name = "N", value_parser = number::<u32, 1, 1000>)]
    pub(crate) rounds: Option<u32>,
    /// Number of blocks on each thread: per round (2000), for bulk and no-bulk (1000) or latency
    /// (20000), or live at the same time for lifetimes (4000)
    #[arg(long, value_name = "N", value_parser = number::<u64, 1, { 1 << 32 }>)]
    pub(crate) count: Option<u64>,
    /// Number of concurrent threads; thread i is pinned to the i-th processor that haul may use,
    /// modulo their number [default: 2 for remote, which needs an even number, otherwise 1]
    #[arg(long, value_name = "N", value_parser = number::<u16, 1, 1024>)]
    pub(crate) threads: Option<u16>,
    /// Measure a heap of haul that other processes can share, on pages of the kernel's pool
    #[arg(long)]
    pub(crate) shared: bool,
    /// Do not use the kernel's pool of huge pages (vm.nr_hugepages): haul uses transparent huge
    /// pages, as without --shared, and DPDK uses normal pages
    #[arg(long)]
    pub(crate) no_pool: bool,
    /// Memory that a thread of haul's heap keeps ready [default: 8MiB for latency, otherwise none]
    #[arg(long, value_name = "BYTES")]
    pub(crate) grow_ahead: Option<Bytes>,
    /// Memory that haul's heap has before the first allocation, as DPDK's heap has [default: none]
    #[arg(long, value_name = "BYTES")]
    pub(crate) ready: Option<Bytes>,
    /// The engine of the test zeroed: inline, worker, auto, dsa, or a queue such as dsa:wq0.1
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = usable)]
    pub(crate) engine: String,
    /// Total measuring time [default: 3s for each measurement]; the expected setup time is printed
    /// first
    #[arg(long, value_name = "TIME", value_parser = budget)]
    pub(crate) budget: Option<Duration>,
    #[command(flatten)]
    pub(crate) printing: Printing,
    /// Print each record as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Replays a recorded program's allocations on haul's heap and on others.
///
/// Replays a program's allocator calls, as `libhaul_record.so` recorded them, on haul's heap and on
/// others. Each heap runs in its own process, all interleaved in one run; every page of every block
/// is written when it is allocated. Shows the time of the operations, and how much memory the
/// heap holds during the replay, which is never less than the live bytes.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haul heap record -o ls.trace -- ls -lR /etc > listing\n  \
    haul heap replay ls.trace --against libc,jemalloc\n  \
    haul heap replay ls.trace --json | haul report - --out-file replay.html")]
pub(crate) struct Replay {
    /// The trace
    #[arg(value_name = "TRACE")]
    pub(crate) trace: PathBuf,
    /// The peers: libc, mimalloc, jemalloc, tcmalloc, dpdk
    #[arg(
        long,
        value_name = "PEERS",
        default_value = "libc,mimalloc,jemalloc,tcmalloc,dpdk",
        value_delimiter = ','
    )]
    pub(crate) against: Vec<Peer>,
    /// One thread replays everything in the order of the recording [default: as many threads as
    /// were recorded, up to 64]
    #[arg(long)]
    pub(crate) merged: bool,
    #[command(flatten)]
    pub(crate) reading: Reading,
    #[command(flatten)]
    pub(crate) printing: Printing,
    /// Total measuring time, after three replays on each heap
    #[arg(long, value_name = "TIME", value_parser = budget, default_value = "10s")]
    pub(crate) budget: Duration,
    /// Print each record as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Runs a program and records the calls to its allocator.
///
/// Runs a program under libhaul_record.so, which writes the program's calls to malloc or rte_malloc
/// into a trace. The program's input, output and exit code are unchanged. FILE contains the trace
/// of the last program that the started process executes. Each other process of the run has its
/// own trace: a dot and the process number follow FILE, or replace %p in it.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  haul heap record -o ls.trace -- ls -lR /etc > listing\n  haul heap info ls.trace\n  \
    haul heap replay ls.trace --against libc,jemalloc\n  \
    PYTHONMALLOC=malloc haul heap record -o python.trace -- python3 -c 'print(sorted(range(9)))'\n\n\
    Exit codes: the program's own, or 128 plus the signal that ended it; 1 if nothing was recorded. Ctrl-C \
    goes to the program: haul asks it to end after 5 s, and ends it at a second Ctrl-C."
)]
pub(crate) struct Record {
    /// File for the trace; it must not exist yet [default: the program's name with .trace, in this
    /// folder]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) out_file: Option<PathBuf>,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CMD"
    )]
    pub(crate) program: Vec<OsString>,
}

/// Shows what a recorded trace holds.
///
/// The figures are the program, its threads, its calls, the most live bytes, and sizes.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  haul heap info sort.trace\n  haul heap info dpdk.trace --part rte --json"
)]
pub(crate) struct Info {
    /// The trace
    #[arg(value_name = "TRACE")]
    pub(crate) trace: PathBuf,
    #[command(flatten)]
    pub(crate) reading: Reading,
    /// Print each figure as a record, one per line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Lists the heaps that processes share by name, and their contents.
///
/// Lists the heaps that processes share by name on this machine, with each heap's live bytes,
/// memory, and limit. A heap outlives its processes until its name is removed.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haul heap list\n  haul heap list --json")]
pub(crate) struct List {
    /// Print each figure as a record, one per line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// How a trace is read.
#[derive(Clone, Debug, Args)]
pub(crate) struct Reading {
    /// Heap of the program: malloc, rte (rte_malloc) or all
    #[arg(long, value_name = "HEAP", default_value = "all", value_parser = part)]
    pub(crate) part: Part,
    /// Most operations to read; each needs about 80 B of memory
    #[arg(
        long,
        value_name = "N",
        default_value_t = OPERATIONS_MAX as u64,
        value_parser = number::<u64, 1, { 1 << 31 }>
    )]
    pub(crate) operations: u64,
}

/// Draws what a heap holds: huge pages, spans, classes, waste, by tag.
///
/// Draws what a heap holds: each page of 2 MiB by its 32 slices, with their class, their tag and
/// how full they are; then the bytes of each class and tag. The heap is one that processes share,
/// drawn while they use it; or a private heap on which a trace was replayed up to a given point; or
/// saved records.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  haul heap map --name my-heap\n  haul heap map --trace /tmp/sort.trace.4711 --at 50%\n  \
    haul heap map --name my-heap --json | haul report - --out-file map.html"
)]
#[group(id = "source", required = true, multiple = false, args = ["name", "trace", "records"])]
pub(crate) struct Map {
    /// Name of a heap that processes share
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Trace to replay on a private heap
    #[arg(long, value_name = "TRACE")]
    pub(crate) trace: Option<PathBuf>,
    /// Records that `haul heap map --json` wrote; - is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) records: Option<PathBuf>,
    /// Point at which the replay stops: a time since the recording began, such as 2.5s or 300ms, or
    /// a share of the operations, such as 50%
    #[arg(long, value_name = "WHEN", default_value = "100%", conflicts_with_all = ["name", "records"])]
    pub(crate) at: At,
    #[command(flatten)]
    pub(crate) reading: Reading,
    /// Print each record as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A point of a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum At {
    /// Time since the recording began.
    Time(Duration),
    /// A share of the operations, from 0 to 1.
    Share(f64),
}

impl std::str::FromStr for At {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [("%", 0.01), ("ms", 1e-3), ("us", 1e-6), ("s", 1.0)];
        let bad = || format!("{text:?} is not a point of a trace; write 2.5s, 300ms, 40us or 50%");
        let (number, unit, factor) = units
            .into_iter()
            .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, unit, factor)))
            .ok_or_else(bad)?;
        let value = number.trim().parse::<f64>().map_err(|_| bad())? * factor;
        match Duration::try_from_secs_f64(value) {
            Ok(_) if unit == "%" && value <= 1.0 => Ok(Self::Share(value)),
            Ok(time) if unit != "%" => Ok(Self::Time(time)),
            _ => Err(bad()),
        }
    }
}

fn part(text: &str) -> Result<Part, String> {
    match text {
        "all" => Ok(Part::All),
        "malloc" => Ok(Part::Malloc),
        "rte" => Ok(Part::Rte),
        _ => Err("write malloc, rte or all".into()),
    }
}

/// Drives one heap; standard input carries the instructions.
#[derive(Debug, Args)]
pub(crate) struct Drive {
    /// Name of the heap, for the list of processes
    pub(crate) name: String,
}

/// The value of `--align`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// Natural alignment of each size: the size itself, or the largest power of two that divides
    /// it.
    Size,
    /// This number of bytes.
    Bytes(Bytes),
}

impl std::str::FromStr for Align {
    type Err = haul_model::UnitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "size" {
            return Ok(Self::Size);
        }
        text.parse().map(Self::Bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn point_is_time_or_share() {
        assert_eq!("2.5s".parse(), Ok(At::Time(Duration::from_millis(2500))));
        assert_eq!("300ms".parse(), Ok(At::Time(Duration::from_millis(300))));
        assert_eq!("50%".parse(), Ok(At::Share(0.5)));
        for bad in ["", "5", "101%", "-1s", "NaN%", "infs", "1e99s", "s", "5 minutes"] {
            assert!(bad.parse::<At>().is_err(), "{bad}");
        }
    }
}
