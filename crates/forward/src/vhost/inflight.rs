//! The area in which a back end notes how far its rings came, and which the front end keeps over
//! the back end's death: VHOST_USER_PROTOCOL_F_INFLIGHT_SHMFD of the vhost-user protocol.
//!
//! The protocol notes every descriptor that a back end holds. A device of haul's takes a chain and
//! gives it back in one step, so nothing is held between two bursts, and a burst writes how far it
//! goes before its descriptors are shown, and that it went there after. Both are one word.
//!
//! The area comes back from another process: each field is read once and checked. A region that
//! lies is written anew before the conversation ends, so that the next one starts afresh.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fd::OwnedFd;

use super::super::messages::{AreaAt, Done, Refused, refuse};
use super::super::ring::packed::Place;
use super::super::ring::split;
use haul_peer::guest::{Described, Guest, said};
use haul_peer::memory;

/// Version of a region, 0 where nothing was written to it.
const VERSION: u16 = 1;

/// What a region is aligned to: the protocol does not say, libvhost-user and DPDK agree on it.
const ALIGN: u64 = 64;

/// Bytes of struct QueueRegionSplit and QueueRegionPacked before their descriptors, and of one
/// descriptor of either.
const SPLIT: [u64; 2] = [16, 16];
const PACKED: [u64; 2] = [32, 32];

/// Words of eight bytes of a region: features; version, size, and two numbers; in a packed one the
/// place.
const FEATURES: usize = 0;
const HEAD: usize = 1;
const PLACE: usize = 2;

/// Bytes from one region to the next.
fn stride(is_packed: bool, size: u16) -> u64 {
    let [head, each] = if is_packed { PACKED } else { SPLIT };
    (head + each * u64::from(size)).next_multiple_of(ALIGN)
}

/// The area, mapped.
#[derive(Debug)]
pub(super) struct Area {
    at: AreaAt,
    memory: Guest,
}

impl Area {
    /// A new one, sealed, which no ring has written to, and what the front end keeps.
    pub(super) fn make(rings: u16, size: u16) -> Done<(Self, AreaAt, OwnedFd)> {
        // For either layout: which one it will be may not have been said.
        let bytes = u64::from(rings) * stride(true, size);
        let at = AreaAt { bytes, offset: 0, rings, size };
        let absent = |why: String| Refused(format!("no inflight area can be made: {why}"));
        let file = memory::create_sealed(c"haul-inflight", bytes as usize);
        let file = file.map_err(|error| absent(format!("{error:?}")))?;
        let ours = file.try_clone().map_err(|reason| absent(reason.to_string()))?;
        Ok((Self::open(at, ours)?, at, file))
    }

    /// One that the front end has kept.
    pub(super) fn open(at: AreaAt, file: OwnedFd) -> Done<Self> {
        let AreaAt { bytes, offset, rings, size } = at;
        let least = u64::from(rings) * stride(false, size);
        if rings == 0 || size == 0 || u32::from(size) > split::SIZE_MAX || bytes < least {
            return refuse(format!(
                "its inflight area of {bytes} B is not of {rings} rings of {size}"
            ));
        }
        let region = Described { guest: 0, peer: 0, bytes, offset };
        let memory = Guest::map(&[(region, file)]);
        let memory = memory.map_err(|why| Refused(format!("its inflight area: {}", said(&why))))?;
        Ok(Self { at, memory })
    }

    /// The region of a ring.
    ///
    /// # Errors
    /// [`Refused`]: the area has none for it, or one that is too small.
    pub(super) fn region(self: &Arc<Self>, ring: usize, size: u32, is_packed: bool) -> Done<Note> {
        let stride = stride(is_packed, self.at.size);
        if ring >= usize::from(self.at.rings) || size > self.at.size.into() {
            let Self { at: AreaAt { rings, size: most, .. }, .. } = &**self;
            return refuse(format!(
                "its inflight area is of {rings} rings of {most}: ring {ring} has {size} descriptors"
            ));
        }
        let found = self.memory.at_peer(ring as u64 * stride, stride, align_of::<AtomicU64>());
        let too_small = || Refused(format!("its inflight area has no room for ring {ring}"));
        let words = found.ok_or_else(too_small)?.cast();
        Ok(Note { area: self.clone(), words, size: self.at.size, is_packed })
    }
}

/// A ring's region of the area.
#[derive(Debug)]
pub(super) struct Note {
    area: Arc<Area>,
    words: NonNull<AtomicU64>,
    /// Descriptors that the region has.
    size: u16,
    is_packed: bool,
}

// SAFETY: all accesses are atomic, and bear whatever others write; the area keeps the mapping.
unsafe impl Send for Note {}

