//! The command line of `haul heap`.

use std::time::Duration;

use clap::{Args, Subcommand};
use haul_experiments::heap::{Peer, Test};
use haul_model::{Bytes, Sizes};

use super::seconds;

#[derive(Debug, Subcommand)]
pub(crate) enum Heap {
    /// Allocation side by side with libc, the general heaps and DPDK
    Bench(Bench),
    /// Drives one heap for `haul heap bench`, which starts it
    #[command(hide = true)]
    Drive(Drive),
}

/// Measures haul's heap side by side with the installed C library's malloc, with mimalloc, jemalloc
/// and tcmalloc preloaded in front of it, and with DPDK's rte_malloc: each in a process of its own,
/// all interleaved in one run, with the first baseline against itself as the noise floor. A peer
/// that is not installed is told, with the package that has it, and left out.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  haul heap bench --test growth --size 4KiB --align 4KiB --against dpdk,libc\n  \
    haul heap bench --test pairs --size 64 --threads 16 --json > pairs.jsonl\n  \
    haul heap bench --test bulk --size 64,4KiB,128KiB --shared\n\n\
    Tests: growth (rounds of allocations, nothing freed between), mixed (the same with twice the \
    size in turn), regrow (freed after each round), bulk, no-bulk and realloc (the seed's), pairs \
    (a block and its free), lifetimes (random), remote (another thread frees), latency (single \
    allocations while the heap grows)."
)]
pub(crate) struct Bench {
    /// What is done with the heaps; several may be given
    #[arg(long, value_name = "TEST", default_value = "growth,pairs", value_delimiter = ',')]
    pub(crate) test: Vec<Test>,
    /// The heaps beside haul's: dpdk, mimalloc, jemalloc, tcmalloc, libc
    #[arg(
        long,
        value_name = "HEAPS",
        default_value = "dpdk,mimalloc,jemalloc,tcmalloc,libc",
        value_delimiter = ','
    )]
    pub(crate) against: Vec<Peer>,
    /// The blocks' sizes: a list such as 64,4KiB, or FIRST..LAST for the powers of two [default:
    /// 4KiB for growth, mixed, regrow and latency, 16KiB at most for lifetimes, else 64]
    #[arg(long, value_name = "SIZES")]
    pub(crate) size: Option<Sizes>,
    /// Their alignment, a power of two, or `size` for each size's own [default: size for growth,
    /// mixed, regrow and latency, else 16]
    #[arg(long, value_name = "BYTES")]
    pub(crate) align: Option<Align>,
    /// Rounds of growth, mixed and regrow
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: Option<u32>,
    /// Blocks on each thread: of a round (2000), of bulk, no-bulk (1000) or latency (20000), or live
    /// at once for lifetimes (4000)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    pub(crate) count: Option<u64>,
    /// Threads at once, pinned one after the other to the processors there are
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: u16,
    /// haul's heap is one that other processes can share
    #[arg(long)]
    pub(crate) shared: bool,
    /// haul's heap keeps so much memory ready, by a thread of its own [default: 8MiB for latency,
    /// else none]
    #[arg(long, value_name = "BYTES")]
    pub(crate) grow_ahead: Option<Bytes>,
    /// Time for everything together [default: 3 for each measurement]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) budget: Option<Duration>,
    /// Print each record as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Drives one heap, as it is told on standard input.
#[derive(Debug, Args)]
pub(crate) struct Drive {
    /// Whose heap it is, for whoever looks at the list of processes
    pub(crate) name: String,
}

/// What `--align` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// Each size's own: the size itself, or the largest power of two that divides it.
    Size,
    /// So many bytes.
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
