//! Prefetches of cache lines.

/// The size of a cache line in bytes, on x86-64 and on most other processors.
pub(crate) const LINE_BYTES: usize = 64;

/// An address in each cache line of these bytes. The first address is the beginning of its line.
#[inline(always)]
pub(crate) fn lines(at: *const u8, bytes: usize) -> impl Iterator<Item = *const u8> {
    let before = at.addr() % LINE_BYTES;
    let first = at.wrapping_sub(before);
    (0..before + bytes).step_by(LINE_BYTES).map(move |offset| first.wrapping_add(offset))
}

/// Prefetches the line of `at` for reading.
#[inline(always)]
pub(crate) fn to_read(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch never faults, changes no memory, and uses no stack and no flags.
    unsafe {
        core::arch::asm!("prefetcht0 [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    let _ = at;
}

/// Prefetches the line of `at` for a single read: into the first-level cache alone.
#[inline(always)]
pub(crate) fn to_read_once(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("prefetchnta [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    let _ = at;
}

/// Prefetches the line of `at` for writing: it leaves the other side's cache.
#[inline(always)]
pub(crate) fn to_write(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: as above; processors without this instruction do nothing.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    let _ = at;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_cover_all_bytes() {
        let places = |at: usize, bytes| -> Vec<usize> {
            lines(std::ptr::without_provenance(at), bytes).map(<*const u8>::addr).collect()
        };
        assert_eq!(places(4096, 64), [4096]);
        assert_eq!(places(4096, 65), [4096, 4160]);
        // The bytes follow a header of 12 bytes in an aligned buffer.
        assert_eq!(places(4096 + 12, 52), [4096]);
        assert_eq!(places(4096 + 12, 64), [4096, 4160]);
        let of_512 = places(4096 + 12, 512);
        assert_eq!((of_512.len(), of_512.last()), (9, Some(&(4096 + 512))));
    }
}
