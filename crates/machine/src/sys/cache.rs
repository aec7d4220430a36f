//! Data caches of one core. Implausible sizes are replaced.

use haul_copy::cpu::{LAST_CACHE_MAX_BYTES, LAST_CACHE_STAND_IN_BYTES};
use haul_model::Bytes;

use super::Sys;

/// The smallest and the largest plausible size of each level, in bytes. Real sizes in 2026: L1d
/// from 8 KiB (Pentium 4) to 192 KiB (some Arm), L2 from 128 KiB to 36 MiB (IBM), one L3 from 512
/// KiB. Copies use the same limits for L3.
const PLAUSIBLE_BYTES: [(u64, u64); 3] =
    [(4 << 10, 1 << 20), (64 << 10, 64 << 20), (256 << 10, LAST_CACHE_MAX_BYTES as u64)];

/// A data or unified cache that one core uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// 1, 2, 3.
    pub level: u32,
    /// The size of the whole cache in bytes, even if several processors share it.
    pub size_bytes: u64,
    /// How many logical processors share the cache; 0 if this is unknown.
    pub shared_by: usize,
}

/// The caches of one core, and the sentences about implausible sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caches {
    /// The caches, nearest first.
    pub levels: Vec<Cache>,
    /// One sentence for every implausible size, which was replaced.
    pub disbelieved: Vec<String>,
}

impl Caches {
    /// The size of a level in bytes; `None` if it is unknown.
    #[must_use]
    pub fn size_bytes(&self, level: u32) -> Option<u64> {
        self.levels.iter().find(|cache| cache.level == level).map(|cache| cache.size_bytes)
    }
}

impl Sys {
    /// The caches of the first processor: as `/sys` reports them, else as CPUID reports them,
    /// else none.
    #[must_use]
    pub fn caches(&self) -> Caches {
        let reported = self.caches_from_files();
        let (reported, by) =
            if reported.is_empty() { (from_cpuid(), "CPUID") } else { (reported, "/sys") };
        plausible(&reported, by)
    }

    fn caches_from_files(&self) -> Vec<Cache> {
        let folder = "sys/devices/system/cpu/cpu0/cache";
        let cache = |name: &String| {
            let read = |file: &str| self.text(&format!("{folder}/{name}/{file}"));
            (name.starts_with("index") && read("type")? != "Instruction").then_some(())?;
            Some(Cache {
                level: read("level")?.parse().ok()?,
                size_bytes: parse_size(&read("size")?)?,
                shared_by: read("shared_cpu_map").map_or(0, |map| count_bits(&map)),
            })
        };
        let mut caches: Vec<Cache> = self.names(folder).iter().filter_map(cache).collect();
        caches.sort_by_key(|cache| cache.level);
        caches
    }
}

/// Replaces every implausible size, and adds a sentence for each.
fn plausible(reported: &[Cache], by: &str) -> Caches {
    let mut caches = Caches::default();
    for &cache in reported {
        let Some(&(least, most)) = PLAUSIBLE_BYTES.get((cache.level as usize).wrapping_sub(1))
        else {
            continue;
        };
        if caches.size_bytes(cache.level).is_some() {
            continue;
        }
        let size_bytes = match cache.size_bytes {
            size if size < least => least,
            size if size > most && cache.level == 3 => LAST_CACHE_STAND_IN_BYTES as u64,
            size => size.min(most),
        };
        if size_bytes != cache.size_bytes {
            caches.disbelieved.push(format!(
                "{by} says L{} of {}, which no processor has; taken as {}",
                cache.level,
                Bytes(cache.size_bytes),
                Bytes(size_bytes)
            ));
        }
        caches.levels.push(Cache { size_bytes, ..cache });
    }
    caches
}

