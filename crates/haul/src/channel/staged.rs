//! `staged`: the whole message in shared memory of its own, copied in by the sender, then copied
//! out by the receiver. The classic way, kept as the one to compare with: it takes as much memory
//! again as the message, and nothing overlaps.
//!
//! The memory is sealed against writing before it is handed over, so what the receiver copies
//! cannot change under it.

use haul_copy::Hint;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::SealFlags;
use rustix::mm::{MapFlags, ProtFlags};

use super::error::Error;
use super::region::{self, SIZE_SEALS};
use super::source::Source;

/// Seals of memory that travels: neither its size nor its bytes can change any more.
pub(super) const SEALS: SealFlags = SIZE_SEALS.union(SealFlags::WRITE);

/// System calls of [`make`]: make, size, pages, map, unmap, seal.
pub(super) const CALLS_TO_MAKE: u64 = 6;
/// System calls of [`copy_out`]: three to check, map, unmap.
pub(super) const CALLS_TO_COPY_OUT: u64 = 6;

/// A sealed memory file that holds the message.
///
/// # Errors
/// [`Error::System`]: nothing was sent yet.
pub(super) fn make(source: &mut Source<'_>, length: usize) -> Result<OwnedFd, Error> {
    let file = region::create_file(length)?;
    region::reserve(file.as_fd(), 0, length)?;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let base = region::map_file(file.as_fd(), length, protection, MapFlags::SHARED)?;
    // SAFETY: a mapping of this length, made here, which nothing else in the world refers to: the
    // file was not handed over yet.
    let target = unsafe { std::slice::from_raw_parts_mut(base.as_ptr(), length) };
    source.copy_to(target, Hint::Unknown);
    region::unmap(base, length);
    rustix::fs::fcntl_add_seals(&file, SEALS).map_err(Error::system("seal memory"))?;
    Ok(file)
}

/// Copies the message out of the memory that came for it.
///
/// # Errors
/// [`Error::Memory`] where it is not such memory, [`Error::System`].
pub(super) fn copy_out(file: BorrowedFd<'_>, target: &mut [u8]) -> Result<(), Error> {
    region::check(file, target.len(), SEALS)?;
    copy_constant(file, target)
}

/// Copies the bytes of memory out that was checked, and that nobody changes.
///
/// # Errors
/// As for [`copy_out`].
pub(super) fn copy_constant(file: BorrowedFd<'_>, target: &mut [u8]) -> Result<(), Error> {
    let base = region::map_file(file, target.len(), ProtFlags::READ, MapFlags::SHARED)?;
    if let Err(error) = region::fill_holes(base, target.len()) {
        region::unmap(base, target.len());
        return Err(error);
    }
    // SAFETY: a mapping of this length, made here, of a file whose size is sealed, and whose bytes are too,
    // or nobody else's.
    let source = unsafe { std::slice::from_raw_parts(base.as_ptr(), target.len()) };
    haul_copy::copy_hinted(target, source, Hint::Unknown);
    region::unmap(base, target.len());
    Ok(())
}
