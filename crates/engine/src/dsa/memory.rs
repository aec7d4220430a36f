//! Access to this process's memory by system calls: an address that is not mapped, or whose page
//! may not be accessed so, is an error, and raises no signal.
//!
//! `process_vm_readv` and `process_vm_writev` of a process on itself need no permission. The kernel
//! resolves page faults, and stops at the first page that it cannot access. A filter of system
//! calls may refuse them.

use std::io;

use rustix::io::Errno;

/// The bytes that are copied by one system call: they stay in the first-level cache.
const PIECE_BYTES: usize = 16 << 10;

/// The smallest page: no access right changes within it.
const PAGE_BYTES: u64 = 4096;

/// Why an access stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The bytes from the beginning of the range to the fault were transferred.
    Fault {
        /// The number of these bytes.
        done: usize,
    },
    /// The kernel refuses the system call.
    Refused(Errno),
}

/// The order in which a copy goes through its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    /// From the end, where the target begins within the source.
    Backward,
}

impl Direction {
    /// The order that keeps the bytes of a source that the target overlaps.
    pub(crate) fn of(source: u64, target: u64, size: u64) -> Self {
        let is_within = target > source && target - source < size;
        if is_within { Self::Backward } else { Self::Forward }
    }
}

/// Which side of a copy stopped it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyFailure {
    /// The source cannot be read.
    Source,
    /// The target cannot be written.
    Target,
    /// The kernel refuses the system call.
    Refused(Errno),
}

/// Fills `into` from memory at `address`.
///
/// # Errors
/// The memory cannot be read whole.
pub(crate) fn read(address: u64, into: &mut [u8]) -> Result<(), Failure> {
    let (pointer, length) = (into.as_mut_ptr(), into.len());
    all(length, |done| {
        // SAFETY: `done` is below the length, so the pointer stays within the slice.
        let local = unsafe { pointer.add(done) };
        transfer(local, address.wrapping_add(done as u64), length - done, libc::process_vm_readv)
    })
}

/// Writes `bytes` to memory at `address`.
///
/// # Errors
/// The memory cannot be written whole.
///
/// # Safety
/// No Rust reference may exist to the memory, except to atomics.
pub(crate) unsafe fn write(address: u64, bytes: &[u8]) -> Result<(), Failure> {
    let (pointer, length) = (bytes.as_ptr().cast_mut(), bytes.len());
    all(length, |done| {
        // SAFETY: `done` is below the length, so the pointer stays within the slice. The kernel
        // only reads from it.
        let local = unsafe { pointer.add(done) };
        transfer(local, address.wrapping_add(done as u64), length - done, libc::process_vm_writev)
    })
}

/// Copies at most one piece of a range from the end that `direction` names; `done` bytes of the
/// range are complete already. Returns the bytes that this call has added.
///
/// # Errors
/// Not one byte could be added.
///
/// # Safety
/// No Rust reference may exist to the target, except to atomics.
pub(crate) unsafe fn copy_piece(
    source: u64,
    target: u64,
    size: u64,
    done: u64,
    direction: Direction,
) -> Result<u64, CopyFailure> {
    let mut piece = [0u8; PIECE_BYTES];
    let left = size - done;
    let (offset, length) = match direction {
        Direction::Forward => (done, left.min(PIECE_BYTES as u64)),
        // Within one page of either side a piece succeeds whole or not at all.
        Direction::Backward => {
            let below = |end: u64| (end.wrapping_sub(1) % PAGE_BYTES) + 1;
            let (from, to) = (source.wrapping_add(left), target.wrapping_add(left));
            let length = left.min(below(from)).min(below(to));
            (left - length, length)
        }
    };
    let piece = &mut piece[..length as usize];
    let readable = match read(source.wrapping_add(offset), piece) {
        Ok(()) => piece.len(),
        Err(Failure::Fault { done: 0 }) => return Err(CopyFailure::Source),
        Err(Failure::Fault { done }) => done,
        Err(Failure::Refused(reason)) => return Err(CopyFailure::Refused(reason)),
    };
    // SAFETY: the caller's promise.
    match unsafe { write(target.wrapping_add(offset), &piece[..readable]) } {
        Ok(()) => Ok(readable as u64),
        Err(Failure::Fault { done: 0 }) => Err(CopyFailure::Target),
        Err(Failure::Fault { done }) => Ok(done as u64),
        Err(Failure::Refused(reason)) => Err(CopyFailure::Refused(reason)),
    }
}

