//! Detects a file that another user left where this user expects a file, and finds the process
//! that has locked a file.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fd::AsFd;
use rustix::fs::{FileType, Mode, fstat, major, minor};

/// The owner and the kind of the file at `path`, if the file is [foreign](foreign_owner). For a
/// link, these are the owner and the kind of the link, not of its target.
///
/// # Errors
/// The file does not exist, or the system does not report its status.
pub fn left_by_another(path: &Path) -> io::Result<Option<(u32, &'static str)>> {
    let status = rustix::fs::lstat(path)?;
    let kind = name_of(FileType::from_raw_mode(status.st_mode));
    Ok(foreign_owner(path, status.st_uid)?.map(|owner| (owner, kind)))
}

/// The owner of a file at `path`, if the file is foreign. A file is foreign if its owner is
/// neither this user nor the folder's owner, and other users may put files into the folder, like
/// in `/tmp`. Another user may have put the file there so that this process writes to it, follows
/// it or waits for it. The kernel has the same rule for links, FIFOs and files
/// (`fs.protected_symlinks`, `protected_fifos` and `protected_regular`, proc_sys_fs(5)); this
/// function also applies the rule if these settings are off.
///
/// # Errors
/// The system does not report the folder's status.
pub fn foreign_owner(path: &Path, owner: u32) -> io::Result<Option<u32>> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let folder = rustix::fs::stat(parent.unwrap_or(Path::new(".")))?;
    let mode = Mode::from_raw_mode(folder.st_mode);
    let is_shared = mode.contains(Mode::WOTH) || mode.contains(Mode::WGRP | Mode::SVTX);
    let is_ours = owner == rustix::process::geteuid().as_raw() || owner == folder.st_uid;
    Ok((is_shared && !is_ours).then_some(owner))
}

/// The process that has locked an open file (flock(2)) and its user, as text: `process 71 of user
/// 12`, or `another process` if the kernel does not report it.
#[must_use]
pub fn lock_holder(file: impl AsFd) -> String {
    let all = fs::read_to_string("/proc/locks").unwrap_or_default();
    let status = fstat(file).ok();
    let process = status.and_then(|status| {
        let device = (major(status.st_dev), minor(status.st_dev));
        holder(&all, device, status.st_ino)
    });
    let Some(process) = process else { return "another process".into() };
    match fs::metadata(format!("/proc/{process}")) {
        Ok(status) => format!("process {process} of user {}", status.uid()),
        Err(_) => format!("process {process}"),
    }
}

/// The process that holds the lock of a file, from the text of `/proc/locks`. A line contains a
/// number, the kind of lock, whether it is advisory or mandatory, whether it is for reading or
/// writing, the process, and the file as `major:minor:inode`. If the process only waits for the
/// lock, there is an arrow before the kind.
fn holder(table: &str, (major, minor): (u32, u32), inode: u64) -> Option<i32> {
    let file = format!("{major:02x}:{minor:02x}:{inode}");
    let holds = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_it = *words.get(1)? == "FLOCK" && *words.get(5)? == file;
        is_it.then(|| words.get(4)?.parse().ok()).flatten()
    };
    table.lines().find_map(holds).filter(|process| *process > 0)
}

/// The kind of a file as text: `a symbolic link`, `a FIFO`.
#[must_use]
pub fn name_of(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a regular file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice => "a character device",
        FileType::BlockDevice => "a block device",
        _ => "something else",
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    /// A user other than the one that runs this test.
    const OTHER_USER: u32 = 54_321;

    #[test]
    fn file_is_foreign_only_in_folders_writable_by_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let own = rustix::process::geteuid().as_raw();
        for (mode, owner, is_foreign) in [
            (0o700, OTHER_USER, false),
            (0o755, OTHER_USER, false),
            (0o775, OTHER_USER, false),
            (0o1777, OTHER_USER, true),
            (0o777, OTHER_USER, true),
            (0o1770, OTHER_USER, true),
            (0o1777, own, false),
        ] {
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
            let expected = is_foreign.then_some(owner);
            assert_eq!(foreign_owner(&path, owner).unwrap(), expected, "{mode:o}");
        }
        assert!(left_by_another(&path).is_err(), "nothing is there");
        fs::write(&path, "").unwrap();
        assert_eq!(left_by_another(&path).unwrap(), None);
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o1777)).unwrap();
        if chown(&path, Some(OTHER_USER), None).is_err() {
            eprintln!("SKIPPED: another user's file: not running as root: run the tests as root");
            return;
        }
        assert_eq!(left_by_another(&path).unwrap(), Some((OTHER_USER, "a regular file")));
    }

    #[test]
    fn holder_finds_process_with_lock_and_not_waiting_ones() {
        let table = "1: FLOCK  ADVISORY  WRITE 71 08:01:99 0 EOF\n\
            1: -> FLOCK  ADVISORY  WRITE 72 08:01:44 0 EOF\n\
            2: POSIX  ADVISORY  WRITE 73 08:01:44 0 EOF\n\
            3: FLOCK  ADVISORY  READ 74 08:01:44 0 EOF\nnonsense\n\n";
        assert_eq!(holder(table, (8, 1), 44), Some(74));
        assert_eq!(holder(table, (8, 1), 99), Some(71));
        assert_eq!(holder(table, (8, 2), 99), None);
    }
}
