//! `vmsplice`: the sender's pages go into a pipe as they are, and the receiver copies out of it
//! into its own: one copy, by the kernel.
//!
//! What stands in the pipe is the sender's memory itself, and the kernel does not say when it is
//! done with it. So the message is complete only as the receiver acknowledges it, when the pipe is
//! empty again. Bytes go in by whole pages: each takes one place of the pipe, whatever the size of
//! the pages behind it, so a pipe of 1 MiB holds 256 of them, and a message that begins inside a
//! page gives only its first piece less.
//!
//! Only between ends that trust each other: a sender can put pages into the pipe that never come,
//! and the receiver's system call then waits as long. Where the kernel refuses, before the message
//! or in the middle, the ring takes over. A kernel that makes a plain copy of what goes in is as
//! right, and slower.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::pipe::{IoSliceRaw, PipeFlags, SpliceFlags};

use super::contract::{Begun, Incoming, NO_TRUST, Outgoing, Receives, Sends, Taken, Then};
use crate::shared::error::Error;
use crate::shared::header::Header;
use crate::shared::lane::Lane;
use crate::shared::layout::{self, ABANDONED, PUSHED};
use crate::shared::link::{Kind, Link};
use crate::shared::message::Message;
use crate::shared::source::{Source, Walk};
use crate::shared::transfer::Step;
use haul_peer::descriptor::keep;
use haul_peer::received;

/// The pipe that is asked for: what an ordinary user may have (/proc/sys/fs/pipe-max-size, its
/// default); where the limit is lower the kernel's own 64 KiB will do.
const PIPE_BYTES: usize = 1 << 20;
/// Parts of the source that one system call takes.
const PARTS_MAX: usize = 64;

/// A pipe of the size that is to be had.
fn pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    let ends = (keep(reader)?, keep(writer)?);
    let _ = rustix::pipe::fcntl_setpipe_size(&ends.1, PIPE_BYTES);
    Ok(ends)
}

/// The sender's pipe. It keeps both ends: a pipe that nobody reads would end the process by
/// SIGPIPE, and what stands in it goes only with both.
#[derive(Debug)]
pub(crate) struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
    /// The peer has the reading end.
    is_handed_over: bool,
    /// The first message that went through it.
    first: Option<Message>,
}

impl Pipe {
    fn new() -> Result<Self, Errno> {
        let (reader, writer) = pipe()?;
        Ok(Self { reader, writer, is_handed_over: false, first: None })
    }
}

/// The sender's part.
#[derive(Debug)]
pub(crate) struct Sending {
    length: u64,
    /// Bytes in the pipe, or through it.
    spliced: u64,
    walk: Walk,
}

impl Sending {
    pub(crate) fn new(length: u64) -> Self {
        Self { length, spliced: 0, walk: Walk::default() }
    }

    /// Puts into the pipe what it has room for, and tells.
    ///
    /// # Errors
    /// What the kernel said; nothing was put in by this call.
    fn splice_next(
        &mut self,
        lane: &mut Lane,
        source: &Source<'_>,
        pipe: &Pipe,
    ) -> Result<Step<Then>, Errno> {
        if self.spliced == self.length {
            return Ok(Step::Done(Then::Answer));
        }
        let left = usize::try_from(self.length - self.spliced).unwrap_or(usize::MAX);
        let slices = source.slices(&mut self.walk, self.spliced, left, PARTS_MAX);
        lane.system_calls += 1;
        match splice_in(pipe.writer.as_fd(), &slices) {
            Ok(count) => {
                self.spliced += count as u64;
                lane.signal(PUSHED, self.spliced);
                Ok(Step::Moved)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(Step::Blocked),
            Err(reason) => Err(reason),
        }
    }

    /// The first bytes go into the pipe, and the pipe to the receiver, before that knows of the
    /// message: a kernel that refuses costs nothing then.
    fn open(&mut self, pipe: &mut Pipe, is_new: bool, out: &mut Outgoing<'_, '_>) -> Option<Begun> {
        // First, so that where it is refused no message sends the receiver a pipe that nobody
        // takes.
        self.splice_next(out.lane, out.source, pipe).ok()?;
        if !pipe.is_handed_over {
            out.account.system_calls += if is_new { 3 } else { 1 };
            let (link, number) = (&out.lane.link, out.message.index());
            // A full socket too is a failure: polling would not tell that there is room again.
            link.send_file(Kind::Pipe, number, pipe.reader.as_fd()).ok()?;
            pipe.is_handed_over = true;
        }
        let is_first = *pipe.first.get_or_insert(out.message) == out.message;
        Some(Begun::Moving { detail: is_first.into() })
    }
}

impl Sends for Sending {
    type State = Option<Pipe>;

