//! The extents of all heaps, each in a slot of the directory.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};

use super::{Directory, EXTENTS_MAX};
use crate::extent::{EXTENT_PAGES_MAX, Extent, PAGE, find_run, mask};

/// A block of DPDK that is an extent of a heap. The state word of a slot is `address`.
#[repr(C)]
pub(super) struct Slot {
    /// 0 if the slot is free, [`TAKEN`] while its other words are written, else the block's
    /// address.
    address: AtomicU64,
    /// The number of pages, with the socket in the upper half.
    pages: AtomicU64,
    /// The start of DPDK's block.
    block: AtomicU64,
    /// One bit per page, which is set while the page is idle.
    idle: AtomicU64,
}

/// The state of a slot while it is written. No block has this address.
const TAKEN: u64 = 1;

/// The error for pages that are not part of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotOurs;

impl Directory {
    /// Records an extent, in use or idle. Returns false if the directory is full.
    pub(crate) fn add(&self, extent: Extent, is_idle: bool) -> bool {
        let is_taken = |slot: &Slot| {
            let taking =
                slot.address.compare_exchange(0, TAKEN, Ordering::Relaxed, Ordering::Relaxed);
            taking.is_ok()
        };
        let Some(index) = self.extents.iter().position(is_taken) else {
            return false;
        };
        // `end` is raised before the slot is written, so that every visible extent lies before
        // the end.
        self.end.fetch_max(index as u64 + 1, Ordering::Relaxed);
        let slot = &self.extents[index];
        slot.pages.store((extent.socket as u64) << 32 | extent.pages as u64, Ordering::Relaxed);
        slot.block.store(extent.block as u64, Ordering::Relaxed);
        slot.idle.store(if is_idle { mask(extent.pages) } else { 0 }, Ordering::Relaxed);
        // SYNC: extent recorded.
        slot.address.store(extent.address as u64, Ordering::Release);
        true
    }

    /// The extents, at some moment.
    pub(crate) fn extents(&self) -> impl Iterator<Item = Extent> + '_ {
        self.slots().map(|(_, extent)| extent)
    }

    /// The slots with an extent, each with its extent.
    fn slots(&self) -> impl Iterator<Item = (&Slot, Extent)> {
        let end = self.end.load(Ordering::Relaxed).min(EXTENTS_MAX as u64) as usize;
        self.extents[..end].iter().filter_map(|slot| Some((slot, slot.extent()?)))
    }

    /// The bytes of completely idle extents, as DPDK counts them.
    pub(crate) fn idle_bytes(&self) -> usize {
        let is_idle =
            |slot: &Slot, extent: &Extent| slot.idle.load(Ordering::Relaxed) == mask(extent.pages);
        let idle = self.slots().filter(|(slot, extent)| is_idle(slot, extent));
        idle.map(|(_, extent)| extent.cost_bytes()).sum()
    }

    /// Whether an address lies in an extent of this socket. Part of the extent's first page may
    /// belong to other blocks of DPDK and does not count.
    pub(crate) fn covers(&self, socket: c_int, address: usize) -> bool {
        let mut of_socket = self.extents().filter(|extent| extent.socket == socket);
        of_socket.any(|extent| extent.contains(address) && address >= extent.block)
    }

    /// Whether an extent of this socket has `pages` contiguous idle pages.
    pub(crate) fn has_idle(&self, socket: c_int, pages: usize) -> bool {
        let mut of_socket = self.slots().filter(|(_, extent)| extent.socket == socket);
        of_socket.any(|(slot, _)| find_run(slot.idle.load(Ordering::Relaxed), pages).is_some())
    }

    /// Takes `pages` contiguous idle pages from an extent of this socket, and returns them as an
    /// extent.
    pub(crate) fn take_idle(&self, socket: c_int, pages: usize) -> Option<Extent> {
        for (slot, extent) in self.slots().filter(|(_, extent)| extent.socket == socket) {
            let mut idle = slot.idle.load(Ordering::Relaxed);
            while let Some(run) = find_run(idle, pages) {
                // SYNC: idle pages.
                match slot.idle.compare_exchange_weak(
                    idle,
                    idle & !run,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                ) {
                    Ok(_) if slot.extent() == Some(extent) => {
                        return Some(extent.part(run.trailing_zeros() as usize, pages));
                    }
                    // The slot was freed and reused meanwhile, so these are pages of another
                    // extent.
                    Ok(_) => {
                        slot.idle.fetch_or(run, Ordering::Release);
                        break;
                    }
                    Err(now) => idle = now,
                }
            }
        }
        None
    }

    /// Marks pages of an extent as idle.
    pub(crate) fn mark_idle(&self, address: usize, pages: usize) -> Result<(), NotOurs> {
        let (slot, extent) =
            self.slots().find(|(_, each)| each.contains(address)).ok_or(NotOurs)?;
        let first = (address - extent.address) / PAGE;
        if first + pages > extent.pages {
            return Err(NotOurs);
        }
        // SYNC: idle pages.
        slot.idle.fetch_or(mask(pages) << first, Ordering::Release);
        Ok(())
    }

    /// Removes an extent whose pages are all idle. The caller owns the removed extent and must
    /// return it to DPDK.
    pub(crate) fn remove_idle(&self) -> Option<Extent> {
        let (slot, extent) = self.slots().find(|(slot, extent)| {
            let all = mask(extent.pages);
            // SYNC: idle pages. The thread that clears all bits at once owns the extent if the
            // slot still holds the same extent. The slot may have been freed and reused
            // meanwhile.
            let is_taken =
                slot.idle.compare_exchange(all, 0, Ordering::Acquire, Ordering::Relaxed).is_ok();
            let is_same = is_taken && slot.extent() == Some(*extent);
            if is_taken && !is_same {
                slot.idle.fetch_or(all, Ordering::Release);
            }
            is_same
        })?;
        slot.address.store(0, Ordering::Release);
        Some(extent)
    }
}

