//! The instruction window: what was dispatched and has not committed, in the program's order.
//!
//! An instruction is named by its sequence number, which counts up; its place is that number modulo
//! the window's capacity. Those that wait for a result hang in a list that begins at its producer
//! and runs through the waiting operands themselves, so that nothing is allocated.

use crate::isa::{Class, SINK};
use crate::memory::Tag;

/// Registers that an instruction can name, up to a power of two.
const NAMED: usize = 64;
/// No operand: the end of a list.
const NONE: u32 = u32::MAX;
/// Tags of loads and copies are below this. Their lower part is a place of the window, of which
/// there are at most as many as the configuration allows.
pub(super) const TAGS: u32 = 1 << 30;
const PLACES: u32 = 1 << 12;
/// Operands of an instruction; `ecpy` has three.
pub(super) const OPERANDS: usize = 3;
/// The operand of a store that is its value; its address is operand 0.
pub(super) const VALUE: u8 = 1;

/// One instruction in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) sequence: u64,
    /// Tells instructions apart that had the same number, for one of them was squashed.
    pub(super) stamp: u32,
    /// Which instruction of the program.
    pub(super) index: u32,
    /// Where the program, or its wrong path, went after it.
    pub(super) next: u32,
    pub(super) class: Class,
    pub(super) rd: u8,
    /// A bit for each operand that is not there yet.
    pub(super) waits: u8,
    pub(super) is_issued: bool,
    pub(super) is_done: bool,
    /// Whether a load's or store's address has been computed.
    pub(super) is_known: bool,
    /// Whether it stands behind a mispredicted branch.
    pub(super) is_wrong_path: bool,
    /// Whether fetch went elsewhere after it than it should have.
    pub(super) is_mispredicted: bool,
    /// Whether its address is one of a device's register, or of nothing at all on the wrong path.
    pub(super) is_uncached: bool,
    /// What the return stack's top was after it was predicted.
    pub(super) return_top: u32,
    /// What a load or store touches, or a copy's target.
    pub(super) address: u64,
    /// How much of it; a copy's length.
    pub(super) bytes: u64,
    /// A copy's source.
    pub(super) source: u64,
    /// The place in the store queue at which older stores end; a store's own place.
    pub(super) store_place: u64,
    /// The trace's row; meaningless without a trace.
    pub(super) row: u32,
    consumers: u32,
    links: [u32; OPERANDS],
}

impl Entry {
    pub(super) fn new(sequence: u64, index: u32, class: Class, rd: u8) -> Self {
        Self {
            sequence,
            stamp: 0,
            index,
            next: 0,
            class,
            rd,
            waits: 0,
            is_issued: false,
            is_done: false,
            is_known: false,
            is_wrong_path: false,
            is_mispredicted: false,
            is_uncached: false,
            return_top: 0,
            address: 0,
            bytes: 0,
            source: 0,
            store_place: 0,
            row: 0,
            consumers: NONE,
            links: [NONE; OPERANDS],
        }
    }

    /// Whether it is a load or a store.
    pub(super) fn is_memory(&self) -> bool {
        matches!(self.class, Class::Load | Class::Store)
    }
}

/// The window and who produces which register.
pub(super) struct Window {
    entries: Vec<Entry>,
    mask: u64,
    limit: u64,
    stamps: u32,
    /// The oldest instruction, and the one that will be dispatched next.
    pub(super) head: u64,
    pub(super) tail: u64,
    /// For each register, the youngest instruction that writes it; 0 for none.
    producers: [u64; NAMED],
    /// The same where the right path ended, while a wrong one is followed.
    right_producers: [u64; NAMED],
}

