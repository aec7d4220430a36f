//! The directory, which the processes of one DPDK application share in addition to the heaps'
//! metadata. The directory is a memzone, found by its name, with the location and the extents of
//! each heap.
//!
//! A memzone has the same address in every process and ends with the application. Every value is
//! checked when it is read, because another process may have overwritten it.

use core::ffi::{CStr, c_int};
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::dpdk::{Functions, SOCKET_ANY};
use crate::extent::{EXTENT_PAGES_MAX, Extent, PAGE, find_run, mask};
use crate::location::{HeapLocation, LocationWords, Problem};
use crate::mailbox::Mailbox;
use crate::memory::SOCKETS_MAX;

/// The memzone's name.
const NAME: &CStr = c"haul_rte_malloc";

/// "haulrtem" in ASCII, read as a big-endian number. The number is written last, so that a
/// directory that contains it is complete.
const MAGIC: u64 = 0x6861_756c_7274_656d;

/// Version of this layout and of the heap's layout. Processes of different versions cannot share
/// a directory.
const VERSION: u32 = 6;

/// The largest number of extents of all heaps together. Extents grow with the heap, up to 64 MiB
/// each, so this suffices for about 256 GiB.
const EXTENTS_MAX: usize = 4096;

/// A block of DPDK that is an extent of a heap. The state word of a slot is `address`.
#[repr(C)]
struct Slot {
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

/// The memzone's contents.
#[repr(C)]
pub(crate) struct Directory {
    magic: AtomicU64,
    version: AtomicU32,
    heaps: AtomicU32,
    /// No slot from this index on was ever used.
    end: AtomicU64,
    /// The process ID of the primary process, which receives the blocks of processes that die.
    primary: AtomicU32,
    /// The lower half counts extents in transit between DPDK and the heaps. The upper half counts
    /// all transits that ever began.
    transit: AtomicU32,
    /// 1 once a secondary process has attached.
    secondaries: AtomicU64,
    /// The requests of secondary processes to the primary process.
    pub(crate) mailbox: Mailbox,
    locations: [LocationWords; SOCKETS_MAX],
    extents: [Slot; EXTENTS_MAX],
}

const _: () = {
    assert!(offset_of!(Directory, version) == 8 && offset_of!(Directory, locations) == 120);
    assert!(
        size_of::<Mailbox>() == 80 && size_of::<LocationWords>() == 48 && size_of::<Slot>() == 32
    );
    assert!(size_of::<Directory>() == 120 + 48 * SOCKETS_MAX + 32 * EXTENTS_MAX);
};

impl Directory {
    /// Reserves the memzone in the primary process, empty and not yet published.
    pub(crate) fn create(functions: &Functions) -> Option<&'static Self> {
        let bytes = size_of::<Self>();
        // SAFETY: the name is a C string; DPDK's memory is initialised, or it returns NULL.
        let zone = unsafe { (functions.rte_memzone_reserve)(NAME.as_ptr(), bytes, SOCKET_ANY, 0) };
        // SAFETY: DPDK returns NULL or a descriptor that lives as long as the memzone.
        let zone = unsafe { zone.as_ref() }?;
        let start = zone.address;
        if start.is_null() || zone.bytes < bytes {
            return None;
        }
        // SAFETY: the memzone has `bytes` bytes, no other process uses it before the magic number
        // is written, and it is never freed.
        unsafe { start.write_bytes(0, bytes) };
        // SAFETY: as above; a memzone is aligned to a cache line, and zero is a valid value of
        // every field.
        Some(unsafe { &*start.cast::<Self>() })
    }

    /// Frees the memzone. No thread may use the directory afterwards.
    pub(crate) fn free(functions: &Functions) {
        // SAFETY: the name is a C string; DPDK's memory is initialised.
        let zone = unsafe { (functions.rte_memzone_lookup)(NAME.as_ptr()) };
        if !zone.is_null() {
            // SAFETY: the descriptor that DPDK returned.
            unsafe { (functions.rte_memzone_free)(zone) };
        }
    }

