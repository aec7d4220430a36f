//! The command line of `haul channel`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use haul::channel::Mechanism;
use haul_experiments::channel::protocol::Side;
use haul_experiments::channel::{Peer, Target};
use haul_model::{Bytes, Sizes};

use super::engine::usable;
use super::number::number;
use super::time::budget;
use super::users::Allowed;
use crate::flow::Show;
use crate::summary::Printing;

#[derive(Debug, Subcommand)]
pub(crate) enum Channel {
    List(List),
    Bench(Bench),
    Explain(Explain),
    /// One end of a transfer; `haul channel bench` starts it
    #[command(hide = true)]
    Drive(Drive),
    Send(Send),
    Recv(Recv),
}

/// The mechanisms, their requirements, and whether they work here.
///
/// Lists the mechanisms that carry bytes to another process, their requirements, and whether this
/// machine allows them. A peer may still refuse a mechanism: the two ends find out when they
/// connect.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haul channel list")]
pub(crate) struct List {
    /// Print the machine, with the mechanisms as facts, as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Sends a file or standard input to a receiving process.
///
/// Sends a file or standard input to `haul channel recv`, which the same user or root must have
/// started. Exits with 0 only after the receiver has confirmed that it has every byte.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haul channel send image.raw --to ~/haul.socket\n  \
    producer | haul channel send --to ~/haul.socket --wait")]
pub(crate) struct Send {
    /// The file; - is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    pub(crate) file: PathBuf,
    /// The receiver's socket
    #[arg(long, value_name = "SOCKET")]
    pub(crate) to: PathBuf,
    /// The mechanism [default: the best for this peer]
    #[arg(long, value_name = "NAME")]
    pub(crate) mechanism: Option<Mechanism>,
    /// The receiver is your own process: with --trust at both ends it may read this process's
    /// memory
    #[arg(long)]
    pub(crate) trust: bool,
    /// Another user whose process may receive: a name, a number, or any; may be given several times
    #[arg(long, value_name = "USER", value_parser = Allowed::parse)]
    pub(crate) allow_user: Vec<Allowed>,
    /// Longest time that the receiver may need for one megabyte, unless it reports that its
    /// output is blocked
    #[arg(long, value_name = "TIME", value_parser = budget, default_value = "60s")]
    pub(crate) deadline: Duration,
    /// Wait for a receiver if there is none yet: for the given time, such as 30s, or without a
    /// limit
    #[arg(
        long,
        value_name = "TIME",
        value_parser = budget,
        num_args = 0..=1,
        require_equals = true
    )]
    pub(crate) wait: Option<Option<Duration>>,
    /// Size of standard input, to estimate the time left
    #[arg(long, value_name = "BYTES")]
    pub(crate) size: Option<Bytes>,
    /// Show how much was sent, how fast, and the time left. auto shows it on a terminal; always
    /// prints a line every second without a terminal; never shows nothing
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(crate) progress: Show,
    /// Print the transfer's time and cost as records, one per line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Shows which mechanism would carry a message, and why.
///
/// Connects to a receiver (`haul channel recv`, or a program) as `haul channel send` would. Shows
/// for each size which mechanism would carry a message and why, and what excludes each other
/// mechanism. Then disconnects; `haul channel recv` goes on waiting.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haul channel explain --sizes 1MiB --to ~/haul.socket\n  \
    haul channel explain --sizes 64,64KiB,1GiB --to ~/haul.socket --trust")]
