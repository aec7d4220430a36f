//! The split ring, section 2.7 of virtio 1.2: a table of descriptors, a ring of chains that are
//! available to the device, and a ring of chains that it has used.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::prefetch::{self, LINE_BYTES};

/// The largest ring: section 2.7.
pub(crate) const SIZE_MAX: u32 = 32_768;

/// VIRTQ_DESC_F_NEXT: the chain continues.
pub(crate) const NEXT: u16 = 1;
/// VIRTQ_DESC_F_WRITE: the device writes the buffer and does not read it.
pub(crate) const WRITE: u16 = 2;
/// VIRTQ_DESC_F_INDIRECT: the buffer holds a table of descriptors.
pub(crate) const INDIRECT: u16 = 4;

/// VIRTQ_AVAIL_F_NO_INTERRUPT and VIRTQ_USED_F_NO_NOTIFY: the other side need not be called.
pub(crate) const NO_CALL: u16 = 1;

/// The size of a descriptor in bytes.
pub(crate) const DESCRIPTOR_BYTES: usize = 16;

/// A descriptor, as read once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) address: u64,
    pub(crate) length: u32,
    pub(crate) flags: u16,
    pub(crate) next: u16,
}

impl Descriptor {
    /// Reads a descriptor, each half once.
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

    /// Writes a descriptor.
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

/// Alignment of each area.
pub(crate) const AREA_ALIGNS: [usize; 3] = [16, 2, 4];

/// A ring's memory. This process may be the driver or the device. A clone is the same memory.
#[derive(Clone, Debug)]
pub(crate) struct Split {
    descriptors: NonNull<AtomicU64>,
    available: NonNull<AtomicU16>,
    used: NonNull<AtomicU32>,
    size: u16,
    /// `size - 1`, the mask of an index.
    mask: u16,
}

// SAFETY: all accesses are atomic, and every value that another process writes is valid.
unsafe impl Send for Split {}

impl Split {
    /// A ring over its three areas.
    ///
    /// # Safety
    /// `size` is a power of two up to [`SIZE_MAX`]; the areas have [`area_bytes`], are aligned to
    /// [`AREA_ALIGNS`], can be read and written, and stay valid as long as this value is used.
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

    /// A 2-byte word of the available ring's area: 0 holds flags, 1 the index, the last the event
    /// index for the device's calls, the others the ring. Callers keep `index` below `size + 3`.
    #[inline(always)]
    fn available_word(&self, index: usize) -> &AtomicU16 {
        debug_assert!(index < usize::from(self.size) + 3);
        // SAFETY: the area has more words than this index, by `new`.
        let at = unsafe { self.available.add(index) };
        // SAFETY: as above; every access to it is atomic.
        unsafe { at.as_ref() }
    }

    /// A 4-byte word of the used ring's area: 0 holds flags and the index, the others entries of
    /// two words. Callers keep `index` below `2 * size + 1`.
    #[inline(always)]
    fn used_word(&self, index: usize) -> &AtomicU32 {
        debug_assert!(index < 2 * usize::from(self.size) + 1);
        // SAFETY: the area has more words than this index, by `new`.
        let at = unsafe { self.used.add(index) };
        // SAFETY: as above; every access to it is atomic.
        unsafe { at.as_ref() }
    }

    /// A 2-byte word of the used ring's area: 0 holds flags, 1 the index, `4 * size + 2` the event
    /// index for the driver's calls.
    #[inline(always)]
    fn used_half(&self, index: usize) -> &AtomicU16 {
        debug_assert!(index < 4 * usize::from(self.size) + 3);
        // SAFETY: the area has more words than this index, by `new`.
        let at = unsafe { self.used.cast::<AtomicU16>().add(index) };
        // SAFETY: as above; accesses through `used_word` touch entries alone, so that none partly
        // overlaps this word.
        unsafe { at.as_ref() }
    }

    #[inline(always)]
    fn descriptor_at(&self, index: u16) -> NonNull<AtomicU64> {
        // SAFETY: the index is masked, so it is inside the table.
        unsafe { self.descriptors.add(2 * usize::from(index & self.mask)) }
    }

    // ---- The device's side.

    /// The index up to which the driver has made chains available. Acquires the driver's earlier
    /// writes.
    #[inline(always)]
    pub(crate) fn available_index(&self) -> u16 {
        // SYNC: chains made available.
        u16::from_le(self.available_word(1).load(Ordering::Acquire))
    }

    /// Whether the driver wants no calls. Valid without event indices.
    #[inline]
    pub(crate) fn driver_wants_no_calls(&self) -> bool {
        u16::from_le(self.available_word(0).load(Ordering::Relaxed)) & NO_CALL != 0
    }

    /// Prefetches the driver's flags, which [`Split::driver_wants_no_calls`] reads.
    #[inline(always)]
    pub(crate) fn fetch_flags(&self) {
        prefetch::to_read(std::ptr::from_ref(self.available_word(0)).cast());
    }

    /// The used index beyond which the driver wants a call. Valid with event indices.
    #[inline]
    pub(crate) fn used_event(&self) -> u16 {
        u16::from_le(self.available_word(usize::from(self.size) + 2).load(Ordering::Relaxed))
    }

    /// The first descriptor of an available chain. The value may lie outside the table.
    #[inline(always)]
    pub(crate) fn head(&self, index: u16) -> u16 {
        u16::from_le(
            self.available_word(2 + usize::from(index & self.mask)).load(Ordering::Relaxed),
        )
    }

