//! Debug mode: what a wrong program did to its blocks is found when they are freed.
//!
//! A block gets more room than was asked for. Behind the bytes of the caller lie a fence, up to the
//! last 16 bytes of the block, and there the size that was asked for and a cookie made of it and of
//! the address. New bytes read as [`FRESH`], freed ones as [`DEAD`]. A slot that is freed waits in
//! a quarantine before it can be handed out again; what was written to it meanwhile is found when
//! it leaves.
//!
//! The paths that most calls take look up a thread's cache in a directory that is empty in this
//! mode, so they come here always, and other heaps pay nothing.

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

/// What new blocks are filled with: what no pointer, length or flag is by chance (jemalloc's choice
/// under `junk:alloc`).
pub(super) const FRESH: u8 = 0xA5;
/// What freed blocks are filled with (jemalloc's choice under `junk:free`).
const DEAD: u8 = 0x5A;
/// What lies between the caller's bytes and the end of the block.
const FENCE: u8 = 0xFE;

/// Bytes at the end of a block: the size asked for, and the cookie.
const TRAILER: usize = 16;

/// Blocks in quarantine.
const QUARANTINE: usize = 256;

/// An odd number without a pattern (the golden ratio in 64 bits), so that every bit of address and
/// size has a part in the cookie.
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;

/// What debug mode needs.
pub(crate) struct Debug {
    /// The directory that the paths look into, where nothing is ever entered.
    blind: Directory,
    /// Addresses of the slots that wait, 0 for none. Their words say that the cache of whoever
    /// freed them has them, and they are in no bin.
    waiting: [AtomicU64; QUARANTINE],
    next: AtomicU32,
}

impl Debug {
    pub(super) fn new(nodes: usize) -> Result<Self, Error> {
        let refused = |errno: Errno| Error::refused(Attempt::Map, 0, errno);
        Ok(Self {
            blind: Directory::new(nodes).map_err(refused)?,
            waiting: [const { AtomicU64::new(0) }; QUARANTINE],
            next: AtomicU32::new(0),
        })
    }

    pub(super) fn blind(&self) -> &Directory {
        &self.blind
    }

    /// Forgets who waits: in a child of fork they are the parent's, or were taken back.
    pub(super) fn forget(&self) {
        self.waiting.iter().for_each(|entry| entry.store(0, Relaxed));
    }
}

/// Where a block lies and how long it is, in bytes: as whoever allocated it knows, or as it was
/// once found. A second look at the metadata could tell something else, for others write there.
#[derive(Clone, Copy)]
pub(super) struct Room {
    offset: usize,
    bytes: usize,
}

impl From<&Found> for Room {
    fn from(found: &Found) -> Self {
        Self { offset: found.offset, bytes: found.bytes }
    }
}

impl Room {
    /// Where the trailer begins.
    const fn end(self) -> usize {
        self.bytes - TRAILER
    }
}

impl Heap {
    /// Allocates with a trailer: from `class`, which holds `size`, or the next that holds both.
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

    /// Bytes to ask slices for, so that the trailer has room.
    pub(super) fn padded(&self, size: usize) -> usize {
        if self.debug.is_some() { size.saturating_add(TRAILER) } else { size }
    }

    /// Fills a new block of `bytes`, for `size` of which somebody asked, and writes its trailer.
    pub(super) fn seal_new(&self, block: NonNull<u8>, bytes: usize, size: usize) {
        let room = Room { offset: block.addr().get() - self.data.addr().get(), bytes };
        self.fill(room, 0, size, FRESH);
        self.fill(room, size, room.end() - size, FENCE);
        for (index, word) in [size as u64, cookie(room, size)].into_iter().enumerate() {
            let target = self.at(room.offset + room.end() + 8 * index).cast::<u64>();
            // SAFETY: the last 16 bytes of a live block, whose size is a multiple of 64, so
            // aligned.
            unsafe { target.write(word) };
        }
    }

