//! The packed ring, section 2.8 of virtio 1.2: one ring of descriptors. The driver makes buffers
//! available in it, and the device overwrites them when it uses them. Two bits of each descriptor
//! show which side owns it. Their meaning flips with each round of the ring.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::prefetch;
use super::split::Descriptor;

/// The largest ring: section 2.8.10.1.
pub(crate) const SIZE_MAX: u32 = 32_768;

/// VIRTQ_DESC_F_AVAIL and VIRTQ_DESC_F_USED, section 2.8.1.
const AVAILABLE: u16 = 1 << 7;
const USED: u16 = 1 << 15;

/// RING_EVENT_FLAGS_DISABLE and RING_EVENT_FLAGS_DESC, section 2.8.14.
const NO_CALL: u16 = 1;
const AT_DESCRIPTOR: u16 = 2;

/// The bit of an index in messages and events that holds the wrap counter.
const ROUND: u16 = 1 << 15;

/// Bytes of a ring's three areas: descriptors, and the event words in which driver and device say
/// when they want to be called.
pub(crate) fn area_bytes(size: u32) -> [u64; 3] {
    [16 * u64::from(size), 4, 4]
}

/// Alignment of each area.
pub(crate) const AREA_ALIGNS: [usize; 3] = [16, 4, 4];

/// The number of descriptors per cache line.
pub(crate) const OF_LINE: usize = prefetch::LINE_BYTES / 16;

/// A location in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    /// The descriptor's index.
    pub(crate) index: u16,
    /// Whether the location is in an odd round, counted from one: the wrap counter of section
    /// 2.8.1.
    pub(crate) is_odd: bool,
}

impl Location {
    /// The first location of a ring.
    pub(crate) const START: Self = Self { index: 0, is_odd: true };

    /// The location `count` descriptors further on. `count` must not exceed the ring's size.
    #[inline(always)]
    pub(crate) fn plus(self, count: u16, size: u16) -> Self {
        let sum = u32::from(self.index) + u32::from(count);
        match sum.checked_sub(u32::from(size)) {
            Some(rest) => Self { index: rest as u16, is_odd: !self.is_odd },
            None => Self { index: sum as u16, is_odd: self.is_odd },
        }
    }

    /// The location before this one.
    #[inline(always)]
    pub(crate) fn minus_one(self, size: u16) -> Self {
        match self.index.checked_sub(1) {
            Some(index) => Self { index, ..self },
            None => Self { index: size - 1, is_odd: !self.is_odd },
        }
    }

    /// The encoding of messages and events.
    pub(crate) fn word(self) -> u16 {
        self.index | if self.is_odd { ROUND } else { 0 }
    }

    /// Decodes a message's word; `None` if the ring has no such location.
    pub(crate) fn of(word: u16, size: u32) -> Option<Self> {
        let (index, is_odd) = (word & !ROUND, word & ROUND != 0);
        (u32::from(index) < size).then_some(Self { index, is_odd })
    }
}

/// A descriptor of the ring, as read once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) address: u64,
    pub(crate) length: u32,
    pub(crate) id: u16,
    pub(crate) flags: u16,
}

impl Entry {
    /// Converts to a descriptor of a table, whose `next` is not used.
    #[inline(always)]
    pub(crate) fn descriptor(self) -> Descriptor {
        let flags = self.flags & !(AVAILABLE | USED);
        Descriptor { address: self.address, length: self.length, flags, next: 0 }
    }

    /// Whether a driver has ever written this descriptor: a new ring holds zeros.
    pub(crate) fn is_of_driver(self) -> bool {
        self.address != 0
    }

    /// Whether the descriptor was made available in an odd round, and whether it was used in an
    /// odd round.
    pub(crate) fn rounds(self) -> [bool; 2] {
        [self.flags & AVAILABLE != 0, self.flags & USED != 0]
    }
}

