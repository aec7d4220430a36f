//! Reads external files once, with a limit. Replaces haul's own files in one step; a device or a
//! FIFO is written to and not replaced.
//!
//! From the bottom up:
//! - `temporary`: names of temporary files;
//! - `whole`: a file that gets its name only when it is complete.

mod temporary;
mod whole;

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, FileType, Mode, OFlags};

use crate::error::Error;

pub use haul_peer::foreign::{foreign_owner, left_by_another, lock_holder};
pub use temporary::{Temporary, remove_temporary_files};
pub use whole::Whole;

/// Reads a whole regular file of at most `limit_bytes`, once.
///
/// The file is opened without blocking, so that a FIFO without a writer cannot block the caller.
/// Its type and size are read from the open file, so that another program cannot replace the file
/// in between. Symbolic links are followed. Costs five system calls.
///
/// # Errors
/// [`Error::Read`] if the system refuses, or if the path contains a NUL; [`Error::NotAFile`];
/// [`Error::TooLarge`], even if the file reaches the limit only while it is read.
pub fn read_limited(path: &Path, limit_bytes: u64) -> Result<Vec<u8>, Error> {
    let read_error = |reason: io::Error| Error::Read { path: path.into(), reason };
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| read_error(e.into()))?;
    let status = rustix::fs::fstat(&file).map_err(|e| read_error(e.into()))?;
    let kind = FileType::from_raw_mode(status.st_mode);
    if kind != FileType::RegularFile {
        return Err(Error::NotAFile {
            path: path.into(),
            found: haul_peer::foreign::name_of(kind),
        });
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

/// How bytes are written to a path. This depends on the file that is there: see [`destination`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A regular file, or no file yet. It must be replaced in one step.
    File(PathBuf),
    /// A device, a FIFO, or a file that a process holds open. It must be opened and written, like
    /// with a shell's `>`.
    Stream(PathBuf),
}

/// Determines how to write to `path`. Follows symbolic links, even to a file that does not exist
/// yet, so that the file is replaced and never the link. Refuses a link, FIFO or device that
/// another user left in a folder to which others may write ([`foreign_owner`]). A file that a
/// process holds open (`/dev/stdout`, `/proc/self/fd/1`) is a stream, because a replacement would
/// get its name and the process would still write to the old file. Costs two system calls, and
/// three more for each link.
///
/// # Errors
/// [`Error::Write`] for a directory, a cycle of links, a stream without write permission, or a
/// file that another user left, and if the system does not report the file's type.
pub fn destination(path: &Path) -> Result<Destination, Error> {
    let fail = |reason: io::Error| Error::Write { path: path.into(), reason };
    let mut place = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        let kind = match fs::symlink_metadata(&place) {
            Ok(status) => status.file_type(),
            // If the folder does not exist either, creating the file in it is an error later.
            Err(reason) if reason.kind() == io::ErrorKind::NotFound => {
                return Ok(Destination::File(place));
            }
            Err(reason) => return Err(fail(reason)),
        };
        if kind.is_dir() {
            return Err(fail(io::ErrorKind::IsADirectory.into()));
        }
        if kind.is_file() {
            return Ok(Destination::File(place));
        }
        let is_stream = !kind.is_symlink() || is_held_open(&place);
        if let Some((owner, kind)) = left_by_another(&place).map_err(fail)? {
            return Err(fail(in_the_way(kind, owner)));
        }
        if is_stream {
            rustix::fs::access(&place, Access::WRITE_OK).map_err(|e| fail(e.into()))?;
            return Ok(Destination::Stream(place));
        }
        let target = fs::read_link(&place).map_err(fail)?;
        // The target is relative to the folder of the link; an absolute target replaces the path.
        place.pop();
        place.push(target);
    }
    Err(fail(rustix::io::Errno::LOOP.into()))
}

