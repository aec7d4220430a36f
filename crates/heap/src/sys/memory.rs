//! Address space: reserved, mapped, populated, given back.
//!
//! Addresses are passed as integers where a mapping may not be there, so that no reference is ever
//! made to memory that could be missing.

use core::ffi::c_void;
use core::ptr::NonNull;
#[cfg(not(miri))]
use core::ptr::null_mut;

use rustix::fd::BorrowedFd;
use rustix::mm::{self, Advice, MapFlags, MprotectFlags, ProtFlags};

use super::{Errno, raw};

/// What stands behind a mapping.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    /// Memory of this process alone.
    Anonymous,
    /// The file from this offset on, seen by everyone who maps it.
    Shared {
        /// The file.
        file: BorrowedFd<'a>,
        /// Where in it, in bytes.
        offset: u64,
    },
}

/// How many places a reservation tries where there is no room for one with a margin.
#[cfg(not(miri))]
const PLACES: usize = 16;

/// Reserves `bytes` of address space that begin at a multiple of `alignment` (a power of two and a
/// multiple of the page size). Nothing is readable yet and nothing is charged. A few calls.
pub(crate) fn reserve(bytes: usize, alignment: usize) -> Result<NonNull<u8>, Errno> {
    debug_assert!(alignment.is_power_of_two());
    #[cfg(miri)]
    return super::miri::reserve(bytes, alignment);
    #[cfg(not(miri))]
    reserve_mapped(bytes, alignment)
}

/// Reserves this very range, where nothing is.
pub(crate) fn reserve_at(address: usize, bytes: usize) -> Result<(), Errno> {
    if cfg!(miri) {
        return Err(Errno::NOSYS);
    }
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
    let target = address as *mut c_void;
    // SAFETY: FIXED_NOREPLACE takes the place only if nothing is there.
    let start = unsafe { mm::mmap_anonymous(target, bytes, ProtFlags::empty(), flags) }?;
    if start == target {
        return Ok(());
    }
    // A kernel before 4.17 takes the place for a hint.
    // SAFETY: the range was just made and nothing refers to it.
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
        // SAFETY: the first `head` bytes belong to the range just made and nothing refers to them.
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
    // SAFETY: with no address asked for, the kernel picks a range that nothing else uses.
    unsafe { mm::mmap_anonymous(null_mut(), bytes, ProtFlags::empty(), flags) }
}

/// Under a limit on addresses the margin may be what does not fit. The kernel shows where there is
/// room, and aligned places below it are tried one by one.
#[cfg(not(miri))]
fn reserve_without_margin(bytes: usize, alignment: usize) -> Result<NonNull<u8>, Errno> {
    let shown = reserve_anywhere(bytes)?;
    // SAFETY: the range was just made and nothing refers to it.
    unsafe { unmap(shown.addr(), bytes) }?;
    let mut place = shown.addr() & !(alignment - 1);
    for _ in 0..PLACES {
        match reserve_at(place, bytes) {
            Ok(()) => {
                let start = NonNull::new(core::ptr::with_exposed_provenance_mut(place));
                return start.ok_or(Errno::NOMEM);
            }
            Err(Errno::NOMEM) => return Err(Errno::NOMEM),
            Err(_) => {}
        }
        place = place.checked_sub(alignment).ok_or(Errno::NOMEM)?;
    }
    Err(Errno::NOMEM)
}

/// Puts readable and writable memory at `[address, address + bytes)`, in place of what was there.
/// Nothing becomes present by it, not even in a program that locks all its memory (mlockall).
///
/// # Safety
///
/// The range must belong to a reservation of the caller, and nothing may rely on what it holds.
pub(crate) unsafe fn map_at(address: usize, bytes: usize, source: Source<'_>) -> Result<(), Errno> {
    // SAFETY: the caller's promises are the same.
    unsafe { map_closed_at(address, bytes, source) }?;
    open(address, bytes)
}

/// As [`map_at`], without access until it is [`open`]: so a program that locks all its memory later
/// has none of it present either.
///
/// # Safety
///
/// As for [`map_at`].
pub(crate) unsafe fn map_closed_at(
    address: usize,
    bytes: usize,
    source: Source<'_>,
) -> Result<(), Errno> {
    if cfg!(miri) {
        return Ok(());
    }
    // Without access nothing is populated, and then the lock goes.
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
    // SAFETY: the range was just mapped; unlocking changes no content. It fails where nothing could
    // have been locked.
    let _ = unsafe { mm::munlock(target, bytes) };
    Ok(())
}

