//! What can go wrong: one error type, whose messages end with the remedy.

use std::io;
use std::path::PathBuf;

/// Why a file could not be read, believed or written, or a thread not started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused to open or read the file.
    #[error("cannot read {}: {reason}; {}", path.display(), remedy_to_read(reason))]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: io::Error,
    },
    /// A directory, a FIFO, a socket or a device stands where a file should.
    #[error("{} is {found}, not a regular file; name a regular file", path.display())]
    NotAFile {
        /// What was named.
        path: PathBuf,
        /// What it is: `a directory`, `a FIFO`.
        found: &'static str,
    },
    /// More bytes than such a file has reason to hold.
    #[error(
        "{} holds {size_bytes} B or more, over the limit of {limit_bytes} B; name the right file",
        path.display()
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// How much of it was seen.
        size_bytes: u64,
        /// How much is read at most.
        limit_bytes: u64,
    },
    /// The file could not be written; what stood at its place is untouched.
    #[error("cannot write {}: {reason}; {}", path.display(), remedy_to_write(reason))]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: io::Error,
    },
    /// The system started no thread.
    #[error("cannot start a thread for {what}: {reason}; raise the limit of processes (ulimit -u)")]
    NoThread {
        /// What it is for.
        what: &'static str,
        /// What the system said.
        reason: io::Error,
    },
    /// Bytes that are no text.
    #[error("not UTF-8 from byte {offset_bytes} on; make it anew with `haul copy tune`")]
    NotText {
        /// The first byte that is not UTF-8.
        offset_bytes: usize,
    },
    /// Text that is no TOML, or that says a key twice, or that nests too deep.
    #[error("not TOML: {reason}; correct it, or make it anew with `haul copy tune`")]
    NotToml {
        /// What the parser said, on one line.
        reason: String,
    },
    /// A key that this version does not know.
    #[error("key {key:?} is not known here; this haul knows {known}; correct or remove it")]
    UnknownKey {
        /// The key with its section.
        key: String,
        /// What would have been understood.
        known: String,
    },
    /// A key that must be there is not.
    #[error("key {key:?} is missing; make the file anew with `haul copy tune`")]
    MissingKey {
        /// The key with its section.
        key: String,
    },
    /// A value of the wrong type, or outside what the key can mean.
    #[error(
        "{key} = {value} is not {expected}; correct it, or make the file anew with `haul copy tune`"
    )]
    Value {
        /// The key with its section.
        key: String,
        /// The value as it stands in the file, shortened.
        value: String,
        /// What the key takes.
        expected: &'static str,
    },
    /// Written for another version of the format.
    #[error(
        "schema {found:?} is not known to this haul, which reads {known:?}; make the file anew with `haul copy tune`"
    )]
    Schema {
        /// What the file says.
        found: String,
        /// What this version reads.
        known: &'static str,
    },
    /// Measured on a machine of another kind.
    #[error(
        "it holds for machine {found:?}, and this is {this:?}; tune here with `haul copy tune`"
    )]
    Foreign {
        /// The machine in the file.
        found: String,
        /// This machine.
        this: String,
    },
}

fn remedy_to_read(reason: &io::Error) -> &'static str {
    match reason.kind() {
        io::ErrorKind::NotFound => "check the path",
        io::ErrorKind::PermissionDenied => "make it readable (chmod a+r), or name another file",
        _ => "name a readable file",
    }
}

fn remedy_to_write(reason: &io::Error) -> &'static str {
    match reason.kind() {
        io::ErrorKind::NotFound => "create the folder first",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "name a folder that you may write to"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "make room, or name a folder with room"
        }
        io::ErrorKind::FileTooLarge => "raise the limit of file sizes (ulimit -f)",
        io::ErrorKind::AlreadyExists => {
            "remove it, or name a file in a folder that only you may write to"
        }
        io::ErrorKind::NotADirectory => "name a folder, not a file",
        io::ErrorKind::IsADirectory => "name a file in it",
        _ => "name another place",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_too_long_is_told_with_the_limit_that_is_to_be_raised() {
        let reason = io::Error::from(rustix::io::Errno::FBIG);
        let message = Error::Write { path: "records".into(), reason }.to_string();
        assert!(message.contains("ulimit -f") && !message.contains("make room"), "{message}");
    }
}
