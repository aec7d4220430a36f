//! The record file of a run, and the records of an earlier run that have its name.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use haul_machine::file::lock_holder;
use haul_model::Line;

use super::folder::folder_error;
use crate::error::Error;

/// Waits, for at most a second, until no other haul chooses a name in this folder. The wait is
/// limited because another user may hold the lock of a shared folder forever.
pub(super) fn turn_in(folder: &Path) -> Option<File> {
    const PATIENCE: u32 = 100;
    let folder = File::open(folder).ok()?;
    for _ in 0..PATIENCE {
        if !is_locked_by_another(&folder) {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    Some(folder)
}

/// Locks the records of an earlier run, if there are any, so that no running process still writes
/// them. The lock ends when the file is closed or the process ends.
pub(super) fn lock_earlier(path: &Path) -> Result<Option<File>, Error> {
    // Checked first, because opening a FIFO waits. If the path is not a file or cannot be read,
    // the function that renames it reports the error.
    let is_file = fs::symlink_metadata(path).is_ok_and(|found| found.is_file());
    // The file is also opened for writing if that is allowed, because NFS locks only files that
    // are open for writing.
    let open = || File::options().read(true).write(true).open(path).or_else(|_| File::open(path));
    match is_file.then(open) {
        Some(Ok(file)) if is_locked_by_another(&file) => {
            Err(Error::Busy { path: path.into(), holder: lock_holder(&file) })
        }
        Some(Ok(file)) => Ok(Some(file)),
        _ => Ok(None),
    }
}

/// Makes the record file and locks it: another run that wants the same name is refused while this
/// run writes.
pub(super) fn create_locked(path: PathBuf) -> Result<File, Error> {
    let created = File::options().write(true).create_new(true).open(&path);
    let file = created.map_err(|reason| match reason.kind() {
        // The name was free at the check a moment ago.
        io::ErrorKind::AlreadyExists => {
            Error::Busy { path: path.clone(), holder: "another process".to_owned() }
        }
        _ => folder_error(&path, reason),
    })?;
    let identity = |found: fs::Metadata| (found.dev(), found.ino());
    let own = file.metadata().map(identity).map_err(|reason| folder_error(&path, reason))?;
    let is_locked = is_locked_by_another(&file);
    // Before the lock, another run may have treated the file as an empty file of an earlier run
    // and removed it.
    let is_own = fs::symlink_metadata(&path).is_ok_and(|found| identity(found) == own);
    if is_locked || !is_own {
        let holder = lock_holder(&file);
        return Err(Error::Busy { path, holder });
    }
    Ok(file)
}

/// Tries the lock, and returns whether another process holds it. A file system without locks counts
/// as unlocked.
fn is_locked_by_another(file: &File) -> bool {
    matches!(file.try_lock(), Err(TryLockError::WouldBlock))
}

/// Renames the records of an earlier run to the first free name of `NAME.old`, `NAME.old.2` and so
/// on, so that no number of interrupted runs loses them. A file without a record is removed.
pub(super) fn keep_earlier(path: &Path) -> Result<Option<PathBuf>, Error> {
    let fail = |reason| folder_error(path, reason);
    let is_free = |path: &Path| {
        fs::symlink_metadata(path).is_err_and(|reason| reason.kind() == io::ErrorKind::NotFound)
    };
    if is_free(path) {
        return Ok(None);
    }
    if holds_no_record(path) {
        return fs::remove_file(path).map(|()| None).map_err(fail);
    }
    let name = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(if number == 1 { ".old".into() } else { format!(".old.{number}") });
        PathBuf::from(name)
    };
    let free = (1..).map(name).find(|name| is_free(name));
    let Some(old) = free else { return Ok(None) };
    fs::rename(path, &old).map_err(fail)?;
    Ok(Some(old))
}

/// Whether the file remains from a run that ended before its first record: it contains a machine,
/// or nothing.
fn holds_no_record(path: &Path) -> bool {
    /// A machine's line has about 4 KiB.
    const LIMIT_BYTES: u64 = 1 << 20;
    let Ok(bytes) = haul_machine::file::read_limited(path, LIMIT_BYTES) else { return false };
    let (lines, broken) = haul_model::parse_what_can_be(&String::from_utf8_lossy(&bytes));
    broken.is_empty() && !lines.iter().any(|line| matches!(line, Line::Record(_)))
}