/// Makes a range readable and writable that was mapped without access; nothing changes where it
/// was. Where the program has locked it since, it is populated.
pub(crate) fn open(address: usize, bytes: usize) -> Result<(), Errno> {
    if cfg!(miri) {
        return Ok(());
    }
    let protection = MprotectFlags::READ | MprotectFlags::WRITE;
    // SAFETY: access that is added takes nothing from anybody; where nothing is mapped it fails.
    unsafe { mm::mprotect(address as *mut c_void, bytes, protection) }
}

/// Makes a range readable alone that was mapped without access: it reads as what is there, zeros
/// where it was never written to, and does not count as memory that the process may write to.
pub(crate) fn open_to_read(address: usize, bytes: usize) -> Result<(), Errno> {
    if cfg!(miri) {
        return Ok(());
    }
    // SAFETY: access that is added takes nothing from anybody; where nothing is mapped it fails.
    unsafe { mm::mprotect(address as *mut c_void, bytes, MprotectFlags::READ) }
}

/// Has the kernel stop at this page when it populates the mapping that the page lies in: what a
/// program that locks all its memory (mlockall) has populated of that mapping is what lies before.
/// The rest is locked as it is touched. A kernel before 6.13 cannot, and one before 6.15 not in a
/// file (`INVAL`); nothing is different then.
///
/// # Safety
///
/// Nothing may rely on what the page holds, nor touch it in this process from now on.
pub(crate) unsafe fn guard(address: usize, bytes: usize) -> Result<(), Errno> {
    if cfg!(miri) {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    unsafe { raw::guard(address, bytes) }
}

/// Gives the access back that [`guard`] took; nothing changes where it took none.
pub(crate) fn unguard(address: usize, bytes: usize) -> Result<(), Errno> {
    raw::unguard(address, bytes)
}

/// Puts zeros of this process's own in the place of what is mapped there, to be read and written.
/// From a signal handler too.
///
/// # Safety
///
/// The range must be the caller's, and whoever uses it must bear any bytes there.
pub(crate) unsafe fn put_zeros(address: usize, bytes: usize) -> Result<(), Errno> {
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    let flags = flags | MapFlags::FIXED | MapFlags::NORESERVE;
    // SAFETY: the caller's promise.
    unsafe { mm::mmap_anonymous(address as *mut c_void, bytes, protection, flags) }.map(drop)
}

/// A page that [`put_spare`] puts anywhere: its memory is there.
pub(crate) fn spare(page_bytes: usize) -> Result<usize, Errno> {
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: with no address asked for, the kernel picks a range that nothing else uses.
    let spare =
        unsafe { mm::mmap_anonymous(core::ptr::null_mut(), page_bytes, protection, flags) }?;
    // SAFETY: just mapped, to be written.
    unsafe { spare.cast::<u8>().write_volatile(0) };
    Ok(spare.addr())
}

/// Puts a spare page, again and again, in the place of what is mapped there: for a process that may
/// have no more memory, by its own limit or the system's. From a signal handler too.
///
/// # Safety
///
/// As for [`put_zeros`]; `spare` is of [`spare`] with this size of a page.
pub(crate) unsafe fn put_spare(
    spare: usize,
    page_bytes: usize,
    address: usize,
    bytes: usize,
) -> Result<(), Errno> {
    let (none, flags) = (ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::FIXED);
    // In one piece, for a part of a huge page cannot be replaced. Nothing that can be written is
    // mapped by this, so that no limit refuses it.
    // SAFETY: the caller's promise.
    unsafe {
        mm::mmap_anonymous(address as *mut c_void, bytes, none, flags | MapFlags::NORESERVE)
    }?;
    for at in (address..address + bytes).step_by(page_bytes) {
        let (from, to) = (spare as *mut c_void, at as *mut c_void);
        // Of a shared mapping, no bytes of it are a second one of the same page (mremap(2)).
        // SAFETY: the caller's promise.
        unsafe { mm::mremap_fixed(from, 0, page_bytes, mm::MremapFlags::MAYMOVE, to) }?;
    }
    Ok(())
}

/// Takes `[address, address + bytes)` out of the address space.
///
/// # Safety
///
/// The caller must own the range, and nothing may refer to it.
pub(crate) unsafe fn unmap(address: usize, bytes: usize) -> Result<(), Errno> {
    if cfg!(miri) {
        return Ok(());
    }
    // SAFETY: the caller's promise is munmap's condition.
    unsafe { mm::munmap(address as *mut c_void, bytes) }
}

/// Makes every page of the range present and writable: an error where memory or the pool of huge
/// pages is exhausted, instead of a signal at the first touch. Linux 5.14 or newer; `INVAL` before.
pub(crate) fn populate(address: usize, bytes: usize) -> Result<(), Errno> {
    advise(address, bytes, Advice::LinuxPopulateWrite)
}

/// Lets the kernel use transparent huge pages in the range.
pub(crate) fn prefer_huge(address: usize, bytes: usize) -> Result<(), Errno> {
    advise(address, bytes, Advice::LinuxHugepage)
}

/// Keeps the kernel from using transparent huge pages in the range.
pub(crate) fn prefer_small(address: usize, bytes: usize) -> Result<(), Errno> {
    advise(address, bytes, Advice::LinuxNoHugepage)
}

/// Makes the range one huge page now, where this kernel can; its pages should be populated.
pub(crate) fn collapse(address: usize, bytes: usize) -> Result<(), Errno> {
    raw::collapse(address, bytes)
}

/// A child of fork sees zeros in the range. For private anonymous memory only.
pub(crate) fn wipe_on_fork(address: usize, bytes: usize) -> Result<(), Errno> {
    advise(address, bytes, Advice::LinuxWipeOnFork)
}

/// Whether nothing is resident of a range of at most 2 MiB; false where the kernel does not tell.
pub(crate) fn is_untouched(address: usize, bytes: usize) -> bool {
    // One for each of the smallest pages that a kernel has.
    let mut found = [0; (2 << 20) / 4096];
    debug_assert!(bytes <= 2 << 20);
    let is_told = !cfg!(miri) && raw::resident(address, bytes, &mut found).is_ok();
    is_told && found.iter().all(|byte| byte & 1 == 0)
}

/// Gives the memory of a private range back; it reads as zeros afterwards.
///
/// # Safety
///
/// Nothing may rely on what the range holds.
pub(crate) unsafe fn discard_private(address: usize, bytes: usize) -> Result<(), Errno> {
    if cfg!(miri) {
        return Err(Errno::NOSYS);
    }
    // SAFETY: the caller's promise is the condition of dropping the content.
    unsafe { mm::madvise(address as *mut c_void, bytes, Advice::LinuxDontNeed) }
}

/// Gives the memory of a range mapped from a file back, in the file, for everyone.
///
/// # Safety
///
/// Nobody who maps the file may rely on what the range holds.
pub(crate) unsafe fn discard_shared(address: usize, bytes: usize) -> Result<(), Errno> {
    // SAFETY: the caller's promise is the condition of dropping the content.
    unsafe { mm::madvise(address as *mut c_void, bytes, Advice::LinuxRemove) }
}

/// Prefers `node` for pages of the range that are not there yet.
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
    // SAFETY: the advices that come here change how memory is provided, not what it holds; where
    // nothing is mapped they fail.
    unsafe { mm::madvise(address as *mut c_void, bytes, advice) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::prelude::v1::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn a_reservation_is_aligned_and_can_be_mapped() {
        let start = reserve(4 * MIB, 1 << 30).unwrap();
        assert_eq!(start.addr().get() % (1 << 30), 0);
        // SAFETY: the range was just reserved and nothing refers to it.
        unsafe { map_at(start.addr().get(), 2 * MIB, Source::Anonymous) }.unwrap();
        populate(start.addr().get(), 2 * MIB).unwrap();
        // SAFETY: the first byte was just mapped and populated.
        unsafe { start.write(7) };
        // SAFETY: nothing relies on the content.
        unsafe { discard_private(start.addr().get(), 2 * MIB) }.unwrap();
        // SAFETY: still mapped.
        assert_eq!(unsafe { start.read() }, 0);
        // SAFETY: nothing refers to the range any more.
        unsafe { unmap(start.addr().get(), 4 * MIB) }.unwrap();
    }

    #[test]
    fn what_is_only_reserved_cannot_be_populated() {
        let start = reserve(MIB, MIB).unwrap();
        assert!(populate(start.addr().get(), MIB).is_err());
        // SAFETY: nothing refers to the range.
        unsafe { unmap(start.addr().get(), MIB) }.unwrap();
    }

    #[test]
    fn more_than_the_address_space_is_refused() {
        assert_eq!(reserve(usize::MAX, 1 << 30), Err(Errno::NOMEM));
        assert_eq!(reserve(1 << 62, 1 << 30), Err(Errno::NOMEM));
    }
}
