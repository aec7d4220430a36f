//! The messages of errors.

use core::fmt;

use super::{Attempt, Error, NAME_BYTES_MAX, NameProblem};
use crate::sys::Errno;

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