impl Window {
    pub(super) fn new(limit: u32) -> Self {
        // At least one word of a `ReadySet`.
        let capacity = limit.next_power_of_two().max(64);
        Self {
            entries: vec![Entry::new(0, 0, Class::Serial, SINK); capacity as usize],
            mask: u64::from(capacity) - 1,
            limit: limit.into(),
            stamps: 0,
            head: 1,
            tail: 1,
            producers: [0; NAMED],
            right_producers: [0; NAMED],
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.tail - self.head >= self.limit
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tail == self.head
    }

    #[inline(always)]
    pub(super) fn entry(&self, sequence: u64) -> &Entry {
        &self.entries[(sequence & self.mask) as usize]
    }

    #[inline(always)]
    pub(super) fn entry_mut(&mut self, sequence: u64) -> &mut Entry {
        &mut self.entries[(sequence & self.mask) as usize]
    }

    /// A name for an access of this instruction: its place, and as much of its stamp as fits.
    pub(super) fn tag(&self, sequence: u64) -> Tag {
        let place = (sequence & self.mask) as u32;
        let stamp = self.entries[place as usize].stamp;
        Tag(place | (stamp % (TAGS / PLACES) * PLACES))
    }

    /// The instruction that asked with this tag, if it is still there.
    pub(super) fn tagged(&self, tag: Tag) -> Option<u64> {
        let entry = self.entries.get((tag.0 % PLACES) as usize)?;
        let is_its_own = self.holds(entry.sequence) && self.tag(entry.sequence) == tag;
        is_its_own.then_some(entry.sequence)
    }

    /// Whether the number is one of an instruction in the window.
    pub(super) fn holds(&self, sequence: u64) -> bool {
        (self.head..self.tail).contains(&sequence)
    }

    /// Puts an instruction into the window and lets its operands wait for their producers.
    #[inline]
    pub(super) fn push(&mut self, entry: &mut Entry, sources: [u8; OPERANDS]) {
        self.stamps = self.stamps.wrapping_add(1);
        entry.stamp = self.stamps;
        for (operand, register) in sources.into_iter().enumerate() {
            if register == 0 {
                continue;
            }
            let sequence = self.producers[usize::from(register % NAMED as u8)];
            if !self.holds(sequence) {
                continue;
            }
            let link = (entry.sequence & self.mask) as u32 * 4 + operand as u32;
            let producer = &mut self.entries[(sequence & self.mask) as usize];
            if !producer.is_done {
                entry.links[operand] = producer.consumers;
                producer.consumers = link;
                entry.waits |= 1 << operand;
            }
        }
        if entry.rd != SINK {
            self.producers[usize::from(entry.rd % NAMED as u8)] = entry.sequence;
        }
        self.entries[(entry.sequence & self.mask) as usize] = *entry;
        self.tail = entry.sequence + 1;
    }

    /// Marks a result as there and tells every instruction that waited for it, by sequence number
    /// and operand.
    #[inline]
    pub(super) fn finish(&mut self, sequence: u64, woken: &mut Vec<(u64, u8)>) {
        let entry = self.entry_mut(sequence);
        entry.is_done = true;
        let mut link = std::mem::replace(&mut entry.consumers, NONE);
        while link != NONE {
            let operand = (link % 4) as u8;
            let consumer = &mut self.entries[(link / 4) as usize];
            consumer.waits &= !(1 << operand);
            woken.push((consumer.sequence, operand));
            link = std::mem::replace(&mut consumer.links[usize::from(operand)], NONE);
        }
    }

    /// The wrong path begins: remembers who produces what on the right one.
    pub(super) fn remember(&mut self) {
        self.right_producers = self.producers;
    }

    /// Drops everything younger than `last`, whose wrong path it was.
    pub(super) fn squash(&mut self, last: u64) {
        self.producers = self.right_producers;
        for sequence in self.head..=last {
            self.forget_squashed_consumers(sequence, last);
        }
        self.tail = last + 1;
    }

    /// Takes squashed instructions out of a producer's list. They were added after all others, so
    /// that they stand at its beginning.
    fn forget_squashed_consumers(&mut self, sequence: u64, last: u64) {
        let mut link = self.entry(sequence).consumers;
        while link != NONE {
            let consumer = &self.entries[(link / 4) as usize];
            if consumer.sequence <= last {
                break;
            }
            link = consumer.links[(link % 4) as usize];
        }
        self.entry_mut(sequence).consumers = link;
    }
}

/// A bit for each place of the window, looked through in the program's order.
pub(super) struct ReadySet {
    words: Vec<u64>,
    mask: u64,
}

impl ReadySet {
    pub(super) fn new(window: &Window) -> Self {
        Self { words: vec![0; window.entries.len() / 64], mask: window.mask }
    }

