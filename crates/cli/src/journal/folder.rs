//! The folder of a run's results.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use haul_machine::file::Temporary;
use haul_model::Bytes;

use crate::error::Error;

/// The empty path means the current folder, but no system call accepts it.
pub(super) fn or_here(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
}

/// Writes a file of this size there and removes it, so that a missing permission, a read-only mount
/// or a full disk shows before the measurement. With size 0, tests only that a file can be made.
pub(super) fn prove_writable(folder: &Path, room: Bytes) -> Result<(), Error> {
    let proof = Temporary::beside(&folder.join("haul-room"));
    // The file must be new, so that a link which another user left in a shared folder is not
    // followed.
    let created = File::options().write(true).create_new(true).open(proof.path());
    let mut file = created.map_err(|reason| folder_error(folder, reason))?;
    let written = io::copy(&mut io::repeat(b' ').take(room.0), &mut file);
    written.and_then(|_| fs::remove_file(proof.path())).map_err(|reason| {
        match folder_error(folder, reason) {
            Error::Folder { path, reason, remedy } if remedy == MAKE_ROOM => {
                Error::Room { path, reason, room }
            }
            other => other,
        }
    })
}

const MAKE_ROOM: &str = "make room, or name a folder with room by --out or --out-file";

pub(super) fn folder_error(path: &Path, reason: io::Error) -> Error {
    let remedy = match reason.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "name a folder that you may write to by --out or --out-file"
        }
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            "that is a file: name a folder by --out or --out-file, or move the file away"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => MAKE_ROOM,
        io::ErrorKind::FileTooLarge => "raise the limit of file sizes (ulimit -f)",
        io::ErrorKind::IsADirectory => "that is a folder: move it away, or name another --out-file",
        io::ErrorKind::NotFound => {
            "create the folder first, or name another by --out or --out-file"
        }
        _ => "name another folder by --out or --out-file",
    };
    Error::Folder { path: path.into(), reason, remedy }
}
