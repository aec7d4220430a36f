//! Why a heap could not be built, attached to or kept: what was tried, with which value, against
//! which limit, and what helps.

use core::fmt;

use crate::sys::limit::{self, Resource};
use crate::sys::{Errno, machine};

/// Bytes of a heap's name: it must fit the header and a file name with our prefix.
pub const NAME_BYTES_MAX: usize = 64;

/// The name of a shared heap: 1 to 64 letters, digits, dots, hyphens and underscores, and no dot in
/// front.
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
    /// [`Error::BadName`] for one that is empty, too long, or holds another character.
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
        // Only ASCII gets in, so this never falls back.
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
pub enum NameProblem {
    /// It has no character.
    Empty,
    /// It has this many bytes.
    TooLong(usize),
    /// It begins with a dot.
    LeadingDot,
    /// The byte at this position is not allowed.
    Character {
        /// Position in bytes.
        position: usize,
    },
}

/// What the system was asked for when it refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// A memory file.
    CreateFile,
    /// The file of a named heap.
    OpenFile,
    /// The second file of a heap, whose memory is huge pages.
    OpenHugeFile,
    /// What an open file is.
    InspectFile,
    /// The size of the heap's file.
    SizeFile,
    /// The removal of a heap's name.
    RemoveName,
    /// The mapping of a file or of anonymous memory.
    Map,
    /// Memory for the first pages of metadata.
    Populate,
    /// A second descriptor of the heap's file.
    Duplicate,
    /// To handle SIGBUS, for memory of the heap's file that another process takes away.
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

/// A limit that the system refuses by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// Bytes of a file (RLIMIT_FSIZE, `ulimit -f`).
    FileSize(u64),
    /// Bytes of addresses (RLIMIT_AS, `ulimit -v`).
    Addresses(u64),
    /// Bytes that a process may write to alone (RLIMIT_DATA, `ulimit -d`).
    Data(u64),
    /// Bytes of locked memory (RLIMIT_MEMLOCK, `ulimit -l`).
    Locked(u64),
    /// Open files (RLIMIT_NOFILE, `ulimit -n`).
    OpenFiles(u64),
    /// What the machine promises to all processes (`vm.overcommit_memory` is 2).
    Commit,
}

impl Limit {
    /// The limit by which the system refused so many bytes more with this error, as far as that is
    /// to be seen.
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
    /// The limit, its value, and how it is raised.
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
                    "vm.overcommit_memory is 2, and no more memory is promised: raise \
                     vm.overcommit_ratio",
                );
            }
        };
        write!(f, "{name} allows {most} bytes: raise it (ulimit {option})")
    }
}

/// Why there is no heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The limit asked for is below the least or above the most.
    BadLimit {
        /// Bytes asked for.
        bytes: u64,
        /// The least that works.
        least: u64,
        /// The most that works.
        most: u64,
    },
    /// More NUMA nodes than a heap tells apart, or none.
    BadNodes {
        /// Nodes asked for.
        nodes: u32,
        /// The most that works.
        most: u32,
    },
    /// The name cannot be one.
    BadName(NameProblem),
    /// A heap of this name is there already.
    NameTaken(Name),
    /// No heap has this name.
    NoSuchName(Name),
    /// Address space was refused, down to the least size that is tried.
    NoAddressSpace {
        /// Bytes asked for first.
        bytes: u64,
        /// Bytes asked for last.
        least: u64,
        /// The system's error number.
        errno: i32,
        /// The limit that it was refused by, where that is known.
        limit: Option<Limit>,
    },
    /// The system refused something else.
    Refused {
        /// What was asked for.
        attempt: Attempt,
        /// With how many bytes, where that matters, else 0.
        bytes: u64,
        /// The system's error number.
        errno: i32,
        /// The limit that it was refused by, where that is known.
        limit: Option<Limit>,
    },
    /// The file belongs to another user.
    OtherUser {
        /// Its owner.
        owner: u32,
        /// Who runs this process.
        user: u32,
    },
    /// Others than its owner may open the file.
    OpenToOthers {
        /// Its permission bits.
        mode: u32,
    },
    /// The file's size is not sealed, so others can cut it short, and a touch of what is gone is a
    /// signal.
    NotSealed,
    /// The file does not begin with a heap's header.
    NotAHeap {
        /// The eight bytes found there.
        magic: u64,
    },
    /// The heap was made by another version of haul.
    OtherVersion {
        /// Its version of the layout.
        found: u32,
        /// Ours.
        ours: u32,
    },
    /// The file ends before the heap does.
    Truncated {
        /// Its size in bytes.
        bytes: u64,
        /// The size that the header tells, or that a header needs.
        needed: u64,
    },
    /// The header contradicts itself.
    HeaderLies {
        /// Which field.
        field: &'static str,
        /// What it holds.
        value: u64,
        /// What it should hold, or the most that it may.
        expected: u64,
    },
    /// Whoever creates the heap has not finished, or died before.
    Unfinished,
    /// Every place for a process is taken by a live one.
    TooManyProcesses {
        /// How many places there are.
        most: u32,
    },
    /// There is not the memory that was to be ready before the first request.
    NotReady {
        /// How many bytes were to be.
        asked: u64,
        /// How many were, on the nodes up to the one that lacks some.
        ready: u64,
    },
    /// The caller's memory does not fit a heap.
    BadExternal {
        /// What is wrong with it.
        field: &'static str,
        /// Its value.
        value: u64,
        /// What it should be, or be at least.
        expected: u64,
    },
    /// This kind of heap cannot do what was asked.
    Unsupported {
        /// What was asked.
        what: &'static str,
        /// What would work.
        instead: &'static str,
    },
}

