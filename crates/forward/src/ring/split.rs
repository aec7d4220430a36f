//! The split ring, section 2.7 of virtio 1.2: a table of descriptors, a ring of those that are
//! available to the device, and a ring of those that it has used.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Largest ring, section 2.7.
pub(crate) const SIZE_MAX: u32 = 32_768;

/// VIRTQ_DESC_F_NEXT: the chain goes on.
pub(crate) const NEXT: u16 = 1;
/// VIRTQ_DESC_F_WRITE: the device writes, and does not read.
pub(crate) const WRITE: u16 = 2;
/// VIRTQ_DESC_F_INDIRECT: a table of descriptors stands there.
pub(crate) const INDIRECT: u16 = 4;

/// VIRTQ_AVAIL_F_NO_INTERRUPT and VIRTQ_USED_F_NO_NOTIFY: the other side need not be called.
pub(crate) const NO_CALL: u16 = 1;

/// Bytes of a descriptor.
pub(crate) const DESCRIPTOR_BYTES: usize = 16;

/// A descriptor, as it was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) address: u64,
    pub(crate) length: u32,
    pub(crate) flags: u16,
    pub(crate) next: u16,
}

impl Descriptor {
    /// Reads one, each half once.
    ///
    /// # Safety
    /// 16 bytes at `at` can be read and are aligned to 8; others may write them.
    #[inline(always)]
    pub(crate) unsafe fn read(at: NonNull<AtomicU64>) -> Self {
        // SAFETY: the caller's promise.
        let first = unsafe { at.as_ref() };
        // SAFETY: the second half of the 16 bytes.
        let at = unsafe { at.add(1) };
        // SAFETY: as above.
        let second = unsafe { at.as_ref() };
        let (address, rest) = (first.load(Ordering::Relaxed), second.load(Ordering::Relaxed));
        Self {
            address: u64::from_le(address),
            length: u64::from_le(rest) as u32,
            flags: (u64::from_le(rest) >> 32) as u16,
            next: (u64::from_le(rest) >> 48) as u16,
        }
    }

    /// Writes one.
    ///
    /// # Safety
    /// 16 bytes at `at` can be written and are aligned to 8; others may read them.
    #[inline(always)]
    pub(crate) unsafe fn write(self, at: NonNull<AtomicU64>) {
        let rest =
            u64::from(self.length) | u64::from(self.flags) << 32 | u64::from(self.next) << 48;
        // SAFETY: the caller's promise.
        let first = unsafe { at.as_ref() };
        // SAFETY: the second half of the 16 bytes.
        let at = unsafe { at.add(1) };
        // SAFETY: as above.
        let second = unsafe { at.as_ref() };
        first.store(self.address.to_le(), Ordering::Relaxed);
        second.store(rest.to_le(), Ordering::Relaxed);
    }
}

/// Bytes of a ring's three areas, with the words for event indices: descriptors, available, used.
pub(crate) fn area_bytes(size: u32) -> [u64; 3] {
    let size = u64::from(size);
    [16 * size, 6 + 2 * size, 6 + 8 * size]
}

/// What each area is aligned to.
pub(crate) const AREA_ALIGNS: [usize; 3] = [16, 2, 4];

/// A ring's memory. Either side may be this process.
#[derive(Debug)]
pub(crate) struct Split {
    descriptors: NonNull<AtomicU64>,
    available: NonNull<AtomicU16>,
    used: NonNull<AtomicU32>,
    size: u16,
    /// `size - 1`: what an index is masked with.
    mask: u16,
}

// SAFETY: all accesses are atomic, and bear whatever others write.
unsafe impl Send for Split {}

impl Split {
    /// A ring over its three areas.
    ///
    /// # Safety
    /// `size` is a power of two up to [`SIZE_MAX`]; the areas have [`area_bytes`], are aligned to
    /// [`AREA_ALIGNS`], can be read and written, and stay so as long as this value is used.
    pub(crate) unsafe fn new(areas: [NonNull<u8>; 3], size: u32) -> Self {
        debug_assert!(size.is_power_of_two() && size <= SIZE_MAX);
        let [descriptors, available, used] = areas;
        Self {
            descriptors: descriptors.cast(),
            available: available.cast(),
            used: used.cast(),
            size: size as u16,
            mask: (size - 1) as u16,
        }
    }

    #[inline(always)]
    pub(crate) fn size(&self) -> u16 {
        self.size
    }