pub(crate) struct Explain {
    /// Sizes of the messages: a list such as 64,4KiB, or a range FIRST..LAST[:STEP]
    #[arg(long, value_name = "SIZES", default_value = "64,64KiB,1MiB")]
    pub(crate) sizes: Sizes,
    /// The receiver's socket
    #[arg(long, value_name = "SOCKET")]
    pub(crate) to: PathBuf,
    /// The receiver is your own process: with --trust at both ends it may read this process's
    /// memory
    #[arg(long)]
    pub(crate) trust: bool,
    /// Another user whose process may receive: a name, a number, or any; may be given several times
    #[arg(long, value_name = "USER", value_parser = Allowed::parse)]
    pub(crate) allow_user: Vec<Allowed>,
    /// Print each size as a record, one per line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Receives into a file or to standard output.
///
/// Makes a socket for this user alone, receives what one `haul channel send` of the same user or of
/// root sends, and exits. A file appears under its name only when it is complete.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haul channel recv ~/haul.socket --out-file image.raw\n  \
    haul channel recv ~/haul.socket | consumer")]
pub(crate) struct Recv {
    /// The socket to make; it is removed at exit
    #[arg(value_name = "SOCKET")]
    pub(crate) socket: PathBuf,
    /// The file to write [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub(crate) out_file: Option<PathBuf>,
    /// The sender is your own process: with --trust at both ends this process may read its memory
    #[arg(long)]
    pub(crate) trust: bool,
    /// Another user whose process may send: a name, a number, or any; may be given several times.
    /// Opens the socket to everyone who can reach its folder; users not named here are refused
    #[arg(long, value_name = "USER", value_parser = Allowed::parse)]
    pub(crate) allow_user: Vec<Allowed>,
    /// Longest time that the sender may need for one megabyte that it has begun
    #[arg(long, value_name = "TIME", value_parser = budget, default_value = "60s")]
    pub(crate) deadline: Duration,
    /// Size of the expected data, to estimate the time left
    #[arg(long, value_name = "BYTES")]
    pub(crate) size: Option<Bytes>,
    /// Show how much was received, how fast, and the time left. auto shows it on a terminal; always
    /// prints a line every second without a terminal; never shows nothing
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(crate) progress: Show,
    /// Print the transfer's time and cost as records, one per line of JSON; only with
    /// --out-file
    #[arg(long, requires = "out_file")]
    pub(crate) json: bool,
}

/// Measures transfers side by side with pipes, sockets, UCX, MPI and iceoryx2.
///
/// Measures haul's mechanisms between two processes, A and B, side by side with pipes, Unix
/// sockets, UCX, MPI, iceoryx2 and the two mechanisms of the 2014 memcpy against vmsplice
/// experiment. All subjects are interleaved in one run; the first subject is also measured
/// against itself, as the noise floor.
///
/// B ends with a private copy in its own memory and verifies every byte of every run. Time is from
/// A's start to the arrival of the last byte; processor time counts both sides. A peer that is
/// not installed is left out; a note names it and its package.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haul channel bench --sizes 256MiB --against ucx,mpi,pipe\n  \
    haul channel bench --sizes 64..64KiB --mechanism auto,inline,ring --json > small.jsonl\n  \
    haul channel bench --sizes 1MiB,64MiB --mechanism ring,lease --engine worker,auto\n  \
    haul channel bench --experiment-2014\n\n\
    Peers: ucx, mpi, iceoryx2, pipe, unix, 2014 (the 2014 memcpy against vmsplice experiment: \
    shared memory of the whole size with two copies, and vmsplice at both ends), memcpy (one warm \
    copy within B, the bound for every mechanism that copies).")]
pub(crate) struct Bench {
    /// Sizes of the messages: a list such as 64,4KiB, or a range FIRST..LAST[:STEP]
    #[arg(
        long,
        value_name = "SIZES",
        default_value = "64,4KiB,64KiB,1MiB,16MiB,256MiB",
        conflicts_with = "experiment_2014"
    )]
    pub(crate) sizes: Sizes,
    /// B's memory: warm (used before) or cold (new, so that its page faults count); both may be
    /// given
    #[arg(long, value_name = "TARGET", default_value = "warm", value_delimiter = ',')]
    pub(crate) target: Vec<Target>,
    /// haul's mechanisms: all, auto (haul's choice) or a name; several may be given. all measures
    /// haul's choice also with a checksum
    #[arg(long, value_name = "NAME", default_value = "all", value_delimiter = ',')]
    pub(crate) mechanism: Vec<Asked>,
    /// Measure haul's choice, ring and lease also with these engines, which copy for both ends:
    /// inline, worker, auto, dsa, or a queue such as dsa:wq0.1; several may be given
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = usable)]
    pub(crate) engine: Vec<String>,
    /// The peers: ucx, mpi, iceoryx2, pipe, unix, 2014, memcpy
    #[arg(
        long,
        value_name = "PEERS",
        default_value = "ucx,mpi,iceoryx2,pipe,unix,2014,memcpy",
        value_delimiter = ','
    )]
    pub(crate) against: Vec<Peer>,
    /// How many of the two processors another program keeps busy: 0 or 1; both may be given
    #[arg(
        long,
        value_name = "N",
        default_value = "0",
        value_delimiter = ',',
        value_parser = number::<u8, 0, 1>
    )]
    pub(crate) busy_core: Vec<u8>,
    /// Measure the 2014 memcpy against vmsplice experiment side by side with haul, at its size:
    /// shared memory with two copies, vmsplice at both ends with 4096 B per call, and its
    /// mymemcpy side by side with memcpy within one process
    #[arg(long = "experiment-2014")]
    pub(crate) experiment_2014: bool,
    /// Time for the rounds of everything together [default: 3s for each measurement]; the expected
    /// setup time is printed first
    #[arg(long, value_name = "TIME", value_parser = budget)]
    pub(crate) budget: Option<Duration>,
    /// Measure a size again, at most this often, until the hypervisor takes at most 5% of the
    /// processors' time and other programs at most a quarter of a processor; the last try counts
    #[arg(long, value_name = "N", default_value = "1", value_parser = number::<u32, 1, 100>)]
    pub(crate) tries: u32,
    #[command(flatten)]
    pub(crate) printing: Printing,
    /// Print each record as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The value of `--mechanism`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// haul's choice, and every mechanism that works here.
    All,
    /// haul's choice.
    Auto,
    /// One mechanism.
    One(Mechanism),
}

impl std::str::FromStr for Asked {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Self::All),
            "auto" => Ok(Self::Auto),
            name => name.parse().map(Self::One).map_err(|error| format!("{error}, auto, all")),
        }
    }
}

/// One end of a transfer; the run that listens at a socket sends its instructions.
#[derive(Debug, Args)]
pub(crate) struct Drive {
    /// The run's socket
    pub(crate) control: PathBuf,
    /// A or B
    pub(crate) side: Side,
}
