//! Reserves, maps, populates and gives back address space.
//!
//! An address is an integer if its mapping may be missing, so that there is never a reference to
//! missing memory.

use core::ffi::c_void;
use core::ptr::NonNull;
#[cfg(not(miri))]
use core::ptr::null_mut;

use rustix::fd::BorrowedFd;
use rustix::mm::{self, Advice, MapFlags, MprotectFlags, ProtFlags};

use super::{Errno, raw};

/// The source of a mapping's memory.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    /// Memory of this process alone.
    Anonymous,
    /// The file from this offset on, shared with every process that maps it.
    Shared {
        /// The file.
        file: BorrowedFd<'a>,
        /// The offset in bytes.
        offset: u64,
    },
}

/// How many addresses a reservation tries if the system refuses a range with a margin for
/// alignment.
#[cfg(not(miri))]
const ADDRESSES_TRIED: usize = 16;

/// Reserves `bytes` of address space at a multiple of `alignment` (a power of two and a multiple
/// of the page size). The range is not readable, and the kernel does not count it as memory. A
/// few system calls.
pub(crate) fn reserve(bytes: usize, alignment: usize) -> Result<NonNull<u8>, Errno> {
    debug_assert!(alignment.is_power_of_two());
    #[cfg(miri)]
    return super::miri::reserve(bytes, alignment);
    #[cfg(not(miri))]
    reserve_mapped(bytes, alignment)
}

/// Reserves exactly this range, if nothing is mapped there.
pub(crate) fn reserve_at(address: usize, bytes: usize) -> Result<(), Errno> {
    if cfg!(miri) {
        return Err(Errno::NOSYS);
    }
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
    let target = address as *mut c_void;
    // SAFETY: FIXED_NOREPLACE maps only if nothing is mapped there.
    let start = unsafe { mm::mmap_anonymous(target, bytes, ProtFlags::empty(), flags) }?;
    if start == target {
        return Ok(());
    }
    // Linux before 4.17 treats the address as a hint. SAFETY: the range was just mapped and
    // nothing refers to it.
    unsafe { unmap(start.addr(), bytes) }?;
    Err(Errno::EXIST)
}

#[cfg(not(miri))]
fn reserve_mapped(bytes: usize, alignment: usize) -> Result<NonNull<u8>, Errno> {
    let padded = bytes.checked_add(alignment).ok_or(Errno::NOMEM)?;
    let Ok(start) = reserve_anywhere(padded) else {
        return reserve_without_margin(bytes, alignment);
    };
    let head = start.addr().wrapping_neg() & (alignment - 1);
    let tail = padded - head - bytes;
    if head != 0 {
        // SAFETY: the first `head` bytes belong to the range that was just mapped, and nothing
        // refers to them.
        unsafe { unmap(start.addr(), head) }?;
    }
    if tail != 0 {
        // SAFETY: likewise the last `tail` bytes.
        unsafe { unmap(start.addr() + head + bytes, tail) }?;
    }
    NonNull::new(start.wrapping_byte_add(head).cast()).ok_or(Errno::NOMEM)
}

#[cfg(not(miri))]
fn reserve_anywhere(bytes: usize) -> Result<*mut c_void, Errno> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: without an address, the kernel chooses an unused range.
    unsafe { mm::mmap_anonymous(null_mut(), bytes, ProtFlags::empty(), flags) }
}

/// Reserves a range without a margin for alignment, because a limit on addresses may leave no
/// room for it. The kernel shows a free range, and the aligned addresses below it are tried one
/// by one.
#[cfg(not(miri))]
fn reserve_without_margin(bytes: usize, alignment: usize) -> Result<NonNull<u8>, Errno> {
    let shown = reserve_anywhere(bytes)?;
    // SAFETY: the range was just mapped and nothing refers to it.
    unsafe { unmap(shown.addr(), bytes) }?;
    let mut candidate = shown.addr() & !(alignment - 1);
    for _ in 0..ADDRESSES_TRIED {
        match reserve_at(candidate, bytes) {
            Ok(()) => {
                let start = NonNull::new(core::ptr::with_exposed_provenance_mut(candidate));
                return start.ok_or(Errno::NOMEM);
            }
            Err(Errno::NOMEM) => return Err(Errno::NOMEM),
            Err(_) => {}
        }
        candidate = candidate.checked_sub(alignment).ok_or(Errno::NOMEM)?;
    }
    Err(Errno::NOMEM)
}

