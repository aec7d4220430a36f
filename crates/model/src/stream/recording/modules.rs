//! The files that a process has mapped, and the place of an address in them.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

/// The most ranges that are kept.
const RANGES_MAX: usize = 1 << 16;

/// The mappings of a process, from texts of `/proc/PID/maps`.
///
/// ```
/// use haul_model::stream::recording::Modules;
/// let mut modules = Modules::default();
/// modules.add(
///     "55550000-55551000 r--p 00000000 08:01 12 /usr/bin/sort\n\
///      55551000-55559000 r-xp 00001000 08:01 12 /usr/bin/sort\n",
/// );
/// assert_eq!(modules.find(0x5555_1a31), Some(("sort", 0x1a31)));
/// assert_eq!(modules.find(0x1000), None);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Modules {
    /// Ranges that may contain code, by their ends. A later text replaces what it overlaps.
    ranges: BTreeMap<u64, Range>,
}

#[derive(Clone, Debug)]
struct Range {
    start: u64,
    base: u64,
    name: String,
}

/// One line of the text.
struct Line<'a> {
    start: u64,
    end: u64,
    is_code: bool,
    offset: u64,
    path: &'a str,
}

impl Modules {
    /// Adds a text of `/proc/PID/maps`. Lines that are not understood are ignored.
    pub fn add(&mut self, text: &str) {
        let mut bases: BTreeMap<&str, u64> = BTreeMap::new();
        for line in text.lines().filter_map(Line::parse) {
            let base = bases.entry(line.path).or_insert(line.start);
            // A file may be mapped again as data, or twice as code.
            if line.offset == 0 && !line.is_code {
                *base = line.start;
            }
            let base = *base;
            if line.is_code && self.ranges.len() < RANGES_MAX {
                let name = line.path.rsplit('/').next().unwrap_or_default();
                let name: String = name.chars().filter(|c| !c.is_control()).take(200).collect();
                let name = if name.is_empty() { "(no name)".into() } else { name };
                self.ranges.retain(|end, range| *end <= line.start || range.start >= line.end);
                self.ranges.insert(line.end, Range { start: line.start, base, name });
            }
        }
    }

    /// The base name of the file at an address, and the offset from the file's lowest address.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<(&str, u64)> {
        let (_, range) = self.ranges.range((Excluded(address), Unbounded)).next()?;
        (range.start <= address).then(|| (range.name.as_str(), address.saturating_sub(range.base)))
    }
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.splitn(6, ' ');
        let (start, end) = words.next()?.split_once('-')?;
        let hex = |text| u64::from_str_radix(text, 16).ok();
        let rights = words.next()?;
        let offset = hex(words.next()?)?;
        let path = words.nth(2)?.trim_start();
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        let is_file = path.starts_with('/') || path == "[vdso]";
        let line = Self {
            start: hex(start)?,
            end: hex(end)?,
            is_code: rights.contains('x'),
            offset,
            path,
        };
        (is_file && !path.ends_with('/')).then_some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn find_uses_latest_mapping() {
        let mut modules = Modules::default();
        modules.add(
            "1000-2000 r--p 00000000 00:01 1   /lib/a.so\n2000-3000 r-xp 1000 0:1 1 /lib/a.so",
        );
        modules.add("2800-4000 r-xp 00000000 00:01 2   /lib/b.so (deleted)\nnot a line\n");
        assert_eq!(modules.find(0x2900), Some(("b.so", 0x100)));
        assert_eq!(modules.find(0x2100), None, "its file is no longer mapped there");
        assert_eq!(modules.find(u64::MAX), None);
    }

    #[test]
    fn find_ignores_memory_without_a_file() {
        let mut modules = Modules::default();
        modules.add("1000-2000 rwxp 00000000 00:00 0 \n3000-4000 r-xp 00000000 00:00 0   [heap]");
        assert_eq!(modules.find(0x1800), None);
        assert_eq!(modules.find(0x3800), None);
    }
}
