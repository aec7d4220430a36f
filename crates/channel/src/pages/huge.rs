//! Huge pages for a new memory file in which a message is built. The kernel gives files no huge
//! pages while `shmem_enabled` is `never`, the default, even if a program advises huge pages. But
//! `MADV_COLLAPSE` (Linux 6.1) replaces the pages of 2 MiB with a huge page at once. If the file
//! contains only one page in each 2 MiB, this copies almost nothing.
//!
//! Measured on Zen 4, kernel 6.18, for 256 MiB, in ms of processor time. One warm copy takes 29
//! ms:
//!
//! | | made | filled | unmapped and sealed | a page of ten written to in a view | given back |
//! |---|---|---|---|---|---|
//! | 4 KiB | 81 to 96 | 154 to 159 | 11 | 17 to 29 | 39 to 42 |
//! | collapsed before it is filled | 16 to 44 | 24 to 29 | 0.1 | 16 to 20 | 2.6 |
//! | collapsed after it was filled | 71 to 76 | 141 to 171 + 104 to 106 | 0.1 | 17 to 18 | 2.8 |

use std::ptr::NonNull;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fd::BorrowedFd;
use rustix::fs::FallocateFlags;
use rustix::mm::{MapFlags, ProtFlags};

use crate::shared::error::Error;
use haul_peer::memory;

/// The size of a huge page of x86-64, and of AArch64 with pages of 4 KiB. On other machines the
/// kernel refuses.
pub(crate) const HUGE_BYTES: usize = 2 << 20;
/// Number of bytes that one call collapses, in about 3 ms.
const STEP_BYTES: usize = 64 << 20;

/// Maps a new, empty memory file of this size to read and write, and allocates all of its pages:
/// huge pages if the kernel has any, otherwise ordinary pages.
///
/// # Errors
/// [`Error::System`] if there is not enough memory.
pub(crate) fn map_whole(file: BorrowedFd<'_>, size_bytes: usize) -> Result<NonNull<u8>, Error> {
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    let address = aligned_address(size_bytes);
    let base = memory::map_file_at(address, file, size_bytes, protection, flags)?;
    collapse(file, base, size_bytes);
    // Pages that exist stay as they are.
    match memory::reserve(file, 0, size_bytes) {
        Ok(()) => Ok(base),
        Err(error) => {
            memory::unmap(base, size_bytes);
            Err(error.into())
        }
    }
}

/// An address for a mapping of this size that is aligned to a huge page, so that huge pages fit.
/// Another thread may map memory at this address before the caller does. Returns zero, which
/// stands for any address, if the size is smaller than a huge page.
pub(crate) fn aligned_address(size_bytes: usize) -> usize {
    let around = match size_bytes.checked_add(HUGE_BYTES) {
        Some(around) if size_bytes >= HUGE_BYTES => around,
        _ => return 0,
    };
    let (protection, flags) = (ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE);
    // SAFETY: a new mapping at an address of the kernel's choice affects no other memory.
    let room =
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), around, protection, flags) };
    let Some(room) = room.ok().and_then(|room| NonNull::new(room.cast::<u8>())) else { return 0 };
    memory::unmap(room, around);
    room.as_ptr().addr().next_multiple_of(HUGE_BYTES)
}

/// Replaces each 2 MiB of a file, which is mapped at `base` from its start on, with a huge page,
/// as long as the kernel has any. A part that gets no huge page keeps its pages, and may have one
/// page more.
fn collapse(file: BorrowedFd<'_>, base: NonNull<u8>, size_bytes: usize) {
    static IS_UNKNOWN: AtomicBool = AtomicBool::new(false);
    if !base.addr().get().is_multiple_of(HUGE_BYTES) || IS_UNKNOWN.load(Relaxed) {
        return;
    }
    let whole = size_bytes / HUGE_BYTES * HUGE_BYTES;
    for start in (0..whole).step_by(STEP_BYTES) {
        let length = STEP_BYTES.min(whole - start);
        for page in (start..start + length).step_by(HUGE_BYTES) {
            // The kernel makes no huge page for an empty range.
            let made = rustix::fs::fallocate(file, FallocateFlags::empty(), page as u64, 1);
            if made.is_err() {
                return;
            }
        }
        // SAFETY: inside the mapping, as the caller promises of its size.
        let piece = unsafe { base.add(start) }.as_ptr().cast();
        // SAFETY: the pages of the caller's mapping move; their content stays.
        if unsafe { libc::madvise(piece, length, libc::MADV_COLLAPSE) } != 0 {
            let reason = std::io::Error::last_os_error().raw_os_error();
            IS_UNKNOWN.store(reason == Some(libc::EINVAL), Relaxed);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::fd::AsFd;

    use super::*;

    #[test]
    fn map_whole_allocates_exactly_all_pages_zeroed() {
        for size_bytes in [1, 4096, HUGE_BYTES - 1, HUGE_BYTES, 3 * HUGE_BYTES + 5000] {
            let file = memory::create_file(size_bytes).unwrap();
            let base = map_whole(file.as_fd(), size_bytes).unwrap();
            let blocks = rustix::fs::fstat(&file).unwrap().st_blocks as usize;
            assert_eq!(blocks * 512, size_bytes.next_multiple_of(4096), "{size_bytes}");
            // SAFETY: a mapping of this size, which only this test uses.
            let bytes = unsafe { std::slice::from_raw_parts_mut(base.as_ptr(), size_bytes) };
            assert!(bytes.iter().all(|byte| *byte == 0), "{size_bytes}");
            bytes.fill(7);
            assert!(bytes.iter().all(|byte| *byte == 7), "{size_bytes}");
            memory::unmap(base, size_bytes);
        }
        let file = memory::create_file(1).unwrap();
        assert!(map_whole(file.as_fd(), 0).is_err());
    }

    #[test]
    fn aligned_address_is_multiple_of_huge_page_or_zero() {
        assert_eq!(aligned_address(HUGE_BYTES - 1), 0);
        assert_eq!(aligned_address(usize::MAX), 0);
        let address = aligned_address(5 << 20);
        assert!(address.is_multiple_of(HUGE_BYTES));
    }
}