/// A ring's memory. This process may be the driver or the device. A clone is the same memory.
#[derive(Clone, Debug)]
pub(crate) struct Packed {
    descriptors: NonNull<AtomicU64>,
    driver_event: NonNull<AtomicU32>,
    device_event: NonNull<AtomicU32>,
    size: u16,
}

// SAFETY: all accesses are atomic, and every value that another process writes is valid.
unsafe impl Send for Packed {}

impl Packed {
    /// A ring over its three areas.
    ///
    /// # Safety
    /// `size` is 1 to [`SIZE_MAX`]; the areas have [`area_bytes`], are aligned to [`AREA_ALIGNS`],
    /// can be read and written, and stay valid as long as this value is used.
    pub(crate) unsafe fn new(areas: [NonNull<u8>; 3], size: u32) -> Self {
        debug_assert!((1..=SIZE_MAX).contains(&size));
        let [descriptors, driver, device] = areas;
        Self {
            descriptors: descriptors.cast(),
            driver_event: driver.cast(),
            device_event: device.cast(),
            size: size as u16,
        }
    }

    #[inline(always)]
    pub(crate) fn size(&self) -> u16 {
        self.size
    }

    /// One of the two 8-byte words of a descriptor: 0 holds its address; 1 holds its length, id and
    /// flags. Callers keep `index` below the size, and `half` below two.
    #[inline(always)]
    fn half(&self, index: u16, half: usize) -> &AtomicU64 {
        debug_assert!(index < self.size && half < 2);
        // SAFETY: the ring has more words than this index, by `new`.
        let at = unsafe { self.descriptors.add(2 * usize::from(index) + half) };
        // SAFETY: as above; every access to it is atomic.
        unsafe { at.as_ref() }
    }

    /// Prefetches the cache line of a descriptor for writing.
    #[inline(always)]
    pub(crate) fn fetch(&self, location: Location) {
        prefetch::to_write(std::ptr::from_ref(self.half(location.index, 0)).cast());
    }

    /// The flags of a descriptor at this location: a descriptor that the device owns or, if
    /// `is_used`, one that the device has used.
    #[inline(always)]
    fn flags_of(location: Location, is_used: bool) -> u16 {
        match (is_used, location.is_odd) {
            (false, true) => AVAILABLE,
            (false, false) => USED,
            (true, true) => AVAILABLE | USED,
            (true, false) => 0,
        }
    }

    /// The descriptor at a location if the driver has made it available. Each half is read once.
    #[inline(always)]
    pub(crate) fn available(&self, location: Location) -> Option<Entry> {
        self.entry(location, false)
    }

    /// The id and the number of written bytes of a descriptor if the device has used it.
    #[inline(always)]
    pub(crate) fn used(&self, location: Location) -> Option<(u16, u32)> {
        self.entry(location, true).map(|entry| (entry.id, entry.length))
    }

    /// The descriptor at a location regardless of its owner, such as a later one of a chain.
    #[inline(always)]
    pub(crate) fn any(&self, location: Location) -> Entry {
        let word = u64::from_le(self.half(location.index, 1).load(Ordering::Relaxed));
        self.with_address(location, word)
    }

    #[inline(always)]
    fn entry(&self, location: Location, is_used: bool) -> Option<Entry> {
        // SYNC: descriptor handed over.
        let word = u64::from_le(self.half(location.index, 1).load(Ordering::Acquire));
        let flags = (word >> 48) as u16 & (AVAILABLE | USED);
        (flags == Self::flags_of(location, is_used)).then(|| self.with_address(location, word))
    }

    #[inline(always)]
    fn with_address(&self, location: Location, word: u64) -> Entry {
        let address = u64::from_le(self.half(location.index, 0).load(Ordering::Relaxed));
        let (length, id, flags) = (word as u32, (word >> 32) as u16, (word >> 48) as u16);
        Entry { address, length, id, flags }
    }

