//! The heap: the paths of a request, from the few instructions that most calls are to the rare ones.
//!
//! ```text
//! alloc: class of size and alignment; the thread's bin of that class; pop a unit;
//!        its slot word says "cached by me"? store "live, process, tag"; data + unit
//! free:  offset in range? the slice's word says span of a class? at a slot's start, and the slot's
//!        word says live? store "cached by me"; push
//! ```
//!
//! No atomic read-modify-write, no shared cache line, no system call, no division. What is read from
//! metadata that others can write is checked before it is used as an index: a unit against the number
//! of units, a count against the size of a bin; a class has six bits and its table 64 entries.
//!
//! - `build`: the builder;
//! - `join`: this process's place in the heap, also after a fork, and its leaving;
//! - `find`: what a pointer names;
//! - `debug`: fences, cookies and quarantine;
//! - `slow`: refill, flush, the last resorts, and what is wrong with a pointer;
//! - `large`: blocks of slices;
//! - `resize`: realloc.

use core::hint::cold_path;
use core::ptr::NonNull;

use crate::class;
use crate::fault::{AllocError, Misuse};
use crate::layout::{SLICE, UNIT};
use crate::local::{Directory, Entry};
use crate::memory::Memory;
use crate::request::{Node, Offset, Tag};
use crate::sync::{AtomicU16, AtomicU64, Ordering::Relaxed};
use crate::tables::Bin;
use crate::word::{SliceWord, SlotWord};

mod build;
mod debug;
mod find;
mod join;
mod large;
mod resize;
mod slow;

pub use build::Builder;
pub(crate) use build::Upkeep;
pub(crate) use find::Found;
pub use resize::ReallocError;

/// A heap, as this process has it. Any number of threads can use it at once.
// Aligned, so that the fields between `data` and `live` lie in one cache line.
#[repr(C, align(64))]
pub struct Heap {
    // What every call reads, and nothing writes once the heap is built.
    /// By the form of a slice's word. First, so that a form leads to its lane by one addition.
    lanes: [Lane; SliceWord::FORMS],
    data: NonNull<u8>,
    data_bytes: usize,
    /// From the first of these offsets to before the second, a block of any class lies wholly in what
    /// the heap may use. One that begins elsewhere is looked at more closely.
    safe_start: usize,
    safe_end: usize,
    slices: *const AtomicU64,
    directory_start: *const Entry,
    nodes: u32,
    /// From an offset to its node.
    row_shift: u8,
    /// The word of a live block of this process without a tag; another one in a child after fork.
    live: AtomicU16,
    // The rest.
    on_misuse: Option<fn(&Misuse)>,
    pub(crate) upkeep: Upkeep,
    debug: Option<debug::Debug>,
    pub(crate) directory: Directory,
    pub(crate) memory: Memory,
}

/// What the paths need to know of the slots in a slice, by the form of its word. Where the form is not
/// that of a span of a class, the one slot word that it leads to says that nothing is live.
// Aligned, so that none lies in two cache lines.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Lane {
    /// The slot words of the class's shift.
    words: *const AtomicU16,
    /// All bits below the shift.
    mask: u32,
    /// From a byte's offset to its word.
    shift: u8,
    bin_slots: u8,
    /// From a cache's first bin to the class's, in bytes.
    bin_at: u16,
}

// SAFETY: the raw pointers lead into mappings that belong to the process and live as long as the heap;
// everything there is accessed by atomics, or by the owner of a block.
unsafe impl Send for Heap {}
// SAFETY: as above.
unsafe impl Sync for Heap {}

impl Heap {
    /// Allocates `size` bytes at a multiple of `align`, without a tag. What the block holds is not
    /// defined. A size of 0 gives the smallest block.
    ///
    /// Most calls are some twenty instructions. Every 32nd or so of one size takes slots from a span.
    /// A page that has no memory yet may cost a system call.
    ///
    /// # Errors
    /// [`AllocError`]; nothing is allocated then.
    ///
    /// ```
    /// use haul_heap::{Heap, Node};
    ///
    /// let heap = Heap::builder().build()?;
    /// let block = heap.alloc(1500, 64, Node::ANY)?;
    /// assert_eq!(block.as_ptr() as usize % 64, 0);
    /// assert!(heap.usable_size(block)? >= 1500);
    /// // SAFETY: allocated here, and not used again.
    /// unsafe { heap.free(block) }?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline(always)]
    pub fn alloc(&self, size: usize, align: usize, node: Node) -> Result<NonNull<u8>, AllocError> {
        self.alloc_tagged(size, align, node, Tag::NONE)
    }

