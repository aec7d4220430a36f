//! The area in which a back end records the progress of its rings. The front end keeps the area
//! when the back end dies: VHOST_USER_PROTOCOL_F_INFLIGHT_SHMFD of the vhost-user protocol.
//!
//! The protocol records every descriptor that a back end holds. haul's device uses a chain in one
//! step, so that it holds none between two bursts. A burst records its end before it publishes
//! its descriptors, and records afterwards that it has published them. Each record is one word.
//!
//! The area comes from another process, so each field is read once and checked. An implausible
//! region is reset before the conversation ends, so that the next conversation starts afresh.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fd::OwnedFd;

use crate::messages::{AreaAt, Refusal, RequestResult, refuse};
use crate::ring::packed::Location;
use crate::ring::split;
use haul_peer::guest::{Described, Guest, said};
use haul_peer::memory;

/// Version of a region, 0 before the first write.
const VERSION: u16 = 1;

/// Alignment of a region. The protocol does not specify it; libvhost-user and DPDK both use this
/// version.
const ALIGN: u64 = 64;

/// For struct QueueRegionSplit and struct QueueRegionPacked: the bytes before the descriptors,
/// and the bytes per descriptor.
const SPLIT: [u64; 2] = [16, 16];
const PACKED: [u64; 2] = [32, 32];

/// Indices of a region's 8-byte words. They hold the features; the version, the size and two
/// numbers; in a packed region, the locations.
const FEATURES: usize = 0;
const HEAD: usize = 1;
const LOCATION: usize = 2;

/// Distance between two regions.
fn stride(is_packed: bool, size: u16) -> u64 {
    let [head, each] = if is_packed { PACKED } else { SPLIT };
    (head + each * u64::from(size)).next_multiple_of(ALIGN)
}

/// The mapped area.
#[derive(Debug)]
pub(super) struct Area {
    at: AreaAt,
    memory: Guest,
}

impl Area {
    /// A new sealed area, which no ring has written to, and its description for the front end.
    pub(super) fn make(rings: u16, size: u16) -> RequestResult<(Self, AreaAt, OwnedFd)> {
        // Large enough for either layout, because the front end may not have chosen one yet.
        let bytes = u64::from(rings) * stride(true, size);
        let at = AreaAt { bytes, offset: 0, rings, size };
        let absent = |why: String| Refusal(format!("cannot create an inflight area: {why}"));
        let file = memory::create_sealed(c"haul-inflight", bytes as usize);
        let file = file.map_err(|error| absent(format!("{error:?}")))?;
        let ours = file.try_clone().map_err(|reason| absent(reason.to_string()))?;
        Ok((Self::open(at, ours)?, at, file))
    }

    /// Maps an area that the front end has kept.
    pub(super) fn open(at: AreaAt, file: OwnedFd) -> RequestResult<Self> {
        let AreaAt { bytes, offset, rings, size } = at;
        let least = u64::from(rings) * stride(false, size);
        if rings == 0 || size == 0 || u32::from(size) > split::SIZE_MAX || bytes < least {
            return refuse(format!(
                "its inflight area of {bytes} B does not hold {rings} rings of {size} descriptors"
            ));
        }
        let region = Described { guest: 0, peer: 0, bytes, offset };
        let memory = Guest::map(&[(region, file)]);
        let memory = memory.map_err(|why| Refusal(format!("its inflight area: {}", said(&why))))?;
        Ok(Self { at, memory })
    }

    /// The region of a ring.
    ///
    /// # Errors
    /// [`Refusal`]: the area has no region for the ring, or its region is too small.
    pub(super) fn region(
        self: &Arc<Self>,
        ring: usize,
        size: u32,
        is_packed: bool,
    ) -> RequestResult<Region> {
        let stride = stride(is_packed, self.at.size);
        if ring >= usize::from(self.at.rings) || size > self.at.size.into() {
            let Self { at: AreaAt { rings, size: most, .. }, .. } = &**self;
            return refuse(format!(
                "its inflight area holds {rings} rings of {most} descriptors, but ring {ring} has \
                 {size}"
            ));
        }
        let found = self.memory.at_peer(ring as u64 * stride, stride, align_of::<AtomicU64>());
        let too_small = || Refusal(format!("its inflight area has no room for ring {ring}"));
        let words = found.ok_or_else(too_small)?.cast();
        Ok(Region { area: self.clone(), words, size: self.at.size, is_packed })
    }
}

/// A ring's region of the area.
#[derive(Debug)]
pub(super) struct Region {
    area: Arc<Area>,
    words: NonNull<AtomicU64>,
    /// The number of descriptors in the region.
    size: u16,
    is_packed: bool,
}

