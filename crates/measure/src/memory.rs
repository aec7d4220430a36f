//! Memory for measurements: mapped, advised, touched, and limited to the machine's available
//! memory.

use std::num::NonZeroUsize;
use std::ptr::NonNull;

use haul_machine::sys::Sys;
use haul_model::Bytes;

use crate::error::Error;
use crate::sys;

/// The share of the available memory that one measurement may use. The rest remains free so that
/// the machine does not swap, which would distort the measurement.
const SHARE_OF_AVAILABLE: f64 = 0.8;

/// The value of the bytes of touched memory: not 0, so that no kernel or hypervisor merges the
/// pages.
const TOUCH_BYTE: u8 = 0x5a;

/// The size of a huge page on every processor that haul supports, in bytes (x86-64 PMD, AArch64
/// with 4 KiB granule).
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// The kind of pages to request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Base pages only.
    Base,
    /// Transparent huge pages, if the kernel provides them.
    Huge,
    /// The kernel's default for an application without advice.
    Unsaid,
}

impl Pages {
    /// The value of the record parameter `pages`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Base => "4KiB",
            Self::Huge => "2MiB",
            Self::Unsaid => "unsaid",
        }
    }
}

/// Private memory, zeroed, aligned to a huge page, unmapped when dropped.
#[derive(Debug)]
pub struct Region {
    mapping: NonNull<u8>,
    mapping_bytes: usize,
    start: NonNull<u8>,
    bytes: usize,
    advised: bool,
}

// SAFETY: a region owns its memory, and gives out only raw pointers: a caller that writes through
// them from several threads must make sure that the accesses do not conflict.
unsafe impl Send for Region {}
// SAFETY: as above: a shared region gives no access except through raw pointers.
unsafe impl Sync for Region {}

impl Region {
    /// Maps at least `bytes` bytes (rounded up to whole pages) without touching them. Takes two
    /// system calls and a few reads of `/proc`.
    ///
    /// # Errors
    /// `bytes` is beyond the memory that is available ([`Error::BeyondMemory`]), or the kernel
    /// refuses ([`Error::Map`]).
    pub fn new(bytes: usize, pages: Pages) -> Result<Self, Error> {
        check_available(bytes as u64, &Sys::new())?;
        Self::unasked(bytes, pages)
    }

    /// Like [`Self::new`], but without a check of the available memory. For measurements of the
    /// mapping itself, after [`check_available`] has passed once. Takes two system calls.
    ///
    /// # Errors
    /// The kernel refuses to map.
    pub fn unasked(bytes: usize, pages: Pages) -> Result<Self, Error> {
        let asked = Bytes(bytes as u64);
        let beyond = || Error::BeyondMemory { asked, available: Bytes(isize::MAX as u64) };
        let bytes = bytes.max(1).checked_next_multiple_of(sys::page_bytes()).ok_or_else(beyond)?;
        let mapping_bytes = bytes.checked_add(HUGE_PAGE_BYTES).ok_or_else(beyond)?;
        let length = NonZeroUsize::new(mapping_bytes).ok_or_else(beyond)?;
        let mapping = sys::map(length).map_err(|reason| Error::Map { asked, reason })?;
        let skip = mapping.as_ptr().align_offset(HUGE_PAGE_BYTES);
        // SAFETY: `skip` is below HUGE_PAGE_BYTES, and the mapping is longer than `bytes` by
        // HUGE_PAGE_BYTES.
        let start = unsafe { mapping.add(skip) };
        let advised = match pages {
            Pages::Unsaid => true,
            // SAFETY: start and bytes lie in the mapping made above.
            Pages::Base | Pages::Huge => unsafe {
                sys::advise_huge(start, bytes, pages == Pages::Huge)
            },
        };
        Ok(Self { mapping, mapping_bytes, start, bytes, advised })
    }

    /// Like [`Self::new`], but touches every page, so that no page fault occurs in the
    /// measurement.
    ///
    /// # Errors
    /// The errors of [`Region::new`].
    pub fn touched(bytes: usize, pages: Pages) -> Result<Self, Error> {
        let mut region = Self::new(bytes, pages)?;
        region.as_mut_slice().fill(TOUCH_BYTE);
        Ok(region)
    }

    /// The first byte, aligned to a huge page.
    #[must_use]
    pub fn pointer(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// The length in bytes: at least the requested one.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the kernel accepted the advice about pages.
    #[must_use]
    pub fn is_advised(&self) -> bool {
        self.advised
    }

    /// The memory as a slice.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the range is mapped, readable, writable and zeroed by the kernel, no longer than
        // isize::MAX, and the region is borrowed as long as the slice lives.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapping and length are those of the one `map`, and no pointer into it is used
        // after the region is dropped.
        unsafe { sys::unmap(self.mapping, self.mapping_bytes) };
    }
}

/// Memory that a measurement may use without swapping, in bytes, less a reserve for other
/// processes; `u64::MAX` if the machine does not report it.
#[must_use]
pub fn available_bytes(machine: &Sys) -> u64 {
    let available = machine.memory_available_bytes();
    available.map_or(u64::MAX, |bytes| (bytes as f64 * SHARE_OF_AVAILABLE) as u64)
}

/// Checks that this much memory is available without swapping. If the machine does not report it,
/// the check passes and the kernel decides.
///
/// # Errors
/// [`Error::BeyondMemory`].
pub fn check_available(bytes: u64, machine: &Sys) -> Result<(), Error> {
    let limit = available_bytes(machine);
    if bytes > limit {
        return Err(Error::BeyondMemory { asked: Bytes(bytes), available: Bytes(limit) });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn region_is_aligned_and_writable() {
        for pages in [Pages::Base, Pages::Huge, Pages::Unsaid] {
            let mut region = Region::new(10_000, pages).unwrap();
            assert_eq!(region.pointer().align_offset(HUGE_PAGE_BYTES), 0);
            assert!(region.bytes() >= 10_000);
            assert!(region.as_mut_slice().iter().all(|&byte| byte == 0));
            let mut region = Region::touched(10_000, pages).unwrap();
            assert!(region.as_mut_slice().iter().all(|&byte| byte == TOUCH_BYTE));
        }
    }

    #[test]
    fn request_beyond_memory_names_request_and_limit() {
        let error = Region::new(1 << 60, Pages::Huge).unwrap_err();
        let message = error.to_string();
        assert!(matches!(error, Error::BeyondMemory { .. } | Error::Map { .. }), "{message}");
        assert!(message.contains("measure smaller sizes"), "{message}");
        assert!(Region::new(usize::MAX, Pages::Base).is_err());
    }

    #[test]
    fn available_memory_limits_a_request() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        assert!(check_available(u64::MAX, &Sys::at(root.path())).is_ok());
        std::fs::write(root.path().join("proc/meminfo"), "MemAvailable: 1000 kB\n").unwrap();
        assert!(check_available(900 * 1024, &Sys::at(root.path())).is_err());
        assert!(check_available(700 * 1024, &Sys::at(root.path())).is_ok());
    }
}
