//! The file that the recorded processes write, in a folder that is removed with the run.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use haul_experiments::drive::Folder;
use haul_model::Bytes;
use haul_model::stream::recording::layout::{self, BLOCK_BYTES, head, process};
use rustix::fs::FallocateFlags;

use crate::error::ProgramError;

/// Processes and threads of one run for which there is room: a build of a large program.
const PROCESSES: u32 = 8192;
const THREADS: u32 = 16_384;

/// The fewest blocks: a process has one for its mappings, one for its calls, one for its samples.
const BLOCKS_MIN: u64 = 4;

/// The settings of a recording.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) calls: u64,
    pub(super) skip: u64,
    pub(super) sample: u64,
    pub(super) room: Bytes,
}

/// The file of a run.
pub(super) struct Room {
    folder: Folder,
    file: File,
}

impl Room {
    /// Creates the file with all its disk space, because a store of a process into a hole would end
    /// it on a full disk.
    pub(super) fn create(settings: Settings) -> Result<Self, ProgramError> {
        let failed = |reason: io::Error| ProgramError::RecordingRoom {
            room: settings.room,
            folder: std::env::temp_dir(),
            reason,
        };
        let folder = Folder::new("copy-record").map_err(failed)?;
        let room = Self { file: Self::new_file(&folder).map_err(failed)?, folder };
        room.fill(settings).map_err(failed)?;
        Ok(room)
    }

    fn new_file(folder: &Folder) -> io::Result<File> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        options.open(folder.path().join(NAME))
    }

    fn fill(&self, settings: Settings) -> io::Result<()> {
        let blocks = (settings.room.0 / BLOCK_BYTES as u64).max(BLOCKS_MIN);
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        let blocks_at = layout::blocks_at(PROCESSES as usize, THREADS as usize) as u64;
        let length = blocks_at + u64::from(blocks) * BLOCK_BYTES as u64;
        rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, length)?;
        for (at, number) in [
            (head::VERSION_AT, layout::VERSION),
            (head::PROCESSES, PROCESSES),
            (head::THREADS, THREADS),
            (head::BLOCKS, blocks),
        ] {
            self.file.write_all_at(&number.to_ne_bytes(), at as u64)?;
        }
        let Settings { calls, skip, sample, .. } = settings;
        for (at, number) in [(head::CALLS, calls), (head::SKIP, skip), (head::SAMPLE, sample)] {
            self.file.write_all_at(&number.to_ne_bytes(), at as u64)?;
        }
        self.file.write_all_at(&layout::MAGIC, 0)
    }

    /// The path that processes open.
    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join(NAME)
    }

    /// The IDs of the processes until now, in the order of their starts.
    pub(super) fn processes(&self) -> Vec<u32> {
        let count = self.number(head::NEXT_PROCESS).min(PROCESSES);
        let at = |index: u32| layout::HEADER_BYTES + index as usize * layout::PROCESS_BYTES;
        (0..count).map(|index| self.number(at(index) + process::ID)).collect()
    }

    /// The used part of the file.
    pub(super) fn read(&self) -> io::Result<Vec<u8>> {
        let blocks = self.number(head::NEXT_BLOCK).min(self.number(head::BLOCKS));
        let blocks_at = layout::blocks_at(PROCESSES as usize, THREADS as usize);
        let mut bytes = vec![0; blocks_at + blocks as usize * BLOCK_BYTES];
        self.file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    fn number(&self, at: usize) -> u32 {
        let mut bytes = [0; 4];
        match self.file.read_exact_at(&mut bytes, at as u64) {
            Ok(()) => u32::from_ne_bytes(bytes),
            Err(_) => 0,
        }
    }
}

/// The file's name in its folder.
const NAME: &str = "recording";