/// Where a packed ring was: what was shown to the driver, and what the burst in progress shows. The
/// same between two bursts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Noted {
    pub(super) shown: Place,
    pub(super) shows: Place,
}

impl Note {
    #[inline(always)]
    fn word(&self, index: usize) -> &AtomicU64 {
        // SAFETY: a region has more words than the three of its head, by `Area::region`.
        let at = unsafe { self.words.add(index) };
        // SAFETY: as above; every access to it is atomic.
        unsafe { at.as_ref() }
    }

    /// What was noted of a ring of so many descriptors; `None` where nothing was.
    ///
    /// # Errors
    /// [`Refused`]: what stands there cannot be. Nothing does any more.
    pub(super) fn read(&self, size: u32) -> Done<Option<Noted>> {
        let features = self.word(FEATURES).load(Ordering::Relaxed);
        let [version, descriptors, ..] = halves(self.word(HEAD).load(Ordering::Relaxed));
        let [used, old, rounds, _] = halves(self.word(PLACE).load(Ordering::Relaxed));
        if version == 0 && !self.area.memory.is_broken() {
            return Ok(None);
        }
        let [round, old_round] = rounds.to_ne_bytes();
        let place = |index: u16, round: u8| {
            let is_there = u32::from(index) < size && round < 2;
            is_there.then_some(Place { index, is_odd: round == 1 })
        };
        let is_ours = version == VERSION && features == 0 && descriptors == self.size;
        let noted = match (is_ours, self.is_packed) {
            (false, _) => None,
            (true, false) => Some(Noted { shown: Place::START, shows: Place::START }),
            (true, true) => place(old, old_round)
                .zip(place(used, round))
                .map(|(shown, shows)| Noted { shown, shows }),
        };
        if noted.is_none() || self.area.memory.is_broken() {
            self.forget();
            return refuse("its inflight area holds what no back end writes");
        }
        Ok(noted)
    }

    /// Nothing is noted any more.
    pub(super) fn forget(&self) {
        self.word(HEAD).store(0, Ordering::Release);
    }

    /// Begins a region: no descriptor is held, and the list of free ones has all of them.
    fn begin(&self, numbers: [u16; 2]) {
        let [head, each] = if self.is_packed { PACKED } else { SPLIT }.map(|bytes| bytes / 8);
        for index in 0..self.size {
            let at = (head + each * u64::from(index)) as usize;
            // The next free one of a packed region; a split one has no such list.
            let next = if self.is_packed { (index + 1) % self.size } else { 0 };
            self.word(at).store(word([0, next, 0, 0]), Ordering::Relaxed);
        }
        self.word(FEATURES).store(0, Ordering::Relaxed);
        self.word(HEAD)
            .store(word([VERSION, self.size, numbers[0], numbers[1]]), Ordering::Release);
    }

    /// Begins a packed ring's region.
    pub(super) fn begin_packed(&self, place: Place) {
        self.put(Noted { shown: place, shows: place }, Ordering::Relaxed);
        self.begin([0, 0]);
    }

    /// A burst is about to be shown to the driver.
    #[inline(always)]
    pub(super) fn shows(&self, shown: Place, shows: Place) {
        self.put(Noted { shown, shows }, Ordering::Relaxed);
    }

    /// It was.
    #[inline(always)]
    pub(super) fn has_shown(&self, place: Place) {
        self.put(Noted { shown: place, shows: place }, Ordering::Release);
    }

    #[inline(always)]
    fn put(&self, Noted { shown, shows }: Noted, ordering: Ordering) {
        #[cfg(test)]
        if super::super::ring::packed::death::has_come() {
            return;
        }
        let rounds = u16::from_ne_bytes([shows.is_odd.into(), shown.is_odd.into()]);
        self.word(PLACE).store(word([shows.index, shown.index, rounds, 0]), ordering);
    }

    /// Begins a split ring's region.
    pub(super) fn begin_split(&self, used: u16) {
        self.begin([0, used]);
    }

    /// A split ring has shown this used index to the driver.
    #[inline(always)]
    pub(super) fn has_used(&self, used: u16) {
        self.word(HEAD).store(word([VERSION, self.size, 0, used]), Ordering::Release);
    }
}

/// Numbers of two bytes as they stand in memory, one after the other.
#[inline(always)]
fn word(halves: [u16; 4]) -> u64 {
    let [[a, b], [c, d], [e, f], [g, h]] = halves.map(u16::to_ne_bytes);
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

fn halves(word: u64) -> [u16; 4] {
    let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
    [[a, b], [c, d], [e, f], [g, h]].map(u16::from_ne_bytes)
}
