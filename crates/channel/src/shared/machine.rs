//! Facts about this machine from which the default settings of a channel follow.

use std::fs;
use std::path::Path;

/// The second-level cache of the first processor in bytes; `None` if `/sys` does not report it.
pub(crate) fn second_level_cache_bytes() -> Option<u64> {
    cache_bytes(Path::new("/sys/devices/system/cpu/cpu0/cache"), "2")
}

/// The size of the cache of this level, read from a folder like a processor's folder in `/sys`.
fn cache_bytes(folder: &Path, level: &str) -> Option<u64> {
    let size = |index: usize| {
        let read = |name: &str| fs::read_to_string(folder.join(format!("index{index}/{name}")));
        let is_asked = read("level").ok()?.trim() == level;
        let size = is_asked.then(|| read("size").ok()).flatten()?;
        let kibibytes: u64 = size.trim().strip_suffix('K')?.parse().ok()?;
        kibibytes.checked_mul(1 << 10)
    };
    (0..8).find_map(size)
}

/// Whether the kernel gives transparent huge pages to memory that asks for them.
pub(crate) fn has_transparent_huge_pages() -> bool {
    let modes = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    modes.is_ok_and(|modes| !modes.contains("[never]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_of_asked_level_is_found() {
        let folder = tempfile::tempdir().unwrap();
        for (index, level, size) in [(0, "1", "32K"), (1, "2", "1280K"), (2, "3", "enormous")] {
            let cache = folder.path().join(format!("index{index}"));
            fs::create_dir(&cache).unwrap();
            fs::write(cache.join("level"), format!("{level}\n")).unwrap();
            fs::write(cache.join("size"), format!("{size}\n")).unwrap();
        }
        assert_eq!(cache_bytes(folder.path(), "2"), Some(1280 << 10));
        assert_eq!(cache_bytes(folder.path(), "3"), None, "no number");
        assert_eq!(cache_bytes(folder.path(), "4"), None);
        assert_eq!(cache_bytes(Path::new("/nowhere"), "2"), None);
    }
}
