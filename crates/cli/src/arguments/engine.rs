//! The arguments of `haul engine`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use haul_engine::Queue;
use haul_experiments::engine::Subject;
use haul_model::Sizes;

use super::number::number;
use super::time::budget;

#[derive(Debug, Subcommand)]
pub(crate) enum Engine {
    List(List),
    Bench(Bench),
    Fake(Fake),
}

/// The engines of this machine, and what each is made of.
///
/// Lists the engines that this process can use: the CPU itself, a helper thread, the choice
/// between both, and each usable queue of an Intel DSA. A fake DSA is listed as fake.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haul engine list\n  haul engine fake -- haul engine list")]
pub(crate) struct List {
    /// Print each engine as a record, one per line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Submission, latency, throughput, overlap and tail of copies beside the CPU.
///
/// Copies buffers with each engine and peer, interleaved, and compares it with copy, a call of
/// haul's copy. submit: the caller's time for a submission while the helper thread polls. complete:
/// the caller's time to take back a copy that is done. latency: a copy by a caller that waits at
/// once, which calls `execute` of haul's engines. throughput: copies that the engine does alone.
/// wake and wake_latency: the submission, and the whole copy, while the helper thread sleeps.
/// overlap: the share of a copy that is hidden behind computing of the same duration. tail: the
/// 99.9th percentile of requests of 1 KiB that a thread answers beside copies of 10 MiB.
/// break_even: the smallest size from which the engine pays: with a caller that computes, it hides
/// more of the copy than copy, which hides nothing, seems to hide; with a caller that waits, its
/// latency is below copy's by more than the noise floor.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  haul engine bench --sizes 64KiB,1MiB --engine inline,worker,auto\n  \
    haul engine bench --against dma_skeleton --busy-core 0,1\n  \
    haul engine bench --sizes 4KiB --depth 1,8,64 --batch 1,16\n  \
    haul engine bench --engine worker --against none --busy-core 0,1 --out-file haul.toml\n\n\
    Peers: dma_skeleton (DPDK's copy engine without hardware), rayon (rayon::spawn), tokio \
    (spawn_blocking), thread (a thread that receives copies from a channel of the standard library)."
)]
pub(crate) struct Bench {
    /// Sizes of the copies: a list such as 4KiB,64KiB, or a range FIRST..LAST[:STEP]
    #[arg(long, value_name = "SIZES", default_value = "4KiB,64KiB,1MiB,16MiB")]
    pub(crate) sizes: Sizes,
    /// How many submissions are pending at a time, from 1 to 1024; further values add the figures
    /// submit, complete and throughput. At most 32 MiB are pending
    #[arg(
        long,
        value_name = "N",
        default_value = "8",
        value_delimiter = ',',
        value_parser = number::<usize, 1, 1024>
    )]
    pub(crate) depth: Vec<usize>,
    /// How many copies are submitted together, from 1 to 256: as one operation by haul's engines,
    /// one after the other by others; further values add the same figures
    #[arg(
        long,
        value_name = "N",
        default_value = "1",
        value_delimiter = ',',
        value_parser = number::<usize, 1, 256>
    )]
    pub(crate) batch: Vec<usize>,
    /// haul's engines: inline, worker, auto; copy is always measured
    #[arg(
        long,
        value_name = "NAME",
        default_value = "inline,worker,auto",
        value_delimiter = ',',
        value_parser = engine
    )]
    pub(crate) engine: Vec<Subject>,
    /// The peers: dma_skeleton, rayon, tokio, thread, all or none
    #[arg(
        long,
        value_name = "PEERS",
        default_value = "all",
        value_delimiter = ',',
        value_parser = peer
    )]
    pub(crate) against: Vec<Against>,
    /// How many of the processors another thread keeps busy: 0 or 1; both may be given
    #[arg(
        long,
        value_name = "N",
        default_value = "0",
        value_delimiter = ',',
        value_parser = number::<u8, 0, 1>
    )]
    pub(crate) busy_core: Vec<u8>,
    /// Time for the rounds of everything together [default: 1s for each size and for the tail]
    #[arg(long, value_name = "TIME", value_parser = budget)]
    pub(crate) budget: Option<Duration>,
    /// Write the sizes from which worker pays into this haul.toml, which auto then uses; its other
    /// parts stay. The records are written next to it, as FILE with the suffix .engine.jsonl
    #[arg(long, value_name = "FILE")]
    pub(crate) out_file: Option<PathBuf>,
    /// Print each record as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A value of `--against`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Against {
    One(Subject),
    All,
    None,
}

