//! The command line of `haul channel`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use haul::channel::Mechanism;
use haul_experiments::channel::protocol::Side;
use haul_experiments::channel::{Peer, Target};
use haul_model::{Bytes, Sizes};

use super::number::number;
use super::time::budget;
use super::users::Allowed;
use crate::flow::Show;
use crate::summary::Printing;

#[derive(Debug, Subcommand)]
pub(crate) enum Channel {
    /// The mechanisms, what each needs, and whether it works here
    List(List),
    /// Transfers side by side with pipes, sockets, UCX, MPI and iceoryx2
    Bench(Bench),
    /// Which mechanism a message would go by, and why
    Explain(Explain),
    /// One end of a transfer for `haul channel bench`, which starts it
    #[command(hide = true)]
    Drive(Drive),
    /// Sends a file, or standard input, to a process that receives
    Send(Send),
    /// Receives what another process sends, as a file or on standard output
    Recv(Recv),
}

/// The mechanisms by which bytes get to another process, what each needs, and whether this machine
/// allows it. A peer may still refuse: that is tried as two ends meet.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haul channel list")]
pub(crate) struct List {
    /// Print the machine, with the mechanisms as facts, as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Sends a file, or standard input, to `haul channel recv`, which must have been started by the
/// same user or by root. Ends well only when the receiver has everything and says so.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haul channel send image.raw --to ~/haul.socket\n  \
    producer | haul channel send --to ~/haul.socket --wait")]
pub(crate) struct Send {
    /// The file; - is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    pub(crate) file: PathBuf,
    /// The socket that the receiver made
    #[arg(long, value_name = "SOCKET")]
    pub(crate) to: PathBuf,
    /// The mechanism [default: the best for this peer]
    #[arg(long, value_name = "NAME")]
    pub(crate) mechanism: Option<Mechanism>,
    /// The receiver is one's own: with --trust at both ends it may read this process's memory
    #[arg(long)]
    pub(crate) trust: bool,
    /// Another user whose process may receive, by name or number, or any; may be given several
    /// times
    #[arg(long, value_name = "USER", value_parser = Allowed::parse)]
    pub(crate) allow_user: Vec<Allowed>,
    /// Longest that the receiver may take for one megabyte, unless it says that its output waits
    #[arg(long, value_name = "TIME", value_parser = budget, default_value = "60s")]
    pub(crate) deadline: Duration,
    /// Wait for a receiver where there is none yet: for so long, such as 30s, or without end
    #[arg(
        long,
        value_name = "TIME",
        value_parser = budget,
        num_args = 0..=1,
        require_equals = true
    )]
    pub(crate) wait: Option<Option<Duration>>,
    /// How much standard input holds, for the time left
    #[arg(long, value_name = "BYTES")]
    pub(crate) size: Option<Bytes>,
    /// Show how much was sent, how fast, and the time left: auto, on a terminal; always, without a
    /// terminal a line every second; or never
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(crate) progress: Show,
    /// Print its time and cost as records, one a line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Connects to a receiver (`haul channel recv`, or a program's own) as `haul channel send` would,
/// says by which mechanism messages of these sizes would go and why, and what keeps them from each
/// other one, and leaves again; `haul channel recv` goes on waiting.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haul channel explain --sizes 1MiB --to ~/haul.socket\n  \
    haul channel explain --sizes 64,64KiB,1GiB --to ~/haul.socket --trust")]
