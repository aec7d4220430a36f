//! `haul report`: saved records as a page, a table, or records again.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use haul_model::{Bytes, Line};

use super::Command;
use crate::arguments;
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::terminal;

/// Longest record file, or standard input, that is read, in bytes: some hundred surveys. A page has
/// all of them in memory, several times their length.
const FILE_BYTES_MAX: u64 = 1 << 30;

pub(super) struct Report {
    lines: Vec<Line>,
    out: Option<PathBuf>,
    csv: bool,
    json: bool,
}

impl Report {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be read, a line (but a last one that was cut off) is no record, or there is no
    /// record at all.
    pub(super) fn read(arguments: arguments::Report) -> Result<Self, Error> {
        let arguments::Report { files, out, csv, json } = arguments;
        let mut lines = Vec::new();
        for path in &files {
            lines.extend(read_lines(path)?);
        }
        if !lines.iter().any(|line| matches!(line, Line::Record(_))) {
            let names: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
            return Err(Error::NoRecords { names: names.join(", ") });
        }
        let is_empty =
            |line: &&Line| matches!(line, Line::Record(record) if record.samples.is_empty());
        let empty = lines.iter().filter(is_empty).count();
        if empty > 0 {
            let (of, record) = (lines.len(), if empty == 1 { "line holds" } else { "lines hold" });
            terminal::say(&format!(
                "haul: warning: {empty} of {of} {record} a record without a sample: a figure without a \
                 value; measure again for it"
            ));
        }
        Ok(Self { lines, out, csv, json })
    }
}

impl Command for Report {
    fn outputs(&self) -> Outputs {
        let files = self.out.iter().cloned().collect();
        Outputs { json: self.json && self.out.is_none(), files, ..Outputs::default() }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        self.lines.iter().for_each(|line| journal.add(line.clone()));
        journal.check()
    }

    fn render(&self, journal: &Journal) -> Result<(), Error> {
        let text = match (self.csv, self.json, &self.out) {
            (_, true, None) => return Ok(()), // the journal has printed them
            (_, true, Some(_)) => {
                journal.lines().iter().map(|line| line.to_json() + "\n").collect()
            }
            (true, ..) => haul_report::csv(journal.lines()),
            (false, ..) => haul_report::html(journal.lines()),
        };
        match &self.out {
            Some(path) => Ok(haul::file::write_atomically(path, text.as_bytes())?),
            None => terminal::print(text.trim_end_matches('\n')),
        }
    }
}

pub(super) fn read_lines(path: &Path) -> Result<Vec<Line>, Error> {
    let (name, bytes) = if path == Path::new("-") {
        ("-".to_owned(), read_input(io::stdin().lock(), FILE_BYTES_MAX)?)
    } else {
        (path.display().to_string(), haul::file::read_limited(path, FILE_BYTES_MAX)?)
    };
    // A byte that is no text is found again as a line that is no JSON, with its number.
    readable(name, &String::from_utf8_lossy(&bytes))
}

/// All of standard input, or an error: never a part of it.
fn read_input(input: impl Read, limit_bytes: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    input.take(limit_bytes.saturating_add(1)).read_to_end(&mut bytes).map_err(Error::Input)?;
    if bytes.len() as u64 > limit_bytes {
        return Err(Error::InputTooLong { limit: Bytes(limit_bytes) });
    }
    Ok(bytes)
}

/// The lines of a file, without its last one where that was cut off in the middle: its writer was
/// stopped, or ran out of room, and everything before it is worth a page.
fn readable(name: String, text: &str) -> Result<Vec<Line>, Error> {
    let (lines, errors) = haul_model::parse_what_can_be(text);
    let last = text.trim_end().lines().count();
    match errors.into_iter().next() {
        None => Ok(lines),
        Some(cut) if !lines.is_empty() && cut.line == last && cut.is_cut_off() => {
            terminal::say(&format!(
                "haul: warning: {name}:{last}: the last line was cut off and is left out; the {} \
                 before it are used",
                lines.len()
            ));
            Ok(lines)
        }
        Some(first) => Err(Error::Line { name, line: first.line, error: first.error }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_beyond_the_limit_is_an_error_and_not_cut_off() {
        assert_eq!(read_input(&[b'a'; 100][..], 100).unwrap(), [b'a'; 100]);
        // Whoever writes without end is not read without end.
        let error = read_input(io::repeat(b'a'), 100).unwrap_err().to_string();
        assert!(error.contains("100 B") && error.contains("fewer records"), "{error}");
    }
}
