//! `staged`: the sender copies the whole message into separate shared memory, then the receiver
//! copies it out. `staged` is the baseline to compare with: it needs additional memory of the
//! message's size, and the copies do not overlap.
//!
//! The memory is sealed against writing before it is handed over, so it cannot change while the
//! receiver copies.

use haul_copy::Hint;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::mm::ProtFlags;

use super::contract::{Begun, Incoming, Outgoing, Receives, Sends, Taken};
use crate::shared::error::Error;
use crate::shared::header::Header;
use crate::shared::lane::Lane;
use crate::shared::link::Kind;
use crate::shared::source::Source;
use crate::shared::transfer::Step;
use haul_peer::closer;
use haul_peer::memory::{self, Sealed};

/// Number of bytes that are copied between two checks of the clock, in about 1 ms. Smaller pieces
/// would be mapped and unmapped more often.
const STEP_BYTES: usize = 4 << 20;

/// Number of system calls to make the memory: make, size, seal.
const CALLS_TO_MAKE: u64 = 3;
/// Number of system calls to fill a piece: allocate, map, unmap.
const CALLS_TO_MAKE_SOME: u64 = 3;
/// Number of system calls to check memory that was handed over.
pub(crate) const CALLS_TO_CHECK: u64 = 3;
/// Number of system calls to copy a piece out: map, unmap.
const CALLS_TO_COPY_SOME: u64 = 2;

/// Hands over the memory of a message, before the header is published.
///
/// # Errors
/// The kernel's error. A full socket is an error too, because polling would not signal that it
/// has room again.
pub(crate) fn hand_over(file: &OwnedFd, out: &mut Outgoing<'_, '_>) -> Result<Begun, Errno> {
    out.lane.system_calls += 1;
    out.lane.link.send_file(Kind::Memory, out.message.index(), file.as_fd())?;
    Ok(Begun::Whole { detail: 0 })
}

/// The sender's part: it copies the whole message before the header is published.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    making: Option<Making>,
}

impl Sending {
    /// Copies a piece of the message. Returns the memory once it holds the whole message.
    fn copy_next(&mut self, out: &mut Outgoing<'_, '_>) -> Result<Option<OwnedFd>, Error> {
        let length = out.length as usize;
        let mut making = match self.making.take() {
            Some(making) => making,
            None => Making::begin(length)?,
        };
        out.account.system_calls += CALLS_TO_MAKE_SOME;
        if !making.step(out.source, length)? {
            self.making = Some(making);
            return Ok(None);
        }
        let file = making.seal()?;
        out.account.system_calls += CALLS_TO_MAKE;
        out.account.copied_bytes = out.length;
        out.account.extra_memory_bytes = out.length;
        Ok(Some(file))
    }
}

impl Sends for Sending {
    type State = ();

    const SUMS: bool = true;

    fn obstacle(_source: &Source<'_>, length: u64) -> Option<&'static str> {
        let fits = usize::try_from(length).is_ok();
        (!fits).then_some("the message is larger than the address space")
    }

    fn begin(&mut self, _: &mut (), out: &mut Outgoing<'_, '_>) -> Result<Begun, Error> {
        Ok(match self.copy_next(out) {
            Ok(None) => Begun::NotYet,
            Ok(Some(file)) => hand_over(&file, out).unwrap_or(Begun::Impossible),
            Err(_) => Begun::Impossible,
        })
    }
}

/// The receiver's part: the memory that was handed over, and the number of bytes copied out of it.
#[derive(Debug)]
pub(crate) struct Receiving {
    pub(crate) file: OwnedFd,
    offset: usize,
}

impl Receiving {
    /// Whether nothing was copied yet.
    pub(crate) fn is_new(&self) -> bool {
        self.offset == 0
    }

    /// Copies the next piece of memory that was checked.
    ///
    /// # Errors
    /// The errors of [`copy_piece`].
    pub(crate) fn copy_next(
        &mut self,
        incoming: &mut Incoming<'_>,
        target: &mut [u8],
    ) -> Result<Step<Taken>, Error> {
        self.offset += copy_piece(self.file.as_fd(), target, self.offset)?;
        incoming.lane.system_calls += CALLS_TO_COPY_SOME;
        incoming.account.copied_bytes = self.offset as u64;
        Ok(if self.offset == target.len() { Step::Done(Taken::Whole) } else { Step::Moved })
    }
}

impl Receives for Receiving {
    type State = ();

    const SUMS: bool = false;
    const HAS_SUM_IN_HEADER: bool = true;
    const IS_FIXED: bool = true;

    fn begin(_: &mut (), header: &Header, lane: &mut Lane) -> Result<Self, Error> {
        let expected = "one memory file for the message";
        let file = lane.link.take_file(Kind::Memory, header.message, expected)?;
        lane.system_calls += 2;
        Ok(Self { file, offset: 0 })
    }

    fn step(
        &mut self,
        _: &mut (),
        incoming: &mut Incoming<'_>,
        target: &mut [u8],
    ) -> Result<Step<Taken>, Error> {
        if self.is_new() {
            incoming.lane.system_calls += CALLS_TO_CHECK;
            memory::check(self.file.as_fd(), target.len(), Sealed::Bytes)?;
        }
        self.copy_next(incoming, target)
    }

    fn progress(&self) -> u64 {
        self.offset as u64
    }

    fn end(self) {
        if self.offset >= CLOSED_IN_BACKGROUND_BYTES_MIN {
            closer::close([self.file]);
        }
    }
}

/// From this size on, a background thread closes the memory, because the kernel frees its pages
/// in that one call, which takes 0.15 s for a GiB.
const CLOSED_IN_BACKGROUND_BYTES_MIN: usize = 16 << 20;

/// A memory file into which a message is being copied.
#[derive(Debug)]
struct Making {
    file: OwnedFd,
    done: usize,
}

impl Making {
    /// # Errors
    /// [`Error::System`].
    fn begin(length: usize) -> Result<Self, Error> {
        Ok(Self { file: memory::create_file(length)?, done: 0 })
    }

    /// Copies the next bytes of a message of this length. Returns whether the message is
    /// complete.
    ///
    /// # Errors
    /// [`Error::System`].
    fn step(&mut self, source: &mut Source<'_>, length: usize) -> Result<bool, Error> {
        let piece = (length - self.done).min(STEP_BYTES);
        memory::reserve(self.file.as_fd(), self.done, piece)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let base = memory::map_part(self.file.as_fd(), self.done, piece, protection)?;
        // SAFETY: a mapping of this length, made here, to which nothing else refers, because the
        // file was not handed over yet.
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
    fn seal(self) -> Result<OwnedFd, Error> {
        memory::seal(&self.file, Sealed::Bytes)?;
        Ok(self.file)
    }
}

/// Copies the next bytes of checked, constant memory to their location in the target and returns
/// their number.
///
/// # Errors
/// [`Error::Memory`], [`Error::System`].
fn copy_piece(file: BorrowedFd<'_>, target: &mut [u8], offset: usize) -> Result<usize, Error> {
    let length = (target.len() - offset).min(STEP_BYTES);
    let base = memory::map_part(file, offset, length, ProtFlags::READ)?;
    if let Err(error) = memory::fill_holes(base, length) {
        memory::unmap(base, length);
        return Err(error.into());
    }
    // SAFETY: a mapping of this length, made here, of a file whose size is sealed, and whose bytes
    // are sealed or exclusive to this process.
    let source = unsafe { std::slice::from_raw_parts(base.as_ptr(), length) };
    Hint::Unknown.copy(&mut target[offset..offset + length], source);
    memory::unmap(base, length);
    Ok(length)
}
