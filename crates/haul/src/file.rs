//! Files from outside are read once, with a limit; files of ours are replaced in one step.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{FileType, Mode, OFlags};

use crate::error::Error;

/// Reads a whole regular file of at most `limit_bytes`, once.
///
/// Opened without blocking, so that a FIFO with no writer cannot hold the caller up, and its type
/// and size are taken from the open file, so that nobody can swap it in between. Symbolic links
/// are followed. Costs five system calls.
///
/// # Errors
/// [`Error::Read`] where the system refuses (a path with a NUL included), [`Error::NotAFile`],
/// and [`Error::TooLarge`] also where the file grows while it is read.
pub fn read_limited(path: &Path, limit_bytes: u64) -> Result<Vec<u8>, Error> {
    let read_error = |reason: io::Error| Error::Read { path: path.into(), reason };
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| read_error(e.into()))?;
    let status = rustix::fs::fstat(&file).map_err(|e| read_error(e.into()))?;
    let kind = FileType::from_raw_mode(status.st_mode);
    if kind != FileType::RegularFile {
        return Err(Error::NotAFile { path: path.into(), found: name_of(kind) });
    }
    let mut bytes = Vec::new();
    File::from(file)
        .take(limit_bytes.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(read_error)?;
    let size_bytes = bytes.len() as u64;
    if size_bytes > limit_bytes {
        return Err(Error::TooLarge { path: path.into(), size_bytes, limit_bytes });
    }
    Ok(bytes)
}

/// Replaces `path` by a file with these bytes, all of them or none.
///
/// Writes a temporary file in the same folder, has it reach the disk, and renames it: a reader
/// sees the old file or the new one, and a full disk or a crash leaves the old one. `-rw-r--r--`
/// less the umask. Costs six system calls and one flush of the disk's cache.
///
/// # Errors
/// [`Error::Write`], with the temporary file removed.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let temporary = temporary_beside(path);
    write_and_rename(&temporary, path, bytes).map_err(|reason| {
        // The error that matters is the first one; the temporary file may not even exist.
        let _ = fs::remove_file(&temporary);
        Error::Write { path: path.into(), reason }
    })
}

fn write_and_rename(temporary: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).open(temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(temporary, path)
}

/// A name that no other process or thread picks, hidden, in the same folder.
fn temporary_beside(path: &Path) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}.{number}.tmp", process::id()))
}

fn name_of(kind: FileType) -> &'static str {
    match kind {
        FileType::Directory => "a directory",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice => "a character device",
        FileType::BlockDevice => "a block device",
        _ => "something else",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn reads_up_to_the_limit_and_no_further() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        fs::write(&path, [1; 100]).unwrap();
        assert_eq!(read_limited(&path, 100).unwrap(), [1; 100]);
        let error = read_limited(&path, 99).unwrap_err();
        assert!(matches!(error, Error::TooLarge { size_bytes: 100, limit_bytes: 99, .. }));
    }

    #[test]
    fn what_is_no_regular_file_is_named_and_never_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, Mode::RUSR | Mode::WUSR).unwrap();
        for (path, expected) in [
            (fifo.as_path(), "a FIFO"),
            (folder.path(), "a directory"),
            (Path::new("/dev/null"), "a character device"),
        ] {
            let error = read_limited(path, 10).unwrap_err();
            assert!(matches!(error, Error::NotAFile { found, .. } if found == expected), "{error}");
        }
    }

    #[test]
    fn a_path_that_cannot_be_opened_is_an_error() {
        for bytes in [b"a\0b".as_slice(), b"", b"/no/such/file"] {
            let error = read_limited(Path::new(OsStr::from_bytes(bytes)), 10).unwrap_err();
            assert!(matches!(error, Error::Read { .. }), "{error}");
        }
    }

    #[test]
    fn a_write_that_fails_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("haul.toml");
        write_atomically(&path, b"old").unwrap();
        write_atomically(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");

        let blocked = folder.path().join("blocked");
        fs::create_dir_all(blocked.join("inside")).unwrap();
        let error = write_atomically(&blocked, b"x").unwrap_err();
        assert!(error.to_string().starts_with("cannot write"), "{error}");
        let left: Vec<_> = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "a temporary file is left behind: {left:?}");
    }
}
