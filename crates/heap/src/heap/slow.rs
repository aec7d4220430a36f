//! The slow paths: for a bin that is empty or full, a full heap, and a wrong pointer.

use core::ptr::NonNull;

use super::find::owner_of;
use super::{Found, Heap};
use crate::cache::Keeper;
use crate::fault::{AllocError, Fault, Misuse};
use crate::layout::{ALIGN_MAX, UNIT};
use crate::protocol::class::{self, BIN_SLOTS_MAX, TABLE};
use crate::protocol::step::step;
use crate::protocol::word::{SliceWord, Slot, SlotWord};
use crate::request::{Node, Tag};
use crate::sync::Ordering::Relaxed;

/// How often a bin may be filled for one request. One refill suffices, unless a peer corrupts the
/// entries.
const REFILLS: usize = 100;

/// A block or an error, in one register. If two registers held it, the compiler would merge them
/// with the result of the fast path and no longer detect that the fast path never fails. Each
/// call would then need three more instructions.
#[derive(Clone, Copy)]
pub(super) struct Outcome(*mut u8);

impl Outcome {
    fn new(result: Result<NonNull<u8>, AllocError>) -> Self {
        Self(match result {
            Ok(block) => block.as_ptr(),
            // No block has such an address, because the lowest address of a block is a multiple
            // of a unit.
            Err(error) => core::ptr::without_provenance_mut(error as usize),
        })
    }

    #[inline(always)]
    pub(super) fn result(self) -> Result<NonNull<u8>, AllocError> {
        match AllocError::ALL.get(self.0.addr()) {
            Some(error) => Err(*error),
            // SAFETY: null is the address of an error, handled above.
            None => Ok(unsafe { NonNull::new_unchecked(self.0) }),
        }
    }
}

impl Heap {
    /// Returns an error if no heap of this shape can serve the request.
    pub(super) fn check(&self, size: usize, align: usize, node: Node) -> Result<(), AllocError> {
        if !align.is_power_of_two() || align > ALIGN_MAX {
            return Err(AllocError::BadAlign);
        }
        if u32::from(node.0) > self.nodes {
            return Err(AllocError::NoNode);
        }
        match size.checked_add(align) {
            Some(_) if size <= self.data_bytes => Ok(()),
            _ => Err(AllocError::TooLarge),
        }
    }

    /// Serves requests that are large or have an alignment above a cache line.
    #[inline(never)]
    pub(super) fn alloc_other(&self, size: usize, align: usize, node: Node, tag: Tag) -> Outcome {
        // A request with a class exceeds no limit except possibly the number of nodes, which is
        // checked later.
        let class = if align.is_power_of_two() { class::of(size, align) } else { None };
        let Some(class) = class else {
            return self.alloc_unclassed(size, align, node, tag);
        };
        match self.pop(SliceWord::form_of_span(class), node, tag) {
            Some(block) => Outcome::new(Ok(block)),
            None => self.pop_slow(class, size, node, tag),
        }
    }

    /// Handles requests without a class: large requests, and requests that no heap can serve.
    #[cold]
    #[inline(never)]
    fn alloc_unclassed(&self, size: usize, align: usize, node: Node, tag: Tag) -> Outcome {
        let checked = self.check(size, align, node);
        let block = checked.and_then(|()| self.alloc_large(size, align, node, tag));
        Outcome::new(self.if_whole(block))
    }

    /// Returns `block`, or an error if the heap's file has lost memory, because the heap would
    /// then give out memory that is private to this process.
    fn if_whole(&self, block: Result<NonNull<u8>, AllocError>) -> Result<NonNull<u8>, AllocError> {
        if self.is_broken() { Err(AllocError::Gone) } else { block }
    }

    /// Whether the file of a shared heap has lost memory: another process has truncated the file,
    /// or punched a hole into it that the kernel cannot fill, and this process has accessed the
    /// missing part. The missing parts are now private to this process, and the heap provides no
    /// new blocks ([`AllocError::Gone`]).
    pub fn is_broken(&self) -> bool {
        self.memory.region.is_broken()
    }

    /// Takes a slot if the thread's bin is empty, missing or corrupt.
    #[cold]
    #[inline(never)]
    pub(super) fn pop_slow(&self, class: usize, size: usize, node: Node, tag: Tag) -> Outcome {
        if u32::from(node.0) > self.nodes {
            return Outcome::new(Err(AllocError::NoNode));
        }
        let block = match self.debug {
            None => self.pop_anywhere(class, node, tag),
            Some(_) => self.alloc_debug(class, size, node, tag),
        };
        Outcome::new(self.if_whole(block))
    }