    /// The descriptor of this index, which is masked.
    #[inline(always)]
    pub(crate) fn descriptor(&self, index: u16) -> Descriptor {
        // SAFETY: a descriptor of the table.
        unsafe { Descriptor::read(self.descriptor_at(index)) }
    }

    /// Prefetches the heads of this number of chains, from an index on.
    #[inline(always)]
    pub(crate) fn fetch_heads(&self, index: u16, count: u16) {
        /// Heads of a cache line.
        const OF_LINE: usize = LINE_BYTES / 2;
        for ahead in steps(count, OF_LINE) {
            let at = 2 + usize::from(index.wrapping_add(ahead) & self.mask);
            prefetch::to_read(std::ptr::from_ref(self.available_word(at)).cast());
        }
    }

    /// Prefetches this number of descriptors, from an index on.
    #[inline(always)]
    pub(crate) fn fetch_descriptors(&self, index: u16, count: u16) {
        /// Descriptors of a cache line.
        const OF_LINE: usize = LINE_BYTES / 16;
        for ahead in steps(count, OF_LINE) {
            let at = self.descriptor_at(index.wrapping_add(ahead));
            prefetch::to_read(at.as_ptr().cast_const().cast());
        }
    }

    /// Records a used chain and the number of bytes written to it. The driver sees it after
    /// [`Split::publish_used`].
    #[inline(always)]
    pub(crate) fn put_used(&self, index: u16, head: u16, written: u32) {
        let at = 1 + 2 * usize::from(index & self.mask);
        store(self.used_word(at), u32::from(head).to_le());
        store(self.used_word(at + 1), written.to_le());
    }

    /// Publishes the used entries up to this index to the driver, with all earlier writes.
    #[inline(always)]
    pub(crate) fn publish_used(&self, index: u16) {
        // SYNC: chains used.
        self.used_half(1).store(index.to_le(), Ordering::Release);
    }

    /// Announces whether the driver need call when it makes chains available. Valid without event
    /// indices.
    pub(crate) fn set_wants_no_calls(&self, wants_none: bool) {
        self.used_half(0).store((u16::from(wants_none) * NO_CALL).to_le(), Ordering::Relaxed);
    }

    /// Announces the available index beyond which the driver must call. Valid with event indices.
    #[inline]
    pub(crate) fn set_available_event(&self, index: u16) {
        let at = 2 + 4 * usize::from(self.size);
        self.used_half(at).store(index.to_le(), Ordering::Relaxed);
    }

    // ---- The driver's side.

    /// The index up to which the device has used chains. Acquires the device's earlier writes.
    #[inline(always)]
    pub(crate) fn used_index(&self) -> u16 {
        // SYNC: chains used.
        u16::from_le(self.used_half(1).load(Ordering::Acquire))
    }

    /// A used entry, as reported by the device: the chain's first descriptor and the number of
    /// bytes written to it.
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

    /// Makes a chain available. The device sees it after [`Split::publish_available`].
    #[inline(always)]
    pub(crate) fn put_available(&self, index: u16, head: u16) {
        let word = self.available_word(2 + usize::from(index & self.mask));
        // For the same reason as in `store`.
        if word.load(Ordering::Relaxed) != head.to_le() {
            word.store(head.to_le(), Ordering::Relaxed);
        }
    }

    /// Publishes the chains up to this index to the device, with all earlier writes.
    #[inline(always)]
    pub(crate) fn publish_available(&self, index: u16) {
        // SYNC: chains made available.
        self.available_word(1).store(index.to_le(), Ordering::Release);
    }

    /// Whether the device wants no calls. Valid without event indices.
    #[inline]
    pub(crate) fn device_wants_no_calls(&self) -> bool {
        u16::from_le(self.used_half(0).load(Ordering::Relaxed)) & NO_CALL != 0
    }

    /// Announces that the driver polls, so that the device need not call.
    pub(crate) fn set_driver_polls(&self) {
        self.available_word(0).store(NO_CALL.to_le(), Ordering::Relaxed);
    }
}

/// The entries of `count` ones by which all their cache lines are prefetched, if a line holds
/// `of_line` and the first entry may lie anywhere in its line.
#[inline(always)]
fn steps(count: u16, of_line: usize) -> impl Iterator<Item = u16> {
    let last = count.checked_sub(1);
    (0..count).step_by(of_line).chain(last)
}

/// Stores a value unless the word holds it already. If buffers are used in order, heads and
/// lengths repeat in every round: the line then stays in the other side's cache.
#[inline(always)]
fn store(word: &AtomicU32, value: u32) {
    if word.load(Ordering::Relaxed) != value {
        word.store(value, Ordering::Relaxed);
    }
}

/// Whether an index that moved from `before` to `now` passed `event`, section 2.7.7.
#[inline]
pub(crate) fn has_passed(event: u16, now: u16, before: u16) -> bool {
    now.wrapping_sub(event).wrapping_sub(1) < now.wrapping_sub(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_reads_the_others_writes() {
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
    fn event_is_passed_once() {
        assert!(has_passed(5, 6, 5) && !has_passed(5, 5, 4) && !has_passed(5, 7, 6));
        assert!(has_passed(65_535, 3, 65_530) && !has_passed(4, 3, 65_530));
    }
}