    /// The word `index` of the available ring's area: 0 has flags, 1 the index, the rest the ring,
    /// the last the event index for the device's calls. Callers keep it below `size + 3`.
    #[inline(always)]
    fn available_word(&self, index: usize) -> &AtomicU16 {
        debug_assert!(index < usize::from(self.size) + 3);
        // SAFETY: the area has so many words, by `new`.
        let at = unsafe { self.available.add(index) };
        // SAFETY: as above; every access to it is atomic.
        unsafe { at.as_ref() }
    }

    /// The word of four bytes `index` of the used ring's area: 0 has flags and the index, then
    /// entries of two words. Callers keep it below `2 * size + 1`.
    #[inline(always)]
    fn used_word(&self, index: usize) -> &AtomicU32 {
        debug_assert!(index < 2 * usize::from(self.size) + 1);
        // SAFETY: the area has so many words, by `new`.
        let at = unsafe { self.used.add(index) };
        // SAFETY: as above; every access to it is atomic.
        unsafe { at.as_ref() }
    }

    /// The word of two bytes of the used ring's area: 0 has flags, 1 the index, `4 * size + 2` the
    /// event index for the driver's calls.
    #[inline(always)]
    fn used_half(&self, index: usize) -> &AtomicU16 {
        debug_assert!(index < 4 * usize::from(self.size) + 3);
        // SAFETY: the area has so many words, by `new`.
        let at = unsafe { self.used.cast::<AtomicU16>().add(index) };
        // SAFETY: as above; no other access overlaps it but in part, by `used_word`, which reads
        // and writes entries alone.
        unsafe { at.as_ref() }
    }

    #[inline(always)]
    fn descriptor_at(&self, index: u16) -> NonNull<AtomicU64> {
        // SAFETY: masked, so inside the table.
        unsafe { self.descriptors.add(2 * usize::from(index & self.mask)) }
    }

    // ---- The device's side.

    /// How far the driver has made chains available. What it wrote before is seen after this.
    #[inline(always)]
    pub(crate) fn available_index(&self) -> u16 {
        // SYNC: chains made available.
        u16::from_le(self.available_word(1).load(Ordering::Acquire))
    }

    /// Whether the driver wants no calls, where there are no event indices.
    #[inline]
    pub(crate) fn driver_wants_no_calls(&self) -> bool {
        u16::from_le(self.available_word(0).load(Ordering::Relaxed)) & NO_CALL != 0
    }

    /// The used index beyond which the driver wants a call, where there are event indices.
    #[inline]
    pub(crate) fn used_event(&self) -> u16 {
        u16::from_le(self.available_word(usize::from(self.size) + 2).load(Ordering::Relaxed))
    }

    /// The first descriptor of an available chain, perhaps no number of the table.
    #[inline(always)]
    pub(crate) fn head(&self, index: u16) -> u16 {
        u16::from_le(
            self.available_word(2 + usize::from(index & self.mask)).load(Ordering::Relaxed),
        )
    }

    /// The descriptor of this number, which is masked.
    #[inline(always)]
    pub(crate) fn descriptor(&self, index: u16) -> Descriptor {
        // SAFETY: a descriptor of the table.
        unsafe { Descriptor::read(self.descriptor_at(index)) }
    }

    /// Says that a chain was used, and how many bytes were written to it. Not seen before
    /// [`Split::publish_used`].
    #[inline(always)]
    pub(crate) fn put_used(&self, index: u16, head: u16, written: u32) {
        let at = 1 + 2 * usize::from(index & self.mask);
        store(self.used_word(at), u32::from(head).to_le());
        store(self.used_word(at + 1), written.to_le());
    }

    /// Shows the driver the entries up to this index, and what was written before.
    #[inline(always)]
    pub(crate) fn publish_used(&self, index: u16) {
        // SYNC: chains used.
        self.used_half(1).store(index.to_le(), Ordering::Release);
    }

    /// Says whether the driver need call when it makes chains available, where there are no event
    /// indices.
    pub(crate) fn set_wants_no_calls(&self, wants_none: bool) {
        self.used_half(0).store((u16::from(wants_none) * NO_CALL).to_le(), Ordering::Relaxed);
    }

    /// Says beyond which available index the driver is to call, where there are event indices.
    #[inline]
    pub(crate) fn set_available_event(&self, index: u16) {
        let at = 2 + 4 * usize::from(self.size);
        self.used_half(at).store(index.to_le(), Ordering::Relaxed);
    }

    // ---- The driver's side.

