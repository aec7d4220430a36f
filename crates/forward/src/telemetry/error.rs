//! What can go wrong with telemetry: a program's, and this process's own.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use haul_peer::error::Error as PeerError;
use haul_peer::in_the_way;
use haul_peer::users::refusal;

/// Why a program could not be asked. Each says what was tried, what came of it, and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody listens there, or not for us.
    #[error("cannot connect to {}: {reason}; {}", path.display(), remedy_of(reason))]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        reason: io::Error,
    },
    /// The program at the other end is of a user that may not be there. It was not asked.
    #[error(
        "cannot ask {}: {}",
        path.display(),
        refusal(*process, *user, *is_unknown, allowed, "Users")
    )]
    OtherUser {
        /// The socket.
        path: PathBuf,
        /// Its process; `None` where it lives in a PID namespace that this one cannot see.
        process: Option<i32>,
        /// Its user.
        user: u32,
        /// Whether that number stands for all users that have none in this user namespace.
        is_unknown: bool,
        /// Users that may be there.
        allowed: Vec<u32>,
    },
    /// The system refused something else.
    #[error("cannot {attempt} {}: {reason}; try again", path.display())]
    System {
        /// What was tried.
        attempt: &'static str,
        /// The socket.
        path: PathBuf,
        /// What the system said.
        reason: io::Error,
    },
    /// What came first is no greeting of DPDK.
    #[error(
        "{} is no telemetry of DPDK: {problem} (it said {said:?}); name a socket called \
         dpdk_telemetry.v2",
        path.display()
    )]
    NotTelemetry {
        /// The socket.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
        /// The beginning of what it said.
        said: String,
    },
    /// Nothing came in time.
    #[error(
        "{} does not {} within {waited:?}; look whether the program is stopped, or allow more time",
        path.display(),
        heard("greet", "answer", command)
    )]
    Silent {
        /// The socket.
        path: PathBuf,
        /// What was asked; empty for the greeting.
        command: String,
        /// How long it was waited for.
        waited: Duration,
    },
    /// The other end closed.
    #[error(
        "{} closed the connection before it {}: the program has ended, or it serves as many \
         clients as it takes (10); look whether it runs, and try again",
        path.display(),
        heard("greeted", "answered", command)
    )]
    Ended {
        /// The socket.
        path: PathBuf,
        /// What was asked; empty for the greeting.
        command: String,
    },
    /// An answer longer than is taken.
    #[error(
        "{} {} with {size_bytes} B, and the limit is {limit_bytes} B; DPDK's own answers are at \
         most 16 KiB, so this is another program: name another socket",
        path.display(),
        heard("greets", "answers", command)
    )]
    TooLong {
        /// The socket.
        path: PathBuf,
        /// What was asked; empty for the greeting.
        command: String,
        /// How long it is.
        size_bytes: usize,
        /// How long it may be.
        limit_bytes: usize,
    },
    /// What came is no answer to what was asked.
    #[error(
        "{} answers {command:?} with what is no answer: {problem} (it said {said:?}); connect anew",
        path.display()
    )]
    NotAnAnswer {
        /// The socket.
        path: PathBuf,
        /// What was asked.
        command: String,
        /// What is wrong with it.
        problem: String,
        /// The beginning of what it said.
        said: String,
    },
    /// The program does not know the command, or cannot do it.
    #[error(
        "{} has no answer to {command:?}: this program or its version does not know the command, \
         or what it names is not there",
        path.display()
    )]
    Refused {
        /// The socket.
        path: PathBuf,
        /// What was asked.
        command: String,
    },
    /// A command that cannot be sent.
    #[error("{command:?} is no command of telemetry: it begins with / and has less than 1024 B")]
    Command {
        /// What was given.
        command: String,
    },
    /// An earlier answer did not come, so that the next one would be mistaken for another's.
    #[error("{} is not asked any more: {earlier}", path.display())]
    OutOfStep {
        /// The socket.
        path: PathBuf,
        /// What failed, with its remedy.
        earlier: String,
    },
    /// No program is there.
    #[error(
        "no DPDK program with telemetry is found{} (looked in {looked}{}); start one without \
         --no-telemetry as a primary process, run haul as its user or as root, or name its socket \
         with --socket",
        wanted.as_ref().map_or(String::new(), |wanted| format!(" {wanted}")),
        left_alone(others).map_or(String::new(), |left| format!("; {left}"))
    )]
    NotFound {
        /// What it was to be: `with process 4711`.
        wanted: Option<String>,
        /// The folders.
        looked: String,
        /// The users of sockets that were left alone, one for each socket.
        others: Vec<u32>,
    },
    /// More than one is there.
    #[error("{} programs are found: {listed}; name one with --pid, --file-prefix or --socket", *count)]
    Several {
        /// How many.
        count: usize,
        /// Each with its process.
        listed: String,
    },
    /// This process cannot be asked there.
    #[error(
        "cannot answer at {}: {reason}; {}, or go without (--no-telemetry)",
        path.display(),
        in_the_way::remedy(reason).unwrap_or("name a socket in a folder that is yours")
    )]
    Serve {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        reason: io::Error,
    },
}

/// How many sockets were left alone because other users' processes are behind them; `None` where
/// none was.
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
        "{sockets} of {of} {} left alone, which --allow-user {first} would ask",
        names.join(", ")
    ))
}

/// What the system said.
pub(super) fn io_of(error: PeerError) -> io::Error {
    match error {
        PeerError::Socket { reason, .. } | PeerError::System { reason, .. } => reason,
        other => io::Error::other(format!("{other:?}")),
    }
}

/// What a program does as somebody connects to it, or to a command.
fn heard(greeting: &str, answer: &str, command: &str) -> String {
    if command.is_empty() { greeting.to_owned() } else { format!("{answer} {command:?}") }
}

fn remedy_of(reason: &io::Error) -> &'static str {
    match reason.kind() {
        io::ErrorKind::NotFound => {
            "start the program without --no-telemetry, as a primary process, or name its socket"
        }
        io::ErrorKind::ConnectionRefused => {
            "the program that made it has ended, so start it again, or name another socket"
        }
        io::ErrorKind::PermissionDenied => "run haul as the program's user, or as root",
        io::ErrorKind::WouldBlock => {
            "too many clients wait to be served, so close some, or look whether it is stopped"
        }
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidFilename => {
            "name a shorter path, 107 B at most"
        }
        _ => "name a Unix socket of packets, called dpdk_telemetry.v2",
    }
}