    pub(super) fn pop_anywhere(
        &self,
        class: usize,
        node: Node,
        tag: Tag,
    ) -> Result<NonNull<u8>, AllocError> {
        self.on_nodes(node, |keeper| {
            for _ in 0..REFILLS {
                if let Some(block) = self.pop_checked(&keeper, class, tag) {
                    return Ok(block);
                }
                match keeper.refill(class) {
                    Ok(()) => {}
                    Err(AllocError::Exhausted) => self.last_resort(&keeper, class)?,
                    Err(error) => return Err(error),
                }
            }
            Err(AllocError::Exhausted)
        })
    }

    /// Frees a live slot that the fast path did not free. If the heap has several nodes, the slot
    /// goes to the bin of its node. Otherwise the thread's bin is full or does not exist yet.
    #[cold]
    #[inline(never)]
    pub(super) fn free_elsewhere(&self, block: NonNull<u8>) -> Result<(), Misuse> {
        if self.nodes > 1 {
            let offset = block.as_ptr().addr().wrapping_sub(self.data.as_ptr().addr());
            // The lookup is repeated, because passing the slot as an argument would need
            // registers in each free in a heap with one node.
            let Some(slot) = self.slot_at(offset) else { return self.free_other(block) };
            let most = TABLE[SliceWord::class_of_form(slot.form)].bin_slots;
            if self.add(self.entry(self.row_of(offset)), &slot, most) {
                return Ok(());
            }
        }
        self.free_slow(block)
    }

    /// Frees a live slot if the thread's bin is full or does not exist yet.
    fn free_slow(&self, block: NonNull<u8>) -> Result<(), Misuse> {
        let found = match self.find(block.as_ptr().addr()) {
            Ok(found) if found.class.is_some() => found,
            _ => return self.free_other(block),
        };
        match &self.debug {
            None => self.push(&found),
            Some(debug) => {
                self.free_debug(debug, &found).inspect_err(|misuse| self.report(misuse))?;
            }
        }
        Ok(())
    }

    /// Puts a slot into this thread's bin.
    pub(super) fn push(&self, found: &Found) {
        let Some(class) = found.class else { return };
        let about = &TABLE[class];
        let slot = &self.memory.tables.slots(about.shift)[found.offset >> about.shift];
        let Ok(keeper) = self.keeper(self.row_of(found.offset)) else {
            // No cache is available, so the slot goes directly back to the span. The next search
            // that counts the span's free slots includes it.
            slot.store(SlotWord::FREE.0, crate::sync::Ordering::Release);
            return;
        };
        let bin = &keeper.record.bins[class];
        if bin.count.load(Relaxed) >= about.bin_slots {
            keeper.flush(class, about.bin_slots as usize / 2);
        }
        step!("heap.free.after_flush");
        // Read once: a peer can change it between two reads.
        let count = (bin.count.load(Relaxed) as usize).min(BIN_SLOTS_MAX - 1);
        slot.store(SlotWord::cached(keeper.id).0, Relaxed);
        step!("heap.free.before_push");
        bin.units[count].store((found.offset / UNIT) as u32, Relaxed);
        bin.count.store(count as u32 + 1, Relaxed);
    }

    /// Frees a large block, or reports that the pointer is wrong.
    #[cold]
    #[inline(never)]
    pub(super) fn free_other(&self, block: NonNull<u8>) -> Result<(), Misuse> {
        let misuse = match self.find(block.as_ptr().addr()) {
            Ok(found) if found.class.is_none() => match self.free_large(&found) {
                Ok(()) => return Ok(()),
                Err(misuse) => misuse,
            },
            // Another thread has allocated this slot since the lookup. It was free when this call
            // began, so this call is a second free.
            Ok(found) => found.misuse(Fault::Double),
            Err(misuse) => misuse,
        };
        self.report(&misuse);
        Err(misuse)
    }

    /// Passes a misuse to the heap's hook.
    pub(crate) fn report(&self, misuse: &Misuse) {
        if let Some(hook) = self.on_misuse {
            hook(misuse);
        }
    }