impl Against {
    /// The named peers.
    pub(crate) fn peers(self) -> &'static [Subject] {
        match self {
            Self::All => &Subject::PEERS,
            Self::None => &[],
            Self::One(subject) => {
                let found = Subject::PEERS.iter().position(|peer| *peer == subject);
                found.map_or(&[], |at| &Subject::PEERS[at..=at])
            }
        }
    }
}

/// The name of an engine that this process can use.
pub(super) fn usable(name: &str) -> Result<String, String> {
    queue(name).map(|_| name.to_owned())
}

/// The engine of this name, if this process can use it.
pub(super) fn queue(name: &str) -> Result<Queue, String> {
    Queue::by_name(name)
        .map_err(|error| format!("{error}; the engines are inline, worker, auto, dsa, dsa:QUEUE"))
}

fn engine(name: &str) -> Result<Subject, String> {
    let found = Subject::ENGINES.into_iter().find(|subject| subject.name() == name);
    found.ok_or_else(|| "the engines are inline, worker, auto".to_owned())
}

fn peer(name: &str) -> Result<Against, String> {
    match name {
        "all" => Ok(Against::All),
        "none" => Ok(Against::None),
        name => {
            let found = Subject::PEERS.into_iter().find(|subject| subject.name() == name);
            let known = || "the peers are dma_skeleton, rayon, tokio, thread, all, none".to_owned();
            found.map(Against::One).ok_or_else(known)
        }
    }
}

/// Runs a program with a fake DSA, or shows one until Ctrl-C.
///
/// Runs a program under libhaul_engine_fake.so, which shows it an Intel DSA: the device and its
/// queues below /sys/bus/dsa, and device files below /dev/dsa that open, map and accept real
/// descriptors. Threads in the program execute them on its memory and write real completion
/// records. No root, no driver and no device is needed. Faults, full queues, every status, delays,
/// a removal and a halt are injected on request.
///
/// A line of the settings has a word and its values, separated by spaces or commas: device, queue
/// or inject. The page docs/engine-dsa.md lists them.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haul engine fake -- ./my-dsa-program\n  \
    haul engine fake --queue mode=dedicated,size=8 --device portal=no,batches=no -- ./my-dsa-program\n  \
    haul engine fake --inject at=3,fault=4096,access=write --inject every=10,status=0x20 -- ./my-dsa-program\n  \
    haul engine fake --dir /tmp/dsa   (then start programs with the two variables that it prints)\n\n\
    Exit codes: the program's own, or 128 plus the signal that ended it; 2 for settings that are wrong. \
    Without CMD, 0 after Ctrl-C.")]
pub(crate) struct Fake {
    /// File with lines of settings; the options below are added to it
    #[arg(long, value_name = "FILE")]
    pub(crate) settings: Option<PathBuf>,
    /// The device: engines=N, batches=, portal=, sva= and strict=yes|no
    #[arg(long, value_name = "WORDS")]
    pub(crate) device: Option<String>,
    /// A queue: mode=shared|dedicated, size=N, transfer=BYTES, batch=N, enabled=, block=yes|no,
    /// type=user|kernel; several may be given [default: one of each mode, with 16 descriptors]
    #[arg(long, value_name = "WORDS")]
    pub(crate) queue: Vec<String>,
    /// Something that goes wrong: at=N, every=N or from=N,to=N, and one of fault=BYTE (with
    /// access=read|write), status=BYTE (with bytes=N), delay_us=N, full, remove, halt, wedge;
    /// several may be given
    #[arg(long, value_name = "WORDS")]
    pub(crate) inject: Vec<String>,
    /// Folder for the fake's files; it must not exist [default: a temporary folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    pub(crate) program: Vec<OsString>,
}
