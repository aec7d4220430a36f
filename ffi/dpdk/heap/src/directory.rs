//! What the processes of one DPDK application share beside the heaps' own metadata: a memzone,
//! found by its name, that says where each heap is and which extents it was given.
//!
//! A memzone lies at the same address in every process, and dies with the application. Whatever is
//! read from it is checked: another process may have written anything.

use core::ffi::{CStr, c_int};
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::counter::Counter;
use crate::dpdk::{Functions, SOCKET_ANY};
use crate::extent::{EXTENT_PAGES_MAX, Extent, PAGE, find_run, mask};
use crate::memory::SOCKETS_MAX;
use crate::place::{HeapPlace, Place, Problem};

/// The memzone's name.
const NAME: &CStr = c"haul_rte_malloc";

/// "haulrtem" in ASCII, read as a big-endian number: written last, so that a directory which
/// carries it is whole.
const MAGIC: u64 = 0x6861_756c_7274_656d;

/// Version of this layout and of the heap's under it: processes of different ones do not mix.
const VERSION: u32 = 6;

/// Extents of all heaps at most. They grow with the heap, to 64 MiB each, so this is enough for
/// about 256 GiB.
const EXTENTS_MAX: usize = 4096;

/// A block of DPDK's that is an extent of a heap. Its state word is `address`.
#[repr(C)]
struct Slot {
    /// 0 nobody's, [`TAKEN`] while its other words are written, else the block's address.
    address: AtomicU64,
    /// Pages, with the socket in the upper half.
    pages: AtomicU64,
    /// Where DPDK's block begins.
    block: AtomicU64,
    /// A bit for each page: set while the heap does not have it.
    idle: AtomicU64,
}

/// The state of a slot that is being filled. No block has this address.
const TAKEN: u64 = 1;

/// The memzone's contents.
#[repr(C)]
pub(crate) struct Directory {
    magic: AtomicU64,
    version: AtomicU32,
    heaps: AtomicU32,
    /// No slot from this one on was ever used.
    end: AtomicU64,
    /// The primary process, which gets the blocks of those that die.
    primary: AtomicU32,
    /// Extents on their way between DPDK and the heaps, in the lower half; in the upper, how many
    /// ever set out.
    transit: AtomicU32,
    /// 1 once a secondary process came.
    secondaries: AtomicU64,
    /// How secondary processes ask the primary one for memory.
    pub(crate) counter: Counter,
    places: [Place; SOCKETS_MAX],
    extents: [Slot; EXTENTS_MAX],
}

const _: () = {
    assert!(offset_of!(Directory, version) == 8 && offset_of!(Directory, places) == 120);
    assert!(size_of::<Counter>() == 80 && size_of::<Place>() == 48 && size_of::<Slot>() == 32);
    assert!(size_of::<Directory>() == 120 + 48 * SOCKETS_MAX + 32 * EXTENTS_MAX);
};

