//! A folder that belongs to a run, for its sockets and files.
//!
//! A run that is killed cannot remove its folder, so a later run removes it. The process that
//! uses a folder holds a shared lock on it (flock). The kernel releases the lock when the process
//! ends, however it ends. A folder that can be locked exclusively is therefore not in use. The
//! run's files are in a second folder inside the locked one: a listener locks the folder of its
//! socket, and would otherwise wait for the run's own lock.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;

/// The folders of this process that are not yet removed.
static OWN: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A folder that belongs to this run. The folder is removed when this value is dropped, and by
/// [`remove_folders`].
#[derive(Debug)]
pub struct Folder {
    locked: PathBuf,
    path: PathBuf,
    /// The open folder, which holds the lock.
    _held: File,
}

impl Folder {
    /// A new folder for temporary files that only this user may access. Its name contains `part`.
    /// Folders of killed runs are removed.
    ///
    /// # Errors
    /// The folder for temporary files does not exist, or the new folder cannot be made.
    pub fn new(part: &str) -> io::Result<Self> {
        Self::within(&std::env::temp_dir(), part)
    }

    fn within(parent: &Path, part: &str) -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let begins = format!("haul-{part}-");
        remove_left(parent, &begins);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let locked = parent.join(format!("{begins}{}.{number}", std::process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&locked) {
                Ok(()) => {
                    if let Some(held) = hold(&locked)? {
                        let path = locked.join("run");
                        fs::DirBuilder::new().mode(0o700).create(&path)?;
                        own().push(locked.clone());
                        return Ok(Self { locked, path, _held: held });
                    }
                }
                // The folder belongs to a process with the same number in another namespace, or
                // to a process that was killed.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The folder for the run's files, whose parent is the locked folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // If the folder cannot be removed, the owner of the folder for temporary files has to
        // clean it.
        let _ = fs::remove_dir_all(&self.locked);
        own().retain(|path| *path != self.locked);
    }
}

/// Removes the folders of this process with their files. A process that ends in the middle of a
/// run calls this function.
pub fn remove_folders() {
    for path in own().drain(..) {
        let _ = fs::remove_dir_all(path);
    }
}

fn own() -> MutexGuard<'static, Vec<PathBuf>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks a new folder, so that no other run removes it; `None` if another run has locked it
/// first.
fn hold(path: &Path) -> io::Result<Option<File>> {
    let held = match open(path) {
        Ok(held) => held,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    // On a file system without locks, no folder is removed.
    if flock(&held, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK) {
        return Ok(None);
    }
    let (own, now) = (held.metadata()?, fs::symlink_metadata(path));
    Ok(now.is_ok_and(|now| (now.dev(), now.ino()) == (own.dev(), own.ino())).then_some(held))
}

/// Removes this user's folders whose names begin with `begins` and that no process uses. A folder
/// that cannot be removed remains.
fn remove_left(parent: &Path, begins: &str) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let numbers = name.to_str().and_then(|name| name.strip_prefix(begins)?.split_once('.'));
        let is_number = |text: &str| text.parse::<u32>().is_ok();
        if !numbers.is_some_and(|(process, number)| is_number(process) && is_number(number)) {
            continue;
        }
        let path = entry.path();
        // The lock is held until the folder is removed.
        let Ok(left) = open(&path) else { continue };
        let is_own =
            left.metadata().is_ok_and(|it| it.uid() == rustix::process::geteuid().as_raw());
        if is_own && flock(&left, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// Opens a folder, but not through a link with its name.
fn open(path: &Path) -> rustix::io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map(File::from)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn new_folder_removes_folders_of_killed_runs_only() {
        let parent = tempfile::tempdir().unwrap();
        let at = |name: &str| parent.path().join(name);
        let used = Folder::within(parent.path(), "forward").unwrap();
        fs::write(used.path().join("file"), "").unwrap();
        for name in ["haul-forward-1.0", "haul-forward-1.1", "haul-forward-7.23"] {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join("socket"), "").unwrap();
        }
        let others = ["haul-forward-1.x", "haul-forward-", "haul-channel-1.0", "haul-forward.1.0"];
        others.iter().for_each(|name| fs::create_dir(at(name)).unwrap());
        symlink(at("haul-channel-1.0"), at("haul-forward-2.0")).unwrap();
        fs::write(at("haul-forward-3.0"), "no folder").unwrap();
        let next = Folder::within(parent.path(), "forward").unwrap();
        assert!(used.path().join("file").exists() && next.path().exists());
        assert_ne!(used.path(), next.path());
        for name in ["haul-forward-1.0", "haul-forward-1.1", "haul-forward-7.23"] {
            assert!(!at(name).exists(), "{name}");
        }
        for name in others.iter().chain(&["haul-forward-2.0", "haul-forward-3.0"]) {
            assert!(fs::symlink_metadata(at(name)).is_ok(), "{name}");
        }
        drop((used, next));
        let left = fs::read_dir(parent.path()).unwrap().count();
        assert_eq!(left, others.len() + 2);
        assert!(Folder::within(&at("absent"), "channel").is_err());
    }

    #[test]
    fn concurrent_runs_keep_each_others_folders() {
        let parent = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let folder = Folder::within(parent.path(), "forward").unwrap();
                        fs::write(folder.path().join("file"), "").unwrap();
                        assert!(folder.path().join("file").exists());
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
