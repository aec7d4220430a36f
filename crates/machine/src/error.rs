//! The error of this crate. Its messages end with the remedy.

use std::io;
use std::path::PathBuf;

/// Why a file could not be read, accepted or written, or why a thread could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused to open or read the file.
    #[error("cannot read {}: {reason}; {}", path.display(), remedy_to_read(reason))]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        reason: io::Error,
    },
    /// The path names a directory, a FIFO, a socket or a device, not a file.
    #[error("{} is {found}, not a regular file; name a regular file", path.display())]
    NotAFile {
        /// The given path.
        path: PathBuf,
        /// The kind of file: `a directory`, `a FIFO`.
        found: &'static str,
    },
    /// The file has more bytes than a file of this kind can have.
    #[error(
        "{} holds {size_bytes} B or more, over the limit of {limit_bytes} B; name the right file",
        path.display()
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The bytes read so far.
        size_bytes: u64,
        /// The limit.
        limit_bytes: u64,
    },
    /// The file could not be written. A previous file with this name is unchanged.
    #[error("cannot write {}: {reason}; {}", path.display(), remedy_to_write(reason))]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        reason: io::Error,
    },
    /// The file is not text.
    #[error("not UTF-8 from byte {offset_bytes} on; make it anew with `haul copy tune`")]
    NotText {
        /// The position of the first byte that is not UTF-8.
        offset_bytes: usize,
    },
    /// The text is not TOML, contains a key twice, or is nested too deeply.
    #[error("not TOML: {reason}; correct it, or make it anew with `haul copy tune`")]
    NotToml {
        /// The parser's message, on one line.
        reason: String,
    },
    /// The file contains a key that this version does not support.
    #[error("key {key:?} is not known here; this haul knows {known}; correct or remove it")]
    UnknownKey {
        /// The key, with its section.
        key: String,
        /// The supported keys.
        known: String,
    },
    /// A required key is missing.
    #[error("key {key:?} is missing; make the file anew with `haul copy tune`")]
    MissingKey {
        /// The key, with its section.
        key: String,
    },
    /// A value has the wrong type, or is outside the range of its key.
    #[error(
        "{key} = {value} is not {expected}; correct it, or make the file anew with `haul copy tune`"
    )]
    Value {
        /// The key, with its section.
        key: String,
        /// The value in the file, shortened.
        value: String,
        /// What the key accepts.
        expected: &'static str,
    },
    /// The file has another version of the format.
    #[error(
        "schema {found:?} is not known to this haul, which reads {known:?}; make the file anew with `haul copy tune`"
    )]
    Schema {
        /// The schema in the file.
        found: String,
        /// The schema that this version reads.
        known: &'static str,
    },
    /// The file was measured on another kind of machine.
    #[error(
        "it was measured on machine {found:?}, but this is machine {this:?}; run `haul copy tune`"
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
        _ => "name another file",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_size_limit_is_named_in_the_remedy() {
        let reason = io::Error::from(rustix::io::Errno::FBIG);
        let message = Error::Write { path: "records".into(), reason }.to_string();
        assert!(message.contains("ulimit -f") && !message.contains("make room"), "{message}");
    }
}