impl Directory {
    /// Reserves the memzone in the primary process: empty, and not yet to be found whole.
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
        // SAFETY: the memzone has `bytes` bytes, is ours alone until the magic number is there, and
        // is never freed.
        unsafe { start.write_bytes(0, bytes) };
        // SAFETY: as above; a memzone is aligned to a cache line, and zero is a value of every
        // field.
        Some(unsafe { &*start.cast::<Self>() })
    }

    /// Frees the memzone: nobody reads the directory from then on.
    pub(crate) fn free(functions: &Functions) {
        // SAFETY: the name is a C string; DPDK's memory is initialised.
        let zone = unsafe { (functions.rte_memzone_lookup)(NAME.as_ptr()) };
        if !zone.is_null() {
            // SAFETY: DPDK's own descriptor, as it was found.
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
        // every field is an atomic integer, which any bytes are a value of.
        let directory = unsafe { &*start };
        // SYNC: directory published.
        let is_whole = directory.magic.load(Ordering::Acquire) == MAGIC;
        let is_ours = directory.version.load(Ordering::Relaxed) == VERSION;
        if is_whole && is_ours { Ok(directory) } else { Err(Problem::Unusable) }
    }

    /// Writes down the heaps and lets secondary processes find them.
    pub(crate) fn publish(&self, places: &[HeapPlace]) {
        for (target, place) in self.places.iter().zip(places) {
            target.write(place);
        }
        self.heaps.store(places.len().min(SOCKETS_MAX) as u32, Ordering::Relaxed);
        self.version.store(VERSION, Ordering::Relaxed);
        self.primary.store(std::process::id(), Ordering::Relaxed);
        // SYNC: directory published.
        self.magic.store(MAGIC, Ordering::Release);
    }

    /// Notes that a secondary process comes.
    pub(crate) fn note_secondary(&self) {
        self.secondaries.store(1, Ordering::Relaxed);
    }

    /// Whether a secondary process ever came.
    pub(crate) fn had_secondary(&self) -> bool {
        self.secondaries.load(Ordering::Relaxed) != 0
    }

    /// The primary process's number.
    pub(crate) fn primary(&self) -> u32 {
        self.primary.load(Ordering::Relaxed)
    }

    /// The heaps, as the primary process wrote them down.
    pub(crate) fn places(&self) -> Result<Vec<HeapPlace>, Problem> {
        let heaps = self.heaps.load(Ordering::Relaxed) as usize;
        if heaps == 0 || heaps > SOCKETS_MAX {
            return Err(Problem::Unusable);
        }
        self.places[..heaps].iter().map(Place::read).collect()
    }

    /// Says that an extent may be on its way, until the guard is dropped: DPDK counts it as
    /// allocated and it is not in the directory, or the other way round.
    pub(crate) fn set_out(&self) -> Transit<'_> {
        // SYNC: extents on their way.
        self.transit.fetch_add(SET_OUT + 1, Ordering::SeqCst);
        Transit { directory: self }
    }

    /// A number that changes when an extent sets out; `None` while one is on its way.
    pub(crate) fn settled(&self) -> Option<u32> {
        // SYNC: extents on their way.
        let transit = self.transit.load(Ordering::SeqCst);
        transit.is_multiple_of(SET_OUT).then_some(transit)
    }

    /// Writes down an extent, the heap's or idle; false when there is no room.
    pub(crate) fn add(&self, extent: Extent, is_idle: bool) -> bool {
        let is_taken = |slot: &Slot| {
            let taking =
                slot.address.compare_exchange(0, TAKEN, Ordering::Relaxed, Ordering::Relaxed);
            taking.is_ok()
        };
        let Some(index) = self.extents.iter().position(is_taken) else {
            return false;
        };
        // Before the slot is filled: who sees the extent sees it within the end.
        self.end.fetch_max(index as u64 + 1, Ordering::Relaxed);
        let slot = &self.extents[index];
        slot.pages.store((extent.socket as u64) << 32 | extent.pages as u64, Ordering::Relaxed);
        slot.block.store(extent.block as u64, Ordering::Relaxed);
        slot.idle.store(if is_idle { mask(extent.pages) } else { 0 }, Ordering::Relaxed);
        // SYNC: extent written down.
        slot.address.store(extent.address as u64, Ordering::Release);
        true
    }

    /// The extents, at some moment.
    pub(crate) fn extents(&self) -> impl Iterator<Item = Extent> + '_ {
        self.slots().map(|(_, extent)| extent)
    }

    /// Slots that hold an extent, each with it.
    fn slots(&self) -> impl Iterator<Item = (&Slot, Extent)> {
        let end = self.end.load(Ordering::Relaxed).min(EXTENTS_MAX as u64) as usize;
        self.extents[..end].iter().filter_map(|slot| Some((slot, slot.extent()?)))
    }

    /// Bytes of the extents that are idle as a whole, as DPDK counts them.
    pub(crate) fn idle_bytes(&self) -> usize {
        let is_idle =
            |slot: &Slot, extent: &Extent| slot.idle.load(Ordering::Relaxed) == mask(extent.pages);
        let idle = self.slots().filter(|(slot, extent)| is_idle(slot, extent));
        idle.map(|(_, extent)| extent.cost_bytes()).sum()
    }

    /// Whether an address lies in an extent of this socket, and not in a block of DPDK's that ends
    /// or lies in the page that the extent begins in.
    pub(crate) fn covers(&self, socket: c_int, address: usize) -> bool {
        let mut of_socket = self.extents().filter(|extent| extent.socket == socket);
        of_socket.any(|extent| extent.contains(address) && address >= extent.block)
    }

    /// Whether an extent of this socket has so many idle pages in a row.
    pub(crate) fn has_idle(&self, socket: c_int, pages: usize) -> bool {
        let mut of_socket = self.slots().filter(|(_, extent)| extent.socket == socket);
        of_socket.any(|(slot, _)| find_run(slot.idle.load(Ordering::Relaxed), pages).is_some())
    }

    /// Hands idle pages of an extent of this socket out again: `pages` in a row, as an extent of
    /// their own.
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
                    // The place was struck out and taken again meanwhile: the pages are another's.
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

    /// Lays pages of an extent aside: they are idle now.
    pub(crate) fn lay_aside(&self, address: usize, pages: usize) -> Result<(), NotOurs> {
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

    /// Strikes out an extent of which every page is idle: then it is the caller's to give back to
    /// DPDK.
    pub(crate) fn strike_out(&self) -> Option<Extent> {
        let (slot, extent) = self.slots().find(|(slot, extent)| {
            let all = mask(extent.pages);
            // SYNC: idle pages. Whoever clears all bits at once is alone with the extent, if it is
            // still the same: the place may have been struck out and taken again meanwhile.
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

/// What one that sets out adds to the upper half of `transit`.
const SET_OUT: u32 = 1 << 16;

/// While it lives, an extent may be on its way.
pub(crate) struct Transit<'a> {
    directory: &'a Directory,
}

impl Drop for Transit<'_> {
    fn drop(&mut self) {
        // SYNC: extents on their way.
        self.directory.transit.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The pages are part of no extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotOurs;

impl Slot {
    /// What the slot holds; `None` for nothing, and for what cannot be.
    fn extent(&self) -> Option<Extent> {
        // SYNC: extent written down.
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
        // SAFETY: every field is an atomic integer, which zero is a value of.
        unsafe { Box::new_zeroed().assume_init() }
    }

    const PLACE: HeapPlace = HeapPlace {
        range: SocketRange { socket: 1, base: 4 << 30, bytes: 64 << 30 },
        file_number: 77,
        descriptor: Some(5),
        metadata_bytes: 5 << 30,
    };

    #[test]
    fn what_was_published_is_read() {
        let directory = empty();
        assert_eq!(directory.places(), Err(Problem::Unusable));
        directory.publish(&[PLACE, PLACE]);
        assert_eq!(directory.places(), Ok(vec![PLACE, PLACE]));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let directory = empty();
        directory.publish(&[PLACE]);
        for damage in [
            |d: &Directory| d.heaps.store(9, Ordering::Relaxed),
            |d: &Directory| d.places[0].base.store(4096, Ordering::Relaxed),
            |d: &Directory| d.places[0].bytes.store(0, Ordering::Relaxed),
            |d: &Directory| d.places[0].bytes.store(1 << 63, Ordering::Relaxed),
            |d: &Directory| d.places[0].socket.store(u64::MAX, Ordering::Relaxed),
        ] {
            directory.publish(&[PLACE]);
            damage(&directory);
            if directory.places().is_ok() {
                // An end beyond all addresses needs a base to overflow with.
                directory.places[0].base.store(1 << 63, Ordering::Relaxed);
            }
            assert_eq!(directory.places(), Err(Problem::Unusable));
        }
    }

    #[test]
    fn an_extent_is_struck_out_when_all_of_it_is_idle() {
        let directory = empty();
        let extent = Extent::of(1, (4 << 30) + HEADER, 4);
        assert!(directory.add(extent, false));
        assert_eq!(directory.extents().collect::<Vec<_>>(), [extent]);
        assert!(directory.covers(1, extent.address + 4 * PAGE - 1));
        assert!(!directory.covers(1, extent.address + 4 * PAGE));
        assert!(!directory.covers(1, extent.address - 1));
        assert!(!directory.covers(0, extent.address));

        directory.lay_aside(extent.address, 3).expect("it is an extent");
        assert_eq!(directory.idle_bytes(), 0);
        assert_eq!(directory.take_idle(0, 1), None, "another socket's");
        assert_eq!(directory.take_idle(1, 4), None, "longer than what is idle");
        assert_eq!(
            [(0, 1), (1, 4), (1, 2)].map(|(socket, pages)| directory.has_idle(socket, pages)),
            [false, false, true]
        );
        assert_eq!(directory.take_idle(1, 2), Some(Extent { pages: 2, ..extent }));
        directory.lay_aside(extent.address + 3 * PAGE, 1).expect("it is an extent");
        assert_eq!(directory.strike_out(), None, "two of its pages are in use");
        directory.lay_aside(extent.address, 2).expect("it is an extent");
        assert_eq!(directory.strike_out(), Some(extent));
        assert_eq!(directory.extents().count(), 0);
        assert_eq!(directory.lay_aside(extent.address, 2), Err(NotOurs));
    }

    #[test]
    fn an_extent_of_a_whole_word_is_one_run() {
        let directory = empty();
        let extent = Extent::of(0, 4 << 30, EXTENT_PAGES_MAX);
        assert!(directory.add(extent, true));
        assert_eq!(directory.take_idle(0, EXTENT_PAGES_MAX), Some(extent));
        assert_eq!(directory.lay_aside(extent.address + PAGE, EXTENT_PAGES_MAX), Err(NotOurs));
        assert_eq!(directory.lay_aside(extent.address, EXTENT_PAGES_MAX), Ok(()));
        assert_eq!(directory.strike_out(), Some(extent));
    }

    #[test]
    fn what_lies_before_a_block_in_its_page_is_not_covered() {
        let directory = empty();
        let middle = Extent::of(0, 8 * PAGE + 5 * EXTENT_STEP + 64, 4);
        assert!(directory.add(middle, false));
        assert!(directory.covers(0, middle.block) && !directory.covers(0, middle.block - 1));
    }

    #[test]
    fn a_look_that_an_extent_crossed_is_known() {
        let directory = empty();
        let before = directory.settled();
        assert!(before.is_some());
        let (first, second) = (directory.set_out(), directory.set_out());
        assert_eq!(directory.settled(), None);
        drop(first);
        assert_eq!(directory.settled(), None, "the other is on its way");
        drop(second);
        assert!(directory.settled().is_some() && directory.settled() != before);
    }

    #[test]
    fn a_full_directory_says_so() {
        let directory = empty();
        let extent = |address| Extent::of(0, address, 1);
        for index in 0..EXTENTS_MAX {
            assert!(directory.add(extent((index + 1) * PAGE), false));
        }
        assert!(!directory.add(extent(1 << 40), false));
    }
}
