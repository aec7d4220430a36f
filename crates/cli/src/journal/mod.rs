//! The destinations of records as they are measured: memory for the rendering, a file, standard
//! output.
//!
//! From the bottom up:
//!
//! - `folder`: the folder of a run's results;
//! - `record_file`: the record file, and the records of an earlier run.

mod folder;
mod record_file;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use haul_machine::file::{Destination, destination};
use haul_model::{Bytes, Line, Record};

use crate::error::Error;
use crate::stop::STOP;
use crate::terminal;
use folder::{folder_error, or_here, prove_writable};
use record_file::{create_locked, keep_earlier, lock_earlier, turn_in};

/// The outputs that must be opened before a command runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outputs {
    /// Whether every line goes to standard output as JSON.
    pub(crate) json: bool,
    /// A folder to make, with the name of its record file; the command writes more files there
    /// later.
    pub(crate) folder: Option<(PathBuf, String)>,
    /// Space that the results need in that folder.
    pub(crate) room: Bytes,
    /// Files outside of that folder that are replaced at the end, and devices and FIFOs that are
    /// written to.
    pub(crate) files: Vec<PathBuf>,
}

/// The lines of this run until now, and their other destinations.
#[derive(Debug)]
pub(crate) struct Journal {
    lines: Vec<Line>,
    json: bool,
    file: Option<(PathBuf, File)>,
    /// The new path of an earlier run's records. The file of this run now has their name.
    earlier: Option<PathBuf>,
    failure: Option<Error>,
}

impl Journal {
    /// Makes the folder, opens the record file and verifies that the other files can be written.
    ///
    /// # Errors
    /// The folder or a file cannot be made or written; nothing was measured yet.
    pub(crate) fn open(outputs: &Outputs) -> Result<Self, Error> {
        if outputs.json {
            terminal::output().map_err(Error::Output)?;
        }
        let folder = outputs.folder.as_ref().map(|(folder, name)| (or_here(folder), name));
        if let Some((folder, _)) = folder {
            fs::create_dir_all(folder).map_err(|reason| folder_error(folder, reason))?;
            prove_writable(folder, outputs.room)?;
        }
        for path in &outputs.files {
            if path.is_dir() {
                return Err(folder_error(path, io::ErrorKind::IsADirectory.into()));
            }
            // The stream was checked already, and needs no temporary file beside it.
            if let Destination::File(file) = destination(path)? {
                prove_writable(or_here(file.parent().unwrap_or(&file)), Bytes(0))?;
            }
        }
        let (mut file, mut earlier) = (None, None);
        if let Some((folder, name)) = folder {
            let path = folder.join(name);
            let _turn = turn_in(folder);
            let _earlier_lock = lock_earlier(&path)?;
            // This step comes last, so that a run which cannot begin does not rename an earlier
            // run's records.
            earlier = keep_earlier(&path)?;
            file = Some((path.clone(), create_locked(path)?));
        }
        Ok(Self { lines: Vec::new(), json: outputs.json, file, earlier, failure: None })
    }

    /// The present path of an earlier run's records, if this run has their name.
    pub(crate) fn earlier(&self) -> Option<&Path> {
        self.earlier.as_deref()
    }

    /// Renames an earlier run's records back if this run has no record: it was interrupted at once,
    /// and the earlier page and tuning still exist.
    ///
    /// # Errors
    /// The file cannot be renamed.
    pub(crate) fn put_back(&mut self) -> Result<(), Error> {
        if self.records().next().is_some() {
            return Ok(());
        }
        match (&self.file, self.earlier.take()) {
            (Some((path, _)), Some(earlier)) => {
                fs::rename(earlier, path).map_err(|reason| folder_error(path, reason))
            }
            _ => Ok(()),
        }
    }

    /// All lines recorded until now.
    pub(crate) fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// The records among the lines.
    pub(crate) fn records(&self) -> impl Iterator<Item = &Record> {
        self.lines.iter().filter_map(|line| match line {
            Line::Record(record) => Some(record),
            Line::Machine(_) => None,
        })
    }

    /// Says which records of an interrupted run are kept, and where.
    pub(crate) fn kept(&self) -> String {
        let records = match self.records().count() {
            0 => {
                return "nothing was measured before the interrupt, so nothing is kept".into();
            }
            1 => "1 record".to_owned(),
            several => format!("{several} records"),
        };
        match (&self.file, self.json) {
            (Some((path, _)), _) => {
                format!("kept {records} in {}", path.display())
            }
            (None, true) => format!("kept {records}, printed on standard output"),
            (None, false) => {
                format!("kept {records}: the figures shown are of these only")
            }
        }
    }

    /// Adds a line. The line has been written to the file and to standard output when this
    /// returns. The first failure is kept and ends the measurement; [`check`](Self::check)
    /// returns it.
    pub(crate) fn add(&mut self, line: impl Into<Line>) {
        let line = line.into();
        if self.failure.is_none()
            && let Err(error) = self.write(&line)
        {
            self.failure = Some(error);
            STOP.store(true, Ordering::Relaxed);
        }
        self.lines.push(line);
    }

