//! The instruction window: instructions that are dispatched and not committed, in program order.
//!
//! An instruction is identified by its sequence number, which counts up. Its slot is that number
//! modulo the window's capacity. The instructions that wait for a result form a list that begins at
//! the producer and links the waiting operands themselves, so that nothing is allocated.
//!
//! Every array here has as many slots as the largest window. A slot is a number below that
//! constant, so that the compiler needs no bounds check. A smaller window uses only the first
//! slots, so that it occupies only as much of the host's caches as it needs.

use crate::isa::Class;
use crate::memory::Tag;

/// The number of registers that an instruction can name, rounded up to a power of two.
const NAMED: usize = 64;
/// Tags of loads and copies are below this; their lower part is a slot of the window.
pub(super) const TAGS: u32 = 1 << 30;
/// The number of slots in the largest window that a configuration may request.
pub(super) const PLACES: usize = 1 << 12;
/// The largest number of operands of an instruction; `ecpy` has three.
pub(super) const OPERANDS: usize = 3;
/// The operand of a store that is its value; its address is operand 0.
pub(super) const VALUE: u8 = 1;

/// One instruction in flight. It fills one cache line of the host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) sequence: u64,
    /// The address of a load or store, or a copy's target.
    pub(super) address: u64,
    /// The position in the store queue after all older stores, which for a store is its own
    /// position.
    pub(super) store_place: u64,
    /// Distinguishes instructions with the same number, one of which was squashed.
    pub(super) stamp: u32,
    /// The index of the instruction in the program.
    pub(super) index: u32,
    /// The index of the next instruction on its path, right or wrong.
    pub(super) next: u32,
    /// The return stack's top after the instruction's prediction.
    pub(super) return_top: u32,
    /// The instruction's row in the trace; meaningless without a trace.
    pub(super) row: u32,
    consumers: Link,
    links: [Link; OPERANDS],
    pub(super) class: Class,
    /// The size of a load or store in bytes.
    pub(super) bytes: u8,
    /// A bit for each operand that is not available yet.
    pub(super) waits: u8,
    /// A bit for each operand that the instruction needs to begin.
    pub(super) needs: u8,
    pub(super) is_done: bool,
    /// Whether a load's or store's address has been computed.
    pub(super) is_known: bool,
    /// Whether the fetch after the instruction was mispredicted.
    pub(super) is_mispredicted: bool,
    /// Whether the address is a device register, or, on the wrong path, not mapped.
    pub(super) is_uncached: bool,
}

/// A waiting operand: its instruction's slot and its operand number; or [`NONE`].
type Link = u16;

/// The end of a list. No operand has this value.
const NONE: Link = Link::MAX;
/// Operand numbers in a [`Link`], rounded up to a power of two.
const LINKS: Link = 4;

impl Entry {
    /// An instruction that has just been dispatched.
    #[inline(always)]
    pub(super) fn new(sequence: u64, index: u32, class: Class) -> Self {
        Self {
            sequence,
            address: 0,
            store_place: 0,
            stamp: 0,
            index,
            next: 0,
            return_top: 0,
            row: 0,
            consumers: NONE,
            links: [NONE; OPERANDS],
            class,
            bytes: 0,
            waits: 0,
            needs: u8::MAX,
            is_done: false,
            is_known: false,
            is_mispredicted: false,
            is_uncached: false,
        }
    }

    /// Whether the instruction is a load or a store.
    #[inline]
    pub(super) fn is_memory(&self) -> bool {
        matches!(self.class, Class::Load | Class::Store)
    }

    /// Whether all operands that the instruction needs to begin are available.
    #[inline]
    pub(super) fn may_begin(&self) -> bool {
        self.waits & self.needs == 0
    }
}

/// The window, and the producer of each register.
pub(super) struct Window {
    entries: Box<[Entry; PLACES]>,
    mask: u64,
    limit: u64,
    stamps: u32,
    /// The oldest instruction, and the next one to be dispatched.
    pub(super) head: u64,
    pub(super) tail: u64,
    /// For each register, the youngest instruction that writes it; 0 for none. Register 0 has no
    /// producer, and no instruction reads [`SINK`].
    producers: [u64; NAMED],
    /// `producers` where the right path ended, while a wrong one is followed.
    right_producers: [u64; NAMED],
}

impl Window {
    pub(super) fn new(limit: u32) -> Self {
        Self {
            entries: places(Entry::new(0, 0, Class::Serial)),
            mask: mask(limit),
            limit: limit.into(),
            stamps: 0,
            head: 1,
            tail: 1,
            producers: [0; NAMED],
            right_producers: [0; NAMED],
        }
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.tail - self.head >= self.limit
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.tail == self.head
    }

