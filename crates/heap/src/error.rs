//! Why a heap could not be built or attached to: the attempt, the value, the limit and the remedy.

use core::fmt;

use crate::sys::limit::{self, Resource};
use crate::sys::{Errno, machine};

/// The most bytes of a heap's name: a file name must have room for it and haul's prefix.
pub const NAME_BYTES_MAX: usize = 64;

/// The name of a shared heap: 1 to 64 letters, digits, dots, hyphens and underscores. It does not
/// begin with a dot.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name {
    bytes: [u8; NAME_BYTES_MAX],
    length: u8,
}

impl Name {
    /// Checks a name.
    ///
    /// # Errors
    ///
    /// [`Error::BadName`] if the name is empty, too long, begins with a dot, or contains another
    /// character.
    pub fn new(name: &str) -> Result<Self, Error> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let bad = name.bytes().position(|byte| !is_plain(byte));
        let problem = match bad {
            _ if name.is_empty() => NameProblem::Empty,
            _ if name.len() > NAME_BYTES_MAX => NameProblem::TooLong(name.len()),
            _ if name.starts_with('.') => NameProblem::LeadingDot,
            Some(position) => NameProblem::Character { position },
            None => {
                let mut bytes = [0; NAME_BYTES_MAX];
                bytes[..name.len()].copy_from_slice(name.as_bytes());
                return Ok(Self { bytes, length: name.len() as u8 });
            }
        };
        Err(Error::BadName(problem))
    }

    /// The name's text.
    pub fn as_str(&self) -> &str {
        // `new` accepts ASCII only, so this never falls back.
        core::str::from_utf8(&self.bytes[..usize::from(self.length)]).unwrap_or_default()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// What is wrong with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameProblem {
    /// It has no character.
    Empty,
    /// It is too long: it has this many bytes.
    TooLong(usize),
    /// It begins with a dot.
    LeadingDot,
    /// The byte at this position is not allowed.
    Character {
        /// Position in bytes.
        position: usize,
    },
}

/// The operation that the system refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Attempt {
    /// Creating a memory file.
    CreateFile,
    /// Opening the file of a named heap.
    OpenFile,
    /// Opening a heap's second file, which contains the huge pages.
    OpenHugeFile,
    /// Inspecting an open file.
    InspectFile,
    /// Setting the size of the heap's file.
    SizeFile,
    /// Removing a heap's name.
    RemoveName,
    /// Mapping a file or anonymous memory.
    Map,
    /// Getting memory for the first pages of metadata.
    Populate,
    /// Duplicating a descriptor of the heap's file.
    Duplicate,
    /// Installing a SIGBUS handler, which is needed because another process can remove memory
    /// from the heap's file.
    Guard,
}

impl Attempt {
    const fn text(self) -> &'static str {
        match self {
            Self::CreateFile => "create a memory file",
            Self::OpenFile => "open the heap's file",
            Self::OpenHugeFile => "open the heap's file of huge pages",
            Self::InspectFile => "inspect the heap's file",
            Self::SizeFile => "size the heap's file",
            Self::RemoveName => "remove the heap's name",
            Self::Map => "map memory",
            Self::Populate => "populate the first metadata",
            Self::Duplicate => "duplicate the heap's descriptor",
            Self::Guard => "handle SIGBUS for the heap's file",
        }
    }
}

/// A system limit that an operation exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// Bytes of a file (RLIMIT_FSIZE, `ulimit -f`).
    FileSize(u64),
    /// Bytes of addresses (RLIMIT_AS, `ulimit -v`).
    Addresses(u64),
    /// Bytes of private writable memory (RLIMIT_DATA, `ulimit -d`).
    Data(u64),
    /// Bytes of locked memory (RLIMIT_MEMLOCK, `ulimit -l`).
    Locked(u64),
    /// Open files (RLIMIT_NOFILE, `ulimit -n`).
    OpenFiles(u64),
    /// The memory that the machine commits to all processes (`vm.overcommit_memory` is 2).
    Commit,
}