    const SUMS: bool = false;

    fn peer_obstacle(link: &Link) -> Option<&'static str> {
        (!link.is_trusted).then_some(NO_TRUST)
    }

    fn begin(
        &mut self,
        state: &mut Option<Pipe>,
        out: &mut Outgoing<'_, '_>,
    ) -> Result<Begun, Error> {
        // What it poured into a pipe that could not be handed over went with that.
        *self = Self::new(self.length);
        let (is_new, pipe) = (state.is_none(), state.take().or_else(|| Pipe::new().ok()));
        let Some(mut pipe) = pipe else { return Ok(Begun::Impossible) };
        let Some(begun) = self.open(&mut pipe, is_new, out) else { return Ok(Begun::Impossible) };
        *state = Some(pipe);
        Ok(begun)
    }

    fn step(
        &mut self,
        state: &mut Option<Pipe>,
        out: &mut Outgoing<'_, '_>,
    ) -> Result<Step<Then>, Error> {
        if out.is_refused() {
            return Ok(Step::Done(Then::Answer));
        }
        let pipe = state.as_ref().expect("a message that began this way has one");
        Ok(self.splice_next(out.lane, out.source, pipe).unwrap_or_else(|_| {
            // The receiver takes what is in the pipe, and says how much that was.
            out.lane.signal(ABANDONED, out.message.count());
            Step::Done(Then::Answer)
        }))
    }

    fn progress(&self) -> u64 {
        self.spliced
    }

    /// What may still be in the pipe goes with it.
    fn release(&mut self, state: &mut Option<Pipe>, has_arrived: bool) {
        if !has_arrived {
            *state = None;
        }
    }
}

/// Puts pages into a pipe; they stay the caller's, who must not change them before they are read.
fn splice_in(pipe: BorrowedFd<'_>, slices: &[&[u8]]) -> Result<usize, Errno> {
    let slices: Vec<IoSliceRaw<'_>> = slices.iter().map(|s| IoSliceRaw::from_slice(s)).collect();
    // SAFETY: the slices are borrowed and only read; that what the reader gets are the bytes of
    // now is kept by the caller, who lets nobody write to them before the reader has them.
    unsafe { rustix::pipe::vmsplice(pipe, &slices, SpliceFlags::NONBLOCK) }
}

/// Copies out of a pipe, as far as the call goes.
fn splice_out(pipe: BorrowedFd<'_>, target: &mut [u8]) -> Result<usize, Errno> {
    let slices = [IoSliceRaw::from_slice_mut(target)];
    // SAFETY: out of a pipe the kernel copies into the slice, which is borrowed uniquely.
    unsafe { rustix::pipe::vmsplice(pipe, &slices, SpliceFlags::NONBLOCK) }
}

/// Whether a descriptor of the peer's is the reading end of a pipe.
fn is_reader(file: &OwnedFd) -> bool {
    received::is_pipe(file)
        && rustix::fs::fcntl_getfl(file)
            .is_ok_and(|flags| flags & OFlags::ACCMODE == OFlags::RDONLY)
}

/// The receiver's part.
#[derive(Debug, Default)]
pub(crate) struct Receiving {
    offset: usize,
}

impl Receives for Receiving {
    /// The pipe's reading end.
    type State = Option<OwnedFd>;

    const SUMS: bool = false;