    /// How far the device has used chains. What it wrote before is seen after this.
    #[inline(always)]
    pub(crate) fn used_index(&self) -> u16 {
        // SYNC: chains used.
        u16::from_le(self.used_half(1).load(Ordering::Acquire))
    }

    /// A used entry: the chain's first descriptor and the bytes that were written to it, as the
    /// device says.
    #[inline(always)]
    pub(crate) fn used(&self, index: u16) -> (u32, u32) {
        let at = 1 + 2 * usize::from(index & self.mask);
        let head = self.used_word(at).load(Ordering::Relaxed);
        let written = self.used_word(at + 1).load(Ordering::Relaxed);
        (u32::from_le(head), u32::from_le(written))
    }

    /// Sets a descriptor.
    #[inline(always)]
    pub(crate) fn set_descriptor(&self, index: u16, descriptor: Descriptor) {
        // SAFETY: a descriptor of the table.
        unsafe { descriptor.write(self.descriptor_at(index)) }
    }

    /// Makes a chain available. Not seen before [`Split::publish_available`].
    #[inline(always)]
    pub(crate) fn put_available(&self, index: u16, head: u16) {
        let word = self.available_word(2 + usize::from(index & self.mask));
        // As in `store`.
        if word.load(Ordering::Relaxed) != head.to_le() {
            word.store(head.to_le(), Ordering::Relaxed);
        }
    }

    /// Shows the device the chains up to this index, and what was written before.
    #[inline(always)]
    pub(crate) fn publish_available(&self, index: u16) {
        // SYNC: chains made available.
        self.available_word(1).store(index.to_le(), Ordering::Release);
    }

    /// Whether the device wants no calls, where there are no event indices.
    #[inline]
    pub(crate) fn device_wants_no_calls(&self) -> bool {
        u16::from_le(self.used_half(0).load(Ordering::Relaxed)) & NO_CALL != 0
    }

    /// Says that the device need not call: whoever drives the ring polls.
    pub(crate) fn set_driver_polls(&self) {
        self.available_word(0).store(NO_CALL.to_le(), Ordering::Relaxed);
    }
}

/// Stores what does not stand there already. Where buffers are used in order, heads and lengths
/// come round again as they were: the line then stays in the other side's cache.
#[inline(always)]
fn store(word: &AtomicU32, value: u32) {
    if word.load(Ordering::Relaxed) != value {
        word.store(value, Ordering::Relaxed);
    }
}

/// Whether an index that moved from `before` to `now` went beyond `event`, section 2.7.7.
#[inline]
pub(crate) fn went_beyond(event: u16, now: u16, before: u16) -> bool {
    now.wrapping_sub(event).wrapping_sub(1) < now.wrapping_sub(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_see_what_the_other_wrote() {
        let size = 8;
        let [descriptors, available, used] = area_bytes(size).map(|bytes| {
            vec![0_u64; (bytes as usize).div_ceil(8)].leak().as_mut_ptr().cast::<u8>()
        });
        let areas = [descriptors, available, used].map(|at| NonNull::new(at).unwrap());
        // SAFETY: the areas have the bytes and are never freed.
        let ring = unsafe { Split::new(areas, size) };
        for index in [0, 1, 7, 8, 65_535_u16] {
            let descriptor =
                Descriptor { address: 1 << 40 | u64::from(index), length: 77, flags: 3, next: 9 };
            ring.set_descriptor(index, descriptor);
            assert_eq!(ring.descriptor(index & 7), descriptor);
            ring.put_available(index, index ^ 5);
            assert_eq!(ring.head(index), index ^ 5);
            ring.publish_available(index);
            assert_eq!(ring.available_index(), index);
            ring.put_used(index, index ^ 3, 1500);
            assert_eq!(ring.used(index), (u32::from(index ^ 3), 1500));
            ring.publish_used(index);
            assert_eq!(ring.used_index(), index);
        }
        assert!(!ring.driver_wants_no_calls() && !ring.device_wants_no_calls());
        ring.set_driver_polls();
        ring.set_wants_no_calls(true);
        ring.set_available_event(4711);
        assert!(ring.driver_wants_no_calls() && ring.device_wants_no_calls());
        assert_eq!((ring.used_event(), ring.used_index()), (0, 65_535));
    }

    #[test]
    fn an_event_is_passed_once() {
        assert!(went_beyond(5, 6, 5) && !went_beyond(5, 5, 4) && !went_beyond(5, 7, 6));
        assert!(went_beyond(65_535, 3, 65_530) && !went_beyond(4, 3, 65_530));
    }
}
