//! The heap: the fast paths that serve most requests, and the slow paths for the others.
//!
//! ```text
//! alloc: class of size and alignment; the thread's bin of that class; pop an entry;
//!        its slot word says "cached by me"? store "live, process, tag"; data + entry x granule
//! free:  offset in range? the slice's word says span of a class? at a slot's start, and the slot's
//!        word says live? store "cached by me"; push
//! ```
//!
//! Both paths need no atomic read-modify-write, no system call, no division, and for blocks of up
//! to 8 KiB no cache line that another thread's spans use. Other processes can write the
//! metadata, so a value from the metadata is checked before its use as an index: a unit against
//! the number of units, a count against the bin's size. A class needs no check: it has six bits,
//! and the table of classes has 64 entries.
//!
//! - `find`: lookup of a pointer;
//! - `debug`: fences, cookies and quarantine;
//! - `join`: joining the heap, also after a fork, and leaving it;
//! - `build`: the builder;
//! - `keeper`: the cache with which a thread serves a request;
//! - `slow`: refill, flush, the last resorts of a full heap, and misuse;
//! - `large`: blocks of slices;
//! - `handle`: prepared requests;
//! - `resize`: realloc.

use core::hint::cold_path;
use core::ptr::NonNull;

use crate::fault::{AllocError, Misuse};
use crate::layout::{SHIFT_MIN, SLICE, UNIT};
use crate::local::{Directory, Entry};
use crate::memory::Memory;
use crate::protocol::class;
use crate::protocol::word::{SliceWord, SlotWord};
use crate::request::{Node, Offset, Request, Tag};
use crate::sync::{AtomicU16, AtomicU64, Ordering::Relaxed};

mod build;
mod debug;
mod find;
mod handle;
mod join;
mod keeper;
mod large;
mod resize;
mod slow;

pub use build::Builder;
pub(crate) use build::Upkeep;
pub(crate) use find::Found;
pub use handle::Handle;
pub use resize::ReallocError;

/// A heap in this process. Any number of threads may use it concurrently.
// Aligned, so that the fields from `data` to `live` are in one cache line.
#[repr(C, align(64))]
pub struct Heap {
    // Fields that every call reads, and that nothing writes once the heap is built.
    data: NonNull<u8>,
    data_bytes: usize,
    data_units: usize,
    slices: *const AtomicU64,
    /// The directory's entries. The [`Grids`] are in the memory before them.
    directory_start: *const Entry,
    nodes: u32,
    /// The number of bits by which an offset is shifted to get its node.
    row_shift: u8,
    /// The slot word for a live block of this process without a tag. It differs in a child after
    /// fork.
    live: AtomicU16,
    // Fields of the slow paths.
    on_misuse: Option<fn(&Misuse)>,
    pub(crate) upkeep: Upkeep,
    debug: Option<debug::Debug>,
    pub(crate) directory: Directory,
    pub(crate) memory: Memory,
}

/// A live slot.
struct Slot<'a> {
    /// The form of the slice word for this slot's slice.
    form: usize,
    grid: &'a Grid,
    units: usize,
    word: &'a AtomicU16,
}

/// The grids, one for each form of a slice word. They are not in [`Heap`], because building a
/// `Heap` needs twice its size on the stack, and a thread may have a stack of 64 KiB. They are in
/// the memory before the directory's entries, because each call has that address anyway. With the
/// grids in a separate mapping, an allocation of 64 B and its free needed 5.15 ns instead of 4.85
/// on Zen 4.
struct Grids;

impl Grids {
    /// The number of bytes from the first grid to the entries of the directory. The unused bytes
    /// after the last grid keep the grids of small classes away from the page offsets 1024 and
    /// 2048. With a grid at these offsets, an allocation of up to 64 B and its free needed 5.2 ns
    /// on Zen 4; at five other offsets, 4.8 ns. Perhaps another access of the call has the same
    /// lower 12 bits in its address.
    const BEFORE_ENTRIES: usize = SliceWord::FORMS * SliceWord::FORM_UNIT + 3328;
}

/// The data that the fast paths need about the slots in a slice. The form of the slice word
/// selects the grid. The grid for a form that is not a span of a class maps all offsets to one
/// slot word, which is not live.
// Aligned, so that no grid is in two cache lines.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
struct Grid {
    /// The slot words for the class's shift: one for each granule. A granule is a number of units
    /// that is a power of two.
    words: *const AtomicU16,
    /// 2^32 divided by the units per granule. The product of this value and an offset in units
    /// contains the index of the slot word in its upper half, and the remainder in its lower
    /// half. The product is cheaper than a shift by a register and a test (Intel: two of six
    /// instructions fewer).
    inverse: u64,
    /// A block of any class that begins at a unit in `safe_start..safe_end` is entirely in the
    /// usable range. For any other block, the slow path checks the slices.
    safe_start: u32,
    safe_end: u32,
    /// The largest number of slots that a bin of the class holds; 0 if there are several nodes.
    bin_slots: u32,
}

