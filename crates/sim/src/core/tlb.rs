//! A translation buffer: fully associative, with least-recently-used replacement. Virtual
//! addresses are physical here, so the buffer models only the time of a page walk.

use crate::configuration::{Cycle, TlbSettings};

/// Hints cover this many pages, a few megabytes: the working set of a loop.
const HINTS: usize = 1024;

pub(super) struct Tlb {
    page_shift: u32,
    walk_cycles: Cycle,
    /// The cached pages, each with the time of its last use.
    entries: Vec<(u64, u64)>,
    capacity: usize,
    clock: u64,
    /// The slot of the page used last: most accesses use it again.
    last: usize,
    /// For each value of a page's lower bits, the slot where such a page was last found. Most pages
    /// are still there.
    hints: [u16; HINTS],
    pub(super) misses: u64,
}

impl Tlb {
    pub(super) fn new(settings: &TlbSettings) -> Self {
        Self {
            page_shift: settings.page_bytes.trailing_zeros(),
            walk_cycles: settings.walk_cycles.into(),
            entries: Vec::with_capacity(settings.entries as usize),
            capacity: settings.entries as usize,
            clock: 0,
            last: 0,
            hints: [0; HINTS],
            misses: 0,
        }
    }

    /// Cycles until the address is translated: 0 on a hit, otherwise a page walk.
    #[inline]
    pub(super) fn translate(&mut self, address: u64) -> Cycle {
        let page = address >> self.page_shift;
        if self.entries.get(self.last).is_some_and(|entry| entry.0 == page) {
            return 0;
        }
        self.search(page)
    }

    fn search(&mut self, page: u64) -> Cycle {
        // The page used last was in use until this access.
        self.clock += 1;
        if let Some(entry) = self.entries.get_mut(self.last) {
            entry.1 = self.clock;
        }
        self.clock += 1;
        if let Some(place) = self.place_of(page) {
            self.entries[place].1 = self.clock;
            self.go_to(place, page);
            return 0;
        }
        self.misses += 1;
        let mut place = self.entries.len();
        if place < self.capacity {
            self.entries.push((page, self.clock));
        } else {
            let oldest = self.entries.iter().enumerate().min_by_key(|(_, entry)| entry.1);
            place = oldest.map_or(0, |(place, _)| place);
            self.entries[place] = (page, self.clock);
        }
        self.go_to(place, page);
        self.walk_cycles
    }

    fn place_of(&self, page: u64) -> Option<usize> {
        let hint = usize::from(self.hints[page as usize % HINTS]);
        if self.entries.get(hint).is_some_and(|entry| entry.0 == page) {
            return Some(hint);
        }
        self.entries.iter().position(|entry| entry.0 == page)
    }

    fn go_to(&mut self, place: usize, page: u64) {
        self.last = place;
        self.hints[page as usize % HINTS] = place as u16;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_recently_used_page_is_evicted() {
        let settings = TlbSettings { entries: 2, page_bytes: 4096, walk_cycles: 30 };
        let mut tlb = Tlb::new(&settings);
        let pages = [0, 1, 0, 0, 2, 0, 1, 2];
        let cycles = pages.map(|page| tlb.translate(page * 4096 + 8));
        assert_eq!(cycles, [30, 30, 0, 0, 30, 0, 30, 30]);
        assert_eq!(tlb.misses, 5);
    }
}
