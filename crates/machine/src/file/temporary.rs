//! Names of temporary files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The temporary names that this process uses.
static GIVEN: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A temporary name for a file. The file is removed when this value is dropped, unless it was
/// renamed before, or when [`remove_temporary_files`] is called.
///
/// ```
/// let folder = std::env::temp_dir();
/// let temporary = haul_machine::file::Temporary::beside(&folder.join("page.html"));
/// std::fs::write(temporary.path(), "half")?;
/// let path = temporary.path().to_owned();
/// drop(temporary);
/// assert!(!path.exists());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Temporary(PathBuf);

impl Temporary {
    /// Chooses a hidden name in the folder of `path` that no other process or thread uses.
    /// Creates no file.
    #[must_use]
    pub fn beside(path: &Path) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let path = path.with_file_name(format!(".{name}.{}.{number}.tmp", process::id()));
        given().push(path.clone());
        Self(path)
    }

    /// The name.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Renames the file to its final name, and replaces a file with this name.
    ///
    /// # Errors
    /// The system's reason; the temporary file is then removed.
    pub fn rename(self, path: &Path) -> io::Result<()> {
        fs::rename(&self.0, path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // The file may have been renamed, or never created.
        let _ = fs::remove_file(&self.0);
        given().retain(|path| *path != self.0);
    }
}

/// Removes all temporary files of this process. To be called if the process ends early.
pub fn remove_temporary_files() {
    for path in given().drain(..) {
        let _ = fs::remove_file(path);
    }
}

fn given() -> MutexGuard<'static, Vec<PathBuf>> {
    GIVEN.lock().unwrap_or_else(PoisonError::into_inner)
}