impl Slot {
    /// The extent of the slot; `None` if the slot is free or its values are impossible.
    fn extent(&self) -> Option<Extent> {
        // SYNC: extent recorded.
        let address = self.address.load(Ordering::Acquire);
        if address <= TAKEN {
            return None;
        }
        let word = self.pages.load(Ordering::Relaxed);
        let (socket, pages) = ((word >> 32) as c_int, word as u32 as usize);
        let block = self.block.load(Ordering::Relaxed) as usize;
        let is_possible = (1..=EXTENT_PAGES_MAX).contains(&pages);
        is_possible.then_some(Extent { socket, address: address as usize, pages, block })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::tests::empty;
    use crate::extent::HEADER;
    use haul_heap::EXTENT_STEP;

    #[test]
    fn directory_removes_extent_when_all_pages_are_idle() {
        let directory = empty();
        let extent = Extent::of(1, (4 << 30) + HEADER, 4);
        assert!(directory.add(extent, false));
        assert_eq!(directory.extents().collect::<Vec<_>>(), [extent]);
        assert!(directory.covers(1, extent.address + 4 * PAGE - 1));
        assert!(!directory.covers(1, extent.address + 4 * PAGE));
        assert!(!directory.covers(1, extent.address - 1));
        assert!(!directory.covers(0, extent.address));

        directory.mark_idle(extent.address, 3).expect("it is an extent");
        assert_eq!(directory.idle_bytes(), 0);
        assert_eq!(directory.take_idle(0, 1), None, "an extent of another socket");
        assert_eq!(directory.take_idle(1, 4), None, "more pages than are idle");
        assert_eq!(
            [(0, 1), (1, 4), (1, 2)].map(|(socket, pages)| directory.has_idle(socket, pages)),
            [false, false, true]
        );
        assert_eq!(directory.take_idle(1, 2), Some(Extent { pages: 2, ..extent }));
        directory.mark_idle(extent.address + 3 * PAGE, 1).expect("it is an extent");
        assert_eq!(directory.remove_idle(), None, "two of its pages are in use");
        directory.mark_idle(extent.address, 2).expect("it is an extent");
        assert_eq!(directory.remove_idle(), Some(extent));
        assert_eq!(directory.extents().count(), 0);
        assert_eq!(directory.mark_idle(extent.address, 2), Err(NotOurs));
    }

    #[test]
    fn extent_of_64_pages_is_one_run() {
        let directory = empty();
        let extent = Extent::of(0, 4 << 30, EXTENT_PAGES_MAX);
        assert!(directory.add(extent, true));
        assert_eq!(directory.take_idle(0, EXTENT_PAGES_MAX), Some(extent));
        assert_eq!(directory.mark_idle(extent.address + PAGE, EXTENT_PAGES_MAX), Err(NotOurs));
        assert_eq!(directory.mark_idle(extent.address, EXTENT_PAGES_MAX), Ok(()));
        assert_eq!(directory.remove_idle(), Some(extent));
    }

    #[test]
    fn directory_does_not_cover_memory_before_block() {
        let directory = empty();
        let middle = Extent::of(0, 8 * PAGE + 5 * EXTENT_STEP + 64, 4);
        assert!(directory.add(middle, false));
        assert!(directory.covers(0, middle.block) && !directory.covers(0, middle.block - 1));
    }

    #[test]
    fn full_directory_refuses_extent() {
        let directory = empty();
        let extent = |address| Extent::of(0, address, 1);
        for index in 0..EXTENTS_MAX {
            assert!(directory.add(extent((index + 1) * PAGE), false));
        }
        assert!(!directory.add(extent(1 << 40), false));
    }
}