    /// Finds the memzone in a secondary process.
    pub(crate) fn find(functions: &Functions) -> Result<&'static Self, Problem> {
        // SAFETY: the name is a C string; DPDK's memory is initialised.
        let zone = unsafe { (functions.rte_memzone_lookup)(NAME.as_ptr()) };
        // SAFETY: DPDK returns NULL or a descriptor that lives as long as the memzone.
        let zone = unsafe { zone.as_ref() }.ok_or(Problem::Missing)?;
        let start = zone.address.cast::<Self>();
        if start.is_null() || !start.is_aligned() || zone.bytes < size_of::<Self>() {
            return Err(Problem::Unusable);
        }
        // SAFETY: the memzone is mapped here, is as long as the structure and aligned for it, and
        // every field is an atomic integer, for which any bytes are a valid value.
        let directory = unsafe { &*start };
        // SYNC: directory published.
        let is_complete = directory.magic.load(Ordering::Acquire) == MAGIC;
        let is_same_version = directory.version.load(Ordering::Relaxed) == VERSION;
        if is_complete && is_same_version { Ok(directory) } else { Err(Problem::Unusable) }
    }

    /// Records the locations of the heaps and lets secondary processes find them.
    pub(crate) fn publish(&self, locations: &[HeapLocation]) {
        for (target, location) in self.locations.iter().zip(locations) {
            target.write(location);
        }
        self.heaps.store(locations.len().min(SOCKETS_MAX) as u32, Ordering::Relaxed);
        self.version.store(VERSION, Ordering::Relaxed);
        self.primary.store(std::process::id(), Ordering::Relaxed);
        // SYNC: directory published.
        self.magic.store(MAGIC, Ordering::Release);
    }

    /// Notes that a secondary process attaches.
    pub(crate) fn note_secondary(&self) {
        self.secondaries.store(1, Ordering::Relaxed);
    }

    /// Whether a secondary process ever attached.
    pub(crate) fn had_secondary(&self) -> bool {
        self.secondaries.load(Ordering::Relaxed) != 0
    }

    /// The process ID of the primary process.
    pub(crate) fn primary(&self) -> u32 {
        self.primary.load(Ordering::Relaxed)
    }

    /// The locations of the heaps, as the primary process recorded them.
    pub(crate) fn locations(&self) -> Result<Vec<HeapLocation>, Problem> {
        let heaps = self.heaps.load(Ordering::Relaxed) as usize;
        if heaps == 0 || heaps > SOCKETS_MAX {
            return Err(Problem::Unusable);
        }
        self.locations[..heaps].iter().map(LocationWords::read).collect()
    }

    /// Marks that an extent may be in transit, until the guard is dropped. An extent is in
    /// transit if DPDK counts it as allocated but it is not in the directory, or the reverse.
    pub(crate) fn begin_transit(&self) -> Transit<'_> {
        // SYNC: extents in transit.
        self.transit.fetch_add(TRANSIT_STEP + 1, Ordering::SeqCst);
        Transit { directory: self }
    }

    /// A number that changes when a transit begins; `None` while an extent is in transit.
    pub(crate) fn transit_epoch(&self) -> Option<u32> {
        // SYNC: extents in transit.
        let transit = self.transit.load(Ordering::SeqCst);
        transit.is_multiple_of(TRANSIT_STEP).then_some(transit)
    }

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

/// The unit of the upper half of `transit`, which each transit adds.
const TRANSIT_STEP: u32 = 1 << 16;

/// While this guard lives, an extent may be in transit.
pub(crate) struct Transit<'a> {
    directory: &'a Directory,
}

impl Drop for Transit<'_> {
    fn drop(&mut self) {
        // SYNC: extents in transit.
        self.directory.transit.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The error for pages that are not part of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotOurs;

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
    use crate::extent::HEADER;
    use crate::memory::SocketRange;
    use haul_heap::EXTENT_STEP;

    fn empty() -> Box<Directory> {
        // SAFETY: every field is an atomic integer, for which zero is a valid value.
        unsafe { Box::new_zeroed().assume_init() }
    }

    const LOCATION: HeapLocation = HeapLocation {
        range: SocketRange { socket: 1, base: 4 << 30, bytes: 64 << 30 },
        file_number: 77,
        descriptor: Some(5),
        metadata_bytes: 5 << 30,
    };

    #[test]
    fn directory_returns_published_locations() {
        let directory = empty();
        assert_eq!(directory.locations(), Err(Problem::Unusable));
        directory.publish(&[LOCATION, LOCATION]);
        assert_eq!(directory.locations(), Ok(vec![LOCATION, LOCATION]));
    }

    #[test]
    fn directory_rejects_impossible_values() {
        let directory = empty();
        directory.publish(&[LOCATION]);
        for damage in [
            |d: &Directory| d.heaps.store(9, Ordering::Relaxed),
            |d: &Directory| d.locations[0].base.store(4096, Ordering::Relaxed),
            |d: &Directory| d.locations[0].bytes.store(0, Ordering::Relaxed),
            |d: &Directory| d.locations[0].bytes.store(1 << 63, Ordering::Relaxed),
            |d: &Directory| d.locations[0].socket.store(u64::MAX, Ordering::Relaxed),
        ] {
            directory.publish(&[LOCATION]);
            damage(&directory);
            if directory.locations().is_ok() {
                // Only a base that makes the end overflow gives an end beyond all addresses.
                directory.locations[0].base.store(1 << 63, Ordering::Relaxed);
            }
            assert_eq!(directory.locations(), Err(Problem::Unusable));
        }
    }

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
    fn transit_epoch_changes_with_each_transit() {
        let directory = empty();
        let before = directory.transit_epoch();
        assert!(before.is_some());
        let (first, second) = (directory.begin_transit(), directory.begin_transit());
        assert_eq!(directory.transit_epoch(), None);
        drop(first);
        assert_eq!(directory.transit_epoch(), None, "the other extent is in transit");
        drop(second);
        assert!(directory.transit_epoch().is_some() && directory.transit_epoch() != before);
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