impl Limit {
    /// The limit that an allocation of `bytes` more would exceed, given the system's error;
    /// `None` if no limit explains the error.
    fn behind(bytes: u64, errno: Errno) -> Option<Self> {
        let is_limited = |limit| limit != u64::MAX;
        let of = |resource| Some(limit::of(resource)).filter(|limit| is_limited(*limit));
        match errno {
            Errno::FBIG => of(Resource::Fsize).map(Self::FileSize),
            Errno::MFILE => of(Resource::Nofile).map(Self::OpenFiles),
            Errno::AGAIN => of(Resource::Memlock).map(Self::Locked),
            Errno::NOMEM => {
                let [addresses, data] = machine::used_bytes();
                let is_beyond = |used: u64| move |most: &u64| used.saturating_add(bytes) > *most;
                let by_addresses = of(Resource::As).filter(is_beyond(addresses));
                let by_data = || of(Resource::Data).filter(is_beyond(data)).map(Self::Data);
                let by_commit = || machine::is_commit_strict().then_some(Self::Commit);
                by_addresses.map(Self::Addresses).or_else(by_data).or_else(by_commit)
            }
            _ => None,
        }
    }
}

impl fmt::Display for Limit {
    /// The limit, its value, and how to raise it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, most, option) = match *self {
            Self::FileSize(most) => ("RLIMIT_FSIZE", most, "-f"),
            Self::Addresses(most) => ("RLIMIT_AS", most, "-v"),
            Self::Data(most) => ("RLIMIT_DATA", most, "-d"),
            Self::Locked(most) => ("RLIMIT_MEMLOCK", most, "-l"),
            Self::OpenFiles(most) => {
                return write!(f, "RLIMIT_NOFILE allows {most} open files: raise it (ulimit -n)");
            }
            Self::Commit => {
                return f.write_str(
                    "vm.overcommit_memory is 2, and the machine commits no more memory: raise \
                     vm.overcommit_ratio",
                );
            }
        };
        write!(f, "{name} allows {most} bytes: raise it (ulimit {option})")
    }
}

/// Why a heap could not be built or attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The requested size limit is too small or too large.
    BadLimit {
        /// Bytes asked for.
        bytes: u64,
        /// The least that works.
        least: u64,
        /// The largest allowed value.
        most: u64,
    },
    /// The requested number of NUMA nodes is 0, or more than a heap distinguishes.
    BadNodes {
        /// The requested number.
        nodes: u32,
        /// The largest allowed value.
        most: u32,
    },
    /// The name is not valid.
    BadName(NameProblem),
    /// A heap of this name already exists.
    NameTaken(Name),
    /// No heap has this name.
    NoSuchName(Name),
    /// The system refused the addresses, even for the smallest size that is tried.
    NoAddressSpace {
        /// Bytes requested first.
        bytes: u64,
        /// Bytes requested last.
        least: u64,
        /// The system's error number.
        errno: i32,
        /// The system limit that was exceeded, if it is known.
        limit: Option<Limit>,
    },
    /// The system refused an operation.
    Refused {
        /// The operation.
        attempt: Attempt,
        /// The number of bytes that the operation needs, if that matters; else 0.
        bytes: u64,
        /// The system's error number.
        errno: i32,
        /// The system limit that was exceeded, if it is known.
        limit: Option<Limit>,
    },
    /// The file belongs to another user.
    OtherUser {
        /// The file's owner.
        owner: u32,
        /// The user of this process.
        user: u32,
    },
    /// Users other than its owner may open the file.
    OpenToOthers {
        /// Its permission bits.
        mode: u32,
    },
    /// The file's size is not sealed, so another process can truncate the file. An access to the
    /// missing part would raise a signal.
    NotSealed,
    /// The file does not begin with a heap's header.
    NotAHeap {
        /// The eight bytes found there.
        magic: u64,
    },
    /// The heap was made by another version of haul.
    OtherVersion {
        /// The layout version of the heap.
        found: u32,
        /// The layout version of this program.
        ours: u32,
    },
    /// The file ends before the heap does.
    Truncated {
        /// Its size in bytes.
        bytes: u64,
        /// The size that its header requires, or the size of a header.
        needed: u64,
    },
    /// A field of the header is invalid.
    BadHeader {
        /// Which field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The expected value, or the largest allowed one.
        expected: u64,
    },
    /// The creator of the heap has not finished it, or died before it finished.
    Unfinished,
    /// Live processes hold all process slots.
    TooManyProcesses {
        /// The number of process slots.
        most: u32,
    },
    /// The memory that [`Builder::ready`](crate::Builder::ready) requests is not available.
    NotReady {
        /// Bytes that were requested.
        asked: u64,
        /// Bytes that are ready, on the nodes from the first to the one that lacks memory.
        ready: u64,
    },
    /// The caller's memory is not suitable for a heap.
    BadExternal {
        /// What is wrong with it.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The expected value, or the smallest allowed one.
        expected: u64,
    },
    /// This kind of heap does not support the operation.
    Unsupported {
        /// The operation.
        what: &'static str,
        /// The remedy.
        instead: &'static str,
    },
}