/// The error for a file of another user. Such a file is neither followed nor written to.
fn in_the_way(kind: &str, owner: u32) -> io::Error {
    let why = format!("{kind} of user {owner} is there, in a folder that others may write to");
    io::Error::new(io::ErrorKind::AlreadyExists, why)
}

/// The largest number of consecutive links, as in Linux (`path_resolution(7)`).
const LINKS_MAX: usize = 40;

/// Whether a link is in `/proc`. Links there lead to open files, even if their text is not a
/// path.
fn is_held_open(link: &Path) -> bool {
    let folder = link.parent().map(fs::canonicalize);
    folder.is_some_and(|folder| folder.is_ok_and(|folder| folder.starts_with("/proc")))
}

/// Replaces the file at `path` with a file that contains `bytes`, completely or not at all.
/// Writes to a device or a FIFO instead: see [`destination`].
///
/// Writes a temporary file in the same folder, flushes it to disk, and renames it. So a reader
/// sees either the old file or the new file, and after a full disk or a crash the old file is
/// still there. The mode is `-rw-r--r--` less the umask. Costs eight system calls and one flush
/// of the disk's cache. For a FIFO, the call waits for a reader.
///
/// # Errors
/// [`Error::Write`]; the temporary file is then removed.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let fail = |reason| Error::Write { path: path.into(), reason };
    let file = match destination(path)? {
        Destination::File(file) => file,
        Destination::Stream(stream) => {
            let mut open = open_stream(&stream).map_err(fail)?;
            return open.write_all(bytes).map_err(fail);
        }
    };
    let temporary = Temporary::beside(&file);
    write_and_rename(temporary, &file, bytes).map_err(fail)
}

/// Opens a [`Destination::Stream`]; does not create it. If it is a file that a process holds
/// open, bytes are appended to it, because that process has truncated the file if this was
/// necessary. For a FIFO, the call waits for a reader.
///
/// # Errors
/// The system's reason.
pub fn open_stream(path: &Path) -> io::Result<File> {
    File::options().append(true).open(path)
}

fn write_and_rename(temporary: Temporary, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).open(temporary.path())?;
    file.write_all(bytes)?;
    file.sync_all()?;
    temporary.rename(path)
}