    /// The size that was asked for, if the block's trailer and fence are what was written.
    pub(super) fn asked(&self, found: &Found) -> Result<usize, Misuse> {
        let room = Room::from(found);
        let word = |index: usize| {
            let source = self.at(room.offset + room.end() + 8 * index).cast::<u64>();
            // SAFETY: the last 16 bytes of a live block, whose size is a multiple of 64, so
            // aligned. Volatile: read once, for another process that has the block may write there.
            unsafe { source.read_volatile() }
        };
        let size = word(0) as usize;
        let is_sound = size <= room.end()
            && word(1) == cookie(room, size)
            && self.is_filled(room, size, room.end() - size, FENCE);
        if is_sound { Ok(size) } else { Err(found.misuse(Fault::Scribbled)) }
    }

    /// Checks a block that is freed. If it was written beyond, that is an error and the block stays
    /// live: whoever wrote there may still do so.
    pub(super) fn check_freed(&self, found: &Found) -> Result<(), Misuse> {
        let size = self.asked(found)?;
        self.fill(found.into(), 0, size, DEAD);
        Ok(())
    }

    /// Frees a live slot: it goes into quarantine, and what has waited longest goes to the bin.
    pub(super) fn free_debug(&self, debug: &Debug, found: &Found) -> Result<(), Misuse> {
        self.check_freed(found)?;
        let Some(class) = found.class else { return Ok(()) };
        // Not held: what leaves the quarantine needs a cache too, and there may be one in common.
        let keeper = self.keeper(self.row_of(found.offset)).map(|held| *held);
        let Ok(keeper) = keeper else { return Ok(()) };
        let word =
            &self.memory.tables.slots(TABLE[class].shift)[found.offset >> TABLE[class].shift];
        let live = SlotWord::live(found.process, found.tag).0;
        let cached = SlotWord::cached(keeper.id).0;
        if word.compare_exchange(live, cached, AcqRel, Relaxed).is_err() {
            return Err(found.misuse(Fault::Double));
        }
        let place = debug.next.fetch_add(1, Relaxed) as usize % QUARANTINE;
        let address = found.address as u64;
        let oldest = debug.waiting[place].swap(address, AcqRel);
        if let Some(oldest) = NonNull::new(self.data.as_ptr().with_addr(oldest as usize)) {
            self.leave_quarantine(oldest);
        }
        Ok(())
    }

    /// Lets all out of quarantine that wait there.
    pub(super) fn empty_quarantine(&self) {
        let Some(debug) = &self.debug else { return };
        for entry in &debug.waiting {
            let address = entry.swap(0, AcqRel) as usize;
            if let Some(block) = NonNull::new(self.data.as_ptr().with_addr(address)) {
                self.leave_quarantine(block);
            }
        }
    }

    /// Makes a slot that has waited the bin's, after a look at what was written to it.
    fn leave_quarantine(&self, block: NonNull<u8>) {
        let Some(found) = self.find_waiting(block) else { return };
        // Up to the size that was asked for, or all of it where that was written over.
        let asked = self.asked(&found);
        let size = asked.unwrap_or(Room::from(&found).end());
        if !self.is_filled(Room::from(&found), 0, size, DEAD) || asked.is_err() {
            self.report(&found.misuse(Fault::Scribbled));
        }
        self.push(&found);
    }

    fn fill(&self, room: Room, from: usize, count: usize, value: u8) {
        let start = self.at(room.offset + from);
        debug_assert!(from + count <= room.bytes);
        // SAFETY: within a block that nobody else has: new, or freed by its owner.
        unsafe { start.write_bytes(value, count) };
    }

    fn is_filled(&self, room: Room, from: usize, count: usize, value: u8) -> bool {
        let start = self.at(room.offset + from).as_ptr();
        debug_assert!(from + count <= room.bytes);
        (0..count).all(|index| {
            // SAFETY: within a block.
            let byte = unsafe { start.add(index) };
            // SAFETY: as above, and all of it was written when it was allocated. Volatile, and no
            // slice: a program that writes to it now is the very fault that is looked for.
            let byte = unsafe { byte.read_volatile() };
            byte == value
        })
    }
}

fn cookie(room: Room, size: usize) -> u64 {
    (room.offset as u64 ^ (size as u64).rotate_left(32)).wrapping_mul(MIX)
}
