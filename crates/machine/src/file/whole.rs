//! A file that has its name only when it is whole.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::Temporary;
use crate::error::Error;

/// A file on its way to `path`. It has no name before [`finish`](Self::finish), so that nothing is
/// left of it whatever ends this process; where the file system has no files without a name, a
/// hidden one beside `path`, which is removed as this is dropped, and stays where the process is
/// killed.
#[derive(Debug)]
pub struct Whole {
    file: File,
    path: PathBuf,
    /// What it is called until it is whole, removed with this; `None` where it has no name.
    temporary: Option<Temporary>,
}

impl Whole {
    /// A new, empty file, `-rw-rw-rw-` less the umask, on the file system of `path`.
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

    /// Adds bytes at the end.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let written = self.file.write_all(bytes);
        written.map_err(|reason| Error::Write { path: self.path.clone(), reason })
    }

    /// Gives it its name, in the place of what had it.
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
                // Something has the name, and only a name can take it.
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

/// A file without a name beside `path`, which can be given one; `None` where that is not to be had.
fn unnamed(path: &Path) -> Option<File> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP | Mode::ROTH | Mode::WOTH;
    let file = rustix::fs::open(folder.unwrap_or(Path::new(".")), flags, mode).ok()?;
    let file = File::from(file);
    // Without /proc there is no way to name it, but for the superuser.
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
    fn it_has_its_name_as_it_is_whole_and_nothing_is_left_before() {
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
            // A folder keeps its name.
            let taken = folder.path().join("taken");
            fs::create_dir(&taken).unwrap();
            let error = make(&taken).unwrap().finish().unwrap_err();
            assert!(matches!(error, Error::Write { .. }), "{error}");
            assert_eq!(names(folder.path()), ["out", "taken"]);
        }
        assert!(Whole::create(Path::new("/no/such/folder/out")).is_err());
    }

    /// Whoever is killed runs nothing more.
    #[test]
    fn a_process_that_is_killed_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let Some(file) = unnamed(&folder.path().join("out")) else {
            // The file system, or /proc, does not let it: see `Whole`.
            return;
        };
        std::mem::forget(file);
        assert!(names(folder.path()).is_empty());
    }
}