#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
fn from_cpuid() -> Vec<Cache> {
    use raw_cpuid::{CacheType, CpuId};
    let cpuid = CpuId::new();
    // Intel's leaf 4. AMD has the same at 0x8000001D; raw-cpuid chooses by vendor.
    let Some(parameters) = cpuid.get_cache_parameters() else {
        return Vec::new();
    };
    parameters
        .filter(|p| matches!(p.cache_type(), CacheType::Data | CacheType::Unified))
        .map(|p| Cache {
            level: u32::from(p.level()),
            size_bytes: [p.associativity(), p.physical_line_partitions(), p.coherency_line_size()]
                .iter()
                .fold(p.sets() as u64, |size, &factor| size.saturating_mul(factor as u64)),
            // CPUID reports how many processors could share the cache, not how many share it.
            shared_by: 0,
        })
        .collect()
}

#[cfg(not(any(target_arch = "x86", target_arch = "x86_64")))]
fn from_cpuid() -> Vec<Cache> {
    Vec::new()
}

/// `32K` -> bytes; also `M`, `G` and a bare number.
fn parse_size(text: &str) -> Option<u64> {
    let shift = match text.bytes().last()? {
        b'K' => 10,
        b'M' => 20,
        b'G' => 30,
        _ => 0,
    };
    let number: u64 = text.trim_end_matches(['K', 'M', 'G']).parse().ok()?;
    number.checked_mul(1 << shift)
}

/// `ff,00000003` -> 10.
fn count_bits(map: &str) -> usize {
    map.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit.count_ones() as usize).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::tests::root_with;

    fn files(sizes: [&str; 3]) -> Vec<(String, String)> {
        let folder = "sys/devices/system/cpu/cpu0/cache";
        let mut files = Vec::new();
        let mut add = |index: usize, level: &str, kind: &str, size: &str| {
            for (file, text) in
                [("level", level), ("type", kind), ("size", size), ("shared_cpu_map", "00000003")]
            {
                files.push((format!("{folder}/index{index}/{file}"), text.to_owned()));
            }
        };
        add(0, "1", "Data", sizes[0]);
        add(1, "1", "Instruction", "64K");
        add(2, "2", "Unified", sizes[1]);
        add(3, "3", "Unified", sizes[2]);
        files
    }

    fn caches_of(sizes: [&str; 3]) -> Caches {
        let files = files(sizes);
        let files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (&**p, &**t)).collect();
        let (_folder, sys) = root_with(&files);
        sys.caches()
    }

    #[test]
    fn plausible_sizes_are_kept() {
        let caches = caches_of(["32K", "1024K", "32768K"]);
        assert_eq!(caches.disbelieved, [""; 0]);
        let sizes: Vec<u64> = caches.levels.iter().map(|c| c.size_bytes).collect();
        assert_eq!(sizes, [32 << 10, 1 << 20, 32 << 20]);
        assert_eq!(caches.levels[2].shared_by, 2);
    }

    #[test]
    fn implausible_sizes_are_replaced_and_reported() {
        for (l3, stand_in) in [("1073741824K", 32 << 20), ("0K", 256 << 10), ("1K", 256 << 10)] {
            let caches = caches_of(["32K", "1024K", l3]);
            assert_eq!(caches.size_bytes(3), Some(stand_in), "{l3}");
            assert_eq!(caches.disbelieved.len(), 1, "{l3}");
        }
        let caches = caches_of(["1073741824K", "1073741824K", "32M"]);
        assert_eq!(caches.size_bytes(1), Some(1 << 20));
        assert_eq!(caches.size_bytes(2), Some(64 << 20));
        assert!(caches.disbelieved[0].contains("L1 of 1 TiB"), "{:?}", caches.disbelieved);
    }

    #[test]
    fn malformed_sizes_are_left_out() {
        let caches = caches_of(["32K", "lots", "99999999999999999999K"]);
        assert_eq!(caches.levels.len(), 1);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn caches_come_from_cpuid_or_are_empty_without_sys() {
        let caches = Sys::at("/nonexistent").caches();
        for cache in &caches.levels {
            let (least, most) = PLAUSIBLE_BYTES[cache.level as usize - 1];
            assert!((least..=most).contains(&cache.size_bytes), "{cache:?}");
        }
    }
}
