//! The errors of telemetry: errors of other programs, and errors of this process's own socket.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use haul_peer::error::Error as PeerError;
use haul_peer::in_the_way;
use haul_peer::users::refusal;

/// Why a program could not be asked. Each message names the attempt, the failure and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No process listens on the socket, or it refuses this client.
    #[error("cannot connect to {}: {reason}; {}", path.display(), remedy_of(reason))]
    Connect {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        reason: io::Error,
    },
    /// The program at the other end runs as a user that is not allowed. No command was sent.
    #[error(
        "cannot ask {}: {}",
        path.display(),
        refusal(*process, *user, *is_unknown, allowed, "Users")
    )]
    OtherUser {
        /// The socket.
        path: PathBuf,
        /// The program's process ID; `None` if the program is in a PID namespace that this
        /// process cannot see.
        process: Option<i32>,
        /// The user that the program runs as.
        user: u32,
        /// Whether `user` stands for every user that is not mapped into this user namespace.
        is_unknown: bool,
        /// The users that are allowed.
        allowed: Vec<u32>,
    },
    /// The system refused another call.
    #[error("cannot {attempt} {}: {reason}; try again", path.display())]
    System {
        /// What was attempted.
        attempt: &'static str,
        /// The socket.
        path: PathBuf,
        /// The system's error.
        reason: io::Error,
    },
    /// The first packet is not a greeting of DPDK.
    #[error(
        "{} is not a telemetry socket of DPDK: {problem} (it sent {received:?}); name a socket \
         called dpdk_telemetry.v2",
        path.display()
    )]
    NotTelemetry {
        /// The socket.
        path: PathBuf,
        /// The fault of the packet.
        problem: String,
        /// The beginning of the packet.
        received: String,
    },
    /// No packet arrived in time.
    #[error(
        "{} did not {} within {waited:?}; check whether the program is stopped, or allow more time",
        path.display(),
        action("greet", "answer", command)
    )]
    Silent {
        /// The socket.
        path: PathBuf,
        /// The command; empty for the greeting.
        command: String,
        /// How long this client waited.
        waited: Duration,
    },
    /// The other end closed the connection.
    #[error(
        "{} closed the connection before it {}: the program has ended, or it already serves its \
         limit of 10 clients; check whether it runs, and try again",
        path.display(),
        action("greeted", "answered", command)
    )]
    Ended {
        /// The socket.
        path: PathBuf,
        /// The command; empty for the greeting.
        command: String,
    },
    /// The answer is longer than the limit.
    #[error(
        "{} {} with {size_bytes} B, above the limit of {limit_bytes} B; DPDK's own answers have \
         at most 16 KiB, so this is another program: name another socket",
        path.display(),
        action("greets", "answers", command)
    )]
    TooLong {
        /// The socket.
        path: PathBuf,
        /// The command; empty for the greeting.
        command: String,
        /// The length of the answer.
        size_bytes: usize,
        /// The limit.
        limit_bytes: usize,
    },
    /// The packet is not an answer to the command.
    #[error(
        "{} sent an invalid answer to {command:?}: {problem} (it sent {received:?}); reconnect",
        path.display()
    )]
    NotAnAnswer {
        /// The socket.
        path: PathBuf,
        /// The command.
        command: String,
        /// The fault of the packet.
        problem: String,
        /// The beginning of the packet.
        received: String,
    },
    /// The program does not know the command, or cannot execute it.
    #[error(
        "{} refuses {command:?}: this program or its version does not know the command, or the \
         port or queue of its parameters does not exist",
        path.display()
    )]
    Refused {
        /// The socket.
        path: PathBuf,
        /// The command.
        command: String,
    },
    /// The command cannot be sent.
    #[error(
        "{command:?} is not a telemetry command: a command begins with / and has fewer than \
             1024 B"
    )]
    Command {
        /// The given command.
        command: String,
    },
    /// An earlier answer is missing, so that it could be mistaken for the next one.
    #[error("cannot ask {} after an earlier failure: {earlier}", path.display())]
    OutOfStep {
        /// The socket.
        path: PathBuf,
        /// The earlier error, with its remedy.
        earlier: String,
    },
    /// No program was found.
    #[error(
        "no DPDK program with telemetry was found{} (searched {searched}{}); start one without \
         --no-telemetry as a primary process, run haul as its user or as root, or name its socket \
         with --socket",
        wanted.as_ref().map_or(String::new(), |wanted| format!(" {wanted}")),
        left_alone(others).map_or(String::new(), |left| format!("; {left}"))
    )]
    NotFound {
        /// The wanted program: `with process 4711`.
        wanted: Option<String>,
        /// The folders that were searched.
        searched: String,
        /// The users of sockets that were skipped, one for each socket.
        others: Vec<u32>,
    },
    /// More than one program was found.
    #[error(
        "{} programs were found: {listed}; choose one with --pid, --file-prefix or --socket",
        *count
    )]
    Several {
        /// The number of programs.
        count: usize,
        /// Each program with its process ID.
        listed: String,
    },
    /// This process's own telemetry socket cannot be served.
    #[error(
        "cannot serve telemetry at {}: {reason}; {}, or disable it (--no-telemetry)",
        path.display(),
        in_the_way::remedy(reason).unwrap_or("name a socket in a folder that this user owns")
    )]
    Serve {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        reason: io::Error,
    },
}

/// How many sockets were skipped because they belong to other users, for a message; `None` if none
/// were.
pub(super) fn left_alone(others: &[u32]) -> Option<String> {
    let mut users = others.to_vec();
    users.sort_unstable();
    users.dedup();
    let first = users.first()?;
    let names: Vec<String> = users.iter().map(u32::to_string).collect();
    let (sockets, of) = match (others.len(), names.len()) {
        (1, _) => ("1 socket".to_owned(), "user"),
        (count, 1) => (format!("{count} sockets"), "user"),
        (count, _) => (format!("{count} sockets"), "users"),
    };
    Some(format!(
        "{sockets} of {of} {} left alone (--allow-user {first} includes them)",
        names.join(", ")
    ))
}

/// The system's error.
pub(super) fn io_of(error: PeerError) -> io::Error {
    match error {
        PeerError::Socket { reason, .. } | PeerError::System { reason, .. } => reason,
        other => io::Error::other(format!("{other:?}")),
    }
}

/// What a program does for a client: it greets, or answers a command.
fn action(greeting: &str, answer: &str, command: &str) -> String {
    if command.is_empty() { greeting.to_owned() } else { format!("{answer} {command:?}") }
}

fn remedy_of(reason: &io::Error) -> &'static str {
    match reason.kind() {
        io::ErrorKind::NotFound => {
            "start the program without --no-telemetry, as a primary process, or name its socket"
        }
        io::ErrorKind::ConnectionRefused => {
            "the program that created it has ended: start it again, or name another socket"
        }
        io::ErrorKind::PermissionDenied => "run haul as the program's user, or as root",
        io::ErrorKind::WouldBlock => {
            "close some of the waiting clients, or check whether the program is stopped"
        }
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidFilename => {
            "name a shorter path, 107 B at most"
        }
        _ => "name a SOCK_SEQPACKET socket, called dpdk_telemetry.v2",
    }
}
