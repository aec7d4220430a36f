//! Properties, resources and permissions of this machine, read without root and without failure.
//!
//! Every fact has a fallback: if `/proc` or `/sys` is not mounted, or contains an implausible
//! value, the fact comes from the processor or a system call, or is reported as "not known".
//! Files are read under a root directory that tests replace; system calls and CPUID always
//! describe the running machine.
//!
//! - [`cache`], [`cpu`], [`device`], [`memory`], [`permission`], [`topology`], [`user`]: the facts;
//! - `usage`: the current use of memory and processors;
//! - [`pcie`]: network devices behind PCIe, and their links;
//! - [`offer`]: the facts as a list of present and missing items, and how to get the missing
//!   ones;
//! - `disturbance`: conditions that disturb a measurement, as a list of the same form;
//! - [`machine`]: the facts as one [`Machine`](haul_model::Machine) line.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

pub mod cache;
pub mod cpu;
pub mod device;
pub mod memory;
pub mod permission;
pub mod topology;
pub mod user;

mod usage;

pub mod pcie;

pub mod machine;
pub mod offer;

mod disturbance;

pub use cache::{Cache, Caches};
pub use cpu::Processor;
pub use device::{Devices, Dpdk};
pub use memory::{GroupLimit, HugePages, Memory, Pool};
pub use offer::{Offer, State};
pub use pcie::{PcieDevice, PcieLink, PcieUnread};
pub use permission::Permissions;
pub use topology::{Topology, affinity};
pub use user::{name_of_user, user_of};

/// How many bytes of a file under `/proc` or `/sys` are read at most. Of `/proc/cpuinfo`, only
/// the first processor's entry is needed, which has some 1,500 B.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// A machine, with its files under a root directory.
///
/// ```
/// # use haul_machine as haul;
/// let machine = haul::sys::Sys::new().machine();
/// assert!(machine.processors >= 1);
/// // Nothing is required: it works for a root with neither /proc nor /sys.
/// let blind = haul::sys::Sys::at("/nonexistent").machine();
/// assert_eq!(blind.cpu.is_empty(), false);
/// ```
#[derive(Clone, Debug)]
pub struct Sys {
    root: PathBuf,
}

impl Sys {
    /// The running machine, with files under `/`.
    #[must_use]
    pub fn new() -> Self {
        Self::at("/")
    }

    /// The running machine, with files under another root.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Which of `/proc` and `/sys` are not mounted.
    #[must_use]
    pub fn not_mounted(&self) -> Vec<&'static str> {
        [("/proc", "proc/self"), ("/sys", "sys/devices")]
            .into_iter()
            .filter(|(_, inside)| !self.path(inside).exists())
            .map(|(name, _)| name)
            .collect()
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    /// The first [`FILE_BYTES_MAX`] bytes of a file, trimmed; `None` if the file is unreadable or
    /// empty.
    fn text(&self, relative: &str) -> Option<String> {
        let mut bytes = Vec::new();
        let file = File::open(self.path(relative)).ok()?;
        file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
        (!text.is_empty()).then_some(text)
    }

    fn number(&self, relative: &str) -> Option<u64> {
        self.text(relative)?.parse().ok()
    }

    /// The sorted names in a folder; empty if the folder is unreadable.
    fn names(&self, relative: &str) -> Vec<String> {
        names_in(&self.path(relative))
    }
}

impl Default for Sys {
    fn default() -> Self {
        Self::new()
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .map(|entries| {
            entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect()
        })
        .unwrap_or_default();
    names.sort();
    names
}

#[cfg(test)]
#[path = "../../../engine/src/dsa/sysfs/folder.rs"]
mod folder;

#[cfg(test)]
pub(crate) mod tests {
    use super::folder::folder_with;
    use super::*;

    /// A root directory with these files.
    pub(crate) fn root_with(files: &[(&str, &str)]) -> (tempfile::TempDir, Sys) {
        let folder = folder_with(files);
        let sys = Sys::at(folder.path());
        (folder, sys)
    }

    #[test]
    fn empty_root_is_reported_as_not_mounted() {
        assert_eq!(Sys::at("/nonexistent").not_mounted(), ["/proc", "/sys"]);
        let (_folder, sys) = root_with(&[("proc/self/status", ""), ("sys/devices/x", "")]);
        assert!(sys.not_mounted().is_empty());
    }
}