    /// Sets a descriptor's address. The device sees it after [`Packed::put_available`].
    #[inline(always)]
    pub(crate) fn set_address(&self, location: Location, address: u64) {
        self.half(location.index, 0).store(address.to_le(), Ordering::Relaxed);
    }

    /// Hands a descriptor to the device, with all earlier writes.
    #[inline(always)]
    pub(crate) fn put_available(&self, location: Location, id: u16, length: u32, flags: u16) {
        self.put(location, id, length, flags | Self::flags_of(location, false));
    }

    /// Hands a descriptor back to the driver, with all earlier writes.
    #[inline(always)]
    pub(crate) fn put_used(&self, location: Location, id: u16, written: u32) {
        self.put(location, id, written, Self::flags_of(location, true));
    }

    /// Marks a later descriptor of a chain as used, and leaves the rest of it unchanged. No
    /// driver reads the mark: it shows the next device how far this device came.
    pub(crate) fn mark_used(&self, location: Location) {
        let word = u64::from_le(self.half(location.index, 1).load(Ordering::Relaxed));
        let flags = (word >> 48) as u16 & !(AVAILABLE | USED) | Self::flags_of(location, true);
        self.put(location, (word >> 32) as u16, word as u32, flags);
    }

    #[inline(always)]
    fn put(&self, location: Location, id: u16, length: u32, flags: u16) {
        #[cfg(test)]
        if death::is_due() {
            return;
        }
        let word = u64::from(length) | u64::from(id) << 32 | u64::from(flags) << 48;
        // SYNC: descriptor handed over.
        self.half(location.index, 1).store(word.to_le(), Ordering::Release);
    }

    /// Writes a descriptor except for its flags, as a driver does before it makes the descriptor
    /// available.
    #[cfg(test)]
    pub(crate) fn set_words(&self, location: Location, address: u64, id: u16, length: u32) {
        self.set_address(location, address);
        let half = self.half(location.index, 1);
        let flags = u64::from_le(half.load(Ordering::Relaxed)) >> 48 << 48;
        let word = flags | u64::from(id) << 32 | u64::from(length);
        half.store(word.to_le(), Ordering::Relaxed);
    }

    /// Restores the state of a new ring, in which no descriptor is available or used.
    pub(crate) fn clear(&self) {
        for index in 0..self.size {
            self.half(index, 0).store(0, Ordering::Relaxed);
            self.half(index, 1).store(0, Ordering::Relaxed);
        }
    }

    // ---- Notifications.

    #[inline(always)]
    fn event(&self, is_of_driver: bool) -> &AtomicU32 {
        let at = if is_of_driver { self.driver_event } else { self.device_event };
        // SAFETY: the area has a word, by `new`; every access to it is atomic.
        unsafe { at.as_ref() }
    }

    /// Whether the driver wants a call for the `count` descriptors that were used up to `now`.
    /// `has_events` says whether the driver may name a location.
    #[inline]
    pub(crate) fn driver_wants_call(&self, now: Location, count: u16, has_events: bool) -> bool {
        let word = u32::from_le(self.event(true).load(Ordering::Relaxed));
        let (event, flags) = (word as u16, (word >> 16) as u16 & 3);
        if !has_events || flags != AT_DESCRIPTOR {
            return flags != NO_CALL;
        }
        let mut at = event & !ROUND;
        if (event & ROUND != 0) != now.is_odd {
            at = at.wrapping_sub(self.size);
        }
        super::split::has_passed(at, now.index, now.index.wrapping_sub(count))
    }

    /// Whether the device wants no calls.
    #[inline]
    pub(crate) fn device_wants_no_calls(&self) -> bool {
        (u32::from_le(self.event(false).load(Ordering::Relaxed)) >> 16) as u16 & 3 == NO_CALL
    }

    /// Announces that the device, or the driver, polls and needs no calls.
    pub(crate) fn set_polls(&self, is_driver: bool) {
        let word = u32::from(NO_CALL) << 16;
        self.event(is_driver).store(word.to_le(), Ordering::Relaxed);
    }
}