    #[inline(always)]
    fn place(&self, sequence: u64) -> usize {
        (sequence & self.mask) as usize % PLACES
    }

    #[inline(always)]
    pub(super) fn entry(&self, sequence: u64) -> &Entry {
        &self.entries[self.place(sequence)]
    }

    #[inline(always)]
    pub(super) fn entry_mut(&mut self, sequence: u64) -> &mut Entry {
        &mut self.entries[self.place(sequence)]
    }

    /// The tag of an access of this instruction: its slot, and as much of its stamp as fits.
    #[inline]
    pub(super) fn tag(&self, sequence: u64) -> Tag {
        let stamp = self.entry(sequence).stamp;
        let names = TAGS / PLACES as u32;
        Tag(self.place(sequence) as u32 | (stamp % names * PLACES as u32))
    }

    /// The instruction with this tag, if it is still in the window.
    pub(super) fn tagged(&self, tag: Tag) -> Option<u64> {
        let sequence = self.entries[tag.0 as usize % PLACES].sequence;
        let is_its_own = self.holds(sequence) && self.tag(sequence) == tag;
        is_its_own.then_some(sequence)
    }

    /// Whether an instruction in the window has this number.
    #[inline]
    pub(super) fn holds(&self, sequence: u64) -> bool {
        (self.head..self.tail).contains(&sequence)
    }

    /// Adds an instruction that writes `rd`, and links its operands to their producers. Returns the
    /// entry as stored.
    #[inline(always)]
    pub(super) fn push(&mut self, entry: Entry, rd: u8, sources: [u8; OPERANDS]) -> &Entry {
        let (place, sequence) = (self.place(entry.sequence), entry.sequence);
        let links = [
            self.wait_for(place, 0, sources[0]),
            self.wait_for(place, 1, sources[1]),
            self.wait_for(place, 2, sources[2]),
        ];
        let waits = links.map(|(_, waits)| waits);
        let (links, waits) = (links.map(|(link, _)| link), waits[0] | waits[1] | waits[2]);
        self.producers[usize::from(rd) % NAMED] = sequence;
        self.stamps = self.stamps.wrapping_add(1);
        self.tail = sequence + 1;
        self.entries[place] = Entry { stamp: self.stamps, links, waits, ..entry };
        &self.entries[place]
    }

    /// Links an operand of the instruction at `place` to the producer of its register. Returns the
    /// operand that follows in the producer's list, and the operand's bit if it has to wait.
    #[inline(always)]
    fn wait_for(&mut self, place: usize, operand: u8, register: u8) -> (Link, u8) {
        let producer = self.producers[usize::from(register) % NAMED];
        if producer < self.head {
            return (NONE, 0);
        }
        let producer = self.entry_mut(producer);
        if producer.is_done {
            return (NONE, 0);
        }
        let link = place as Link * LINKS + Link::from(operand);
        (std::mem::replace(&mut producer.consumers, link), 1 << operand)
    }

    /// Marks a result as available. [`Window::supply`] passes it to the returned consumers.
    #[inline]
    pub(super) fn finish(&mut self, sequence: u64) -> Consumers {
        let entry = self.entry_mut(sequence);
        entry.is_done = true;
        Consumers(std::mem::replace(&mut entry.consumers, NONE))
    }

    /// Gives the result to the next operand that waits for it. Returns the operand's number and its
    /// instruction, which no longer waits for it.
    #[inline]
    pub(super) fn supply(&mut self, consumers: &mut Consumers) -> Option<(u8, &Entry)> {
        if consumers.0 == NONE {
            return None;
        }
        let operand = (consumers.0 % LINKS) as u8;
        let consumer = &mut self.entries[usize::from(consumers.0 / LINKS) % PLACES];
        consumer.waits &= !(1 << operand);
        consumers.0 = consumer.links[usize::from(operand) % OPERANDS];
        Some((operand, consumer))
    }

    /// Saves the producers of the right path when the wrong path begins.
    pub(super) fn remember(&mut self) {
        self.right_producers = self.producers;
    }

    /// Squashes all instructions younger than `last`, the mispredicted branch.
    pub(super) fn squash(&mut self, last: u64) {
        self.producers = self.right_producers;
        for sequence in self.head..=last {
            self.forget_squashed_consumers(sequence, last);
        }
        self.tail = last + 1;
    }