impl Error {
    /// The error of an operation that the system refused.
    pub(crate) fn refused(attempt: Attempt, bytes: u64, errno: Errno) -> Self {
        let limit = Limit::behind(bytes, errno);
        Self::Refused { attempt, bytes, errno: errno.raw_os_error(), limit }
    }

    /// The error if the system refused `needed` bytes of addresses. The builder first tried a
    /// heap of `bytes`, and last one of `least` bytes.
    pub(crate) fn no_addresses(bytes: u64, least: u64, needed: u64, errno: Errno) -> Self {
        let limit = Limit::behind(needed, errno);
        Self::NoAddressSpace { bytes, least, errno: errno.raw_os_error(), limit }
    }
}

impl core::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::BadLimit { bytes, least, most } => write!(
                f,
                "cannot build a heap with a limit of {bytes} bytes: it must be between {least} and \
                 {most}: choose a limit in this range"
            ),
            Self::BadNodes { nodes, most } => write!(
                f,
                "cannot build a heap for {nodes} NUMA nodes: it distinguishes 1 to {most}: set a \
                 number in this range, or none"
            ),
            Self::BadName(problem) => bad_name(problem, f),
            Self::NameTaken(name) => write!(
                f,
                "cannot create the shared heap {name}: the name is taken: attach to it, remove it if \
                 no process uses it, or choose another name"
            ),
            Self::NoSuchName(name) => write!(
                f,
                "cannot attach to the shared heap {name}: no heap has this name: create it first, as \
                 the same user"
            ),
            Self::NotReady { asked, ready } => write!(
                f,
                "cannot make {asked} bytes of a heap ready before the first request: only {ready} are \
                 available: request fewer, raise the heap's limit, or free memory"
            ),
            Self::NoAddressSpace { bytes, least, limit: Some(limit), .. } => write!(
                f,
                "cannot reserve {bytes} bytes of addresses, nor any halving of that down to {least}: \
                 {limit}, or lower the heap's limit"
            ),
            Self::NoAddressSpace { bytes, least, errno, .. } => write!(
                f,
                "cannot reserve {bytes} bytes of addresses, nor any halving of that down to {least}: \
                 error {errno}: raise RLIMIT_AS (ulimit -v) or vm.max_map_count, set \
                 vm.overcommit_memory to 0, or lower the heap's limit"
            ),
            Self::Refused { attempt, bytes, limit: Some(limit), .. } => {
                attempted(attempt, bytes, f)?;
                write!(f, ": {limit}")
            }
            Self::Refused { attempt, bytes, errno, .. } => refusal(attempt, bytes, errno, f),
            Self::TooManyProcesses { most } => write!(
                f,
                "cannot attach to a shared heap: live processes hold all {most} process slots: end \
                 one of them"
            ),
            Self::BadExternal { field, value, expected } => write!(
                f,
                "cannot build a heap in the caller's memory: {field} is {value:#x}, expected {expected:#x}: \
                 correct it"
            ),
            Self::Unsupported { what, instead } => write!(f, "cannot {what}: {instead}"),
            _ => self.fmt_attach(f),
        }
    }
}

