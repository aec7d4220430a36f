//! The heap: the paths of a request, from the few instructions that most calls are to the rare
//! ones.
//!
//! ```text
//! alloc: class of size and alignment; the thread's bin of that class; pop a place;
//!        its slot word says "cached by me"? store "live, process, tag"; data + place x granule
//! free:  offset in range? the slice's word says span of a class? at a slot's start, and the slot's
//!        word says live? store "cached by me"; push
//! ```
//!
//! No atomic read-modify-write, no system call, no division, and up to 8 KiB no cache line that
//! another thread's spans share. What is read from metadata that others can write is checked before
//! it is used as an index: a unit against the number of units, a count against the size of a bin; a
//! class has six bits and its table 64 entries.
//!
//! - `find`: what a pointer names;
//! - `debug`: fences, cookies and quarantine;
//! - `join`: this process's place in the heap, also after a fork, and its leaving;
//! - `build`: the builder;
//! - `slow`: refill, flush, the last resorts, and what is wrong with a pointer;
//! - `large`: blocks of slices;
//! - `handle`: requests of one kind, prepared;
//! - `resize`: realloc.

use core::hint::cold_path;
use core::ptr::NonNull;

use crate::fault::{AllocError, Misuse};
use crate::layout::{SHIFT_MIN, SLICE, UNIT};
use crate::local::{Directory, Entry};
use crate::memory::Memory;
use crate::protocol::class;
use crate::protocol::word::{SliceWord, SlotWord};
use crate::request::{Node, Offset, Tag};
use crate::sync::{AtomicU16, AtomicU64, Ordering::Relaxed};

mod build;
mod debug;
mod find;
mod handle;
mod join;
mod large;
mod resize;
mod slow;

pub use build::Builder;
pub(crate) use build::Upkeep;
pub(crate) use find::Found;
pub use handle::Handle;
pub use resize::ReallocError;

/// A heap, as this process has it. Any number of threads can use it at once.
// Aligned, so that the fields between `data` and `live` lie in one cache line.
#[repr(C, align(64))]
pub struct Heap {
    // What every call reads, and nothing writes once the heap is built.
    data: NonNull<u8>,
    data_bytes: usize,
    data_units: usize,
    slices: *const AtomicU64,
    /// In front of it lie the [`Grids`].
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

/// A live slot.
struct Slot<'a> {
    /// Of its slice's word.
    form: usize,
    grid: &'a Grid,
    units: usize,
    word: &'a AtomicU16,
}

/// A grid for each form of a slice's word. Not in the heap: that is a value which its maker's stack
/// holds twice, and a thread's may have 64 KiB. In front of the directory, whose address each call
/// has anyway: in a mapping of their own a pair of 64 B took 5.15 ns instead of 4.85 on Zen 4.
struct Grids;

impl Grids {
    /// Bytes from the first grid to the entries of the directory. Those behind the last grid keep
    /// the grids of small classes from the page offsets 1024 and 2048. There an allocation of up to
    /// 64 B and its free needed 5.2 ns on Zen 4, and 4.8 ns at five other offsets, as if another
    /// access of the call had the lower 12 bits of the address.
    const BEFORE_ENTRIES: usize = SliceWord::FORMS * SliceWord::FORM_UNIT + 3328;
}

/// What the paths need to know of the slots in a slice, by the form of its word. Where the form is
/// not that of a span of a class, the one slot word that it leads to says that nothing is live.
// Aligned, so that none lies in two cache lines.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
struct Grid {
    /// The slot words of the class's shift: one for so many units, a power of two.
    words: *const AtomicU16,
    /// 2^32 over that number of units: units times this are the place of a word, and below, in the
    /// lower 32 bits, what is left. Cheaper than a shift by a register and a test (Intel: two of
    /// six steps less).
    inverse: u64,
    /// From the first of these units to before the second, a block of any class lies wholly in what
    /// the heap may use. One that begins elsewhere is checked by its slices.
    safe_start: u32,
    safe_end: u32,
    /// Slots that a bin of the class takes; 0 where there are several nodes.
    bin_slots: u32,
}

impl Grid {
    /// The place of the word of what begins at so many units; `None` where nothing can begin.
    #[inline(always)]
    fn place_of(&self, units: usize) -> Option<usize> {
        let product = (units as u64).wrapping_mul(self.inverse);
        (product as u32 == 0).then_some((product >> u32::BITS) as usize)
    }

