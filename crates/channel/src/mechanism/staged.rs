//! `staged`: the whole message in shared memory of its own, copied in by the sender, then copied
//! out by the receiver. The classic way, kept as the one to compare with: it takes as much memory
//! again as the message, and nothing overlaps.
//!
//! The memory is sealed against writing before it is handed over, so what the receiver copies
//! cannot change under it.

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

/// Bytes that are copied at a time, between two looks at the clock: some 1 ms. Less would be mapped
/// and unmapped more often.
const STEP_BYTES: usize = 4 << 20;

/// System calls of making such memory: make, size, seal.
const CALLS_TO_MAKE: u64 = 3;
/// System calls of a piece of it: pages, map, unmap.
const CALLS_TO_MAKE_SOME: u64 = 3;
/// System calls of looking at memory that came.
pub(crate) const CALLS_TO_CHECK: u64 = 3;
/// System calls of a piece of it: map, unmap.
const CALLS_TO_COPY_SOME: u64 = 2;

/// Hands memory over that a message is in, ahead of the header.
///
/// # Errors
/// What the kernel said: a full socket too, of which polling would not tell that there is room
/// again.
pub(crate) fn hand_over(file: &OwnedFd, out: &mut Outgoing<'_, '_>) -> Result<Begun, Errno> {
    out.lane.system_calls += 1;
    out.lane.link.send_file(Kind::Memory, out.message.index(), file.as_fd())?;
    Ok(Begun::Whole { detail: 0 })
}

/// The sender's part: all of it is copied before the header is out.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    making: Option<Making>,
}

impl Sending {
    /// Copies a piece of the message; the memory as all of it is there.
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

/// The receiver's part: memory that came, and how many of its bytes were copied.
#[derive(Debug)]
pub(crate) struct Receiving {
    pub(crate) file: OwnedFd,
    offset: usize,
}

impl Receiving {
    /// Whether nothing was done yet.
    pub(crate) fn is_new(&self) -> bool {
        self.offset == 0
    }

    /// Copies the next piece of memory that was checked.
    ///
    /// # Errors
    /// As [`copy_piece`].
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

/// Memory that so much was copied out of is closed by a thread of its own: the kernel takes the
/// pages back in that one call, 0.15 s for a GiB.
const CLOSED_IN_BACKGROUND_BYTES_MIN: usize = 16 << 20;

/// A memory file that a message is being copied to.
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

    /// Copies the next bytes of a message of this length; true as all are there.
    ///
    /// # Errors
    /// [`Error::System`].
    fn step(&mut self, source: &mut Source<'_>, length: usize) -> Result<bool, Error> {
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
    fn seal(self) -> Result<OwnedFd, Error> {
        memory::seal(&self.file, Sealed::Bytes)?;
        Ok(self.file)
    }
}

/// Copies the next bytes of memory that was checked, and that nobody changes, to their place in the
/// target; says how many.
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
    // are too, or nobody else's.
    let source = unsafe { std::slice::from_raw_parts(base.as_ptr(), length) };
    haul_copy::copy_hinted(&mut target[offset..offset + length], source, Hint::Unknown);
    memory::unmap(base, length);
    Ok(length)
}