impl Error {
    /// Writes the errors of a file that should contain a heap.
    fn fmt_attach(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot attach to a shared heap: ")?;
        match *self {
            Self::OtherUser { owner, user } => write!(
                f,
                "the file belongs to user {owner}, but this process runs as {user}: run both as one \
                 user, or choose another name"
            ),
            Self::OpenToOthers { mode } => write!(
                f,
                "its file has mode {mode:04o}, so users other than its owner may change it; at most \
                 0600 is accepted: remove it and create the heap again"
            ),
            Self::NotSealed => f.write_str(
                "its file has no F_SEAL_SHRINK, so another process can truncate it: pass the \
                 descriptor of a heap that was created without a name, or attach to a named heap \
                 by its name",
            ),
            Self::NotAHeap { magic } => write!(
                f,
                "its file begins with {magic:#018x}, which is not the magic number of a heap: pass \
                 the name or descriptor of a heap"
            ),
            Self::OtherVersion { found, ours } => write!(
                f,
                "its layout has version {found}, but this program needs {ours}: use the same \
                 version of haul in all processes"
            ),
            Self::Truncated { bytes, needed } => write!(
                f,
                "its file has {bytes} bytes, but {needed} are needed: it was truncated; remove it \
                 and create the heap again"
            ),
            Self::BadHeader { field, value, expected } => write!(
                f,
                "{field} in its header is {value:#x}, expected {expected:#x}: it was damaged; \
                 remove it and create the heap again"
            ),
            _ => f.write_str(
                "its creator has not finished within a second: try again, or remove the heap if \
                 its creator died",
            ),
        }
    }
}

fn bad_name(problem: NameProblem, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("cannot name a shared heap: ")?;
    match problem {
        NameProblem::Empty => f.write_str("the name is empty")?,
        NameProblem::TooLong(bytes) => {
            write!(f, "the name has {bytes} bytes, at most {NAME_BYTES_MAX} are allowed")?;
        }
        NameProblem::LeadingDot => f.write_str("the name begins with a dot")?,
        NameProblem::Character { position } => {
            write!(f, "the character at byte {position} is not allowed")?;
        }
    }
    f.write_str(": use letters, digits, dots, hyphens and underscores")
}

fn attempted(attempt: Attempt, bytes: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "cannot {}", attempt.text())?;
    if bytes != 0 {
        write!(f, " of {bytes} bytes")?;
    }
    Ok(())
}

fn refusal(attempt: Attempt, bytes: u64, errno: i32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    attempted(attempt, bytes, f)?;
    let remedy = match Errno::from_raw_os_error(errno) {
        Errno::NOMEM => "free memory, raise RLIMIT_AS or vm.max_map_count, or lower the limit",
        Errno::MFILE | Errno::NFILE => "raise the limit of open files (ulimit -n)",
        Errno::ACCESS | Errno::PERM => "run as the user who owns the heap",
        Errno::NOSPC | Errno::FAULT => "enlarge /dev/shm or free space in it",
        Errno::LOOP => "the name is a symbolic link: remove it",
        Errno::NOENT => "mount a tmpfs at /dev/shm",
        Errno::BADF => "pass an open descriptor of a heap",
        _ => "look the number up in errno(3)",
    };
    write!(f, ": the system returned error {errno}: {remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::prelude::v1::*;

    #[test]
    fn names_are_checked() {
        for good in ["a", "Heap-1.x_y", &"x".repeat(64)] {
            assert_eq!(Name::new(good).unwrap().as_str(), good);
        }
        for bad in ["", ".a", "a/b", "../x", "a b", "ä", "a\0", &"x".repeat(65)] {
            let message = Name::new(bad).unwrap_err().to_string();
            assert!(message.ends_with("dots, hyphens and underscores"), "{message}");
        }
    }

    #[test]
    fn message_names_attempt_value_limit_and_remedy() {
        let message = Error::Truncated { bytes: 4096, needed: 8192 }.to_string();
        for part in ["cannot attach", "4096", "8192", "create the heap again"] {
            assert!(message.contains(part), "{message}");
        }
        let message = Error::refused(Attempt::Map, 4096, Errno::NOMEM).to_string();
        for part in ["cannot map memory", "4096", "error 12", "vm.max_map_count"] {
            assert!(message.contains(part), "{message}");
        }
    }
}
