//! The scan: gives back every resource that names a dead cache or a dead process, and computes the
//! hints again.

use super::{Caches, Processes, Reaped};
use crate::cache::Keeper;
use crate::heap::Heap;
use crate::layout::{PAGE_SLICES, SLICE};
use crate::member;
use crate::protocol::class::{CLASSES, Class, TABLE};
use crate::protocol::page;
use crate::protocol::slice;
use crate::protocol::slot::Slots;
use crate::protocol::step::step;
use crate::protocol::word::{PROCESSES_MAX, PageWord, Slice, SliceWord, Slot, SlotWord};
use crate::region::backing::Backing;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed};

/// One scan, with the processes and caches that it searches for.
struct Scan<'a> {
    keeper: Keeper<'a>,
    processes: Processes,
    caches: &'a Caches,
    /// For each process slot, the slot of the heir; the process slot itself if there is no heir.
    heirs: [u8; PROCESSES_MAX as usize],
    reaped: &'a mut Reaped,
}

impl Heap {
    /// Scans the heap and uses the cache of `keeper` for it.
    pub(super) fn scan(
        &self,
        keeper: Keeper<'_>,
        processes: Processes,
        caches: &Caches,
        reaped: &mut Reaped,
    ) {
        let mut heirs = core::array::from_fn(|slot| slot as u8);
        let namespace = member::namespace(&self.memory.tables, self.process());
        for slot in processes.slots() {
            let heir = member::heir(&self.memory.tables, slot, namespace);
            heirs[usize::from(slot)] = heir.filter(|heir| !processes.has(*heir)).unwrap_or(slot);
        }
        let mut scan = Scan { keeper, processes, caches, heirs, reaped };
        for node in 0..self.memory.tables.geometry().nodes as usize {
            scan.keeper.node = node;
            scan.node();
        }
        scan.currents();
    }
}