    /// The word at a place that the grid has.
    ///
    /// # Safety
    /// The place comes of an offset in range, and the heap lives as long as `'a`.
    #[inline(always)]
    unsafe fn word<'a>(&self, place: usize) -> &'a AtomicU16 {
        // SAFETY: there is a word for each granule of the range; where the grid is not a span's,
        // all offsets lead to the place of one word.
        let word = unsafe { self.words.add(place) };
        // SAFETY: mapped as long as the heap lives.
        unsafe { &*word }
    }
}

// SAFETY: the raw pointers lead into mappings that belong to the process and live as long as the
// heap; everything there is accessed by atomics, or by the owner of a block.
unsafe impl Send for Heap {}
// SAFETY: as above.
unsafe impl Sync for Heap {}

impl Heap {
    /// Allocates `size` bytes at a multiple of `align`, without a tag. What the block holds is not
    /// defined. A size of 0 gives the smallest block.
    ///
    /// Most calls are some twenty instructions. Every 32nd or so of one size takes slots from a
    /// span. A page that has no memory yet may cost a system call.
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
    /// // SAFETY: allocated here.
    /// assert!(unsafe { heap.usable_size(block) }? >= 1500);
    /// // SAFETY: as above, and not used again.
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
        let form = class::form_of_small(size);
        match self.pop(form, node, tag) {
            Some(block) => Ok(block),
            None => {
                cold_path();
                self.pop_slow(SliceWord::class_of_form(form), size, node, tag).told()
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
        // SAFETY: the block was just allocated with at least this many bytes, and nobody else has
        // it.
        unsafe { block.write_bytes(0, size) };
        Ok(block)
    }

    /// Frees a block. Some twenty instructions for most; every 32nd or so of one size gives slots
    /// back to their spans.
    ///
    /// # Errors
    /// [`Misuse`] for a pointer that names no live block; nothing is changed then. So a second free
    /// of a slot is an error once the first has returned, until the slot is handed out again.
    ///
    /// Two threads that free one slot **at once** may both get through: each looks and then stores,
    /// to save a locked instruction in each free. If both have stored before one of them allocates,
    /// the entry that is not the slot's is found when it would be handed out, reported to the
    /// heap's `on_misuse`, and dropped. If one has handed the slot out again before the other one
    /// stores, nothing is told, and the slot has two users from then on. Debug mode and blocks
    /// above 256 KiB use an exchange: of two frees one gets through.
    ///
    /// A block that another process allocated, of which the caller is not the
    /// [heir](Heap::set_heir), is freed by whoever reaps that process when it dies: the caller's
    /// free after that, or at that instant, is a second one.
    ///
    /// # Safety
    /// If `block` is a live block of this heap, nobody uses it from now on.
    #[inline(always)]
    pub unsafe fn free(&self, block: NonNull<u8>) -> Result<(), Misuse> {
        let offset = block.as_ptr().addr().wrapping_sub(self.data.as_ptr().addr());
        let Some(slot) = self.slot_at(offset) else {
            return self.free_other(block);
        };
        // Where there are several nodes, a grid's bins have no room, so that one look tells both.
        if self.add(self.entry(0), &slot, slot.grid.bin_slots) {
            return Ok(());
        }
        self.free_elsewhere(block)
    }

    /// Where a pointer into the heap lies, in a form that means the same in every process that
    /// shares it; `None` for a pointer outside.
    #[inline]
    pub fn offset(&self, pointer: NonNull<u8>) -> Option<Offset> {
        let bytes = pointer.as_ptr().addr().wrapping_sub(self.data.as_ptr().addr());
        (bytes < self.data_bytes).then_some(Offset::new(bytes as u64))
    }

    /// Where an offset lies in this process; `None` for one outside the heap. It may come from a
    /// peer that lies: that something is mapped there does not mean that a block is.
    #[inline]
    pub fn pointer(&self, offset: Offset) -> Option<NonNull<u8>> {
        let bytes = usize::try_from(offset.bytes()).ok()?;
        if bytes >= self.data_bytes {
            return None;
        }
        Some(self.at(bytes))
    }

    /// Takes a slot from this thread's bin of the class whose spans have this form; `None` where it
    /// takes more than that.
    #[inline(always)]
    fn pop(&self, form: usize, node: Node, tag: Tag) -> Option<NonNull<u8>> {
        if u32::from(node.0) > self.nodes {
            cold_path();
            return None;
        }
        let entry = self.entry(node.0 as usize);
        // SAFETY: callers pass the form of a class, and the heap is `self`.
        let Some(bin) = (unsafe { entry.bin(form) }) else {
            cold_path();
            return None;
        };
        let top = (bin.count.load(Relaxed) as usize).wrapping_sub(1);
        let Some(units) = bin.entry(top) else {
            cold_path();
            return None;
        };
        let units = units.load(Relaxed);
        let grid = self.grid(form);
        if units < grid.safe_start || units >= grid.safe_end {
            cold_path();
            return None;
        }
        let Some(place) = grid.place_of(units as usize) else {
            cold_path();
            return None;
        };
        // SAFETY: what is safe is in range, and the heap lives.
        let slot = unsafe { grid.word(place) };
        if SlotWord(slot.load(Relaxed)) != entry.cached() {
            cold_path();
            return None;
        }
        bin.count.store(top as u32, Relaxed);
        slot.store(self.live.load(Relaxed) | u16::from(tag.0), Relaxed);
        Some(self.at(units as usize * UNIT))
    }

    /// The address of an offset in range.
    #[inline(always)]
    fn at(&self, offset: usize) -> NonNull<u8> {
        // Wrapping, because with a caller's memory the range can begin before what is mapped.
        let address = self.data.as_ptr().wrapping_add(offset);
        // SAFETY: the range lies within the address space, so the sum is not null.
        unsafe { NonNull::new_unchecked(address) }
    }

    /// The live slot that starts at `offset`; `None` where there is none.
    #[inline(always)]
    fn slot_at(&self, offset: usize) -> Option<Slot<'_>> {
        // What is no multiple of a unit becomes more than any heap has.
        let units = offset.rotate_right(SHIFT_MIN);
        if units >= self.data_units {
            return None;
        }
        // SAFETY: there is a word for each slice of the range, and the offset is within it.
        let slice = unsafe { self.slices.add(units / (SLICE / UNIT)) };
        // SAFETY: mapped as long as the heap lives.
        let form = SliceWord(unsafe { &*slice }.load(Relaxed)).form();
        let grid = self.grid(form);
        let place = grid.place_of(units)?;
        // SAFETY: the offset is in range, and the heap lives.
        let word = unsafe { grid.word(place) };
        SlotWord(word.load(Relaxed)).is_live().then_some(Slot { form, grid, units, word })
    }

