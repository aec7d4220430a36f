//! The file that the profiled processes map.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use haul_experiments::drive::Folder;
use haul_model::Bytes;
use haul_model::profile::layout::{FILE_BYTES, MAGIC, VERSION, head};
use rustix::fs::FallocateFlags;

use crate::error::ProgramError;

/// The file of a run.
pub(super) struct Room {
    path: PathBuf,
    /// The folder of the file if it has no place beside the records. It is removed with this value.
    _folder: Option<Folder>,
}

impl Room {
    /// Creates the file with all its disk space, because a store of a process into a hole would end
    /// it on a full disk.
    pub(super) fn create(out: Option<&Path>, work_per_sample: u64) -> Result<Self, ProgramError> {
        let room = Bytes(FILE_BYTES as u64);
        let failed =
            |folder: PathBuf| move |reason| ProgramError::RecordingRoom { room, folder, reason };
        let (path, folder) = match out {
            Some(out) => (beside(out), None),
            None => {
                let folder = Folder::new("copy-profile").map_err(failed(std::env::temp_dir()))?;
                (folder.path().join("profile.mapped"), Some(folder))
            }
        };
        // The program may change its working folder, but the path must stay the same.
        let path = std::path::absolute(&path).unwrap_or(path);
        let parent = path.parent().unwrap_or(&path).to_owned();
        let made = Self::fill(&path, work_per_sample);
        if made.is_err() && folder.is_none() {
            let exists = |reason: &io::Error| reason.kind() == io::ErrorKind::AlreadyExists;
            if made.as_ref().is_err_and(exists) {
                return Err(ProgramError::TraceExists { path });
            }
            let _ = fs::remove_file(&path);
        }
        made.map_err(failed(parent))?;
        Ok(Self { path, _folder: folder })
    }

    fn fill(path: &Path, work_per_sample: u64) -> io::Result<()> {
        let mut options = fs::OpenOptions::new();
        let file: File = options.read(true).write(true).create_new(true).mode(0o600).open(path)?;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, FILE_BYTES as u64)?;
        file.write_all_at(&VERSION.to_ne_bytes(), head::VERSION_AT as u64)?;
        file.write_all_at(&work_per_sample.to_ne_bytes(), head::WORK_PER_SAMPLE as u64)?;
        file.write_all_at(&MAGIC, 0)
    }

    /// The path that processes open.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the file, once its content is kept elsewhere.
    pub(super) fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// `sort.jsonl.mapped` for `sort.jsonl`.
fn beside(out: &Path) -> PathBuf {
    let mut name = out.as_os_str().to_owned();
    name.push(".mapped");
    name.into()
}
