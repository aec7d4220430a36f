//! The program of a run: a workload of haul's by its name, which haul holds, or an ELF file.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use haul_sim::{Image, workload};

use super::task;
use crate::error::Error;

/// Longest program file that is read, in bytes: more than any that fits the simulated memory.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// A program as its file has it.
#[derive(Clone, Debug)]
pub struct Program {
    /// The workload's name, or the file's path.
    place: PathBuf,
    bytes: Cow<'static, [u8]>,
}

impl Program {
    /// The workload of this name, or else the file at this path: one called as a workload is
    /// `./receive`.
    ///
    /// # Errors
    /// The file cannot be read, or is no regular file of at most 1 GiB.
    pub fn named(name: &str) -> Result<Self, Error> {
        match workload::named(name) {
            Some(file) => Ok(Self { place: name.into(), bytes: file.into() }),
            None => Self::read(Path::new(name)),
        }
    }

    /// The file at this path.
    ///
    /// # Errors
    /// As [`named`](Self::named).
    pub fn read(path: &Path) -> Result<Self, Error> {
        let bytes = haul_machine::file::read_limited(path, FILE_BYTES_MAX)
            .map_err(|error| Error::Program { path: path.into(), reason: error.to_string() })?;
        Ok(Self { place: path.into(), bytes: bytes.into() })
    }

    /// Its name or its path.
    #[must_use]
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// What the simulated machine loads.
    ///
    /// # Errors
    /// It is no program for the simulated machine.
    pub fn image(&self) -> Result<Image, Error> {
        Image::from_elf(&self.bytes)
            .map_err(|error| Error::Program { path: self.place.clone(), reason: error.to_string() })
    }

    /// A digest of its bytes, by which a record or a plan says what ran.
    #[must_use]
    pub fn digest(&self) -> String {
        format!("{:016x}", task::digest(&self.bytes))
    }
}

/// A text file of at most `bytes_max` bytes; the reason where it is none.
///
/// # Errors
/// It cannot be read, is no regular file or longer, or is not UTF-8.
pub fn text(path: &Path, bytes_max: u64) -> Result<String, String> {
    let bytes =
        haul_machine::file::read_limited(path, bytes_max).map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_goes_by_its_name_and_a_file_by_its_path() {
        for name in workload::names() {
            let program = Program::named(name).expect("haul holds it");
            assert!(program.image().is_ok(), "{name}");
            let file = tempfile::NamedTempFile::new().expect("a file");
            std::fs::write(&file, workload::named(name).expect("the same")).expect("written");
            let read = Program::read(file.path()).expect("it is there");
            assert_eq!(read.digest(), program.digest(), "{name}");
            assert!(Program::named(&format!("/nonexistent/{name}")).is_err());
        }
    }

    #[test]
    fn what_is_no_program_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("text.elf");
        std::fs::write(&path, "no program").expect("it is written");
        let program = Program::read(&path).expect("a file");
        let message = program.image().expect_err("text is no program").to_string();
        assert!(message.contains("text.elf"), "{message}");
        let message = Program::read(&folder.path().join("none")).expect_err("no file").to_string();
        assert!(message.contains("none"), "{message}");
    }
}