    #[inline(always)]
    pub(super) fn insert(&mut self, sequence: u64) {
        let place = sequence & self.mask;
        self.words[(place / 64) as usize] |= 1 << (place % 64);
    }

    #[inline(always)]
    pub(super) fn remove(&mut self, sequence: u64) {
        let place = sequence & self.mask;
        self.words[(place / 64) as usize] &= !(1 << (place % 64));
    }

    /// Removes it and says how many it was: 1, or 0 where it was no member.
    #[inline]
    pub(super) fn take(&mut self, sequence: u64) -> usize {
        let place = sequence & self.mask;
        let word = &mut self.words[(place / 64) as usize];
        let was = *word >> (place % 64) & 1;
        *word &= !(1 << (place % 64));
        was as usize
    }

    /// The first member from `sequence` on and before `end`.
    #[inline(always)]
    pub(super) fn next(&self, mut sequence: u64, end: u64) -> Option<u64> {
        while sequence < end {
            let place = sequence & self.mask;
            let bits = self.words[(place / 64) as usize] >> (place % 64);
            if bits != 0 {
                let found = sequence + u64::from(bits.trailing_zeros());
                return (found < end).then_some(found);
            }
            sequence += 64 - place % 64;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(window: &mut Window, rd: u8, sources: [u8; OPERANDS]) -> u64 {
        let sequence = window.tail;
        window.push(&mut Entry::new(sequence, 0, Class::Integer, rd), sources);
        sequence
    }

    #[test]
    fn results_wake_those_that_wait() {
        let mut window = Window::new(8);
        let first = pushed(&mut window, 1, [0, 0, 0]);
        let second = pushed(&mut window, 2, [1, 1, 0]);
        let third = pushed(&mut window, 1, [2, 1, 3]);
        assert_eq!(window.entry(second).waits, 0b11);
        assert_eq!(window.entry(third).waits, 0b11, "nobody in flight writes x3");
        let mut woken = Vec::new();
        window.finish(first, &mut woken);
        woken.sort_unstable();
        assert_eq!(woken, [(second, 0), (second, 1), (third, 1)]);
        assert_eq!((window.entry(second).waits, window.entry(third).waits), (0, 1));
        let fourth = pushed(&mut window, 4, [1, 0, 0]);
        assert_eq!(window.entry(fourth).waits, 1, "x1 is the third's now");
    }

    #[test]
    fn what_is_squashed_waits_for_nothing() {
        let mut window = Window::new(8);
        let branch = pushed(&mut window, SINK, [0, 0, 0]);
        let producer = pushed(&mut window, 1, [0, 0, 0]);
        window.squash(branch);
        assert!(!window.holds(producer));
        let slow = pushed(&mut window, 1, [0, 0, 0]);
        let right = pushed(&mut window, 2, [1, 0, 0]);
        window.remember();
        pushed(&mut window, 3, [1, 2, 0]);
        pushed(&mut window, 1, [1, 0, 0]);
        window.squash(right);
        let other = pushed(&mut window, 3, [0, 1, 0]);
        let mut woken = Vec::new();
        window.finish(slow, &mut woken);
        woken.sort_unstable();
        assert_eq!(woken, [(right, 0), (other, 1)]);
    }

    #[test]
    fn ready_sets_are_read_in_order_around_the_end() {
        let window = Window::new(64);
        let mut ready = ReadySet::new(&window);
        for sequence in [70, 100, 127, 128, 133] {
            ready.insert(sequence);
        }
        ready.remove(100);
        let mut seen = Vec::new();
        let mut from = 70;
        while let Some(sequence) = ready.next(from, 133) {
            seen.push(sequence);
            from = sequence + 1;
        }
        assert_eq!(seen, [70, 127, 128]);
    }
}
