//! Debug mode: a free detects writes outside of the block.
//!
//! A block gets more bytes than requested. A fence follows the caller's bytes, up to the last 16
//! bytes of the block. The last 16 bytes contain the requested size and a cookie that is computed
//! from size and address. New bytes read as [`FRESH`], freed bytes as [`DEAD`]. A freed slot
//! waits in a quarantine before it can be handed out again. When it leaves the quarantine, it is
//! checked for writes.
//!
//! The fast paths look up a thread's cache in a directory, which is empty in debug mode. So every
//! call uses the slow path, and debug mode costs nothing when it is off.

use core::ptr::NonNull;

use super::{Found, Heap};
use crate::error::{Attempt, Error};
use crate::fault::{AllocError, Fault, Misuse};
use crate::layout::SLICE;
use crate::local::Directory;
use crate::protocol::class::{CLASSES, SLOT_SIZE_MAX, TABLE};
use crate::protocol::word::SlotWord;
use crate::request::{Node, Tag};
use crate::sync::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Relaxed},
};
use crate::sys::Errno;

/// The byte that fills new blocks. The pattern is seldom a plausible pointer, length or flag
/// (jemalloc uses it for `junk:alloc`).
pub(super) const FRESH: u8 = 0xA5;
/// The byte that fills freed blocks (jemalloc uses it for `junk:free`).
const DEAD: u8 = 0x5A;
/// The byte that fills the fence between the caller's bytes and the trailer.
const FENCE: u8 = 0xFE;

/// Bytes at the end of a block: the requested size and the cookie.
const TRAILER: usize = 16;

/// The most blocks in quarantine.
const QUARANTINE: usize = 256;

/// An odd number without a pattern (the golden ratio in 64 bits), so that every bit of address and
/// size affects the cookie.
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;

/// The state of debug mode.
pub(crate) struct Debug {
    /// The directory that the fast paths read; it stays empty.
    empty: Directory,
    /// Addresses of the slots in quarantine; 0 if an entry is free. The slot words name the cache
    /// of the thread that freed the slots, but the slots are in no bin.
    waiting: [AtomicU64; QUARANTINE],
    next: AtomicU32,
}

impl Debug {
    pub(super) fn new(nodes: usize) -> Result<Self, Error> {
        let refused = |errno: Errno| Error::refused(Attempt::Map, 0, errno);
        Ok(Self {
            empty: Directory::new(nodes).map_err(refused)?,
            waiting: [const { AtomicU64::new(0) }; QUARANTINE],
            next: AtomicU32::new(0),
        })
    }

    pub(super) fn empty(&self) -> &Directory {
        &self.empty
    }

    /// Forgets the slots in quarantine: in a child of fork they belong to the parent, or were
    /// given back.
    pub(super) fn forget(&self) {
        self.waiting.iter().for_each(|entry| entry.store(0, Relaxed));
    }
}

/// The location and length of a block in bytes, as its allocation computed them or as one lookup
/// found them. So the metadata is read only once; other processes may change it.
#[derive(Clone, Copy)]
pub(super) struct Extent {
    offset: usize,
    bytes: usize,
}

impl From<&Found> for Extent {
    fn from(found: &Found) -> Self {
        Self { offset: found.offset, bytes: found.bytes }
    }
}

impl Extent {
    /// The offset of the trailer in the block.
    const fn end(self) -> usize {
        self.bytes - TRAILER
    }
}

impl Heap {
    /// Allocates a block with a trailer from the smallest class, not below `class`, whose slots
    /// have room for `size` bytes and the trailer.
    pub(super) fn alloc_debug(
        &self,
        class: usize,
        size: usize,
        node: Node,
        tag: Tag,
    ) -> Result<NonNull<u8>, AllocError> {
        let shift = TABLE[class].shift;
        let fits = |about: usize| {
            TABLE[about].size as usize >= size + TRAILER && TABLE[about].shift >= shift
        };
        let (block, bytes) = match (class..CLASSES).find(|about| fits(*about)) {
            Some(class) => (self.pop_anywhere(class, node, tag)?, TABLE[class].size as usize),
            None => {
                let bytes = SLOT_SIZE_MAX + TRAILER;
                let block = self.alloc_slices(bytes, 1 << shift, node, tag)?;
                (block, bytes.next_multiple_of(SLICE))
            }
        };
        self.seal_new(block, bytes, size);
        Ok(block)
    }

    /// How many bytes to allocate for a large block of `size` bytes: in debug mode with the
    /// trailer.
    pub(super) fn padded(&self, size: usize) -> usize {
        if self.debug.is_some() { size.saturating_add(TRAILER) } else { size }
    }