impl Scan<'_> {
    fn node(&mut self) {
        let memory = self.keeper.memory;
        let pages = memory.pages_of(self.keeper.node);
        let is_external = self.is_external();
        let frontier = memory.tables.nodes()[self.keeper.node].frontier.load(Relaxed) as usize;
        let used = if is_external { pages.len() } else { frontier.min(pages.len()) };
        for page in pages.start..pages.start + used {
            let word = PageWord(memory.tables.pages()[page].load(Acquire));
            // The page was never provided, so none of its slices is claimed.
            if is_external && word == PageWord::ABSENT {
                continue;
            }
            self.page(page, word);
        }
        memory.recount(self.keeper.node);
    }

    fn page(&mut self, page: usize, word: PageWord) {
        let memory = self.keeper.memory;
        let run = page * PAGE_SLICES..(page + 1) * PAGE_SLICES;
        // The page's bits may lead searches to the page, but the searches find nothing before the
        // page is provided again.
        if word == PageWord::GIVEN_BACK && !run.clone().any(|index| self.is_claimed(index)) {
            return;
        }
        // The page may have no memory, so its memory must be requested again, and "absent" is the
        // next state. An external page is still ready, because its memory is given back only
        // after the page was marked absent.
        let next = match self.is_external() {
            true => PageWord::ready(Backing::External as u8),
            false => PageWord::ABSENT,
        };
        page::reap(&memory.tables.pages()[page], word, |cache| self.caches.has(cache), next);
        let mut index = run.start;
        while index < run.end {
            index += self.slice(index).max(1);
        }
        // A process that died after it freed slices and before it recorded them left the slices
        // in no bitmap.
        memory.note_page(page);
    }

    /// Whether a dead cache claimed the slice.
    fn is_claimed(&self, index: usize) -> bool {
        match slice::word(self.keeper.memory.tables.slices(), index).decode() {
            Slice::Claimed(cache) => self.caches.has(cache),
            _ => false,
        }
    }

    fn is_external(&self) -> bool {
        self.keeper.memory.region.external().is_some()
    }

    /// Processes one slice. Returns how many slices were processed.
    fn slice(&mut self, index: usize) -> usize {
        let slices = self.keeper.memory.tables.slices();
        let word = slice::word(slices, index);
        match word.decode() {
            Slice::Claimed(cache) if self.caches.has(cache) => {
                slice::reap_claim(&slices[index], word);
                1
            }
            Slice::Run { cache, class, length } if self.caches.has(cache) => {
                self.run(index, class, length as usize)
            }
            Slice::Span { class } => self.span(index, class),
            Slice::Large { process, tag, length } if self.processes.has(process) => {
                self.large(index, word, (process, tag), length as usize)
            }
            Slice::Unknown => {
                self.reaped.damaged += 1;
                1
            }
            _ => 1,
        }
    }

    /// Frees a run. A dead cache was building it or taking it apart.
    fn run(&mut self, head: usize, class: u8, length: usize) -> usize {
        let tables = &self.keeper.memory.tables;
        let end = head.saturating_add(length);
        if length == 0 || end > tables.slices().len() || !self.is_of_dead(head + 1..end, class) {
            self.reaped.damaged += 1;
            return 1;
        }
        // The run's word names the dead cache until its slots are freed. So if this process dies
        // here, the next reaper finds the run.
        let about = TABLE.get(usize::from(class)).filter(|c| c.span_slices as usize == length);
        if let Some(about) = about {
            let slots = self.keeper.slots(head, about);
            for slot in 0..slots.count() {
                self.uncache(&slots, slot);
            }
        }
        step!("reap.run.before_dissolve");
        slice::dissolve(tables.slices(), head..end, self.keeper.id);
        length
    }

    /// Whether the slices after the head of a dead cache's run can belong to the run. A corrupted
    /// head may include slices of other owners.
    fn is_of_dead(&self, mut tails: core::ops::Range<usize>, class: u8) -> bool {
        let slices = self.keeper.memory.tables.slices();
        tails.all(|index| match slice::word(slices, index).decode() {
            Slice::Claimed(cache) => self.caches.has(cache) || cache == self.keeper.id,
            Slice::Span { class: of } => of == class,
            Slice::Tail => true,
            _ => false,
        })
    }

    /// Gives back the slots of a span that belong to dead caches or dead processes.
    fn span(&mut self, index: usize, class: u8) -> usize {
        let Some(about) = TABLE.get(usize::from(class)).filter(|_| usize::from(class) < CLASSES)
        else {
            self.reaped.damaged += 1;
            return 1;
        };
        let length = about.span_slices as usize;
        if !index.is_multiple_of(length) {
            return 1;
        }
        let slots = self.keeper.slots(index, about);
        let counted = self.keeper.counted(index, usize::from(class));
        let mut free = 0;
        for slot in 0..slots.count() {
            if self.slot(&slots, slot, about) {
                step!("reap.slot.after_free");
            }
            free += u32::from(slots.get(slot) == SlotWord::FREE);
        }
        self.keeper.recount(index, usize::from(class), counted, free);
        length
    }

    /// Processes one slot. Returns whether it freed the slot.
    fn slot(&mut self, slots: &Slots<'_>, slot: usize, about: &Class) -> bool {
        let word = slots.get(slot);
        match word.decode() {
            Slot::Cached(cache) if self.caches.has(cache) => self.uncache(slots, slot),
            Slot::Live { process, tag } if self.processes.has(process) => {
                let heir = self.heirs[usize::from(process)];
                let next = match heir == process {
                    true => SlotWord::FREE,
                    false => SlotWord::live(heir, tag),
                };
                // If a live process frees the slot at the same time, nothing is left to do.
                if !slots.exchange(slot, word, next) {
                    return false;
                }
                self.count(heir != process, about.size as u64);
                next == SlotWord::FREE
            }
            _ => false,
        }
    }

    fn uncache(&mut self, slots: &Slots<'_>, slot: usize) -> bool {
        let word = slots.get(slot);
        let Slot::Cached(cache) = word.decode() else { return false };
        let is_freed = self.caches.has(cache) && slots.exchange(slot, word, SlotWord::FREE);
        self.reaped.cached += u64::from(is_freed);
        is_freed
    }

    fn large(
        &mut self,
        head: usize,
        word: SliceWord,
        (process, tag): (u8, u8),
        length: usize,
    ) -> usize {
        let slices = self.keeper.memory.tables.slices();
        let end = head.saturating_add(length);
        let is_tail = |index| matches!(slice::word(slices, index).decode(), Slice::Tail);
        if length == 0 || end > slices.len() || !(head + 1..end).all(is_tail) {
            self.reaped.damaged += 1;
            return 1;
        }
        let heir = self.heirs[usize::from(process)];
        if heir != process {
            let next = SliceWord::large(word.generation(), heir, tag, length as u32);
            if slices[head].compare_exchange(word.0, next.0, AcqRel, Relaxed).is_ok() {
                self.count(true, 0);
            }
            return length;
        }
        // A live process may free the block at the same time. Then only one of the two processes
        // seizes it.
        if slice::seize(slices, head..end, word, self.keeper.id) {
            step!("reap.large.after_seize");
            slice::dissolve(slices, head..end, self.keeper.id);
            self.count(false, (length * SLICE) as u64);
        }
        length
    }

    /// Gives back slots that a dead cache claimed from a span that was then taken apart: no span
    /// contains these slots, and only the cache's current span names their location.
    fn currents(&mut self) {
        let tables = &self.keeper.memory.tables;
        let slices = tables.slices().len();
        for id in 1..=tables.caches().len() as u16 {
            if !self.caches.has(id) {
                continue;
            }
            let Some(record) = tables.cache(id) else { continue };
            for (class, about) in TABLE.iter().enumerate().take(CLASSES) {
                let Some(head) = (record.current[class].load(Relaxed) as usize).checked_sub(1)
                else {
                    continue;
                };
                let length = about.span_slices as usize;
                if !head.is_multiple_of(length) || head + length > slices {
                    continue;
                }
                let slots = self.keeper.slots(head, about);
                for slot in 0..slots.count() {
                    self.uncache(&slots, slot);
                }
            }
        }
    }

    fn count(&mut self, is_inherited: bool, bytes: u64) {
        if is_inherited {
            self.reaped.inherited += 1;
        } else {
            self.reaped.blocks += 1;
            self.reaped.bytes += bytes;
        }
    }
}
