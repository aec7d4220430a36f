//! The directory, which the processes of one DPDK application share in addition to the heaps'
//! metadata. The directory is a memzone, found by its name, with the location and the extents of
//! each heap.
//!
//! A memzone has the same address in every process and ends with the application. Every value is
//! checked when it is read, because another process may have overwritten it.
//!
//! - `slots`: the extents of all heaps.

mod slots;

use core::ffi::CStr;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::dpdk::{Functions, SOCKET_ANY};
use crate::location::{HeapLocation, LocationWords, Problem};
use crate::mailbox::Mailbox;
use crate::memory::SOCKETS_MAX;
use slots::Slot;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::SocketRange;

    pub(super) fn empty() -> Box<Directory> {
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
}