impl Error {
    /// A refusal by the system.
    pub(crate) fn refused(attempt: Attempt, bytes: u64, errno: Errno) -> Self {
        let limit = Limit::behind(bytes, errno);
        Self::Refused { attempt, bytes, errno: errno.raw_os_error(), limit }
    }

    /// A refusal of `needed` bytes of addresses, where `least` of a heap's `bytes` were tried last.
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
                "a heap of at most {bytes} bytes: the limit must lie between {least} and {most}: \
                 choose one in between"
            ),
            Self::BadNodes { nodes, most } => write!(
                f,
                "a heap for {nodes} NUMA nodes: it tells 1 to {most} apart: ask for fewer, or let \
                 haul choose"
            ),
            Self::BadName(problem) => bad_name(problem, f),
            Self::NameTaken(name) => write!(
                f,
                "cannot create the shared heap {name}: the name is taken: attach to it, remove it if \
                 nobody uses it, or choose another"
            ),
            Self::NoSuchName(name) => write!(
                f,
                "cannot attach to the shared heap {name}: there is none: create it first, as the same \
                 user"
            ),
            Self::NotReady { asked, ready } => write!(
                f,
                "cannot make {asked} bytes of a heap ready before the first request: {ready} could be: ask \
                 for fewer, or raise its limit, or free memory"
            ),
            Self::NoAddressSpace { bytes, least, limit: Some(limit), .. } => write!(
                f,
                "cannot reserve {bytes} bytes for a heap, and half as often down to {least}: \
                 {limit}, or lower the heap's limit"
            ),
            Self::NoAddressSpace { bytes, least, errno, .. } => write!(
                f,
                "cannot reserve {bytes} bytes of addresses, and half as often down to {least}: error \
                 {errno}: raise RLIMIT_AS (ulimit -v) or vm.max_map_count, set \
                 vm.overcommit_memory to 0, or lower the heap's limit"
            ),
            Self::Refused { attempt, bytes, limit: Some(limit), .. } => {
                attempted(attempt, bytes, f)?;
                write!(f, ": {limit}")
            }
            Self::Refused { attempt, bytes, errno, .. } => refusal(attempt, bytes, errno, f),
            Self::TooManyProcesses { most } => write!(
                f,
                "cannot attach to a shared heap: all {most} places for processes are taken by live ones: \
                 end one of them"
            ),
            Self::BadExternal { field, value, expected } => write!(
                f,
                "cannot build a heap in the caller's memory: {field} is {value:#x}, expected {expected:#x}: \
                 correct it"
            ),
            Self::Unsupported { what, instead } => write!(f, "{what}: cannot be done: {instead}"),
            _ => self.fmt_attach(f),
        }
    }
}

impl Error {
    /// The errors of a file that claims to be a heap.
    fn fmt_attach(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot attach to a shared heap: ")?;
        match *self {
            Self::OtherUser { owner, user } => write!(
                f,
                "what has its name belongs to user {owner}, this process runs as {user}: run both as \
                 one user, or choose another name"
            ),
            Self::OpenToOthers { mode } => write!(
                f,
                "its file has mode {mode:04o}, so others than its owner may change it, at most 0600 \
                 is accepted: remove it and create the heap again"
            ),
            Self::NotSealed => f.write_str(
                "its file's size is not sealed, so that it can be cut short, which F_SEAL_SHRINK keeps \
                 from: give the descriptor of a heap that was created to be shared by one, or attach to \
                 a named heap by its name",
            ),
            Self::NotAHeap { magic } => write!(
                f,
                "its file begins with {magic:#018x}, which is no heap's mark: give the name or \
                 descriptor of a heap"
            ),
            Self::OtherVersion { found, ours } => write!(
                f,
                "its layout has version {found}, this program knows {ours}: use the same version \
                 of haul in all processes"
            ),
            Self::Truncated { bytes, needed } => write!(
                f,
                "its file has {bytes} bytes, {needed} are needed: it was cut; remove it and create \
                 the heap again"
            ),
            Self::HeaderLies { field, value, expected } => write!(
                f,
                "{field} in its header is {value:#x}, expected {expected:#x}: it was damaged; \
                 remove it and create the heap again"
            ),
            _ => f.write_str(
                "its creator has not finished within a second: try again, or remove it if its \
                 creator died",
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
    write!(f, ": the system answered error {errno}: {remedy}")
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
    fn a_message_tells_the_attempt_the_value_the_limit_and_the_remedy() {
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