/// The death of a device after a number of stores: all later stores are suppressed.
#[cfg(test)]
pub(crate) mod death {
    use std::cell::Cell;

    thread_local! {
        static LEFT: Cell<i64> = const { Cell::new(i64::MAX) };
    }

    /// Runs `act`, suppresses all but its first `stores` stores, and returns whether there were
    /// more.
    pub(crate) fn after(stores: i64, act: impl FnOnce()) -> bool {
        LEFT.set(stores);
        act();
        LEFT.replace(i64::MAX) < 0
    }

    /// Whether the next store must be suppressed.
    pub(crate) fn is_due() -> bool {
        LEFT.set(LEFT.get() - 1);
        LEFT.get() < 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(size: u32) -> Packed {
        let areas = area_bytes(size).map(|bytes| {
            let words = vec![0_u64; (bytes as usize).div_ceil(8) + 1].leak();
            NonNull::new(words.as_mut_ptr().cast::<u8>()).unwrap()
        });
        // SAFETY: the areas have the bytes and are never freed.
        let ring = unsafe { Packed::new(areas, size) };
        ring.clear();
        ring
    }

    #[test]
    fn descriptor_is_handed_over_in_every_round() {
        for size in [1, 2, 5, 8] {
            let ring = ring(size);
            let mut location = Location::START;
            for number in 0..40_u16 {
                assert_eq!(ring.available(location), None, "{size}: {number}");
                assert_eq!(ring.used(location), None, "{size}: {number}");
                ring.set_address(location, 1 << 40 | u64::from(number));
                ring.put_available(location, number, 77, 3);
                let entry = ring.available(location).unwrap();
                let descriptor = entry.descriptor();
                assert_eq!((entry.id, descriptor.length, descriptor.flags), (number, 77, 3));
                assert_eq!(descriptor.address, 1 << 40 | u64::from(number));
                assert_eq!(ring.used(location), None);
                ring.put_used(location, number ^ 5, 1500);
                assert_eq!(ring.used(location), Some((number ^ 5, 1500)));
                assert_eq!(ring.available(location), None);
                location = location.plus(1, ring.size());
            }
        }
    }

    #[test]
    fn location_flips_wrap_counter_at_end() {
        let location = Location::START.plus(7, 8);
        assert_eq!((location.index, location.is_odd), (7, true));
        assert_eq!(location.plus(1, 8), Location { index: 0, is_odd: false });
        assert_eq!(location.plus(8, 8), Location { index: 7, is_odd: false });
        let largest = Location { index: 32_767, is_odd: false };
        assert_eq!(largest.plus(32_768, 32_768), Location { index: 32_767, is_odd: true });
        for location in [location, largest, Location::START] {
            assert_eq!(Location::of(location.word(), SIZE_MAX), Some(location));
        }
        assert_eq!(Location::of(8, 8), None);
        assert_eq!(Location::of(ROUND | 7, 8), Some(Location { index: 7, is_odd: true }));
    }

    #[test]
    fn driver_is_called_at_its_event() {
        let ring = ring(8);
        let now = Location { index: 2, is_odd: false };
        assert!(ring.driver_wants_call(now, 4, false) && !ring.device_wants_no_calls());
        ring.set_polls(true);
        ring.set_polls(false);
        assert!(!ring.driver_wants_call(now, 4, true) && ring.device_wants_no_calls());
        // Descriptors 6 and 7 of one round and 0 and 1 of the next were used.
        for (event, is_wanted) in [
            (ROUND | 5, false),
            (ROUND | 6, true),
            (ROUND | 7, true),
            (0, true),
            (1, true),
            (2, false),
            (ROUND, false),
        ] {
            let word = u32::from(event) | u32::from(AT_DESCRIPTOR) << 16;
            ring.event(true).store(word.to_le(), Ordering::Relaxed);
            assert_eq!(ring.driver_wants_call(now, 4, true), is_wanted, "{event:#x}");
        }
    }
}
