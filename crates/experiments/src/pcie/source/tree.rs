//! `/sys` and `/proc` under a root, where files may be wrong or missing.

use std::fs;
use std::path::PathBuf;

/// The largest file that is read.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// A larger number of entries than in any folder of `/sys` that haul reads.
const NAMES_MAX: usize = 4096;

/// A root directory: `/`, or a recorded tree.
#[derive(Clone, Debug)]
pub struct Tree(PathBuf);

impl Tree {
    /// The tree below this root folder.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self(root.into())
    }

    pub(super) fn path(&self, relative: &str) -> PathBuf {
        self.0.join(relative)
    }

    /// A file's text, trimmed; `None` if the file cannot be read, is empty or is too long.
    pub(super) fn text(&self, relative: &str) -> Option<String> {
        let bytes = haul_machine::file::read_limited(&self.path(relative), FILE_BYTES_MAX).ok()?;
        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
        (!text.is_empty()).then_some(text)
    }

    pub(super) fn number(&self, relative: &str) -> Option<u64> {
        self.text(relative)?.parse().ok()
    }

    /// The names in a folder, sorted.
    pub(super) fn names(&self, relative: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(relative)).into_iter().flatten().flatten();
        let names =
            entries.take(NAMES_MAX).filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    /// The names from the root bridge down to a device: `pci0000:5d`, `0000:5d:00.0`,
    /// `0000:5e:00.0`.
    pub(super) fn bridges(&self, address: &str) -> Option<Vec<String>> {
        let real = fs::canonicalize(self.path(&format!("sys/bus/pci/devices/{address}"))).ok()?;
        let names = real.iter().filter_map(|part| part.to_str());
        let names: Vec<String> =
            names.skip_while(|name| !name.starts_with("pci")).map(str::to_owned).collect();
        (names.last().is_some_and(|last| last == address)).then_some(names)
    }

    /// A field of the first processor in `/proc/cpuinfo`.
    pub(super) fn processor(&self, field: &str) -> Option<String> {
        let mut bytes = Vec::new();
        let file = fs::File::open(self.path("proc/cpuinfo")).ok()?;
        std::io::Read::read_to_end(&mut std::io::Read::take(file, FILE_BYTES_MAX), &mut bytes)
            .ok()?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        text.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == field).then(|| value.trim().to_owned())
        })
    }
}
