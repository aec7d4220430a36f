//! The command line of `haul channel`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use haul::channel::Mechanism;

use super::seconds;

#[derive(Debug, Subcommand)]
pub(crate) enum Channel {
    /// The mechanisms, what each needs, and whether it works here
    List(List),
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

/// Sends a file, or standard input, to `haul channel recv`, which must have been started. Ends
/// well only when the receiver has everything and says so.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haul channel send image.raw --to /tmp/haul.socket\n  \
    producer | haul channel send --to /tmp/haul.socket")]
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
    /// Longest that the receiver may take for one megabyte once it began with it
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "60")]
    pub(crate) deadline: Duration,
    /// Print what it took as records, one a line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Makes a socket for this user alone, receives what one `haul channel send` sends, and ends. A file
/// appears under its name only when it is whole.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haul channel recv /tmp/haul.socket --out image.raw\n  \
    haul channel recv /tmp/haul.socket | consumer")]
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
    /// Longest that the sender may take for one megabyte once it began with it
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "60")]
    pub(crate) deadline: Duration,
    /// Print what it took as records, one a line of JSON; only with --out
    #[arg(long, requires = "out")]
    pub(crate) json: bool,
}