    /// Fills a new block of `bytes` for a request of `size` bytes, and writes its trailer.
    pub(super) fn seal_new(&self, block: NonNull<u8>, bytes: usize, size: usize) {
        let extent = Extent { offset: block.addr().get() - self.data.addr().get(), bytes };
        self.fill(extent, 0, size, FRESH);
        self.fill(extent, size, extent.end() - size, FENCE);
        for (index, word) in [size as u64, cookie(extent, size)].into_iter().enumerate() {
            let target = self.at(extent.offset + extent.end() + 8 * index).cast::<u64>();
            // SAFETY: the last 16 bytes of a live block, whose size is a multiple of 64, so
            // aligned.
            unsafe { target.write(word) };
        }
    }

    /// The requested size, if the block's trailer and fence are intact.
    pub(super) fn asked(&self, found: &Found) -> Result<usize, Misuse> {
        let extent = Extent::from(found);
        let word = |index: usize| {
            let source = self.at(extent.offset + extent.end() + 8 * index).cast::<u64>();
            // SAFETY: the last 16 bytes of a live block, whose size is a multiple of 64, so
            // aligned. Volatile: read once, because another process that holds the block may
            // write there.
            unsafe { source.read_volatile() }
        };
        let size = word(0) as usize;
        let is_sound = size <= extent.end()
            && word(1) == cookie(extent, size)
            && self.is_filled(extent, size, extent.end() - size, FENCE);
        if is_sound { Ok(size) } else { Err(found.misuse(Fault::Scribbled)) }
    }

    /// Checks a block that is being freed. If its fence or trailer was overwritten, returns an
    /// error. The block then stays live, because the program may write past its end again.
    pub(super) fn check_freed(&self, found: &Found) -> Result<(), Misuse> {
        let size = self.asked(found)?;
        self.fill(found.into(), 0, size, DEAD);
        Ok(())
    }

    /// Frees a live slot: moves it to the quarantine, and the slot that has waited longest to the
    /// bin.
    pub(super) fn free_debug(&self, debug: &Debug, found: &Found) -> Result<(), Misuse> {
        self.check_freed(found)?;
        let Some(class) = found.class else { return Ok(()) };
        // The cache is not kept locked, because the slot that leaves the quarantine also needs a
        // cache, possibly the same common cache.
        let keeper = self.keeper(self.row_of(found.offset)).map(|held| *held);
        let Ok(keeper) = keeper else { return Ok(()) };
        let word =
            &self.memory.tables.slots(TABLE[class].shift)[found.offset >> TABLE[class].shift];
        let live = SlotWord::live(found.process, found.tag).0;
        let cached = SlotWord::cached(keeper.id).0;
        if word.compare_exchange(live, cached, AcqRel, Relaxed).is_err() {
            return Err(found.misuse(Fault::Double));
        }
        let index = debug.next.fetch_add(1, Relaxed) as usize % QUARANTINE;
        let address = found.address as u64;
        let oldest = debug.waiting[index].swap(address, AcqRel);
        if let Some(oldest) = NonNull::new(self.data.as_ptr().with_addr(oldest as usize)) {
            self.leave_quarantine(oldest);
        }
        Ok(())
    }

    /// Empties the quarantine.
    pub(super) fn empty_quarantine(&self) {
        let Some(debug) = &self.debug else { return };
        for entry in &debug.waiting {
            let address = entry.swap(0, AcqRel) as usize;
            if let Some(block) = NonNull::new(self.data.as_ptr().with_addr(address)) {
                self.leave_quarantine(block);
            }
        }
    }

    /// Checks a slot in quarantine for writes, and moves it to the bin.
    fn leave_quarantine(&self, block: NonNull<u8>) {
        let Some(found) = self.find_waiting(block) else { return };
        // The check covers the requested size, or the slot up to its trailer if the size was
        // overwritten.
        let asked = self.asked(&found);
        let size = asked.unwrap_or(Extent::from(&found).end());
        if !self.is_filled(Extent::from(&found), 0, size, DEAD) || asked.is_err() {
            self.report(&found.misuse(Fault::Scribbled));
        }
        self.push(&found);
    }

    fn fill(&self, extent: Extent, from: usize, count: usize, value: u8) {
        let start = self.at(extent.offset + from);
        debug_assert!(from + count <= extent.bytes);
        // SAFETY: within a block that has no other user: it is new, or freed by its owner.
        unsafe { start.write_bytes(value, count) };
    }

    fn is_filled(&self, extent: Extent, from: usize, count: usize, value: u8) -> bool {
        let start = self.at(extent.offset + from).as_ptr();
        debug_assert!(from + count <= extent.bytes);
        (0..count).all(|index| {
            // SAFETY: within a block.
            let byte = unsafe { start.add(index) };
            // SAFETY: as above, and all bytes of the block were written when it was allocated.
            // Volatile, and not through a slice: the check searches for writes by a program that
            // may still write there now.
            let byte = unsafe { byte.read_volatile() };
            byte == value
        })
    }
}

fn cookie(extent: Extent, size: usize) -> u64 {
    (extent.offset as u64 ^ (size as u64).rotate_left(32)).wrapping_mul(MIX)
}