pub(crate) struct Explain {
    /// The messages' sizes: a list such as 64,4KiB, or FIRST..LAST for the powers of two
    #[arg(long, alias = "size", value_name = "SIZES", default_value = "64,64KiB,1MiB")]
    pub(crate) sizes: Sizes,
    /// The socket that the receiver made
    #[arg(long, value_name = "SOCKET")]
    pub(crate) to: PathBuf,
    /// The receiver is one's own: with --trust at both ends it may read this process's memory
    #[arg(long)]
    pub(crate) trust: bool,
    /// Another user whose process may receive, by name or number, or any; may be given several
    /// times
    #[arg(long, value_name = "USER", value_parser = Allowed::parse)]
    pub(crate) allow_user: Vec<Allowed>,
    /// Print each size as a record, one a line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Makes a socket for this user alone, receives what one `haul channel send` of the same user, or
/// of root, sends, and ends. A file appears under its name only when it is whole.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haul channel recv ~/haul.socket --out image.raw\n  \
    haul channel recv ~/haul.socket | consumer")]
pub(crate) struct Recv {
    /// The socket to make; it goes when this ends
    #[arg(value_name = "SOCKET")]
    pub(crate) socket: PathBuf,
    /// The file to write [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// The sender is one's own: with --trust at both ends its memory may be read
    #[arg(long)]
    pub(crate) trust: bool,
    /// Another user whose process may send, by name or number, or any; may be given several times.
    /// Everybody may then connect to the socket who reaches its folder, and all others are turned
    /// away
    #[arg(long, value_name = "USER", value_parser = Allowed::parse)]
    pub(crate) allow_user: Vec<Allowed>,
    /// Longest that the sender may take for one megabyte once it began with it
    #[arg(long, value_name = "TIME", value_parser = budget, default_value = "60s")]
    pub(crate) deadline: Duration,
    /// How much is to come, for the time left
    #[arg(long, value_name = "BYTES")]
    pub(crate) size: Option<Bytes>,
    /// Show how much was received, how fast, and the time left: auto, on a terminal; always,
    /// without a terminal a line every second; or never
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(crate) progress: Show,
    /// Print its time and cost as records, one a line of JSON; only with --out
    #[arg(long, requires = "out")]
    pub(crate) json: bool,
}

/// Measures haul's mechanisms between two processes, A and B, side by side with pipes, Unix
/// sockets, UCX, MPI, iceoryx2 and the two of the 2014 memcpy against vmsplice experiment, all
/// interleaved in one run, the first of them against itself as the noise floor. B ends with a
/// private copy in its own memory and verifies every byte of every run; time is from A's start to
/// the end of the last, and processor time is that of both sides. A peer that is not installed is
/// named, with the package that has it, and left out.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haul channel bench --sizes 256MiB --against ucx,mpi,pipe\n  \
    haul channel bench --sizes 64..64KiB --mechanism auto,inline,ring --json > small.jsonl\n  \
    haul channel bench --experiment-2014\n\n\
    Others: ucx, mpi, iceoryx2, pipe, unix, 2014 (the 2014 memcpy against vmsplice experiment: \
    shared memory of the whole size with two copies, and vmsplice both ways), memcpy (one warm \
    copy within B: what no copy can be faster than).")]
pub(crate) struct Bench {
    /// The messages' sizes: a list such as 64,4KiB, or FIRST..LAST for the powers of two
    #[arg(
        long,
        value_name = "SIZES",
        default_value = "64,4KiB,64KiB,1MiB,16MiB,256MiB",
        alias = "size",
        conflicts_with = "experiment_2014"
    )]
    pub(crate) sizes: Sizes,
    /// B's memory: warm (used before) or cold (new, so that its page faults count); both may be
    /// given
    #[arg(long, value_name = "TARGET", default_value = "warm", value_delimiter = ',')]
    pub(crate) target: Vec<Target>,
    /// haul's mechanisms: all, auto (haul's choice; all has it with a checksum too) or a name;
    /// several may be given
    #[arg(long, value_name = "NAME", default_value = "all", value_delimiter = ',')]
    pub(crate) mechanism: Vec<Asked>,
    /// The others: ucx, mpi, iceoryx2, pipe, unix, 2014, memcpy
    #[arg(
        long,
        value_name = "OTHERS",
        default_value = "ucx,mpi,iceoryx2,pipe,unix,2014,memcpy",
        value_delimiter = ','
    )]
    pub(crate) against: Vec<Peer>,
    /// Processors of the two that another program keeps busy: 0 or 1; both may be given
    #[arg(
        long,
        value_name = "N",
        default_value = "0",
        value_delimiter = ',',
        value_parser = number::<u8, 0, 1>
    )]
    pub(crate) busy_core: Vec<u8>,
    /// The 2014 memcpy against vmsplice experiment beside haul, at its size: shared memory with two
    /// copies, vmsplice at both ends at 4096 B a call, and its mymemcpy beside memcpy within one
    /// process
    #[arg(long = "experiment-2014")]
    pub(crate) experiment_2014: bool,
    /// Time for the rounds of everything together [default: 3s for each measurement]; what else it
    /// takes is printed before it begins
    #[arg(long, value_name = "TIME", value_parser = budget)]
    pub(crate) budget: Option<Duration>,
    /// How often a size is measured at most until the hypervisor takes no more than 5% of the
    /// processors' time meanwhile, and other programs no more than a quarter of a processor; the
    /// last try counts
    #[arg(long, value_name = "N", default_value = "1", value_parser = number::<u32, 1, 100>)]
    pub(crate) tries: u32,
    #[command(flatten)]
    pub(crate) printing: Printing,
    /// Print each record as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `--mechanism` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// haul's choice, and every mechanism that works here.
    All,
    /// haul's choice.
    Auto,
    /// This one.
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

/// One end of a transfer, as the run that listens at a socket says.
#[derive(Debug, Args)]
pub(crate) struct Drive {
    /// The run's socket
    pub(crate) control: PathBuf,
    /// A or B
    pub(crate) side: Side,
}
