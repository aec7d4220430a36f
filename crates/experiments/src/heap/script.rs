//! The steps of a replay, as a file between a run and its drivers: the run translates the trace
//! into steps once, so that this work does not disturb a driver's heap.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use haul_model::trace::{History, Kind};

use crate::drive::Folder;
use crate::error::Error;

/// Bytes of a step in the file.
const STEP_BYTES: usize = 24;

/// One step: the operation of a driver's thread on one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// The size of the block after the step, in bytes; at least 1.
    pub(super) size: u64,
    /// The block.
    pub(super) block: u32,
    /// The number of earlier steps of this block.
    pub(super) turn: u32,
    /// The recorded thread.
    pub(super) thread: u16,
    /// The alignment is 2 to this power.
    pub(super) align_log2: u8,
    /// The operation.
    pub(super) kind: Kind,
}

/// A file of steps, in a folder that is removed when this value is dropped.
#[derive(Debug)]
pub(super) struct Script {
    path: PathBuf,
    _folder: Folder,
}

impl Script {
    /// Writes the steps of a history into a new file that only this user can read.
    ///
    /// # Errors
    /// There is no space for the file: 24 bytes per operation.
    pub(super) fn write(history: &History) -> Result<Self, Error> {
        let failed = |path: PathBuf| {
            |reason: io::Error| Error::TraceFile {
                attempt: "write the steps of the replay to",
                path,
                reason,
                remedy: "make room there, or name another folder in TMPDIR",
            }
        };
        let folder = Folder::new("replay").map_err(failed(std::env::temp_dir()))?;
        let path = folder.path().join("steps");
        let mut options = File::options();
        let file = options.write(true).create_new(true).mode(0o600).open(&path);
        let file = file.map_err(failed(path.clone()))?;
        let script = Self { path: path.clone(), _folder: folder };
        let mut output = BufWriter::new(file);
        let written = steps(history).try_for_each(|step| output.write_all(&step.to_bytes()));
        written.and_then(|()| output.flush()).map_err(failed(path))?;
        Ok(script)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// The steps of a history, in order.
fn steps(history: &History) -> impl Iterator<Item = Step> {
    let mut turns = vec![0_u32; history.blocks as usize];
    history.operations.iter().map(move |operation| {
        let next = &mut turns[operation.block as usize];
        let turn = *next;
        *next += 1;
        Step {
            // Some heaps have no block of 0 bytes.
            size: operation.size.max(1),
            block: operation.block,
            turn,
            thread: operation.thread,
            align_log2: operation.align_log2,
            kind: operation.kind,
        }
    })
}

/// Reads the steps of a file one by one.
pub(super) struct Reader {
    input: BufReader<File>,
    steps: usize,
}

impl Reader {
    /// # Errors
    /// The file cannot be opened.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let steps = file.metadata()?.len() / STEP_BYTES as u64;
        let steps = usize::try_from(steps).unwrap_or(usize::MAX);
        Ok(Self { input: BufReader::new(file), steps })
    }

    /// The number of steps in the file.
    pub(super) fn steps(&self) -> usize {
        self.steps
    }

    /// The next step.
    ///
    /// # Errors
    /// The file cannot be read, or is not valid.
    pub(super) fn next(&mut self) -> io::Result<Step> {
        let mut bytes = [0; STEP_BYTES];
        self.input.read_exact(&mut bytes)?;
        let step = Step::from_bytes(&bytes);
        step.ok_or_else(|| io::Error::other("it contains an invalid step"))
    }
}

impl Step {
    fn to_bytes(self) -> [u8; STEP_BYTES] {
        let mut bytes = [0; STEP_BYTES];
        bytes[..8].copy_from_slice(&self.size.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.block.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.turn.to_le_bytes());
        bytes[16..18].copy_from_slice(&self.thread.to_le_bytes());
        bytes[18] = self.align_log2;
        bytes[19] = match self.kind {
            Kind::Allocate => 1,
            Kind::AllocateZeroed => 2,
            Kind::Reallocate => 3,
            Kind::Free => 4,
        };
        bytes
    }

    fn from_bytes(bytes: &[u8; STEP_BYTES]) -> Option<Self> {
        let (size, rest) = bytes.split_first_chunk::<8>()?;
        let (block, rest) = rest.split_first_chunk::<4>()?;
        let (turn, rest) = rest.split_first_chunk::<4>()?;
        let (thread, rest) = rest.split_first_chunk::<2>()?;
        Some(Self {
            size: u64::from_le_bytes(*size),
            block: u32::from_le_bytes(*block),
            turn: u32::from_le_bytes(*turn),
            thread: u16::from_le_bytes(*thread),
            align_log2: rest[0],
            kind: match rest[1] {
                1 => Kind::Allocate,
                2 => Kind::AllocateZeroed,
                3 => Kind::Reallocate,
                4 => Kind::Free,
                _ => return None,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use haul_model::trace::Operation;

    use super::*;

    #[test]
    fn steps_are_read_as_written_and_file_is_removed() {
        let operation = |block, kind, size| Operation {
            time_ns: 0,
            size,
            block,
            took_ns: 0,
            thread: 3,
            tag: 0,
            align_log2: 12,
            kind,
        };
        let history = History {
            operations: vec![
                operation(0, Kind::Allocate, 0),
                operation(1, Kind::AllocateZeroed, 1 << 40),
                operation(0, Kind::Reallocate, 7),
                operation(0, Kind::Free, 7),
            ],
            blocks: 2,
            ..History::default()
        };
        let script = Script::write(&history).unwrap();
        let path = script.path().to_owned();
        let read = |path: &Path| -> io::Result<Vec<Step>> {
            let mut reader = Reader::open(path)?;
            (0..reader.steps()).map(|_| reader.next()).collect()
        };
        let steps = read(&path).unwrap();
        let turns: Vec<_> = steps.iter().map(|s| (s.block, s.turn, s.size, s.kind)).collect();
        assert_eq!(
            turns,
            [
                (0, 0, 1, Kind::Allocate),
                (1, 0, 1 << 40, Kind::AllocateZeroed),
                (0, 1, 7, Kind::Reallocate),
                (0, 2, 7, Kind::Free)
            ]
        );
        std::fs::write(&path, [9; STEP_BYTES]).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("invalid step"));
        drop(script);
        assert!(!path.exists());
    }
}