/// Maps readable and writable memory at `[address, address + bytes)`, in place of the previous
/// mapping. No page becomes present, not even in a program that locks all its memory (mlockall).
///
/// # Safety
///
/// The range belongs to a reservation of the caller, and nothing needs its content.
pub(crate) unsafe fn map_at(address: usize, bytes: usize, source: Source<'_>) -> Result<(), Errno> {
    // SAFETY: the caller promises the conditions of `map_closed_at`.
    unsafe { map_closed_at(address, bytes, source) }?;
    open(address, bytes)
}

/// Like [`map_at`], but without access until the range is [`open`]ed, so that no page becomes
/// present if the program locks all its memory later.
///
/// # Safety
///
/// The conditions of [`map_at`] hold.
pub(crate) unsafe fn map_closed_at(
    address: usize,
    bytes: usize,
    source: Source<'_>,
) -> Result<(), Errno> {
    if cfg!(miri) {
        return Ok(());
    }
    // The kernel does not populate a mapping without access. The lock is removed below.
    let protection = ProtFlags::empty();
    let flags = MapFlags::FIXED | MapFlags::NORESERVE;
    let target = address as *mut c_void;
    match source {
        Source::Anonymous => {
            // SAFETY: the caller owns the range that is replaced.
            unsafe { mm::mmap_anonymous(target, bytes, protection, flags | MapFlags::PRIVATE) }
        }
        Source::Shared { file, offset } => {
            let flags = flags | MapFlags::SHARED;
            // SAFETY: the caller owns the range that is replaced.
            unsafe { mm::mmap(target, bytes, protection, flags, file, offset) }
        }
    }?;
    // SAFETY: the range was just mapped; unlocking changes no content. It fails only if nothing
    // could have been locked.
    let _ = unsafe { mm::munlock(target, bytes) };
    Ok(())
}

/// Makes a range that was mapped without access readable and writable; no effect if it already
/// was. If the program has locked the range meanwhile, this also populates it.
pub(crate) fn open(address: usize, bytes: usize) -> Result<(), Errno> {
    if cfg!(miri) {
        return Ok(());
    }
    let protection = MprotectFlags::READ | MprotectFlags::WRITE;
    // SAFETY: adding access breaks no user; the call fails if nothing is mapped there.
    unsafe { mm::mprotect(address as *mut c_void, bytes, protection) }
}

/// Makes a range that was mapped without access readable only. A read returns the content, or
/// zeros for pages without memory. The range does not count as writable memory.
pub(crate) fn open_to_read(address: usize, bytes: usize) -> Result<(), Errno> {
    if cfg!(miri) {
        return Ok(());
    }
    // SAFETY: adding access breaks no user; the call fails if nothing is mapped there.
    unsafe { mm::mprotect(address as *mut c_void, bytes, MprotectFlags::READ) }
}