/// Whether the kernel allows these system calls here.
pub(crate) fn probe() -> Result<(), Errno> {
    let (byte, mut copy) = (1u8, [0u8; 1]);
    match read((&raw const byte).addr() as u64, &mut copy) {
        Ok(()) => Ok(()),
        Err(Failure::Fault { .. }) => Err(Errno::FAULT),
        Err(Failure::Refused(reason)) => Err(reason),
    }
}

/// Repeats a transfer until all bytes are done or one call transfers none.
fn all(length: usize, mut step: impl FnMut(usize) -> io::Result<usize>) -> Result<(), Failure> {
    let mut done = 0;
    while done < length {
        match step(done) {
            Ok(0) => return Err(Failure::Fault { done }),
            Ok(more) => done += more,
            Err(error) => match Errno::from_io_error(&error).unwrap_or(Errno::FAULT) {
                Errno::FAULT => return Err(Failure::Fault { done }),
                other => return Err(Failure::Refused(other)),
            },
        }
    }
    Ok(())
}

type Transfer = unsafe extern "C" fn(
    libc::pid_t,
    *const libc::iovec,
    libc::c_ulong,
    *const libc::iovec,
    libc::c_ulong,
    libc::c_ulong,
) -> isize;

/// One transfer between local memory, which is valid, and an address, which may be anything.
fn transfer(local: *mut u8, address: u64, length: usize, call: Transfer) -> io::Result<usize> {
    let local = libc::iovec { iov_base: local.cast(), iov_len: length };
    let remote = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(address as usize),
        iov_len: length,
    };
    // SAFETY: the call has no conditions.
    let process = unsafe { libc::getpid() };
    // SAFETY: the two vectors live until the call returns. The kernel checks every address in
    // them; the local one names memory that the caller may read or write.
    let count = unsafe { call(process, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use crate::dsa::tests::Pages;

    fn copy(source: u64, target: u64, size: u64) -> (u64, Option<CopyFailure>) {
        let (mut done, direction) = (0, Direction::of(source, target, size));
        while done < size {
            // SAFETY: the tests hold no reference to the target.
            match unsafe { copy_piece(source, target, size, done, direction) } {
                Ok(more) => done += more,
                Err(failure) => return (done, Some(failure)),
            }
        }
        (done, None)
    }

    #[test]
    fn copies_stop_at_the_first_byte_that_cannot_be_accessed() {
        let (source, target) = (Pages::new(4), Pages::new(4));
        source.fill(|index| index as u8);
        let size = 4 * PAGE_BYTES;
        assert_eq!(copy(source.address(), target.address(), size), (size, None));
        assert_eq!(target.bytes(), source.bytes());
        target.protect_from(2, rustix::mm::MprotectFlags::READ);
        let (from, to) = (source.address() + 5, target.address() + 3);
        assert_eq!(copy(from, to, size - 5), (2 * PAGE_BYTES - 3, Some(CopyFailure::Target)));
        source.unmap_from(1);
        assert_eq!(copy(from, to, size - 5), (PAGE_BYTES - 5, Some(CopyFailure::Source)));
        assert_eq!(copy(0, to, 1), (0, Some(CopyFailure::Source)));
        assert_eq!(copy(from, 0, 1), (0, Some(CopyFailure::Target)));
        assert_eq!(copy(u64::MAX - 2, to, 64), (0, Some(CopyFailure::Source)));
    }

    #[test]
    fn overlapping_copies_keep_the_source() {
        for (from, to) in [(0usize, 700usize), (700, 0), (1, 4097), (4097, 1), (5, 5)] {
            let pages = Pages::new(8);
            pages.fill(|index| (index * 7 + index / 251) as u8);
            let size = 5 * 4096 + 123;
            let mut expected = pages.bytes();
            expected.copy_within(from..from + size, to);
            let address = pages.address();
            let copied = copy(address + from as u64, address + to as u64, size as u64);
            assert_eq!(copied, (size as u64, None));
            assert_eq!(pages.bytes(), expected, "{from} to {to}");
        }
    }

    #[test]
    fn backward_copy_counts_from_its_end() {
        let pages = Pages::new(6);
        pages.protect_from(5, rustix::mm::MprotectFlags::empty());
        let address = pages.address();
        // The last page of the target cannot be written, so nothing is copied.
        let size = 4 * PAGE_BYTES;
        assert_eq!(copy(address, address + 2 * PAGE_BYTES, size), (0, Some(CopyFailure::Target)));
        let below = Pages::new(6);
        below.protect_from(0, rustix::mm::MprotectFlags::empty());
        assert_eq!(copy(below.address(), below.address() + 1, 2), (0, Some(CopyFailure::Source)));
    }

    #[test]
    fn this_process_may_access_itself() {
        assert_eq!(probe(), Ok(()));
    }
}