    fn pop_checked(&self, keeper: &Keeper<'_>, class: usize, tag: Tag) -> Option<NonNull<u8>> {
        let (about, bin) = (&TABLE[class], &keeper.record.bins[class]);
        // Each pass removes an entry, unless a peer keeps changing the count.
        for _ in 0..BIN_SLOTS_MAX {
            let top = (bin.count.load(Relaxed) as usize).checked_sub(1)?;
            let offset = bin.units.get(top)?.load(Relaxed) as usize * UNIT;
            bin.count.store(top as u32, Relaxed);
            let slot = self.memory.tables.slots(about.shift).get(offset >> about.shift);
            let is_inside =
                offset.is_multiple_of(1 << about.shift) && self.holds(offset, about.size as usize);
            let Some(slot) = slot.filter(|_| is_inside) else {
                self.report_entry(offset, class, Slot::Free);
                continue;
            };
            let found = SlotWord(slot.load(Relaxed));
            if found != SlotWord::cached(keeper.id) {
                self.report_entry(offset, class, found.decode());
                continue;
            }
            slot.store(self.live.load(Relaxed) | u16::from(tag.0), Relaxed);
            step!("heap.alloc.after_live");
            return self.pointer(crate::request::Offset::new(offset as u64));
        }
        None
    }

    /// Reports a bin entry whose slot does not belong to the bin, because two threads freed a
    /// block concurrently or a peer corrupted the metadata. The entry is dropped, and the owner
    /// that the slot word names keeps the slot.
    fn report_entry(&self, offset: usize, class: usize, found: Slot) {
        let fault = match found {
            Slot::Free => Fault::Scribbled,
            Slot::Cached(_) | Slot::Live { .. } => Fault::Double,
        };
        self.report(&Misuse {
            fault,
            address: self.data.as_ptr().addr().wrapping_add(offset),
            class_bytes: Some(TABLE[class].size as usize),
            owner: owner_of(found),
        });
    }

    /// Searches a full node for a slot: gives back all slots and spans that are kept for speed,
    /// and searches the spans that are in no bitmap.
    fn last_resort(&self, keeper: &Keeper<'_>, class: usize) -> Result<(), AllocError> {
        keeper.flush_all();
        keeper.drop_empty_spans();
        if keeper.refill(class).is_ok() || keeper.scrape(class) {
            return Ok(());
        }
        Err(AllocError::Exhausted)
    }
}

#[cfg(all(test, feature = "steps"))]
mod tests {
    use core::ptr;
    use core::sync::atomic::{AtomicPtr, Ordering::SeqCst};

    use super::*;
    use crate::protocol::step::set_hook;
    use crate::sync::AtomicU32;
    use crate::{Pages, Request};

    /// The address of the bin's count that the test overwrites like a peer.
    static COUNT: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());

    fn scribble(label: &'static str) {
        if label == "heap.free.after_flush" {
            // SAFETY: null, or the pointer that the test stored, which is valid until the test has
            // reset it.
            let count = unsafe { COUNT.load(SeqCst).as_ref() };
            count.inspect(|count| count.store(BIN_SLOTS_MAX as u32 + 1, Relaxed));
        }
    }

    #[test]
    fn free_reads_bin_count_once_while_peer_overwrites_it() {
        let heap = Heap::builder().limit(64 << 20).nodes(1).pages(Pages::Plain).build().unwrap();
        let class = class::of(1024, 64).unwrap();
        let blocks = [(); 200].map(|()| heap.alloc(Request::new(1024)).unwrap());
        let count = &heap.keeper(0).unwrap().record.bins[class].count;
        COUNT.store(ptr::from_ref(count).cast_mut(), SeqCst);
        set_hook(scribble);
        for block in blocks {
            // SAFETY: allocated just now and not used.
            let freed = unsafe { heap.free(block) };
            assert_eq!(freed, Ok(()));
        }
        COUNT.store(ptr::null_mut(), SeqCst);
    }

    static REPORTED: AtomicU32 = AtomicU32::new(0);

    #[test]
    fn corrupt_bin_entry_is_reported_and_not_handed_out() {
        let heap = Heap::builder().limit(64 << 20).nodes(1).pages(Pages::Plain);
        let heap = heap.on_misuse(|misuse| {
            assert_eq!(misuse.fault, Fault::Scribbled);
            REPORTED.fetch_add(1, Relaxed);
        });
        let heap = heap.build().unwrap();
        for size in [128, 1024, 4096] {
            let block = heap.alloc(Request::new(size)).unwrap();
            let bin = &heap.keeper(0).unwrap().record.bins[class::of(size, 64).unwrap()];
            let held = bin.count.load(Relaxed) as usize;
            let next = bin.units[held - 1].fetch_add(1, Relaxed) as usize;
            let reported = REPORTED.load(Relaxed);
            let other = heap.alloc(Request::new(size)).unwrap();
            assert_eq!(REPORTED.load(Relaxed), reported + 1);
            assert_eq!((other.addr().get() - block.addr().get()) % size, 0, "{size}");
            assert_ne!(heap.offset(other).unwrap().bytes(), ((next + 1) * UNIT) as u64);
        }
    }
}
