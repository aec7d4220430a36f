//! A recorded history of allocations, read from its file block by block.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use haul_model::trace::{Builder, HEADER_BYTES, Header, History, Kind, TraceError};

use crate::error::Error;

/// The default limit of a trace's operations: they take about 5 GB while they are read.
pub const OPERATIONS_MAX: usize = 1 << 26;

/// The heaps of a recorded program whose operations are replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// Both heaps.
    #[default]
    All,
    /// `malloc` and its family: the operations without a tag.
    Malloc,
    /// `rte_malloc` and its family: the operations with a tag.
    Rte,
}

/// A trace that has been read.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The path of the trace's file.
    pub path: PathBuf,
    /// The header of the trace.
    pub header: Header,
    /// The operations of the trace.
    pub history: History,
}

impl Trace {
    /// Reads a file of at most `limit` operations. Memory: about 80 B per operation.
    ///
    /// # Errors
    /// The file cannot be read, is not a trace, is too long, or has no operation of this part.
    pub fn read(path: &Path, limit: usize, part: Part) -> Result<Self, Error> {
        let bad_file = |reason: io::Error| Error::TraceFile {
            attempt: "read",
            path: path.into(),
            reason,
            remedy: "name a file that libhaul_record.so wrote",
        };
        let bad_trace = |reason: TraceError| Error::Trace { path: path.into(), reason };
        // Only regular files are read: a read from a pipe would wait, and a device may never end.
        let status = std::fs::metadata(path).map_err(bad_file)?;
        if !status.is_file() {
            return Err(bad_file(io::Error::other("it is not a regular file")));
        }
        let mut file = File::open(path).map_err(bad_file)?;
        let mut bytes = vec![0; HEADER_BYTES];
        let length = fill(&mut file, &mut bytes).map_err(bad_file)?;
        let header = Header::parse(&bytes[..length]).map_err(bad_trace)?;
        let rest = u64::from(header.header_bytes) - HEADER_BYTES as u64;
        io::copy(&mut (&mut file).take(rest), &mut io::sink()).map_err(bad_file)?;
        let mut builder = Builder::new(limit);
        // A header may contain a wrong size of its blocks, so the file's length limits the size.
        let room = u64::from(header.block_bytes).min(status.len()) as usize;
        let mut block = vec![0; room];
        loop {
            let length = fill(&mut file, &mut block).map_err(bad_file)?;
            if length == 0 {
                break;
            }
            builder.add_block(&block[..length], &header).map_err(bad_trace)?;
        }
        let mut history = builder.build();
        let filtered = !history.operations.is_empty();
        keep(&mut history, part);
        if history.operations.is_empty() {
            return Err(Error::EmptyTrace { path: path.into(), filtered });
        }
        Ok(Self { path: path.into(), header, history })
    }

    /// The file's name in records.
    #[must_use]
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        name.to_string_lossy()
            .chars()
            .map(|c| if c.is_control() { '\u{fffd}' } else { c })
            .collect()
    }

    /// Notes for the reader about this trace; empty for a complete recording.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        let oddities = self.history.oddities;
        [
            (oddities.unknown, "frees of blocks from before the recording"),
            (oddities.unfreed, "frees missing"),
            (oddities.failed, "allocations that failed"),
            (oddities.lost, "calls that were not recorded"),
            (oddities.damaged, "blocks of the file damaged"),
        ]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("in the trace, {what}: {count}"))
        .collect()
    }
}

/// The requested bytes that are live after each operation.
pub fn live_bytes(history: &History) -> impl Iterator<Item = u64> {
    let mut sizes = vec![0_u64; history.blocks as usize];
    let mut live = 0_u64;
    history.operations.iter().map(move |operation| {
        let size = &mut sizes[operation.block as usize];
        live = live.saturating_sub(*size);
        *size = if operation.kind == Kind::Free { 0 } else { operation.size };
        live = live.saturating_add(*size);
        live
    })
}

fn keep(history: &mut History, part: Part) {
    match part {
        Part::All => {}
        Part::Malloc => history.operations.retain(|operation| operation.tag == 0),
        Part::Rte => history.operations.retain(|operation| operation.tag != 0),
    }
}

/// Reads until the buffer is full or the file ends. Returns the number of bytes.
fn fill(file: &mut File, room: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < room.len() {
        match file.read(&mut room[length..]) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}
