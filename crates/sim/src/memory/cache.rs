//! A cache: the lines that it holds, which of them are dirty, and which is evicted next.

use crate::configuration::{CacheSettings, Cycle};

/// The line number of an empty slot.
const EMPTY: u64 = u64::MAX;

/// Lines by number (address divided by line size), set-associative, with least-recently-used
/// replacement.
pub struct Cache {
    set_mask: u64,
    ways: usize,
    slots: Vec<Slot>,
    clock: u64,
}

#[derive(Clone)]
struct Slot {
    line: u64,
    used: u64,
    ready: Cycle,
    dirty: bool,
}

/// An evicted line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Victim {
    /// The line's number.
    pub line: u64,
    /// Whether memory, or the next cache, lacks the line's data.
    pub dirty: bool,
}

impl Cache {
    /// An empty cache of valid settings.
    #[must_use]
    pub fn new(settings: &CacheSettings, line_bytes: u64) -> Self {
        let lines = settings.bytes / line_bytes;
        let ways = settings.ways as usize;
        let empty = Slot { line: EMPTY, used: 0, ready: 0, dirty: false };
        Self {
            set_mask: lines / ways as u64 - 1,
            ways,
            slots: vec![empty; lines as usize],
            clock: 0,
        }
    }

    /// Uses a line. Returns the cycle from which its data is available, or `None` on a miss. A
    /// write leaves the line dirty.
    #[inline]
    pub fn touch(&mut self, line: u64, write: bool) -> Option<Cycle> {
        self.clock += 1;
        let clock = self.clock;
        let slot = self.set(line).iter_mut().find(|slot| slot.line == line)?;
        slot.used = clock;
        slot.dirty |= write;
        Some(slot.ready)
    }

    /// Whether the line is dirty, or `None` if the cache does not hold it. Changes nothing.
    #[must_use]
    pub fn peek(&self, line: u64) -> Option<bool> {
        let first = (line & self.set_mask) as usize * self.ways;
        let set = &self.slots[first..first + self.ways];
        set.iter().find(|slot| slot.line == line).map(|slot| slot.dirty)
    }

    /// Inserts a line whose data is available from `ready`. Returns the line that was evicted for
    /// it.
    pub fn insert(&mut self, line: u64, dirty: bool, ready: Cycle) -> Option<Victim> {
        self.clock += 1;
        let clock = self.clock;
        let set = self.set(line);
        if let Some(slot) = set.iter_mut().find(|slot| slot.line == line) {
            slot.dirty |= dirty;
            slot.used = clock;
            return None;
        }
        let slot = set.iter_mut().min_by_key(|slot| slot.used).expect("a set has a way at least");
        let victim = (slot.line != EMPTY).then_some(Victim { line: slot.line, dirty: slot.dirty });
        *slot = Slot { line, used: clock, ready, dirty };
        victim
    }

    /// Removes a line. Returns whether it was dirty, or `None` if the cache did not hold it.
    pub fn remove(&mut self, line: u64) -> Option<bool> {
        let slot = self.set(line).iter_mut().find(|slot| slot.line == line)?;
        let dirty = slot.dirty;
        *slot = Slot { line: EMPTY, used: 0, ready: 0, dirty: false };
        Some(dirty)
    }

    /// Marks a line as equal to memory, if the cache holds it.
    pub fn clean(&mut self, line: u64) {
        if let Some(slot) = self.set(line).iter_mut().find(|slot| slot.line == line) {
            slot.dirty = false;
        }
    }

    #[inline]
    fn set(&mut self, line: u64) -> &mut [Slot] {
        let first = (line & self.set_mask) as usize * self.ways;
        &mut self.slots[first..first + self.ways]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sets of two ways.
    fn small() -> Cache {
        Cache::new(&CacheSettings { bytes: 256, ways: 2, hit_cycles: 1 }, 64)
    }

    #[test]
    fn least_recently_used_line_is_evicted() {
        let mut cache = small();
        assert_eq!(cache.insert(0, false, 5), None);
        assert_eq!(cache.insert(2, true, 0), None);
        assert_eq!(cache.touch(0, false), Some(5));
        assert_eq!(cache.insert(4, false, 0), Some(Victim { line: 2, dirty: true }));
        assert_eq!(cache.insert(1, false, 0), None, "the other set has room");
        assert_eq!((cache.peek(0), cache.peek(2)), (Some(false), None));
    }

    #[test]
    fn line_stays_dirty_until_cleaned_or_removed() {
        let mut cache = small();
        cache.insert(0, false, 0);
        cache.touch(0, true);
        assert_eq!(cache.insert(0, false, 9), None);
        assert_eq!(cache.peek(0), Some(true));
        cache.clean(0);
        assert_eq!(cache.remove(0), Some(false));
        assert_eq!(cache.remove(0), None);
    }
}
