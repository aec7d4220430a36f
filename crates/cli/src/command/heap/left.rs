//! The traces that a recording left: one for each program that each process executed.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use haul_experiments::Error;
use haul_experiments::heap::{Part, Trace};
use haul_model::trace::{BLOCK_HEADER_BYTES, BlockHeader, HEADER_BYTES, Header};

/// Placeholder for the process in a trace's name.
const PROCESS: &[u8] = b"%p";

/// The names of the traces of a run.
pub(super) struct Names {
    folder: PathBuf,
    name: Vec<u8>,
}

/// One trace.
#[derive(Clone, Debug)]
pub(super) struct Left {
    pub(super) path: PathBuf,
    pub(super) process: u32,
    pub(super) program: String,
    /// The start of the trace, by the machine's clock.
    began_ns: u64,
    event_bytes: u64,
    has_operations: bool,
}

impl Names {
    /// The names of the traces of a run that was given this name.
    pub(super) fn of(out: &Path) -> Self {
        let folder = out.parent().unwrap_or(Path::new(".")).to_owned();
        Self { folder, name: out.file_name().unwrap_or_default().as_bytes().to_vec() }
    }

    /// Whether the name itself has a placeholder for the process. No trace then has exactly this
    /// name.
    pub(super) fn have_process(&self) -> bool {
        self.name.windows(PROCESS.len()).any(|pair| pair == PROCESS)
    }

    /// The recorder's name for the first trace of a process.
    fn of_process(&self, process: u32) -> Vec<u8> {
        let process = process.to_string();
        if !self.have_process() {
            return [&self.name, &b"."[..], process.as_bytes()].concat();
        }
        let (mut name, mut rest) = (Vec::new(), &self.name[..]);
        while let Some(at) = rest.windows(PROCESS.len()).position(|pair| pair == PROCESS) {
            name.extend_from_slice(&rest[..at]);
            name.extend_from_slice(process.as_bytes());
            rest = &rest[at + PROCESS.len()..];
        }
        name.extend_from_slice(rest);
        name
    }

    /// The existing traces, in the order of their start.
    pub(super) fn traces(&self) -> Vec<Left> {
        let begins = self.name.windows(PROCESS.len()).position(|pair| pair == PROCESS);
        let begins = &self.name[..begins.unwrap_or(self.name.len())];
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let could_be = |name: &OsStr| name.as_bytes().starts_with(begins);
        let paths = entries.filter(|entry| could_be(&entry.file_name())).map(|entry| entry.path());
        let mut traces: Vec<Left> = paths
            .filter_map(Left::read)
            .filter(|left| {
                let name = left.path.file_name().unwrap_or_default().as_bytes();
                let rest = name.strip_prefix(&self.of_process(left.process)[..]);
                rest.is_some_and(is_number_of_a_program)
            })
            .collect();
        traces.sort_by_key(|left| left.began_ns);
        traces
    }

    /// A pattern for every trace but the main one, for a person.
    pub(super) fn others(&self) -> PathBuf {
        let name = match self.have_process() {
            true => self.name.clone(),
            false => [&self.name, &b".PROCESS"[..]].concat(),
        };
        self.folder.join(OsString::from_vec(name))
    }
}

/// Nothing, or a dot and a number: a process that executes another program begins another trace.
fn is_number_of_a_program(rest: &[u8]) -> bool {
    rest.is_empty()
        || rest
            .strip_prefix(b".")
            .is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit))
}

impl Left {
    /// `None` if the file is not a trace.
    fn read(path: PathBuf) -> Option<Self> {
        // Opening a FIFO would block.
        fs::symlink_metadata(&path).ok().filter(fs::Metadata::is_file)?;
        let mut file = File::open(&path).ok()?;
        let mut bytes = [0; HEADER_BYTES];
        file.read_exact(&mut bytes).ok()?;
        let header = Header::parse(&bytes).ok()?;
        let event_bytes = event_bytes(&mut file, &header);
        Some(Self {
            process: header.process,
            program: header.program_name(),
            began_ns: header.clock_ns,
            event_bytes,
            has_operations: has_operations(&path, event_bytes),
            path,
        })
    }
}

/// Bytes of events in all blocks, according to their headers.
fn event_bytes(file: &mut File, header: &Header) -> u64 {
    let mut bytes = [0; BLOCK_HEADER_BYTES];
    let (mut at, mut sum) = (u64::from(header.header_bytes), 0);
    loop {
        let read = file.seek(SeekFrom::Start(at)).and_then(|_| file.read_exact(&mut bytes));
        if read.is_err() {
            return sum;
        }
        // The reader of the trace reports damaged blocks.
        if let Ok(Some(block)) = BlockHeader::parse(&bytes, header.block_bytes) {
            sum += u64::from(block.used_bytes);
        }
        at += u64::from(header.block_bytes);
    }
}

/// Whether a trace is useful: a short one may hold only the frees of blocks that a parent had
/// allocated.
fn has_operations(path: &Path, event_bytes: u64) -> bool {
    /// A trace with more bytes than this contains some thousand calls.
    const SHORT_BYTES: u64 = 64 << 10;
    let is_empty =
        || matches!(Trace::read(path, usize::MAX, Part::All), Err(Error::EmptyTrace { .. }));
    event_bytes > SHORT_BYTES || (event_bytes > 0 && !is_empty())
}

/// Removes the traces without an operation.
pub(super) fn without_empty(traces: Vec<Left>) -> Vec<Left> {
    let (kept, empty): (Vec<Left>, Vec<Left>) =
        traces.into_iter().partition(|it| it.has_operations);
    for left in empty {
        // If the removal fails, the empty trace stays.
        let _ = fs::remove_file(left.path);
    }
    kept
}

/// The trace of the requested program: the last program that the process executed, because a shim
/// executes the real program. If that program left no trace, returns the longest trace of the
/// processes that it started.
pub(super) fn asked_for(traces: &[Left], process: u32) -> Option<&Left> {
    let own = traces.iter().rfind(|left| left.process == process);
    own.or_else(|| longest(traces))
}

/// The longest of some traces.
pub(super) fn longest<'a>(traces: impl IntoIterator<Item = &'a Left>) -> Option<&'a Left> {
    traces.into_iter().max_by_key(|left| left.event_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_hold_process_inside_or_at_end() {
        for (name, expected) in
            [("a.trace", "a.trace.71"), ("%p.trace", "71.trace"), ("a%p-%p%", "a71-71%")]
        {
            let names = Names::of(&Path::new("/folder%p").join(name));
            assert_eq!(names.of_process(71), expected.as_bytes(), "{name}");
        }
        for (rest, is_one) in [("", true), (".1", true), (".12", true), (".", false), ("0", false)]
        {
            assert_eq!(is_number_of_a_program(rest.as_bytes()), is_one, "{rest:?}");
        }
    }

    #[test]
    fn asked_for_is_last_program_of_process() {
        let left = |process, program: &str, event_bytes| Left {
            path: program.into(),
            process,
            program: program.into(),
            began_ns: 0,
            event_bytes,
            has_operations: true,
        };
        let traces = [left(1, "shim", 9), left(2, "helper", 99), left(1, "program", 5)];
        assert_eq!(asked_for(&traces, 1).unwrap().program, "program");
        assert_eq!(asked_for(&traces, 3).unwrap().program, "helper");
        assert!(asked_for(&[], 1).is_none());
    }
}
