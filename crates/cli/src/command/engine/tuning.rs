//! The break-even sizes in a `haul.toml`, from the records of `haul engine bench`.

use std::path::{Path, PathBuf};

use haul::copy::Policy;
use haul_experiments::context::now;
use haul_experiments::engine::{Subject, break_even};
use haul_machine::file::{Destination, destination};
use haul_machine::tuning::{Evidence, Tuning};
use haul_model::Record;
use haul_model::experiment::{key, name};

use crate::command::this_machine;
use crate::command::tuning::{Tables, what_next};
use crate::error::Error;

/// The file, whose other parts stay as they are.
pub(super) struct File {
    pub(super) path: PathBuf,
}

impl File {
    /// Checks the path, and what the file has until now.
    ///
    /// # Errors
    /// The path is a device or a FIFO; the file cannot be read, or is for another machine.
    pub(super) fn check(path: PathBuf) -> Result<Self, Error> {
        if let Ok(Destination::Stream(_)) = destination(&path) {
            return Err(Error::TuneInto { path });
        }
        let file = Self { path };
        file.read()?;
        Ok(file)
    }

    /// The folder of the records behind the file, and their name.
    pub(super) fn records(&self) -> (PathBuf, String) {
        let folder = self.path.parent().unwrap_or(Path::new("")).to_path_buf();
        let stem = self.path.file_stem().unwrap_or_default().to_string_lossy();
        (folder, format!("{stem}.engine.jsonl"))
    }

    /// The file's content; without a file, one that changes nothing.
    fn read(&self) -> Result<Tuning, Error> {
        let machine = this_machine().id;
        if !self.path.exists() {
            let mut tuning = Tuning::new(&machine, &now(), Policy::current());
            tuning.choices.clear();
            tuning.copy.clear();
            return Ok(tuning);
        }
        let tuning = Tuning::read(&self.path)?;
        tuning.check_machine(&machine)?;
        Ok(tuning)
    }

    /// Writes the sizes of these records, and returns a sentence for the user. Leaves the file as
    /// it is if the records do not decide the sizes.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub(super) fn write(&self, records: &[Record]) -> Result<String, Error> {
        let path = self.path.display();
        let Some(sizes) = break_even::sizes(records.iter()) else {
            return Ok(format!(
                "{path} was not written: without worker at 1 MiB or more, with free processors and \
                 undisturbed, no size is known from which it pays; see --engine, --sizes and --busy-core"
            ));
        };
        let mut tuning = self.read()?;
        (tuning.engine, tuning.written) = (Some(sizes), now());
        tuning.evidence.retain(|evidence| evidence.experiment != name::ENGINE_LATENCY);
        let is_evidence = |record: &&Record| {
            let size = record.count(key::SIZE_BYTES).and_then(|size| usize::try_from(size).ok());
            record.experiment == name::ENGINE_LATENCY
                && record.subject == Subject::Worker.name()
                && record.count(key::BUSY_CORE) == Some(0)
                && size == Some(sizes.idle)
        };
        let (_, file) = self.records();
        let found = records.iter().filter(is_evidence);
        tuning.evidence.extend(found.filter_map(|record| Evidence::of(record, &file)));
        tuning.write(&self.path)?;
        let is_tuned = !(tuning.choices.is_empty() && tuning.copy.is_empty());
        Ok(what_next(&self.path, is_tuned, Tables::of(&tuning)))
    }
}
