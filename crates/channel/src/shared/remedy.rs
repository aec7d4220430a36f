//! The texts of an [`Error`]. Each text ends with the remedy.

use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

use haul_model::Bytes;
use haul_peer::in_the_way;
use haul_peer::users::refusal;
use rustix::process::Resource;

use super::error::Error;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket { attempt, path, reason } => write!(
                f,
                "cannot {attempt} the socket {}: {reason}; {}",
                shown(path),
                remedy_of_socket(attempt, path, reason)
            ),
            Self::System { attempt, reason } => {
                write!(f, "cannot {attempt}: {reason}; {}", remedy_of_system(reason))
            }
            Self::Handshake { what, found, expected } => write!(
                f,
                "the peer's {what} is {found}; expected {expected}; use the same version of haul at both ends"
            ),
            Self::OtherUser { attempt, process, user, is_unknown, allowed } => write!(
                f,
                "cannot {attempt}: {}",
                refusal(*process, *user, *is_unknown, allowed, "Settings::users")
            ),
            Self::Memory { found, expected } => write!(
                f,
                "the peer handed over {found}; expected {expected}; haul refused it: do not trust this peer"
            ),
            Self::Protocol { what, value, limit } => write!(
                f,
                "the peer sent {what} {value}; expected {limit}; the channel is closed: do not trust \
                 this peer"
            ),
            Self::Unclosed { held, limit } => f.write_str(&unclosed(*held, *limit)),
            Self::PeerGone { attempt, done, size } => {
                write!(f, "cannot {attempt}: the peer left {}", went(attempt, *done, *size))
            }
            Self::Closed => write!(
                f,
                "the peer closed the channel and sends no more messages; connect again to receive more"
            ),
            Self::Deadline { attempt, done, size, waited, limit } => {
                write!(f, "cannot {attempt}: the peer {}", stopped(*done, *size, *waited, *limit))
            }
            Self::TooSmall { needed, has } => write!(
                f,
                "a message of {needed} does not fit into a target of {has}; pass a larger one, or call recv()"
            ),
            Self::TooLong { size, limit } => write!(
                f,
                "a message of {size} is over the limit of {limit}; send it in parts, or raise size_max at both ends"
            ),
            Self::Unavailable { mechanism, reason } => write!(
                f,
                "{mechanism} is not available with this peer: {reason}; leave the choice to haul"
            ),
            Self::Damaged { size, found, expected } => {
                f.write_str(&damaged(*size, *found, *expected))
            }
            Self::GivenUp { done, size } => {
                write!(f, "the sender gave up the transfer after {done} of {size}; connect again")
            }
            Self::TakenOver { by } => f.write_str(&taken_over(by)),
            Self::Broken => write!(f, "an earlier transfer on this channel failed; connect again"),
        }
    }
}

impl std::error::Error for Error {}

fn unclosed(held: usize, limit: usize) -> String {
    format!(
        "cannot begin a channel: {held} descriptors that peers handed over are still being closed, \
         and the limit is {limit}; end the peers that delay this, or this process"
    )
}

fn stopped(done: Bytes, size: Bytes, waited: Duration, limit: Duration) -> String {
    format!(
        "made no progress at {done} of {size} for {waited:?}, and the limit is {limit:?}; check \
         whether it is stopped or its machine is busy, or allow more time (the deadline of the \
         settings, --deadline of `haul channel`)"
    )
}

fn damaged(size: Bytes, found: u64, expected: u64) -> String {
    format!(
        "a message of {size} changed in transit: its checksum is {found:016x}, not \
         {expected:016x}; connect again and send it again, and test this machine's memory"
    )
}

fn taken_over(by: &str) -> String {
    format!(
        "this process cannot use its copy of the channel: {by} has used the channel since the fork, \
         or is within a message; use it in one process, and connect again in the others"
    )
}

/// Says how far the attempt had come, and names the remedy.
fn went(attempt: &str, done: Bytes, size: Bytes) -> String {
    match attempt {
        "connect" => {
            "before the handshake was complete: it may not allow this user, which it would report \
             itself; read its message, and connect again"
                .into()
        }
        _ => format!(
            "after {done} of {size}; no part of the message counts: connect again and send it again"
        ),
    }
}

/// A path as a message shows it: quotes make an empty path visible.
fn shown(path: &Path) -> String {
    if path.as_os_str().is_empty() { "\"\"".into() } else { path.display().to_string() }
}

fn remedy_of_socket(attempt: &str, path: &Path, reason: &io::Error) -> &'static str {
    if let Some(remedy) = in_the_way::remedy(reason) {
        return remedy;
    }
    match reason.kind() {
        io::ErrorKind::InvalidInput if path.as_os_str().is_empty() => "name a path",
        io::ErrorKind::NotFound if attempt != "connect to" => {
            "make the folder of the socket, or name another socket"
        }
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            "start the receiver first: haul channel recv SOCKET"
        }
        io::ErrorKind::AddrInUse => "another process has it: name another path",
        io::ErrorKind::PermissionDenied => "name a socket that you may use",
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidFilename => {
            "name a shorter path, 107 B at most"
        }
        _ => "name another socket",
    }
}

fn remedy_of_system(reason: &io::Error) -> String {
    match reason.kind() {
        io::ErrorKind::OutOfMemory | io::ErrorKind::StorageFull => {
            format!("free memory, raise the limit ({}), or send in parts", limits_of_memory())
        }
        io::ErrorKind::FileTooLarge => "raise the limit (ulimit -f), or send in parts".into(),
        // The error of mmap(2) if the memory cannot be locked when it is mapped.
        io::ErrorKind::WouldBlock => {
            "raise the limit of locked memory (ulimit -l), or lock less (mlockall)".into()
        }
        io::ErrorKind::PermissionDenied => "allow it in the container's seccomp profile".into(),
        _ if reason.raw_os_error() == Some(libc::EMFILE) => "raise the limit: ulimit -n".into(),
        _ => "see `haul channel list` for what works here".into(),
    }
}

/// The limits on memory that apply to this process, including the container's.
fn limits_of_memory() -> String {
    let all = [(Resource::As, 'v'), (Resource::Data, 'd')];
    let in_force = all.into_iter().filter_map(|(resource, letter)| {
        let bytes = rustix::process::getrlimit(resource).current?;
        Some(format!("ulimit -{letter}, which is {}", Bytes(bytes)))
    });
    let all: Vec<String> = in_force.chain(["the container's".into()]).collect();
    all.join(", ")
}