    /// The grid of a form.
    #[inline(always)]
    fn grid(&self, form: usize) -> &Grid {
        debug_assert!(form < SliceWord::FORMS * SliceWord::FORM_UNIT);
        let from_entries = form as isize - Grids::BEFORE_ENTRIES as isize;
        // SAFETY: in front of the entries lies a grid for each form, and from one to the next are
        // as many bytes.
        let grid = unsafe { self.directory_start.byte_offset(from_entries) };
        // SAFETY: one of `self`'s, as just said, which nothing writes.
        unsafe { &*grid.cast() }
    }

    /// This thread's entry in a row of the directory. A thread that has not registered has number
    /// 0, whose entries stay empty.
    #[inline(always)]
    fn entry(&self, row: usize) -> &Entry {
        debug_assert!(row <= self.nodes as usize);
        // SAFETY: callers pass a row that the directory has, and it lives as long as the heap.
        unsafe { Directory::own_entry(self.directory_start, row) }
    }

    /// Makes a live slot that of a thread's cache, if the cache is there and its bin has room,
    /// where it takes `most`.
    #[inline(always)]
    fn add(&self, entry: &Entry, slot: &Slot<'_>, most: u32) -> bool {
        // SAFETY: a slot is live only in a span of a class, and the heap is `self`.
        let Some(bin) = (unsafe { entry.bin(slot.form) }) else { return false };
        let count = bin.count.load(Relaxed);
        if count >= most {
            return false;
        }
        // SAFETY: a class's bin takes at most as many slots as a bin has room for.
        let free = unsafe { bin.entry_at(count as usize) };
        slot.word.store(entry.cached().0, Relaxed);
        free.store(slot.units as u32, Relaxed);
        bin.count.store(count + 1, Relaxed);
        true
    }

    /// The directory's row for the node that an offset in range belongs to.
    fn row_of(&self, offset: usize) -> usize {
        match self.nodes {
            1 => 0,
            _ => (offset >> self.row_shift) + 1,
        }
    }
}

const _: () = {
    assert!(size_of::<Grid>() == SliceWord::FORM_UNIT);
};
