//! `vmsplice`: the sender's pages themselves go into a pipe, and the receiver copies out of the
//! pipe into its own memory: one copy, by the kernel.
//!
//! The pipe holds the sender's memory itself, and the kernel does not report when it has released
//! it. So the message is complete only when the receiver acknowledges it and the pipe is empty
//! again. Bytes enter the pipe by pages of 4 KiB, one per slot of the pipe, even if the memory has
//! huge pages. A pipe of 1 MiB holds 256 of them. If a message begins inside a page, only its first
//! piece is smaller.
//!
//! Only between ends that trust each other: a sender can put pages into the pipe that never arrive,
//! and the receiver's system call then waits for them. If the kernel refuses, before the message or
//! within it, the ring carries the remainder. A kernel that copies the bytes into the pipe is also
//! correct, but slower.

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

/// The size to request for the pipe: the default limit of an ordinary user
/// (/proc/sys/fs/pipe-max-size). If the limit is lower, the pipe keeps the kernel's default of 64
/// KiB.
const PIPE_BYTES: usize = 1 << 20;
/// Parts of the source in one system call.
const PARTS_MAX: usize = 64;

/// A pipe, of [`PIPE_BYTES`] if the kernel grants that.
fn pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    let ends = (keep(reader)?, keep(writer)?);
    let _ = rustix::pipe::fcntl_setpipe_size(&ends.1, PIPE_BYTES);
    Ok(ends)
}

/// The sender's pipe. It keeps both ends: a write to a pipe without a reader would end the process
/// by SIGPIPE, and the kernel releases the pages in the pipe only when both ends are closed.
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
    /// Bytes that were put into the pipe.
    spliced: u64,
    walk: Walk,
}

impl Sending {
    pub(crate) fn new(length: u64) -> Self {
        Self { length, spliced: 0, walk: Walk::default() }
    }

    /// Puts as many bytes into the pipe as it has room for, and publishes their number.
    ///
    /// # Errors
    /// The kernel's error; this call put nothing into the pipe.
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

    /// Puts the first bytes into the pipe and hands the pipe to the receiver, before the message is
    /// published: then a refusal by the kernel costs nothing.
    fn open(&mut self, pipe: &mut Pipe, is_new: bool, out: &mut Outgoing<'_, '_>) -> Option<Begun> {
        // First, so that after a refusal the receiver does not get a pipe without a message.
        self.splice_next(out.lane, out.source, pipe).ok()?;
        if !pipe.is_handed_over {
            out.account.system_calls += if is_new { 3 } else { 1 };
            let (link, number) = (&out.lane.link, out.message.index());
            // A full socket is a failure too: polling would not signal that it has room again.
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
        // If a pipe could not be handed over, the bytes that were put into it were dropped with it.
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
            // The receiver reads the bytes in the pipe and reports their number.
            out.lane.signal(ABANDONED, out.message.count());
            Step::Done(Then::Answer)
        }))
    }

    fn progress(&self) -> u64 {
        self.spliced
    }

    /// If the message did not arrive, its bytes may still be in the pipe, so the pipe is dropped.
    fn release(&mut self, state: &mut Option<Pipe>, has_arrived: bool) {
        if !has_arrived {
            *state = None;
        }
    }
}

/// Puts pages into a pipe. The pages remain the caller's, which must not change them before the
/// reader has copied them.
fn splice_in(pipe: BorrowedFd<'_>, slices: &[&[u8]]) -> Result<usize, Errno> {
    let slices: Vec<IoSliceRaw<'_>> = slices.iter().map(|s| IoSliceRaw::from_slice(s)).collect();
    // SAFETY: the slices are borrowed and only read. The caller makes sure that they do not change
    // before the reader has copied them.
    unsafe { rustix::pipe::vmsplice(pipe, &slices, SpliceFlags::NONBLOCK) }
}

/// Copies bytes out of a pipe, possibly fewer than fit into the target.
fn splice_out(pipe: BorrowedFd<'_>, target: &mut [u8]) -> Result<usize, Errno> {
    let slices = [IoSliceRaw::from_slice_mut(target)];
    // SAFETY: out of a pipe the kernel copies into the slice, which is borrowed uniquely.
    unsafe { rustix::pipe::vmsplice(pipe, &slices, SpliceFlags::NONBLOCK) }
}

/// Whether a descriptor is the reading end of a pipe.
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

    /// Copies the bytes in the pipe to their location in the target.
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
        // Before the pipe is read, so that bytes which were put in before the message was abandoned
        // are found.
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
            // The pipe is at its end or failed.
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
/// experiment, for the bench alone. It does twice the work of a copy and makes two system calls for
/// each piece.
///
/// `piece_bytes` go in and out at a time: 4096 in the experiment, or up to the megabyte that the
/// pipe holds.
///
/// # Errors
/// [`Error::System`] if no pipe can be made, or the kernel refuses vmsplice.
///
/// # Panics
/// If source and target differ in length, or `piece_bytes` is zero.
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
    fn vmsplice_copy_copies_all_bytes_with_any_piece() {
        let source: Vec<u8> = (0..3_000_001_u32).map(|n| (n % 251) as u8).collect();
        for piece in [usize::MAX, 1 << 20, 4096, 100_003] {
            let mut target = vec![0; source.len()];
            vmsplice_copy(&mut target[7..], &source[7..], piece).unwrap();
            assert!(target[7..] == source[7..] && target[..7] == [0; 7], "{piece}");
        }
        vmsplice_copy(&mut [], &[], 1).unwrap();
    }

    #[test]
    fn is_reader_accepts_only_reading_end_of_pipe() {
        let (reader, writer) = pipe().unwrap();
        assert!(is_reader(&reader) && !is_reader(&writer));
        assert!(!is_reader(&std::fs::File::open("/dev/null").unwrap().into()));
    }
}
