//! Lookup of a pointer: a live block, or what is wrong with the pointer.

use core::ptr::NonNull;

use super::Heap;
use crate::fault::{Fault, Misuse, Owner};
use crate::layout::{PAGE, SLICE};
use crate::protocol::class::{CLASSES, TABLE};
use crate::protocol::slice;
use crate::protocol::word::{CacheId, Slice, SliceWord, Slot, SlotWord};

/// A live block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) address: usize,
    /// Bytes from the start of the heap's data.
    pub(crate) offset: usize,
    /// The number of bytes that the block can hold.
    pub(crate) bytes: usize,
    /// The block's class; `None` for a large block.
    pub(crate) class: Option<usize>,
    pub(crate) process: u8,
    pub(crate) tag: u8,
    /// The block's slice word at the time of the search.
    pub(crate) word: SliceWord,
}

impl Found {
    pub(crate) fn misuse(&self, fault: Fault) -> Misuse {
        let owner = Owner::Process { process: self.process, tag: self.tag };
        Misuse { fault, address: self.address, class_bytes: Some(self.bytes), owner }
    }
}

impl Heap {
    /// The number of bytes that a block can hold: at least the requested size; in debug mode
    /// exactly the requested size.
    ///
    /// # Errors
    /// [`Misuse`] if the pointer names no live block.
    ///
    /// # Safety
    /// If `block` is a live block of this heap, the caller owns it. In debug mode this call reads
    /// the block's last bytes, which another owner might write at the same time.
    ///
    /// ```
    /// use haul_heap::{Heap, Request};
    ///
    /// let heap = Heap::builder().limit(64 << 20).build()?;
    /// let block = heap.alloc(Request::new(100))?;
    /// // SAFETY: allocated here.
    /// assert_eq!(unsafe { heap.usable_size(block) }?, 128);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub unsafe fn usable_size(&self, block: NonNull<u8>) -> Result<usize, Misuse> {
        let found = self.find(block.as_ptr().addr())?;
        if self.debug.is_some() { self.asked(&found) } else { Ok(found.bytes) }
    }

    /// The slot at `block` if it belongs to a cache but is in no bin.
    pub(super) fn find_waiting(&self, block: NonNull<u8>) -> Option<Found> {
        let address = block.as_ptr().addr();
        let misuse = self.find(address).err()?;
        let offset = address.wrapping_sub(self.data.as_ptr().addr());
        let bytes = misuse.class_bytes?;
        let class = crate::protocol::class::of_size(bytes)?;
        let word = slice::word(self.memory.tables.slices(), offset / SLICE);
        let is_waiting = misuse.fault == Fault::Double
            && matches!(misuse.owner, Owner::Cache(_))
            && self.holds(offset, bytes);
        is_waiting.then_some(Found {
            address,
            offset,
            bytes,
            class: Some(class),
            process: self.process(),
            tag: 0,
            word,
        })
    }

    /// Whether a block of this heap can be at this offset. The check is needed because the offset
    /// comes from metadata that other processes can write.
    pub(crate) fn holds(&self, offset: usize, bytes: usize) -> bool {
        let node = self.memory.node_of(offset / SLICE);
        let pages = self.memory.pages_of(node);
        node < self.nodes as usize
            && offset >= pages.start * PAGE
            && offset.checked_add(bytes).is_some_and(|end| end <= pages.end * PAGE)
    }

    /// The live block at `address`, or what is wrong with the address. O(1), except for an address
    /// within a large block.
    pub(crate) fn find(&self, address: usize) -> Result<Found, Misuse> {
        let misuse = |fault, class_bytes, owner| Misuse { fault, address, class_bytes, owner };
        let offset = address.wrapping_sub(self.data.as_ptr().addr());
        if offset >= self.data_bytes {
            return Err(misuse(Fault::Foreign, None, Owner::Unknown));
        }
        let slices = self.memory.tables.slices();
        let index = offset / SLICE;
        let word = slice::word(slices, index);
        match word.decode() {
            Slice::Span { class } if (class as usize) < CLASSES => {
                self.find_slot(address, offset, word)
            }
            Slice::Large { process, tag, length } => {
                let bytes = length as usize * SLICE;
                let owner = Owner::Process { process, tag };
                if length == 0 || !self.holds(index * SLICE, bytes) {
                    return Err(misuse(Fault::Scribbled, Some(bytes), owner));
                }
                if !offset.is_multiple_of(SLICE) {
                    return Err(misuse(Fault::Interior, Some(bytes), owner));
                }
                Ok(Found { address, offset, bytes, class: None, process, tag, word })
            }
            Slice::Tail => Err(misuse(Fault::Interior, None, Owner::Unknown)),
            Slice::Claimed(cache) | Slice::Run { cache, .. } => {
                Err(misuse(Fault::Wild, None, Owner::Cache(cache)))
            }
            Slice::Span { .. } | Slice::Unknown => {
                Err(misuse(Fault::Scribbled, None, Owner::Unknown))
            }
            // The metadata does not record that a freed large block was here.
            Slice::Free | Slice::Outside => Err(misuse(Fault::Wild, None, Owner::Unknown)),
        }
    }

    fn find_slot(&self, address: usize, offset: usize, word: SliceWord) -> Result<Found, Misuse> {
        let class = word.class() as usize;
        let about = &TABLE[class];
        let bytes = about.size as usize;
        let head = (offset / SLICE) & !(about.span_slices as usize - 1);
        let within = offset - head * SLICE;
        let misuse = |fault, owner| Err(Misuse { fault, address, class_bytes: Some(bytes), owner });
        if within / bytes >= about.span_slots as usize {
            return misuse(Fault::Wild, Owner::Unknown);
        }
        let start = offset - within % bytes;
        let slot = &self.memory.tables.slots(about.shift)[start >> about.shift];
        let slot = SlotWord(slot.load(crate::sync::Ordering::Acquire)).decode();
        if start != offset {
            return misuse(Fault::Interior, owner_of(slot));
        }
        match slot {
            Slot::Live { .. } if !self.holds(offset, bytes) => {
                misuse(Fault::Scribbled, owner_of(slot))
            }
            Slot::Live { process, tag } => {
                Ok(Found { address, offset, bytes, class: Some(class), process, tag, word })
            }
            Slot::Free | Slot::Cached(_) => misuse(Fault::Double, owner_of(slot)),
        }
    }
}

/// The owner that a slot word names.
pub(super) fn owner_of(slot: Slot) -> Owner {
    match slot {
        Slot::Free => Owner::Unknown,
        Slot::Cached(cache) => Owner::Cache(cache as CacheId),
        Slot::Live { process, tag } => Owner::Process { process, tag },
    }
}
