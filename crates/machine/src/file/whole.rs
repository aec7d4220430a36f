//! A file that gets its name only when it is complete.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::Temporary;
use crate::error::Error;

/// A new file that [`finish`](Self::finish) will name `path`. It has no name before, so that
/// nothing is left if the process ends early. On a file system without unnamed files, it has a
/// hidden name in the same folder. The hidden file is removed when this value is dropped, but
/// remains if the process is killed.
#[derive(Debug)]
pub struct Whole {
    file: File,
    path: PathBuf,
    /// The temporary name of the file; `None` if it is unnamed.
    temporary: Option<Temporary>,
}

impl Whole {
    /// Creates an empty file on the file system of `path`. Its mode is `-rw-rw-rw-` less the
    /// umask.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn create(path: &Path) -> Result<Self, Error> {
        match unnamed(path) {
            Some(file) => Ok(Self { file, path: path.into(), temporary: None }),
            None => Self::create_named(path),
        }
    }

    fn create_named(path: &Path) -> Result<Self, Error> {
        let temporary = Temporary::beside(path);
        let file = File::options().write(true).create_new(true).open(temporary.path());
        let file = file.map_err(|reason| Error::Write { path: path.into(), reason })?;
        Ok(Self { file, path: path.into(), temporary: Some(temporary) })
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let written = self.file.write_all(bytes);
        written.map_err(|reason| Error::Write { path: self.path.clone(), reason })
    }

    /// Gives the file its name, and replaces a file with this name.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn finish(mut self) -> Result<(), Error> {
        let named = self.give_name();
        named.map_err(|reason| Error::Write { path: self.path.clone(), reason })
    }

    fn give_name(&mut self) -> io::Result<()> {
        if self.temporary.is_none() {
            match link(&self.file, &self.path) {
                // A file with this name exists. Only a rename can replace it, so this file needs
                // a temporary name first.
                Err(Errno::EXIST) => {
                    let temporary = Temporary::beside(&self.path);
                    link(&self.file, temporary.path())?;
                    self.temporary = Some(temporary);
                }
                result => return Ok(result?),
            }
        }
        self.temporary.take().map_or(Ok(()), |temporary| temporary.rename(&self.path))
    }
}

/// Creates an unnamed file in the folder of `path` that can be named later; `None` if the system
/// does not support this.
fn unnamed(path: &Path) -> Option<File> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP | Mode::ROTH | Mode::WOTH;
    let file = rustix::fs::open(folder.unwrap_or(Path::new(".")), flags, mode).ok()?;
    let file = File::from(file);
    // If /proc is missing, only the superuser could name the file later.
    fs::metadata(by_number(&file)).is_ok().then_some(file)
}

fn link(file: &File, path: &Path) -> Result<(), Errno> {
    rustix::fs::linkat(CWD, by_number(file), CWD, path, AtFlags::SYMLINK_FOLLOW)
}

fn by_number(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string();
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|entry| name(entry).unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn file_gets_its_name_on_finish_and_leaves_nothing_before() {
        for make in [Whole::create, Whole::create_named] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("out");
            let mut dropped = make(&path).unwrap();
            dropped.write(b"half").unwrap();
            drop(dropped);
            assert!(names(folder.path()).is_empty());
            for text in ["new", "in its place"] {
                let mut whole = make(&path).unwrap();
                for byte in text.as_bytes() {
                    whole.write(&[*byte]).unwrap();
                }
                whole.finish().unwrap();
                assert_eq!(fs::read_to_string(&path).unwrap(), text);
                assert_eq!(names(folder.path()), ["out"]);
            }
            // A file does not replace a folder.
            let taken = folder.path().join("taken");
            fs::create_dir(&taken).unwrap();
            let error = make(&taken).unwrap().finish().unwrap_err();
            assert!(matches!(error, Error::Write { .. }), "{error}");
            assert_eq!(names(folder.path()), ["out", "taken"]);
        }
        assert!(Whole::create(Path::new("/no/such/folder/out")).is_err());
    }

    /// `forget` simulates a killed process, which runs no destructor.
    #[test]
    fn killed_process_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let Some(file) = unnamed(&folder.path().join("out")) else {
            // The file system or /proc does not support unnamed files: see `Whole`.
            return;
        };
        std::mem::forget(file);
        assert!(names(folder.path()).is_empty());
    }
}