impl Grid {
    /// The index of the slot word for a block that begins at this unit; `None` if no block can
    /// begin there.
    #[inline(always)]
    fn word_index(&self, units: usize) -> Option<usize> {
        let product = (units as u64).wrapping_mul(self.inverse);
        (product as u32 == 0).then_some((product >> u32::BITS) as usize)
    }

    /// The slot word at this index of the grid.
    ///
    /// # Safety
    /// The index comes from an offset in range, and the heap lives as long as `'a`.
    #[inline(always)]
    unsafe fn word<'a>(&self, index: usize) -> &'a AtomicU16 {
        // SAFETY: there is a word for each granule of the range; a grid that is not for a span
        // maps all offsets to the index of one word.
        let word = unsafe { self.words.add(index) };
        // SAFETY: mapped as long as the heap lives.
        unsafe { &*word }
    }
}

// SAFETY: the raw pointers point into mappings that belong to the process and live as long as the
// heap; only atomics, or the owner of a block, access the memory there.
unsafe impl Send for Heap {}
// SAFETY: as above.
unsafe impl Sync for Heap {}

impl Heap {
    /// Allocates a block. Its content is undefined.
    ///
    /// Most calls take some twenty instructions. About one in 32 calls for one size takes slots
    /// from a span. A call may need a system call to get memory for a page.
    ///
    /// # Errors
    /// An [`AllocError`]; nothing is allocated then.
    ///
    /// ```
    /// use haul_heap::{Heap, Request};
    ///
    /// let heap = Heap::builder().build()?;
    /// let block = heap.alloc(Request::new(1500).aligned(4096))?;
    /// assert_eq!(block.addr().get() % 4096, 0);
    /// // SAFETY: allocated here.
    /// assert!(unsafe { heap.usable_size(block) }? >= 1500);
    /// // SAFETY: as above, and not used again.
    /// unsafe { heap.free(block) }?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline(always)]
    pub fn alloc(&self, request: Request) -> Result<NonNull<u8>, AllocError> {
        let Request { size, align, node, tag } = request;
        if size > class::SMALL_SIZE_MAX || align > UNIT || !align.is_power_of_two() {
            cold_path();
            return self.alloc_other(size, align, node, tag).result();
        }
        let form = class::form_of_small(size);
        match self.pop(form, node, tag) {
            Some(block) => Ok(block),
            None => {
                cold_path();
                self.pop_slow(SliceWord::class_of_form(form), size, node, tag).result()
            }
        }
    }