// SAFETY: all accesses are atomic, and every value that another process writes is valid; the area
// keeps the mapping.
unsafe impl Send for Region {}

/// The progress of a packed ring: the end of the published chains, and of the burst that is being
/// published. Both are equal between two bursts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) published: Location,
    pub(super) publishing: Location,
}

impl Region {
    #[inline(always)]
    fn word(&self, index: usize) -> &AtomicU64 {
        // SAFETY: a region has more words than the three of its head, by `Area::region`.
        let at = unsafe { self.words.add(index) };
        // SAFETY: as above; every access to it is atomic.
        unsafe { at.as_ref() }
    }

    /// The recorded progress of a ring of `size` descriptors; `None` if the region is new.
    ///
    /// # Errors
    /// [`Refusal`]: the content is implausible. The region is then cleared.
    pub(super) fn read(&self, size: u32) -> RequestResult<Option<Progress>> {
        let features = self.word(FEATURES).load(Ordering::Relaxed);
        let [version, descriptors, ..] = halves(self.word(HEAD).load(Ordering::Relaxed));
        let [used, old, rounds, _] = halves(self.word(LOCATION).load(Ordering::Relaxed));
        if version == 0 && !self.area.memory.is_broken() {
            return Ok(None);
        }
        let [round, old_round] = rounds.to_ne_bytes();
        let location = |index: u16, round: u8| {
            let is_there = u32::from(index) < size && round < 2;
            is_there.then_some(Location { index, is_odd: round == 1 })
        };
        let is_ours = version == VERSION && features == 0 && descriptors == self.size;
        let recorded = match (is_ours, self.is_packed) {
            (false, _) => None,
            (true, false) => {
                Some(Progress { published: Location::START, publishing: Location::START })
            }
            (true, true) => location(old, old_round)
                .zip(location(used, round))
                .map(|(published, publishing)| Progress { published, publishing }),
        };
        if recorded.is_none() || self.area.memory.is_broken() {
            self.clear();
            return refuse("its inflight area holds values that no back end writes");
        }
        Ok(recorded)
    }

    /// Clears the record.
    pub(super) fn clear(&self) {
        self.word(HEAD).store(0, Ordering::Release);
    }

    /// Initializes a region: no descriptor is held, and the list of free descriptors holds all.
    fn begin(&self, numbers: [u16; 2]) {
        let [head, each] = if self.is_packed { PACKED } else { SPLIT }.map(|bytes| bytes / 8);
        for index in 0..self.size {
            let at = (head + each * u64::from(index)) as usize;
            // A packed region links its free descriptors; a split one has no such list.
            let next = if self.is_packed { (index + 1) % self.size } else { 0 };
            self.word(at).store(word([0, next, 0, 0]), Ordering::Relaxed);
        }
        self.word(FEATURES).store(0, Ordering::Relaxed);
        self.word(HEAD)
            .store(word([VERSION, self.size, numbers[0], numbers[1]]), Ordering::Release);
    }

    /// Initializes a packed ring's region.
    pub(super) fn begin_packed(&self, location: Location) {
        self.put(Progress { published: location, publishing: location }, Ordering::Relaxed);
        self.begin([0, 0]);
    }

    /// Records that a burst is about to be published to the driver.
    #[inline(always)]
    pub(super) fn record_publishing(&self, published: Location, publishing: Location) {
        self.put(Progress { published, publishing }, Ordering::Relaxed);
    }

    /// Records that it was published.
    #[inline(always)]
    pub(super) fn record_published(&self, location: Location) {
        self.put(Progress { published: location, publishing: location }, Ordering::Release);
    }

    #[inline(always)]
    fn put(&self, Progress { published, publishing }: Progress, ordering: Ordering) {
        #[cfg(test)]
        if crate::ring::packed::death::is_due() {
            return;
        }
        let rounds = u16::from_ne_bytes([publishing.is_odd.into(), published.is_odd.into()]);
        self.word(LOCATION).store(word([publishing.index, published.index, rounds, 0]), ordering);
    }

    /// Initializes a split ring's region.
    pub(super) fn begin_split(&self, used: u16) {
        self.begin([0, used]);
    }

    /// Records that a split ring has published this used index.
    #[inline(always)]
    pub(super) fn record_used(&self, used: u16) {
        self.word(HEAD).store(word([VERSION, self.size, 0, used]), Ordering::Release);
    }
}

/// Packs four 2-byte numbers into a word, in memory order.
#[inline(always)]
fn word(halves: [u16; 4]) -> u64 {
    let [[a, b], [c, d], [e, f], [g, h]] = halves.map(u16::to_ne_bytes);
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

fn halves(word: u64) -> [u16; 4] {
    let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
    [[a, b], [c, d], [e, f], [g, h]].map(u16::from_ne_bytes)
}
