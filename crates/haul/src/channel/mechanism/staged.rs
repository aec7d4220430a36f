//! `staged`: the whole message in shared memory of its own, copied in by the sender, then copied
//! out by the receiver. The classic way, kept as the one to compare with: it takes as much memory
//! again as the message, and nothing overlaps.
//!
//! The memory is sealed against writing before it is handed over, so what the receiver copies
//! cannot change under it.

use haul_copy::Hint;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::mm::ProtFlags;

use crate::channel::shared::error::Error;
use crate::channel::shared::source::Source;
use crate::peer::memory::{self, Sealed};

/// Bytes that are copied at a time, between two looks at the clock: some 1 ms. Less would be mapped
/// and unmapped more often.
const STEP_BYTES: usize = 4 << 20;

/// System calls of making such memory: make, size, seal.
pub(crate) const CALLS_TO_MAKE: u64 = 3;
/// System calls of a piece of it: pages, map, unmap.
pub(crate) const CALLS_TO_MAKE_SOME: u64 = 3;
/// System calls of looking at memory that came.
pub(crate) const CALLS_TO_CHECK: u64 = 3;
/// System calls of a piece of it: map, unmap.
pub(crate) const CALLS_TO_COPY_SOME: u64 = 2;

/// A memory file that a message is being copied to.
#[derive(Debug)]
pub(crate) struct Making {
    file: OwnedFd,
    done: usize,
}

impl Making {
    /// # Errors
    /// [`Error::System`].
    pub(crate) fn begin(length: usize) -> Result<Self, Error> {
        Ok(Self { file: memory::create_file(length)?, done: 0 })
    }

    /// Copies the next bytes of a message of this length; true as all are there.
    ///
    /// # Errors
    /// [`Error::System`].
    pub(crate) fn step(&mut self, source: &mut Source<'_>, length: usize) -> Result<bool, Error> {
        let piece = (length - self.done).min(STEP_BYTES);
        memory::reserve(self.file.as_fd(), self.done, piece)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let base = memory::map_part(self.file.as_fd(), self.done, piece, protection)?;
        // SAFETY: a mapping of this length, made here, which nothing else in the world refers to:
        // the file was not handed over yet.
        let target = unsafe { std::slice::from_raw_parts_mut(base.as_ptr(), piece) };
        source.copy_to(target, Hint::Unknown);
        memory::unmap(base, piece);
        self.done += piece;
        Ok(self.done == length)
    }

    /// The memory, sealed.
    ///
    /// # Errors
    /// [`Error::System`].
    pub(crate) fn seal(self) -> Result<OwnedFd, Error> {
        memory::seal(&self.file, Sealed::Bytes)?;
        Ok(self.file)
    }
}

/// Copies the next bytes of memory that was checked, and that nobody changes, to their place in the
/// target; says how many.
///
/// # Errors
/// [`Error::Memory`], [`Error::System`].
pub(crate) fn copy_some(
    file: BorrowedFd<'_>,
    target: &mut [u8],
    offset: usize,
) -> Result<usize, Error> {
    let length = (target.len() - offset).min(STEP_BYTES);
    let base = memory::map_part(file, offset, length, ProtFlags::READ)?;
    if let Err(error) = memory::fill_holes(base, length) {
        memory::unmap(base, length);
        return Err(error.into());
    }
    // SAFETY: a mapping of this length, made here, of a file whose size is sealed, and whose bytes
    // are too, or nobody else's.
    let source = unsafe { std::slice::from_raw_parts(base.as_ptr(), length) };
    haul_copy::copy_hinted(&mut target[offset..offset + length], source, Hint::Unknown);
    memory::unmap(base, length);
    Ok(length)
}