    /// As [`Heap::alloc`], with a tag.
    ///
    /// # Errors
    /// As [`Heap::alloc`].
    #[inline(always)]
    pub fn alloc_tagged(
        &self,
        size: usize,
        align: usize,
        node: Node,
        tag: Tag,
    ) -> Result<NonNull<u8>, AllocError> {
        if size > class::SMALL_SIZE_MAX || align > UNIT || !align.is_power_of_two() {
            cold_path();
            return self.alloc_other(size, align, node, tag).told();
        }
        let class = class::of_small(size);
        match self.pop(class, node, tag) {
            Some(block) => Ok(block),
            None => {
                cold_path();
                self.pop_slow(class, size, node, tag).told()
            }
        }
    }

    /// As [`Heap::alloc_tagged`], and the block is all zeros. Zeroing happens outside of everything
    /// that others could wait for.
    ///
    /// # Errors
    /// As [`Heap::alloc`].
    #[inline]
    pub fn zalloc(
        &self,
        size: usize,
        align: usize,
        node: Node,
        tag: Tag,
    ) -> Result<NonNull<u8>, AllocError> {
        let block = self.alloc_tagged(size, align, node, tag)?;
        // SAFETY: the block was just allocated with at least this many bytes, and nobody else has it.
        unsafe { block.write_bytes(0, size) };
        Ok(block)
    }

    /// Frees a block. Some twenty instructions for most; every 32nd or so of one size gives slots back
    /// to their spans.
    ///
    /// # Errors
    /// [`Misuse`] for a pointer that names no live block; nothing is changed then. So a second free of a
    /// slot is told once the first has returned, until the slot is handed out again.
    ///
    /// Two threads that free one slot **at once** may both get through: each looks and then stores, to save
    /// a locked instruction in each free. If both have stored before one of them allocates, the entry
    /// that is not the slot's is found when it would be handed out, reported to the heap's `on_misuse`, and
    /// dropped. If one has handed the slot out again before the other one stores, nothing is told, and the
    /// slot has two users from then on. Debug mode and blocks above 256 KiB use an exchange: of two frees
    /// one gets through.
    ///
    /// A block that another process allocated, of which the caller is not the [heir](Heap::set_heir), is
    /// freed by whoever reaps that process when it dies: the caller's free after that, or at that instant,
    /// is a second one.
    ///
    /// # Safety
    /// If `block` is a live block of this heap, nobody uses it from now on.
    #[inline(always)]
    pub unsafe fn free(&self, block: NonNull<u8>) -> Result<(), Misuse> {
        let offset = block.as_ptr().addr().wrapping_sub(self.data.as_ptr().addr());
        let Some((lane, slot)) = self.slot_at(offset) else {
            return self.free_other(block);
        };
        let entry = self.entry_for(offset);
        let bins = entry.bins();
        if bins.is_null() {
            return self.free_slow(block);
        }
        // SAFETY: a cache has a bin for each class, and a lane's bin is one of them.
        let bin = unsafe { bins.byte_add(lane.bin_at as usize) };
        // SAFETY: mapped as long as the heap lives, and made of atomics.
        let bin = unsafe { &*bin };
        let count = bin.count.load(Relaxed) as usize;
        if count >= lane.bin_slots as usize {
            return self.free_slow(block);
        }
        // SAFETY: a lane's bin holds at most as many slots as a bin has room for.
        let unit = unsafe { bin.units.get_unchecked(count) };
        slot.store(entry.cached().0, Relaxed);
        unit.store((offset / UNIT) as u32, Relaxed);
        bin.count.store(count as u32 + 1, Relaxed);
        Ok(())
    }