    fn begin(pipe: &mut Option<OwnedFd>, header: &Header, lane: &mut Lane) -> Result<Self, Error> {
        if !lane.link.is_trusted {
            return Err(Error::protocol("mechanism", header.kind, 0));
        }
        let expected = "the reading end of a pipe";
        if header.detail > 0 {
            let file = lane.link.take_file(Kind::Pipe, header.message, expected)?;
            *pipe = Some(file).filter(is_reader);
            lane.system_calls += 3;
        }
        match pipe {
            Some(_) => Ok(Self::default()),
            None => Err(Error::Memory { found: "no pipe".into(), expected }),
        }
    }

    /// Copies what stands in the pipe to its place in the target.
    fn step(
        &mut self,
        state: &mut Option<OwnedFd>,
        incoming: &mut Incoming<'_>,
        target: &mut [u8],
    ) -> Result<Step<Taken>, Error> {
        if self.offset == target.len() {
            return Ok(Step::Done(Taken::Whole));
        }
        let lane = &mut *incoming.lane;
        let pipe = state.as_ref().expect("a message that began this way has one");
        // Before the pipe is looked at: what was put in before it was abandoned must be seen.
        let is_abandoned = lane.names(ABANDONED, incoming.message);
        lane.system_calls += 1;
        match splice_out(pipe.as_fd(), &mut target[self.offset..]) {
            Ok(count) if count > 0 => {
                self.offset += count;
                incoming.account.copied_bytes += count as u64;
                let pulled = lane.load(layout::PULLED).wrapping_add(count as u64);
                lane.signal(layout::PULLED, pulled);
                Ok(Step::Moved)
            }
            Err(Errno::AGAIN | Errno::INTR) if !is_abandoned => Ok(Step::Blocked),
            // No more comes out of it.
            _ => {
                *state = None;
                Ok(Step::Done(Taken::Part(self.offset)))
            }
        }
    }

    fn progress(&self) -> u64 {
        self.offset as u64
    }
}

/// A copy within this process through a pipe: `mymemcpy` of the 2014 memcpy against vmsplice
/// experiment, for the bench alone. Twice the work of a copy, and a system call more for each
/// piece.
///
/// `piece_bytes` go in and out at a time: 4096 in the experiment, or up to the megabyte that the
/// pipe holds.
///
/// # Errors
/// [`Error::System`] where there is no pipe to be had, or vmsplice is refused.
///
/// # Panics
/// Where source and target differ in length, or pieces have none.
pub fn vmsplice_copy(target: &mut [u8], source: &[u8], piece_bytes: usize) -> Result<(), Error> {
    assert_eq!(target.len(), source.len(), "source and target differ in length");
    assert!(piece_bytes > 0, "pieces of no bytes");
    let (reader, writer) = pipe().map_err(Error::system("make a pipe"))?;
    let mut done = 0;
    while done < source.len() {
        let piece = &source[done..source.len().min(done.saturating_add(piece_bytes))];
        let put = splice_in(writer.as_fd(), &[piece]).map_err(Error::system("vmsplice"))?;
        let end = done + put;
        while done < end {
            done += splice_out(reader.as_fd(), &mut target[done..end])
                .map_err(Error::system("vmsplice"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_through_a_pipe_is_a_copy() {
        let source: Vec<u8> = (0..3_000_001_u32).map(|n| (n % 251) as u8).collect();
        for piece in [usize::MAX, 1 << 20, 4096, 100_003] {
            let mut target = vec![0; source.len()];
            vmsplice_copy(&mut target[7..], &source[7..], piece).unwrap();
            assert!(target[7..] == source[7..] && target[..7] == [0; 7], "{piece}");
        }
        vmsplice_copy(&mut [], &[], 1).unwrap();
    }

    #[test]
    fn only_the_reading_end_of_a_pipe_is_one() {
        let (reader, writer) = pipe().unwrap();
        assert!(is_reader(&reader) && !is_reader(&writer));
        assert!(!is_reader(&std::fs::File::open("/dev/null").unwrap().into()));
    }
}