/// Makes a write that exceeds the process's limit of file sizes (`ulimit -f`) fail like a write
/// to a full disk. By default the kernel kills the process without a message. Child processes
/// inherit the setting.
pub fn fail_beyond_size_limit() {
    // SAFETY: SIG_IGN is a valid disposition for every signal except SIGKILL and SIGSTOP, and no
    // handler runs.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn read_stops_at_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        fs::write(&path, [1; 100]).unwrap();
        assert_eq!(read_limited(&path, 100).unwrap(), [1; 100]);
        let error = read_limited(&path, 99).unwrap_err();
        assert!(matches!(error, Error::TooLarge { size_bytes: 100, limit_bytes: 99, .. }));
    }

    #[test]
    fn path_without_regular_file_is_an_error_and_never_blocks() {
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
    fn path_that_cannot_be_opened_is_an_error() {
        for bytes in [b"a\0b".as_slice(), b"", b"/no/such/file"] {
            let error = read_limited(Path::new(OsStr::from_bytes(bytes)), 10).unwrap_err();
            assert!(matches!(error, Error::Read { .. }), "{error}");
        }
    }

    #[test]
    fn failed_write_leaves_the_old_file() {
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

    #[test]
    fn link_is_kept_and_its_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let dotfiles = folder.path().join("dotfiles");
        fs::create_dir(&dotfiles).unwrap();
        let file = dotfiles.join("real.toml");
        let (near, far) = (dotfiles.join("near"), folder.path().join("haul.toml"));
        std::os::unix::fs::symlink("real.toml", &near).unwrap();
        std::os::unix::fs::symlink("dotfiles/near", &far).unwrap();
        // Both links name a file that does not exist before the first write, which creates it.
        for text in ["old", "new"] {
            write_atomically(&far, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
            assert!(near.is_symlink() && far.is_symlink());
        }
        assert_eq!(fs::read_dir(&dotfiles).unwrap().count(), 2, "a temporary file is left");
        let round = folder.path().join("round");
        std::os::unix::fs::symlink("round", &round).unwrap();
        assert!(write_atomically(&round, b"x").is_err());
    }

    #[test]
    fn fifo_and_device_are_written_to_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, Mode::RUSR | Mode::WUSR).unwrap();
        let reader = {
            let fifo = fifo.clone();
            std::thread::spawn(move || fs::read(fifo).unwrap())
        };
        write_atomically(&fifo, b"to a fifo").unwrap();
        assert_eq!(reader.join().unwrap(), b"to a fifo");
        let kind = fs::symlink_metadata(&fifo).unwrap().file_type();
        assert!(std::os::unix::fs::FileTypeExt::is_fifo(&kind));

        // The test uses a link, so that a failing test cannot damage the system's device.
        let null = folder.path().join("null");
        std::os::unix::fs::symlink("/dev/null", &null).unwrap();
        assert_eq!(destination(&null).unwrap(), Destination::Stream("/dev/null".into()));
        write_atomically(&null, b"into nothing").unwrap();
        assert!(null.is_symlink());

        let error = write_atomically(folder.path(), b"x").unwrap_err().to_string();
        assert!(error.contains("name a file in it"), "{error}");
    }

    #[test]
    fn link_of_another_user_in_a_shared_folder_is_not_followed() {
        use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
        /// A user that does not run this test.
        const OTHER_USER: u32 = 54_321;
        let folder = tempfile::tempdir().unwrap();
        let (shared, link) = (folder.path().join("shared"), folder.path().join("shared/page"));
        let kept = folder.path().join("kept");
        fs::write(&kept, "kept").unwrap();
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
        symlink(&kept, &link).unwrap();
        assert_eq!(destination(&link).unwrap(), Destination::File(kept.clone()), "one's own link");
        if lchown(&link, Some(OTHER_USER), None).is_err() {
            eprintln!("SKIPPED: somebody else's link: not running as root: run the tests as root");
            return;
        }
        let error = write_atomically(&link, b"page").unwrap_err().to_string();
        let owner = format!("a symbolic link of user {OTHER_USER} is there");
        assert!(error.contains("shared/page") && error.contains(&owner), "{error}");
        assert_eq!(fs::read(&kept).unwrap(), b"kept");
        // A write to the FIFO would block, and its creator would read the bytes.
        let fifo = shared.join("records");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, Mode::RUSR | Mode::WUSR).unwrap();
        assert_eq!(destination(&fifo).unwrap(), Destination::Stream(fifo.clone()), "one's own");
        lchown(&fifo, Some(OTHER_USER), None).unwrap();
        let error = write_atomically(&fifo, b"page").unwrap_err().to_string();
        assert!(error.contains(&format!("a FIFO of user {OTHER_USER}")), "{error}");
        // Accepted: a link of the folder's owner, and any link in a folder to which only its
        // owner may write.
        chown(&shared, Some(OTHER_USER), None).unwrap();
        assert_eq!(destination(&link).unwrap(), Destination::File(kept.clone()));
        chown(&shared, Some(0), None).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(destination(&link).unwrap(), Destination::File(kept));
    }

    #[test]
    fn file_held_open_by_a_process_is_a_stream() {
        use std::os::fd::AsRawFd;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("output");
        fs::write(&path, "before and ").unwrap();
        let held = File::options().write(true).open(&path).unwrap();
        let link = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
        if !link.is_symlink() {
            eprintln!("SKIPPED: an open file: no file /proc/self/fd: mount /proc");
            return;
        }
        assert!(matches!(destination(&link).unwrap(), Destination::Stream(_)));
        write_atomically(&link, b"page").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"before and page", "appended, never cut");
    }
}
