//! A folder of a run's own, where processes meet.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder of this run's own, removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// A new folder for this user alone, where temporary files go; its name says what for.
    ///
    /// # Errors
    /// There is no such place, or nothing may be made there.
    pub(crate) fn new(part: &str) -> io::Result<Self> {
        Self::within(&std::env::temp_dir(), part)
    }

    fn within(parent: &Path, part: &str) -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("haul-{part}.{}.{number}", std::process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self(path)),
                // Left by a process of the same number that was killed: its owner's to clean.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left in a folder for temporary files is its owner's to clean.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_left_by_a_killed_run_is_passed_over() {
        let parent = tempfile::tempdir().unwrap();
        for number in 0..200 {
            let name = format!("haul-channel.{}.{number}", std::process::id());
            fs::create_dir(parent.path().join(name)).unwrap();
        }
        let folder = Folder::within(parent.path(), "channel").unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        assert!(Folder::within(&parent.path().join("absent"), "channel").is_err());
    }
}
