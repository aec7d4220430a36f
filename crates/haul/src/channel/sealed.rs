//! `sealed`: the sender builds the message in shared memory, seals it and hands it over; the
//! receiver maps it as private. No copy at all, but of the pages that the receiver writes to.
//!
//! The seal against writing is granted only while nobody can write, so it is the proof: the
//! receiver needs no trust. Sealed memory cannot be used again, so each message is built in new
//! memory, whose pages cost half a copy into warm memory if they are huge ones, see `huge`, and three
//! times one if not: this way is for a producer that makes the message anyhow, once, in place.
//!
//! A page that the receiver writes to is a fault and a copy of 4 KiB, huge page or not: 2.5 to 3.2 us on
//! Zen 4 under KVM. One of ten written to costs 0.6 to 0.9 of a warm copy of all there. A receiver that
//! knows beforehand where it will write says so, see `announced`: 0.08 to 0.2 of a warm copy for a tenth
//! in one piece, from the second message on; the first pays for the huge pages.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::mm::{MapFlags, ProtFlags};

use super::buffer::Buffer;
use super::error::Error;
use super::pages::Replaced;
use super::staged::{self, SEALS};
use super::{huge, pages, region};

/// Puts the message that came sealed into a target: its whole pages themselves, where the target is
/// of this process's own pages, else copies. Returns the bytes that were copied.
///
/// # Errors
/// [`Error::Memory`] where it is not such memory, [`Error::System`].
pub(super) fn put_into(file: BorrowedFd<'_>, target: &mut [u8]) -> Result<usize, Error> {
    if !pages::are_own(target) {
        staged::copy_out(file, target)?;
        return Ok(target.len());
    }
    region::check(file, target.len(), SEALS)?;
    let view = Buffer::view(file, target.len())?;
    let whole = target.len() / pages::PAGE_BYTES * pages::PAGE_BYTES;
    let (place, protection) = (target.as_mut_ptr().cast(), ProtFlags::READ | ProtFlags::WRITE);
    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
    let replaced = Replaced::mark(NonNull::from_mut(target).cast(), whole);
    // SAFETY: whole pages of a mapping that haul made, borrowed uniquely, are replaced by pages of
    // the same length, readable and writable, of a file that was seen to be constant.
    let mapped = unsafe { rustix::mm::mmap(place, whole, protection, flags, file, 0) };
    let placed = match mapped {
        Ok(_) => {
            let start = target.as_ptr().addr();
            pages::note_view(start..start + whole);
            whole
        }
        Err(_) => {
            replaced.keep_mapped();
            0
        }
    };
    haul_copy::copy(&mut target[placed..], &view[placed..]);
    Ok(target.len() - placed)
}

/// A message that is built where it will be handed over from: zeroed memory, writable, until
/// [`send_built`](super::Sender::send_built) takes it.
#[derive(Debug)]
pub struct Building {
    file: OwnedFd,
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to this value alone, as a `Vec`'s memory does.
unsafe impl Send for Building {}
// SAFETY: as above; a shared reference gives shared access only.
unsafe impl Sync for Building {}

impl Building {
    /// Memory for a message of this length. Its pages are there already, huge ones where the kernel
    /// gives any: six system calls, and one for each 2 MiB.
    ///
    /// # Errors
    /// [`Error::System`] where there is not so much memory; also for a length of zero, of which
    /// there is nothing to build: send an empty slice instead.
    pub fn new(length: usize) -> Result<Self, Error> {
        let file = region::create_file(length)?;
        let base = huge::map_whole(file.as_fd(), length)?;
        Ok(Self { file, base, length })
    }

    /// Takes this process's own access away, and seals: the memory is constant from here on.
    pub(super) fn seal(self) -> Result<(OwnedFd, u64), Error> {
        let length = self.length as u64;
        let file = self.file.try_clone().map_err(Error::system("hand memory over"))?;
        drop(self);
        rustix::fs::fcntl_add_seals(&file, SEALS).map_err(Error::system("seal memory"))?;
        Ok((file, length))
    }
}

impl Deref for Building {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: a mapping of this length that belongs to this value and is borrowed with it.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.length) }
    }
}

impl DerefMut for Building {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and `self` is borrowed uniquely.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.length) }
    }
}

impl Drop for Building {
    fn drop(&mut self) {
        region::unmap(self.base, self.length);
    }
}