    /// Like [`Heap::alloc`], but the block contains only zeros. No other thread waits while this
    /// call writes them.
    ///
    /// # Errors
    /// Those of [`Heap::alloc`].
    ///
    /// ```
    /// use haul_heap::{Heap, Request};
    ///
    /// let heap = Heap::builder().build()?;
    /// let block = heap.zalloc(Request::new(100))?;
    /// // SAFETY: allocated here with 100 bytes, which are all zeros.
    /// let bytes = unsafe { std::slice::from_raw_parts(block.as_ptr(), 100) };
    /// assert!(bytes.iter().all(|byte| *byte == 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn zalloc(&self, request: Request) -> Result<NonNull<u8>, AllocError> {
        let block = self.alloc(request)?;
        // SAFETY: the block was just allocated with at least this many bytes, and has no other
        // user.
        unsafe { block.write_bytes(0, request.size) };
        Ok(block)
    }

    /// Frees a block. Most calls take some twenty instructions; about one in 32 calls for one
    /// size gives slots back to their spans.
    ///
    /// # Errors
    /// [`Misuse`] if the pointer names no live block; the call has not changed the heap then. So
    /// a second free of a slot is an error if the first has returned and the slot has not been
    /// handed out again.
    ///
    /// If two threads free one slot **at the same time**, both may succeed: a free loads the slot
    /// word and then stores it, which saves a locked instruction. If both threads have stored
    /// before one of them allocates, the slot is in a bin twice. The heap detects the second
    /// entry when it would hand it out, reports it to `on_misuse`, and drops it. If the slot is
    /// handed out again between the two stores, the misuse is not detected, and the slot has two
    /// users from then on. In debug mode, and for blocks above 256 KiB, a free uses an atomic
    /// exchange, so that only one of two frees succeeds.
    ///
    /// If the block belongs to another process and that process dies, a reaper frees the block,
    /// unless the caller is the dead process's [heir](Heap::set_heir). A free by the caller at
    /// that time or later is a second free.
    ///
    /// # Safety
    /// If `block` is a live block of this heap, it must not be used from now on.
    ///
    /// ```
    /// use haul_heap::{Fault, Heap, Request};
    ///
    /// let heap = Heap::builder().limit(64 << 20).build()?;
    /// let block = heap.alloc(Request::new(100))?;
    /// // SAFETY: allocated here, and not used again.
    /// unsafe { heap.free(block) }?;
    /// // SAFETY: no live block is there, so this call is an error and changes nothing.
    /// assert_eq!(unsafe { heap.free(block) }.unwrap_err().fault, Fault::Double);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline(always)]
    pub unsafe fn free(&self, block: NonNull<u8>) -> Result<(), Misuse> {
        let offset = block.as_ptr().addr().wrapping_sub(self.data.as_ptr().addr());
        let Some(slot) = self.slot_at(offset) else {
            return self.free_other(block);
        };
        // One comparison detects both a full bin and a heap with several nodes, whose `bin_slots`
        // is 0.
        if self.add(self.entry(0), &slot, slot.grid.bin_slots) {
            return Ok(());
        }
        self.free_elsewhere(block)
    }

    /// The offset of a pointer into the heap; `None` for a pointer outside the heap. The offset
    /// names the same byte in every process that shares the heap.
    ///
    /// ```
    /// use haul_heap::{Heap, Offset, Request};
    ///
    /// let heap = Heap::builder().limit(64 << 20).build()?;
    /// let block = heap.alloc(Request::new(100))?;
    /// let number = heap.offset(block).expect("a block of this heap").bytes();
    /// assert_eq!(heap.pointer(Offset::new(number)), Some(block));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn offset(&self, pointer: NonNull<u8>) -> Option<Offset> {
        let bytes = pointer.as_ptr().addr().wrapping_sub(self.data.as_ptr().addr());
        (bytes < self.data_bytes).then_some(Offset::new(bytes as u64))
    }

    /// The address of an offset in this process; `None` if it is outside the heap. An offset may
    /// come from an untrusted peer: a valid address does not mean that a block is there.
    #[inline]
    pub fn pointer(&self, offset: Offset) -> Option<NonNull<u8>> {
        let bytes = usize::try_from(offset.bytes()).ok()?;
        if bytes >= self.data_bytes {
            return None;
        }
        Some(self.at(bytes))
    }

    /// Takes a slot from this thread's bin for the class with the span form `form`; `None` if the
    /// slow path is needed.
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
        let Some(index) = grid.word_index(units as usize) else {
            cold_path();
            return None;
        };
        // SAFETY: a safe unit is in range, and the heap lives.
        let slot = unsafe { grid.word(index) };
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
        // The addition wraps, because with external memory the range can begin before the mapped
        // part.
        let address = self.data.as_ptr().wrapping_add(offset);
        // SAFETY: the range lies within the address space, so the sum is not null.
        unsafe { NonNull::new_unchecked(address) }
    }

    /// The live slot that starts at `offset`; `None` if there is none.
    #[inline(always)]
    fn slot_at(&self, offset: usize) -> Option<Slot<'_>> {
        // The rotation makes an offset that is not a multiple of a unit larger than any heap.
        let units = offset.rotate_right(SHIFT_MIN);
        if units >= self.data_units {
            return None;
        }
        // SAFETY: there is a word for each slice of the range, and the offset is within it.
        let slice = unsafe { self.slices.add(units / (SLICE / UNIT)) };
        // SAFETY: mapped as long as the heap lives.
        let form = SliceWord(unsafe { &*slice }.load(Relaxed)).form();
        let grid = self.grid(form);
        let index = grid.word_index(units)?;
        // SAFETY: the offset is in range, and the heap lives.
        let word = unsafe { grid.word(index) };
        SlotWord(word.load(Relaxed)).is_live().then_some(Slot { form, grid, units, word })
    }

    /// The grid for a form.
    #[inline(always)]
    fn grid(&self, form: usize) -> &Grid {
        debug_assert!(form < SliceWord::FORMS * SliceWord::FORM_UNIT);
        let from_entries = form as isize - Grids::BEFORE_ENTRIES as isize;
        // SAFETY: the grids, one for each form, are before the entries, and a form is a byte
        // offset in the grids.
        let grid = unsafe { self.directory_start.byte_offset(from_entries) };
        // SAFETY: the address of one of `self`'s grids, as above, and nothing writes to the
        // grids.
        unsafe { &*grid.cast() }
    }

    /// This thread's entry in a row of the directory. A thread that has not registered has the
    /// number 0, and the entries for number 0 stay empty.
    #[inline(always)]
    fn entry(&self, row: usize) -> &Entry {
        debug_assert!(row <= self.nodes as usize);
        // SAFETY: callers pass a row that exists in the directory, and the directory lives as
        // long as the heap.
        unsafe { Directory::own_entry(self.directory_start, row) }
    }

    /// Moves a live slot to a thread's cache, if the cache exists and its bin, of at most `most`
    /// entries, has room.
    #[inline(always)]
    fn add(&self, entry: &Entry, slot: &Slot<'_>, most: u32) -> bool {
        // SAFETY: a slot is live only in a span of a class, and the heap is `self`.
        let Some(bin) = (unsafe { entry.bin(slot.form) }) else { return false };
        let count = bin.count.load(Relaxed);
        if count >= most {
            return false;
        }
        // SAFETY: `most` is at most the number of entries of a bin.
        let free = unsafe { bin.entry_at(count as usize) };
        slot.word.store(entry.cached().0, Relaxed);
        free.store(slot.units as u32, Relaxed);
        bin.count.store(count + 1, Relaxed);
        true
    }

    /// The directory's row for the node of an offset in range.
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