/// Makes the kernel stop at this page when it populates the page's mapping. If a program locks
/// all its memory (mlockall), the kernel populates only the part of the mapping before the page,
/// and locks the other part when it is accessed. Linux before 6.13, or before 6.15 for a file,
/// does not support this. In this case the call has no effect and returns `INVAL`.
///
/// # Safety
///
/// Nothing needs the content of the page, and nothing accesses the page in this process from now
/// on.
pub(crate) unsafe fn guard(address: usize, bytes: usize) -> Result<(), Errno> {
    if cfg!(miri) {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    unsafe { raw::guard(address, bytes) }
}

/// Restores the access that [`guard`] removed. Has no effect if `guard` had none.
pub(crate) fn unguard(address: usize, bytes: usize) -> Result<(), Errno> {
    raw::unguard(address, bytes)
}

/// Replaces the mapping with private zeros, readable and writable. May be called in a signal
/// handler.
///
/// # Safety
///
/// The caller owns the range, and its users accept any bytes there.
pub(crate) unsafe fn put_zeros(address: usize, bytes: usize) -> Result<(), Errno> {
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    let flags = flags | MapFlags::FIXED | MapFlags::NORESERVE;
    // SAFETY: the caller's promise.
    unsafe { mm::mmap_anonymous(address as *mut c_void, bytes, protection, flags) }.map(drop)
}

/// A page with memory for [`put_spare`].
pub(crate) fn spare(page_bytes: usize) -> Result<usize, Errno> {
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: without an address, the kernel chooses an unused range.
    let spare =
        unsafe { mm::mmap_anonymous(core::ptr::null_mut(), page_bytes, protection, flags) }?;
    // SAFETY: it was just mapped as writable.
    unsafe { spare.cast::<u8>().write_volatile(0) };
    Ok(spare.addr())
}

/// Replaces each page of a mapping with the spare page, for a process that gets no more memory,
/// because of its own limit or the system's limit. May be called in a signal handler.
///
/// # Safety
///
/// The conditions of [`put_zeros`] hold; `spare` comes from [`spare`] with this page size.
pub(crate) unsafe fn put_spare(
    spare: usize,
    page_bytes: usize,
    address: usize,
    bytes: usize,
) -> Result<(), Errno> {
    let (none, flags) = (ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::FIXED);
    // One call replaces the whole range, because a part of a huge page cannot be replaced. The
    // new mapping is not writable, so no limit refuses it. SAFETY: the caller's promise.
    unsafe {
        mm::mmap_anonymous(address as *mut c_void, bytes, none, flags | MapFlags::NORESERVE)
    }?;
    for at in (address..address + bytes).step_by(page_bytes) {
        let (from, to) = (spare as *mut c_void, at as *mut c_void);
        // A size of 0 makes a second mapping of the same shared page (mremap(2)).
        // SAFETY: the caller's promise.
        unsafe { mm::mremap_fixed(from, 0, page_bytes, mm::MremapFlags::MAYMOVE, to) }?;
    }
    Ok(())
}

/// Unmaps `[address, address + bytes)`.
///
/// # Safety
///
/// The caller owns the range, and nothing refers to it.
pub(crate) unsafe fn unmap(address: usize, bytes: usize) -> Result<(), Errno> {
    if cfg!(miri) {
        return Ok(());
    }
    // SAFETY: the caller's promise is munmap's condition.
    unsafe { mm::munmap(address as *mut c_void, bytes) }
}

/// Makes every page of the range present and writable. Returns an error if memory or the pool of
/// huge pages is exhausted; without this call, the first access would then raise a signal. Linux
/// 5.14 or newer; `INVAL` before.
pub(crate) fn populate(address: usize, bytes: usize) -> Result<(), Errno> {
    advise(address, bytes, Advice::LinuxPopulateWrite)
}

/// Allows the kernel to use transparent huge pages in the range.
pub(crate) fn prefer_huge(address: usize, bytes: usize) -> Result<(), Errno> {
    advise(address, bytes, Advice::LinuxHugepage)
}

/// Forbids the kernel to use transparent huge pages in the range.
pub(crate) fn prefer_small(address: usize, bytes: usize) -> Result<(), Errno> {
    advise(address, bytes, Advice::LinuxNoHugepage)
}

/// Makes the range one huge page now, if this kernel can do so. The pages of the range should be
/// populated before.
pub(crate) fn collapse(address: usize, bytes: usize) -> Result<(), Errno> {
    raw::collapse(address, bytes)
}

/// Makes the range read as zeros in a child of fork. The range must be private anonymous memory.
pub(crate) fn wipe_on_fork(address: usize, bytes: usize) -> Result<(), Errno> {
    advise(address, bytes, Advice::LinuxWipeOnFork)
}

/// Whether a range of at most 2 MiB has no resident memory; false if the kernel does not report
/// this.
pub(crate) fn is_untouched(address: usize, bytes: usize) -> bool {
    // One byte per page, in the smallest page size.
    let mut found = [0; (2 << 20) / 4096];
    debug_assert!(bytes <= 2 << 20);
    let is_known = !cfg!(miri) && raw::resident(address, bytes, &mut found).is_ok();
    is_known && found.iter().all(|byte| byte & 1 == 0)
}

/// Gives back the memory of a private range, which then reads as zeros.
///
/// # Safety
///
/// Nothing needs the content of the range.
pub(crate) unsafe fn discard_private(address: usize, bytes: usize) -> Result<(), Errno> {
    if cfg!(miri) {
        return Err(Errno::NOSYS);
    }
    // SAFETY: the caller's promise is the condition of dropping the content.
    unsafe { mm::madvise(address as *mut c_void, bytes, Advice::LinuxDontNeed) }
}

/// Gives back the memory of a range that is mapped from a file. The file loses this memory, so
/// the call affects every process that maps it.
///
/// # Safety
///
/// No process that maps the file needs the content of the range.
pub(crate) unsafe fn discard_shared(address: usize, bytes: usize) -> Result<(), Errno> {
    // SAFETY: the caller's promise is the condition of dropping the content.
    unsafe { mm::madvise(address as *mut c_void, bytes, Advice::LinuxRemove) }
}

/// Makes the kernel prefer `node` for the pages of the range that are not present yet.
pub(crate) fn bind(address: usize, bytes: usize, node: u32) -> Result<(), Errno> {
    if node >= raw::NODES_MAX {
        return Err(Errno::INVAL);
    }
    raw::bind(address, bytes, node)
}

fn advise(address: usize, bytes: usize, advice: Advice) -> Result<(), Errno> {
    if cfg!(miri) {
        return Ok(());
    }
    // SAFETY: callers pass only advice that changes how memory is provided, not its content; the
    // call fails if nothing is mapped.
    unsafe { mm::madvise(address as *mut c_void, bytes, advice) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::prelude::v1::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn reservation_is_aligned_and_can_be_mapped() {
        let start = reserve(4 * MIB, 1 << 30).unwrap();
        assert_eq!(start.addr().get() % (1 << 30), 0);
        // SAFETY: the range was just reserved and nothing refers to it.
        unsafe { map_at(start.addr().get(), 2 * MIB, Source::Anonymous) }.unwrap();
        populate(start.addr().get(), 2 * MIB).unwrap();
        // SAFETY: the first byte was just mapped and populated.
        unsafe { start.write(7) };
        // SAFETY: nothing needs the content.
        unsafe { discard_private(start.addr().get(), 2 * MIB) }.unwrap();
        // SAFETY: still mapped.
        assert_eq!(unsafe { start.read() }, 0);
        // SAFETY: nothing refers to the range any more.
        unsafe { unmap(start.addr().get(), 4 * MIB) }.unwrap();
    }

    #[test]
    fn populate_refuses_an_unmapped_reservation() {
        let start = reserve(MIB, MIB).unwrap();
        assert!(populate(start.addr().get(), MIB).is_err());
        // SAFETY: nothing refers to the range.
        unsafe { unmap(start.addr().get(), MIB) }.unwrap();
    }

    #[test]
    fn reserve_refuses_more_than_the_address_space() {
        assert_eq!(reserve(usize::MAX, 1 << 30), Err(Errno::NOMEM));
        assert_eq!(reserve(1 << 62, 1 << 30), Err(Errno::NOMEM));
    }
}
