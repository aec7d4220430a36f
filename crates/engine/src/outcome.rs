//! How an operation ends, and the errors of this crate.

use std::fmt;
use std::sync::Arc;

/// How an operation ended. Afterwards, the engine accesses none of its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// All of it is done.
    Done(Value),
    /// A page could not be accessed. Exactly the first `bytes_done` bytes are done.
    Partial {
        /// The bytes that are done, from the beginning.
        bytes_done: usize,
        /// The address that could not be accessed.
        address: usize,
        /// The kind of the access.
        access: Access,
    },
    /// The engine did nothing.
    Refused(Refusal),
    /// The engine disappeared. Some of the target's bytes may be done, in any order.
    Gone,
}

/// What an operation computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value {
    /// The operation only wrote.
    Written,
    /// The CRC-32C of the bytes.
    Crc32c(u32),
    /// The index of the first byte that differs; `None` if all bytes are equal.
    Difference(Option<usize>),
}

/// The kind of an access that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The engine read a source.
    Read,
    /// The engine wrote a target.
    Write,
}

/// Why an engine did not start an operation, or did none of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// As many operations are pending as fit.
    Full,
    /// The engine has no such operation.
    Unsupported,
    /// The operation is longer than the engine's limit.
    TooLong,
    /// An address is null, a range wraps around the address space, a range is longer than
    /// [`isize::MAX`], or the lengths do not match.
    BadRange,
    /// The process may not use the engine: `EPERM`, or a filter of system calls.
    Permission,
    /// The engine belongs to the process that opened it, and this is a child of fork.
    Forked,
    /// The device reported this status, which [`Queue::troubles`](crate::Queue::troubles) explains.
    Status(u8),
    /// The engine disappeared before.
    Gone,
    /// No operation has this [`Ticket`](crate::Ticket), or its result was taken.
    NoTicket,
}

impl Refusal {
    /// The cause, and the remedy.
    fn text(self) -> (&'static str, &'static str) {
        match self {
            Self::Full => ("its queue is full", "collect results, or let the CPU copy"),
            Self::Unsupported => ("it has no such operation", "use another engine"),
            Self::TooLong => ("the operation is longer than its limit", "divide the operation"),
            Self::BadRange => (
                "a range is null, wraps around, is too long, or does not match the other range",
                "check addresses and lengths",
            ),
            Self::Permission => ("this process may not use it", "`haul doctor` names the remedy"),
            Self::Forked => ("it belongs to the parent process", "open it again in the child"),
            Self::Status(_) => {
                ("the device reported a status", "`Queue::troubles` names its cause and remedy")
            }
            Self::Gone => ("it disappeared", "`haul doctor` names the remedy"),
            Self::NoTicket => {
                ("no operation has this ticket", "take the result of an operation once")
            }
        }
    }
}

/// An operation that did not end with [`Outcome::Done`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The name of the engine.
    pub engine: Arc<str>,
    /// How the operation ended.
    pub outcome: Outcome,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let engine = &self.engine;
        match self.outcome {
            Outcome::Done(_) => write!(f, "the engine {engine} is done"),
            Outcome::Partial { bytes_done, address, access } => {
                let verb = if access == Access::Read { "read" } else { "write" };
                write!(
                    f,
                    "the engine {engine} could not {verb} address {address:#x} and stopped after \
                     {bytes_done} bytes; map the page, then submit the rest"
                )
            }
            Outcome::Refused(refusal) => {
                let (cause, remedy) = refusal.text();
                write!(f, "the engine {engine} refused an operation: {cause}")?;
                if let Refusal::Status(status) = refusal {
                    write!(f, " ({status:#04x})")?;
                }
                write!(f, "; {remedy}")
            }
            Outcome::Gone => write!(
                f,
                "the engine {engine} disappeared with the operation pending, so some of the target \
                 is written; copy again with the CPU; `haul doctor` names the remedy"
            ),
        }
    }
}

impl std::error::Error for Failed {}

/// A status that a device reported for operations which were neither done nor stopped by a page.
/// See [`Queue::troubles`](crate::Queue::troubles).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The name of the engine.
    pub engine: Arc<str>,
    /// The status.
    pub status: u8,
    /// How often it was reported.
    pub count: u64,
    /// Why the device stopped.
    pub cause: &'static str,
    /// What a person can do about it.
    pub remedy: &'static str,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { engine, status, count, cause, remedy } = self;
        write!(f, "{engine} reported {count} times status {status:#04x}: {cause}; {remedy}")
    }
}

/// Why an engine could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The system refused.
    System {
        /// The attempt: `start the helper thread`.
        attempt: &'static str,
        /// The system's reason.
        reason: std::io::Error,
    },
    /// This machine has no engine of this kind that the process may use.
    Missing {
        /// The engine's name.
        engine: String,
        /// The cause.
        cause: String,
        /// What to do.
        remedy: String,
    },
    /// A setting is outside of its limits.
    Setting {
        /// The setting's name.
        name: &'static str,
        /// Its value.
        value: usize,
        /// The limits.
        limits: &'static str,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System { attempt, reason } => {
                write!(
                    f,
                    "cannot {attempt}: {reason}; raise the limit that it names, or use inline"
                )
            }
            Self::Missing { engine, cause, remedy } => {
                write!(f, "cannot open the engine {engine}: {cause}; {remedy}")
            }
            Self::Setting { name, value, limits } => {
                write!(f, "the setting {name} is {value}; it must be {limits}")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System { reason, .. } => Some(reason),
            Self::Missing { .. } | Self::Setting { .. } => None,
        }
    }
}
