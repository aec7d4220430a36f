//! `haul report`: saved records as a page, a table, or again as records.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use haul_model::{Bytes, Line};

use super::{Command, refuse_replacing};
use crate::arguments;
use crate::error::{Error, InputError};
use crate::journal::{Journal, Outputs};
use crate::terminal;

/// Longest record file or standard input that is read, in bytes: the size of some hundred
/// surveys. A page needs all records in memory, where they need several times their length.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// First bytes of a gzip file (RFC 1952, section 2.3.1).
const GZIP: [u8; 2] = [0x1f, 0x8b];

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
    /// A file cannot be read, a line is not a record (unless it is the last line, cut off), or
    /// there is no record at all.
    pub(super) fn read(arguments: arguments::Report) -> Result<Self, Error> {
        let arguments::Report { files, out_file: out, csv, json, compact } = arguments;
        refuse_replacing(&files, &out)?;
        let mut lines = Vec::new();
        for path in &files {
            lines.extend(read_lines(path)?);
        }
        if !lines.iter().any(|line| matches!(line, Line::Record(_))) {
            let names: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
            return Err(InputError::NoRecords { names: names.join(", ") }.into());
        }
        let is_empty =
            |line: &&Line| matches!(line, Line::Record(record) if record.samples.is_empty());
        let empty = lines.iter().filter(is_empty).count();
        if empty > 0 {
            let (of, record) = (lines.len(), if empty == 1 { "line holds" } else { "lines hold" });
            terminal::say(&format!(
                "haul: warning: {empty} of {of} {record} a record without a sample, so its figure has no \
                 value; measure it again"
            ));
        }
        let lines = if compact { haul_report::compact(lines) } else { lines };
        Ok(Self { lines, out, csv, json: json || compact })
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
            (_, true, None) => return Ok(()), // the journal has printed the records
            (_, true, Some(_)) => {
                journal.lines().iter().map(|line| line.to_json() + "\n").collect()
            }
            (true, ..) => haul_report::csv(journal.lines()),
            (false, ..) => haul_report::html(journal.lines()),
        };
        match &self.out {
            Some(path) => {
                Ok(haul_machine::file::write_atomically(path, &packed(path, text.into_bytes()))?)
            }
            None => terminal::print(text.trim_end_matches('\n')),
        }
    }
}

pub(in crate::command) fn read_lines(path: &Path) -> Result<Vec<Line>, Error> {
    let (name, bytes) = if path == Path::new("-") {
        ("-".to_owned(), read_input(io::stdin().lock(), FILE_BYTES_MAX)?)
    } else {
        (path.display().to_string(), haul_machine::file::read_limited(path, FILE_BYTES_MAX)?)
    };
    let bytes = unpacked(&name, bytes, FILE_BYTES_MAX)?;
    // A byte that is not text becomes a line that is not JSON, and is reported with its number.
    readable(name, &String::from_utf8_lossy(&bytes))
}

/// Unpacks gzip data; returns other data unchanged.
fn unpacked(name: &str, bytes: Vec<u8>, limit_bytes: u64) -> Result<Vec<u8>, Error> {
    if !bytes.starts_with(&GZIP) {
        return Ok(bytes);
    }
    let error = |reason: String| InputError::Compressed { name: name.to_owned(), reason };
    let mut all = Vec::new();
    MultiGzDecoder::new(&bytes[..])
        .take(limit_bytes.saturating_add(1))
        .read_to_end(&mut all)
        .map_err(|reason| error(reason.to_string()))?;
    if all.len() as u64 > limit_bytes {
        return Err(error(format!("it holds more than {}", Bytes(limit_bytes))).into());
    }
    Ok(all)
}

/// Packs the text if the file's name ends in .gz. Equal records give equal bytes, because no time
/// is stored.
fn packed(path: &Path, text: Vec<u8>) -> Vec<u8> {
    if path.extension().is_none_or(|extension| extension != "gz") {
        return text;
    }
    let mut packer = GzEncoder::new(Vec::new(), Compression::best());
    packer.write_all(&text).and_then(|()| packer.finish()).expect("writing to a vector succeeds")
}

/// Reads all of standard input, or returns an error; never a part of it.
fn read_input(input: impl Read, limit_bytes: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    input
        .take(limit_bytes.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(InputError::Standard)?;
    if bytes.len() as u64 > limit_bytes {
        return Err(InputError::TooLong { limit: Bytes(limit_bytes) }.into());
    }
    Ok(bytes)
}

/// The lines of a file, without a last line that was cut off in the middle: its writer was
/// stopped, or had no more room. The lines before it are valid.
fn readable(name: String, text: &str) -> Result<Vec<Line>, Error> {
    let (lines, errors) = haul_model::parse_what_can_be(text);
    let last = text.trim_end().lines().count();
    match errors.into_iter().next() {
        None => Ok(lines),
        Some(cut) if !lines.is_empty() && cut.line == last && cut.is_cut_off() => {
            terminal::say(&format!(
                "haul: warning: {name}:{last}: the last line was cut off and is ignored; the {} lines \
                 before it are used",
                lines.len()
            ));
            Ok(lines)
        }
        Some(first) => Err(InputError::Line { name, line: first.line, error: first.error }.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_input_refuses_input_beyond_limit() {
        assert_eq!(read_input(&[b'a'; 100][..], 100).unwrap(), [b'a'; 100]);
        // The reader stops at the limit even if the input has no end.
        let error = read_input(io::repeat(b'a'), 100).unwrap_err().to_string();
        assert!(error.contains("100 B") && error.contains("fewer records"), "{error}");
    }

    #[test]
    fn unpacked_reverses_packed_up_to_limit() {
        let packed = packed(Path::new("a.jsonl.gz"), vec![b'a'; 100]);
        assert!(packed.len() < 50 && packed.starts_with(&GZIP));
        assert_eq!(unpacked("a", packed.clone(), 100).unwrap(), [b'a'; 100]);
        // Two packed files, one after the other, unpack to one.
        assert_eq!(unpacked("a", [&packed[..], &packed].concat(), 200).unwrap(), [b'a'; 200]);
        let error = unpacked("a.gz", packed.clone(), 99).unwrap_err().to_string();
        assert!(error.contains("a.gz") && error.contains("more than 99 B"), "{error}");
        for length in 2..packed.len() {
            let error = unpacked("a.gz", packed[..length].to_vec(), 100).unwrap_err().to_string();
            assert!(error.contains("cannot unpack a.gz"), "{error}");
        }
        assert_eq!(unpacked("a", b"{}".to_vec(), 1).unwrap(), b"{}");
    }
}