    /// # Errors
    ///
    /// The first failure to write a line.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        self.failure.take().map_or(Ok(()), Err)
    }

    fn write(&mut self, line: &Line) -> Result<(), Error> {
        let text = line.to_json();
        if let Some((path, file)) = &mut self.file {
            // One write per line: a reader sees complete lines, also after a crash.
            file.write_all(format!("{text}\n").as_bytes()).map_err(|reason| Error::Record {
                path: path.clone(),
                reason,
                kept: self.lines.len(),
            })?;
        }
        if self.json { terminal::print(&text) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(subject: &str) -> Record {
        let mut record = Record::new("run", "copy.size", subject, "time", "ns");
        record.samples = vec![1.0];
        record
    }

    #[test]
    fn journal_writes_each_line_before_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let outputs = Outputs {
            folder: Some((folder.path().join("new/deeper"), "survey.jsonl".into())),
            ..Outputs::default()
        };
        let mut journal = Journal::open(&outputs).unwrap();
        for (count, subject) in ["haul", "libc"].iter().enumerate() {
            journal.add(record(subject));
            let text = fs::read_to_string(folder.path().join("new/deeper/survey.jsonl")).unwrap();
            assert_eq!(haul_model::parse(&text).unwrap().len(), count + 1);
        }
        journal.check().unwrap();
        let left: Vec<_> = fs::read_dir(folder.path().join("new/deeper")).unwrap().collect();
        assert_eq!(left.len(), 1, "the probe file was not removed");
    }

    #[test]
    fn interrupted_runs_keep_records_of_a_complete_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("survey.jsonl");
        let open = || {
            let folder = Some((folder.path().to_owned(), "survey.jsonl".to_owned()));
            Journal::open(&Outputs { folder, ..Outputs::default() }).unwrap()
        };
        let subject = |name: &str| {
            let text = fs::read_to_string(folder.path().join(name)).unwrap();
            match haul_model::parse(&text).unwrap().as_slice() {
                [Line::Record(record)] => record.subject.clone(),
                other => panic!("{other:?}"),
            }
        };
        open().add(record("complete"));
        for _ in 0..2 {
            let mut journal = open();
            assert_eq!(subject("survey.jsonl.old"), "complete");
            journal.put_back().unwrap();
            assert_eq!(subject("survey.jsonl"), "complete");
        }
        for name in ["first", "second"] {
            let mut journal = open();
            journal.add(record(name));
            journal.put_back().unwrap();
        }
        assert_eq!(subject("survey.jsonl.old"), "complete");
        assert_eq!(subject("survey.jsonl.old.2"), "first");
        assert_eq!(subject("survey.jsonl"), "second");
        // A run that is killed before its first record leaves nothing to keep.
        drop(open());
        assert_eq!(fs::read_to_string(&path).unwrap(), "");
        assert!(open().earlier().is_none());
        assert_eq!(subject("survey.jsonl.old.3"), "second");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
    }

    #[test]
    fn journal_refuses_name_that_another_run_writes() {
        let folder = tempfile::tempdir().unwrap();
        let open = || {
            let folder = Some((folder.path().to_owned(), "survey.jsonl".to_owned()));
            Journal::open(&Outputs { folder, ..Outputs::default() })
        };
        let mut first = open().unwrap();
        for _ in 0..2 {
            // Before its first record, and after it.
            let error = open().unwrap_err();
            assert!(matches!(error, Error::Busy { .. }), "{error}");
            let message = error.to_string();
            // If the kernel lists no locks, the holder is only "another process".
            assert!(
                message.contains("process") && message.contains(" has locked them"),
                "{message}"
            );
            first.add(record("first"));
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        drop(first);
        assert!(open().unwrap().earlier().is_some());
    }

    #[test]
    fn full_disk_ends_run_and_keeps_lines_in_memory() {
        let path = PathBuf::from("/dev/full");
        if !path.exists() {
            terminal::say("SKIPPED: a full disk: no file /dev/full: mount /dev");
            return;
        }
        let file = File::options().write(true).open(&path).unwrap();
        let mut journal =
            Journal { file: Some((path, file)), ..Journal::open(&Outputs::default()).unwrap() };
        journal.add(record("haul"));
        journal.add(record("libc"));
        assert!(STOP.load(Ordering::Relaxed));
        let error = journal.check().unwrap_err();
        assert!(matches!(error, Error::Record { kept: 0, .. }), "{error}");
        assert_eq!(journal.lines().len(), 2);
    }

    #[test]
    fn journal_refuses_impossible_folder_at_open() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        for wanted in [file.clone(), file.join("below")] {
            let outputs =
                Outputs { folder: Some((wanted, "survey.jsonl".into())), ..Outputs::default() };
            let message = Journal::open(&outputs).unwrap_err().to_string();
            assert!(message.contains("that is a file"), "{message}");
        }
    }
}