    /// A request of one kind, with its class worked out once.
    ///
    /// # Errors
    /// [`AllocError::BadAlign`], [`AllocError::TooLarge`] and [`AllocError::NoNode`] as for a request.
    pub fn handle(
        &self,
        size: usize,
        align: usize,
        node: Node,
        tag: Tag,
    ) -> Result<Handle<'_>, AllocError> {
        self.check(size, align, node)?;
        Ok(Handle { heap: self, class: class::of(size, align), size, align, node, tag })
    }

    /// Where a pointer into the heap lies, in a form that means the same in every process that shares
    /// it; `None` for a pointer outside.
    #[inline]
    pub fn offset(&self, pointer: NonNull<u8>) -> Option<Offset> {
        let bytes = pointer.as_ptr().addr().wrapping_sub(self.data.as_ptr().addr());
        (bytes < self.data_bytes).then_some(Offset::new(bytes as u64))
    }

    /// Where an offset lies in this process; `None` for one outside the heap. It may come from a peer
    /// that lies: that something is mapped there does not mean that a block is.
    #[inline]
    pub fn pointer(&self, offset: Offset) -> Option<NonNull<u8>> {
        let bytes = usize::try_from(offset.bytes()).ok()?;
        if bytes >= self.data_bytes {
            return None;
        }
        Some(self.at(bytes))
    }

    /// Takes a slot of `class` from this thread's bin; `None` where it takes more than that.
    #[inline(always)]
    fn pop(&self, class: usize, node: Node, tag: Tag) -> Option<NonNull<u8>> {
        if u32::from(node.0) > self.nodes {
            return None;
        }
        let entry = self.entry(node.0 as usize);
        let bins = entry.bins();
        if bins.is_null() {
            return None;
        }
        // SAFETY: a cache has a bin for each class, and callers pass a class.
        let bin = unsafe { bins.add(class) };
        // SAFETY: mapped as long as the heap lives, and made of atomics.
        let bin = unsafe { &*bin };
        let top = (bin.count.load(Relaxed) as usize).wrapping_sub(1);
        let offset = bin.units.get(top)?.load(Relaxed) as usize * UNIT;
        if offset < self.safe_start || offset >= self.safe_end {
            return None;
        }
        let lane = &self.lanes[SliceWord::form_of_span(class)];
        // SAFETY: there is a word for each 2^shift bytes of the range, and the offset is within it.
        let slot = unsafe { lane.words.add(offset >> lane.shift) };
        // SAFETY: mapped as long as the heap lives.
        let slot = unsafe { &*slot };
        if SlotWord(slot.load(Relaxed)) != entry.cached() {
            return None;
        }
        bin.count.store(top as u32, Relaxed);
        slot.store(self.live.load(Relaxed) | u16::from(tag.0), Relaxed);
        Some(self.at(offset))
    }

    /// The address of an offset in range.
    #[inline(always)]
    fn at(&self, offset: usize) -> NonNull<u8> {
        // Wrapping, because with a caller's memory the range can begin before what is mapped.
        let address = self.data.as_ptr().wrapping_add(offset);
        // SAFETY: the range lies within the address space, so the sum is not null.
        unsafe { NonNull::new_unchecked(address) }
    }

    /// The lane and the word of the live slot that starts at `offset`; `None` where there is none.
    #[inline(always)]
    fn slot_at(&self, offset: usize) -> Option<(&Lane, &AtomicU16)> {
        if offset >= self.data_bytes {
            return None;
        }
        // SAFETY: there is a word for each slice of the range, and the offset is within it.
        let slice = unsafe { self.slices.add(offset / SLICE) };
        // SAFETY: mapped as long as the heap lives.
        let slice = SliceWord(unsafe { &*slice }.load(Relaxed));
        let lane = &self.lanes[slice.form()];
        if offset & lane.mask as usize != 0 {
            return None;
        }
        // SAFETY: there is a word for each 2^shift bytes of the range, and the offset is within it; where
        // the form is not that of a span, the shift leaves 0, and there is one word.
        let slot = unsafe { lane.words.add(offset >> lane.shift) };
        // SAFETY: mapped as long as the heap lives.
        let slot = unsafe { &*slot };
        SlotWord(slot.load(Relaxed)).is_live().then_some((lane, slot))
    }

    /// This thread's entry in a row of the directory. A thread that has not registered has number 0,
    /// whose entries stay empty.
    #[inline(always)]
    fn entry(&self, row: usize) -> &Entry {
        debug_assert!(row <= self.nodes as usize);
        // SAFETY: callers pass a row that the directory has, and it lives as long as the heap.
        unsafe { Directory::own_entry(self.directory_start, row) }
    }

    /// This thread's entry for the node that an offset in range belongs to.
    #[inline(always)]
    fn entry_for(&self, offset: usize) -> &Entry {
        // With one node, where a thread is, is where everything is: so allocating and freeing use one
        // row, and a branch that is always foretold costs less than what it skips.
        if self.nodes == 1 {
            return self.entry(0);
        }
        cold_path();
        self.entry(self.row_of(offset))
    }

    /// The directory's row for the node that an offset in range belongs to.
    fn row_of(&self, offset: usize) -> usize {
        match self.nodes {
            1 => 0,
            _ => (offset >> self.row_shift) + 1,
        }
    }
}

/// A request of one kind, prepared: see [`Heap::handle`].
#[derive(Clone, Copy)]
pub struct Handle<'a> {
    heap: &'a Heap,
    class: Option<usize>,
    size: usize,
    align: usize,
    node: Node,
    tag: Tag,
}

impl Handle<'_> {
    /// Allocates a block of this kind. As [`Heap::alloc_tagged`], without working out the class.
    ///
    /// # Errors
    /// As [`Heap::alloc`].
    #[inline(always)]
    pub fn alloc(&self) -> Result<NonNull<u8>, AllocError> {
        match self.class {
            Some(class) => match self.heap.pop(class, self.node, self.tag) {
                Some(block) => Ok(block),
                None => self.heap.pop_slow(class, self.size, self.node, self.tag).told(),
            },
            None => self.heap.alloc_other(self.size, self.align, self.node, self.tag).told(),
        }
    }
}

const _: () = {
    assert!(size_of::<Lane>() == 16);
    assert!(size_of::<Bin>() == 256);
};
