//! The workload's ELF file: given, or built by `scripts/sim-workload` where it is missing or older
//! than its sources.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use haul_sim::Image;

use super::task;
use crate::error::Error;

/// The script, and the folder of the sources, below a repository's root.
const SCRIPT: &str = "scripts/sim-workload";
const SOURCES: &str = "crates/sim/workload";

/// Longest program file that is read, in bytes: more than any that fits the simulated memory.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Reads a program.
///
/// # Errors
/// It cannot be read, or is no program for the simulated machine.
pub fn read(path: &Path) -> Result<Image, Error> {
    let file = bytes(path)?;
    Image::from_elf(&file)
        .map_err(|error| Error::Program { path: path.into(), reason: error.to_string() })
}

/// A program file's bytes.
///
/// # Errors
/// It cannot be read, or is no regular file of at most 1 GiB.
pub fn bytes(path: &Path) -> Result<Vec<u8>, Error> {
    haul::file::read_limited(path, FILE_BYTES_MAX)
        .map_err(|error| Error::Program { path: path.into(), reason: error.to_string() })
}

/// A digest of a program file's bytes, by which a record or a plan says what ran.
///
/// # Errors
/// As [`bytes`].
pub fn digest(path: &Path) -> Result<String, Error> {
    Ok(format!("{:016x}", task::digest(&bytes(path)?)))
}

/// A text file of at most `bytes_max` bytes; the reason where it is none.
///
/// # Errors
/// It cannot be read, is no regular file or longer, or is not UTF-8.
pub fn text(path: &Path, bytes_max: u64) -> Result<String, String> {
    let bytes = haul::file::read_limited(path, bytes_max).map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|error| error.to_string())
}

/// The path of a workload's program, such as `receive`: built in the repository that this haul
/// belongs to, or else the current folder. Costs some seconds where it has to be built.
///
/// # Errors
/// There is no such repository, or the script fails: it names the compiler's package where that is
/// what is missing.
pub fn workload(name: &str) -> Result<PathBuf, Error> {
    let root = root().ok_or(Error::NoWorkload {
        reason: format!("no {SCRIPT} above the current folder or haul's own"),
    })?;
    let folder = root.join("target/sim");
    let program = folder.join(format!("{name}.elf"));
    if is_fresh(&root, &program) {
        return Ok(program);
    }
    let output = Command::new(root.join(SCRIPT))
        .arg(&folder)
        .output()
        .map_err(|error| Error::NoWorkload { reason: format!("{SCRIPT}: {error}") })?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        return Err(Error::NoWorkload { reason: told.trim().to_owned() });
    }
    if program.is_file() {
        return Ok(program);
    }
    Err(Error::NoWorkload { reason: format!("{SCRIPT} builds no {name}") })
}

/// The repository of this haul; where it has none, that of the current folder. In this order, so
/// that a haul never runs a script of the folder that it happens to be called in while its own is
/// there.
fn root() -> Option<PathBuf> {
    root_above(&[std::env::current_exe().ok(), std::env::current_dir().ok()])
}

/// The first folder with the script, above the first of these that has one above it.
fn root_above(starts: &[Option<PathBuf>]) -> Option<PathBuf> {
    let has_script = |folder: &&Path| folder.join(SCRIPT).is_file();
    starts.iter().flatten().find_map(|start| start.ancestors().find(has_script).map(Into::into))
}

/// Whether the program is there, and newer than everything that it is made of.
fn is_fresh(root: &Path, program: &Path) -> bool {
    let Some(built) = modified(program) else {
        return false;
    };
    let mut newest = modified(&root.join(SCRIPT));
    let mut folders = vec![root.join(SOURCES)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
            }
            newest = newest.max(modified(&entry.path()));
        }
    }
    newest.is_none_or(|newest| newest <= built)
}

fn modified(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).ok()?.modified().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hauls_own_repository_comes_before_that_of_the_current_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let [own, other] = ["own", "other"].map(|name| folder.path().join(name));
        for root in [&own, &other] {
            std::fs::create_dir_all(root.join("scripts")).expect("a folder");
            std::fs::write(root.join(SCRIPT), "").expect("a script");
        }
        let (exe, current) = (own.join("target/debug/haul"), other.join("some/folder"));
        assert_eq!(root_above(&[Some(exe), Some(current.clone())]), Some(own));
        let installed = folder.path().join("bin/haul");
        assert_eq!(root_above(&[Some(installed.clone()), Some(current)]), Some(other));
        assert_eq!(root_above(&[Some(installed), None]), None);
    }

    #[test]
    fn what_is_no_program_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("text.elf");
        std::fs::write(&path, "no program").expect("it is written");
        let message = read(&path).expect_err("text is no program").to_string();
        assert!(message.contains("text.elf"), "{message}");
        let message = read(&folder.path().join("none")).expect_err("no file").to_string();
        assert!(message.contains("none"), "{message}");
    }
}
