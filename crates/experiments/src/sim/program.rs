//! The program of a run: the name of a workload that is part of haul, or an ELF file.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use haul_sim::{Image, workload};

use super::task;
use crate::error::Error;

/// The largest program file that is read, in bytes: larger than any that fits into the simulated
/// memory.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// The bytes of a program's file.
#[derive(Clone, Debug)]
pub struct Program {
    /// The workload's name, or the file's path.
    place: PathBuf,
    bytes: Cow<'static, [u8]>,
}

impl Program {
    /// The workload of this name, or else the file at this path. A path such as `./receive` names
    /// a file that has the same name as a workload.
    ///
    /// # Errors
    /// The file cannot be read, or is not a regular file of at most 1 GiB.
    pub fn named(name: &str) -> Result<Self, Error> {
        match workload::named(name) {
            Some(file) => Ok(Self { place: name.into(), bytes: file.into() }),
            None => Self::read(Path::new(name)),
        }
    }

    /// The file at this path.
    ///
    /// # Errors
    /// Those of [`named`](Self::named).
    pub fn read(path: &Path) -> Result<Self, Error> {
        let bytes = haul_machine::file::read_limited(path, FILE_BYTES_MAX)
            .map_err(|error| Error::Program { path: path.into(), reason: error.to_string() })?;
        Ok(Self { place: path.into(), bytes: bytes.into() })
    }

    /// The program's name or path.
    #[must_use]
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// The image that the simulated machine loads.
    ///
    /// # Errors
    /// The file is not a program for the simulated machine.
    pub fn image(&self) -> Result<Image, Error> {
        Image::from_elf(&self.bytes)
            .map_err(|error| Error::Program { path: self.place.clone(), reason: error.to_string() })
    }

    /// A digest of the program's bytes, by which a record or a plan identifies the program.
    #[must_use]
    pub fn digest(&self) -> String {
        format!("{:016x}", task::digest(&self.bytes))
    }
}

/// A text file of at most `bytes_max` bytes, or the reason why it cannot be read.
///
/// # Errors
/// The file cannot be read, is not a regular file, is longer, or is not UTF-8.
pub fn text(path: &Path, bytes_max: u64) -> Result<String, String> {
    let bytes =
        haul_machine::file::read_limited(path, bytes_max).map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_finds_workload_by_name_and_file_by_path() {
        for name in workload::names() {
            let program = Program::named(name).expect("haul holds it");
            assert!(program.image().is_ok(), "{name}");
            let file = tempfile::NamedTempFile::new().expect("a file");
            std::fs::write(&file, workload::named(name).expect("the same")).expect("written");
            let read = Program::read(file.path()).expect("it exists");
            assert_eq!(read.digest(), program.digest(), "{name}");
            assert!(Program::named(&format!("/nonexistent/{name}")).is_err());
        }
    }

    #[test]
    fn image_names_file_that_is_not_a_program() {
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