    /// Removes squashed instructions from a producer's list. These instructions were added last,
    /// so that they are at the beginning of the list.
    fn forget_squashed_consumers(&mut self, sequence: u64, last: u64) {
        let mut link = self.entry(sequence).consumers;
        while link != NONE {
            let consumer = &self.entries[usize::from(link / LINKS) % PLACES];
            if consumer.sequence <= last {
                break;
            }
            link = consumer.links[usize::from(link % LINKS) % OPERANDS];
        }
        self.entry_mut(sequence).consumers = link;
    }
}

/// The operands that wait for a result and have not received it.
pub(super) struct Consumers(Link);

/// An array with one element per slot.
pub(super) fn places<T: Clone>(each: T) -> Box<[T; PLACES]> {
    let all: Box<[T]> = vec![each; PLACES].into_boxed_slice();
    all.try_into().unwrap_or_else(|_| unreachable!("the vector has PLACES elements"))
}

/// The mask from a sequence number to its slot in a window of this size: a power of two minus one,
/// and at least a word of a [`ReadySet`].
pub(super) fn mask(limit: u32) -> u64 {
    u64::from(limit.next_power_of_two().max(64)) - 1
}

/// The ready instructions of a window: one bit per slot, read in program order.
pub(super) struct ReadySet {
    words: [u64; PLACES / 64],
    mask: u64,
    members: u32,
}

impl ReadySet {
    /// An empty set for a window of this size.
    pub(super) fn new(limit: u32) -> Self {
        Self { words: [0; PLACES / 64], mask: mask(limit), members: 0 }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.members == 0
    }

    #[inline(always)]
    fn word(&mut self, sequence: u64) -> (&mut u64, u64) {
        let place = sequence & self.mask;
        (&mut self.words[(place / 64) as usize % (PLACES / 64)], 1 << (place % 64))
    }

    /// Adds an instruction that is not a member.
    #[inline(always)]
    pub(super) fn insert(&mut self, sequence: u64) {
        let (word, bit) = self.word(sequence);
        *word |= bit;
        self.members += 1;
    }

    /// Removes a member.
    #[inline(always)]
    pub(super) fn remove(&mut self, sequence: u64) {
        let (word, bit) = self.word(sequence);
        *word &= !bit;
        self.members -= 1;
    }

    /// Removes all members from `sequence` on and before `end`.
    pub(super) fn squash(&mut self, sequence: u64, end: u64) {
        let mut from = sequence;
        while let Some(member) = self.next(from, end) {
            self.remove(member);
            from = member + 1;
        }
    }

    /// The first member from `sequence` on and before `end`.
    #[inline(always)]
    pub(super) fn next(&self, mut sequence: u64, end: u64) -> Option<u64> {
        while sequence < end {
            let place = sequence & self.mask;
            let bits = self.words[(place / 64) as usize % (PLACES / 64)] >> (place % 64);
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
    use crate::isa::SINK;

    fn pushed(window: &mut Window, rd: u8, sources: [u8; OPERANDS]) -> u64 {
        let sequence = window.tail;
        window.push(Entry::new(sequence, 0, Class::Integer), rd, sources);
        sequence
    }

    /// The operands that receive the result of `sequence`: sequence number and operand.
    fn woken(window: &mut Window, sequence: u64) -> Vec<(u64, u8)> {
        let mut consumers = window.finish(sequence);
        let mut woken = Vec::new();
        while let Some((operand, consumer)) = window.supply(&mut consumers) {
            woken.push((consumer.sequence, operand));
        }
        woken.sort_unstable();
        woken
    }

    #[test]
    fn result_wakes_waiting_operands() {
        let mut window = Window::new(8);
        let first = pushed(&mut window, 1, [0, 0, 0]);
        let second = pushed(&mut window, 2, [1, 1, 0]);
        let third = pushed(&mut window, 1, [2, 1, 3]);
        assert_eq!(window.entry(second).waits, 0b11);
        assert_eq!(window.entry(third).waits, 0b11, "no instruction in flight writes x3");
        assert_eq!(woken(&mut window, first), [(second, 0), (second, 1), (third, 1)]);
        assert_eq!((window.entry(second).waits, window.entry(third).waits), (0, 1));
        let fourth = pushed(&mut window, 4, [1, 0, 0]);
        assert_eq!(window.entry(fourth).waits, 1, "the third instruction produces x1");
    }

    #[test]
    fn squashed_instruction_waits_for_nothing() {
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
        assert_eq!(woken(&mut window, slow), [(right, 0), (other, 1)]);
    }

    #[test]
    fn ready_set_iterates_in_program_order_across_wraparound() {
        let mut ready = ReadySet::new(64);
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
        ready.squash(127, 133);
        assert_eq!((ready.next(70, 134), ready.next(71, 134)), (Some(70), Some(133)));
        assert_eq!(ready.members, 2);
    }
}
