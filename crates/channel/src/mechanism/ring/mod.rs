//! `ring`: a message goes piece by piece through 1 MiB of shared memory, 1.75 MiB for large
//! messages. While one end fills this memory, the other end empties it, so both copies overlap.
//!
//! ```text
//! sender:    while there is room for a piece: copy it in,   filled += its cells,   ring
//! receiver:  while a piece is there:          copy it out,  drained += its cells,  ring
//! ```
//!
//! Both ends count cells over the life of the channel and keep their own count in private memory.
//! Each end reads the other end's count once and checks its range. The end of a piece follows
//! from its message's length and from the count, so both ends compute the same pieces. Pieces are
//! adjacent, and no piece crosses the end of the ring. Adjacent pieces are faster, because the
//! processor that reads a piece prefetches into the next one. A message that uses only a part of
//! the ring wraps early. The count skips the unused cells, so they count as filled and emptied.
//!
//! # By way of the caches, or of memory
//! A line that one core has written and another core reads goes from cache to cache, one line
//! after the other as the reader requests them. Between two cores that share their last cache
//! this is the fastest transfer; between two that do not, it is slow. If the stores bypass the
//! caches, the bytes come from memory, where processors prefetch them like any other array. So
//! the sender decides by the measured `distance`, and on Intel it uses memory for large messages
//! (`bench/record/2026-11-22-zen4-2cpu-channel`).
//!
//! # How much of it
//! Lines circulate in the caches as long as the used part of the ring fits into them. So on Intel
//! (see `window`) messages of less than 512 KiB go through 128 KiB of the ring while the sender
//! does not sleep. A sender that has slept waits until the receiver is scheduled. Then each turn
//! should carry many bytes, so messages go through all of the ring. While the receiver is behind,
//! pieces are larger, because the copies overlap anyway. Together with `rep movsb` at both ends
//! ([`Hint::Handover`]), this moves messages of 4 to 256 KiB 1.2 to 1.6 times as fast on Cascade
//! Lake (`bench/record/2026-11-23-cascade-lake-2cpu-channel`).
//!
//! Tried at 256 MiB in a separate program, without gain or with a loss: prefetching the source
//! (also into the first cache alone) or the ring, for reading or writing; pieces of 16 to 256
//! KiB; a receiver that stays half a ring behind; `rep movsb` at either end; copying four pages
//! in parallel. A ring of 4 MiB stays in the last cache and gains a third there, but it is more
//! memory than a channel may use.
//!
//! From the bottom up:
//!
//! - `run`: the location of a message's pieces;
//! - `sleep_history`: whether the sender sleeps now and then;
//! - `ahead`: pieces that an engine copies while the sender does something else.

mod ahead;
mod run;
mod sleep_history;

use haul_copy::Hint;

use super::contract::{Begun, Incoming, Outgoing, Receives, Sends, Taken, Then};
use super::window;
use crate::shared::beside::{BYTES_MIN, Copying};
use crate::shared::checksum::Sum;
use crate::shared::distance::Distance;
use crate::shared::error::Error;
use crate::shared::header::Header;
use crate::shared::lane::Lane;
use crate::shared::layout::{self, CELL_BYTES};
use crate::shared::link::Link;
use crate::shared::message::Message;
use crate::shared::pace::{PIECE_BYTES_MIN, Pace};
use crate::shared::source::Source;
use crate::shared::transfer::Step;
use ahead::Ahead;
use run::{Piece, Run};
pub(crate) use sleep_history::SleepHistory;

/// From this size on, stores to the target bypass the caches, which would not hold the target
/// together with the source. It is half the last cache of a core complex of EPYC; at 4 MiB, cached
/// stores are still faster (`bench/record/2026-11-22-zen4-2cpu-channel`).
const TARGET_STREAMED_BYTES_MIN: u64 = 16 << 20;
/// From this size on, stores to Intel's rings (see `window`) bypass the caches wherever the other
/// end runs. On other processors they do not, because the used part of the ring exceeds a core's
/// own caches, and the evicted lines go to the last cache, which is fast
/// (`bench/record/2026-11-22-zen4-2cpu-channel`).
const RING_STREAMED_BYTES_MIN: u64 = 32 << 20;

/// When a piece is published to the receiver.
#[derive(Clone, Copy, Debug)]
enum Signal {
    /// The piece is published together with the message, which is not published yet.
    Later,
    /// The piece is published at once, as a piece of this message. The last piece publishes the
    /// checksum as well.
    Now(Message),
}

/// The hint for the copy into the ring: how its lines are used next, see "By way of the caches,
/// or of memory".
fn hint(run: &Run, distance: Distance) -> Hint {
    let is_long = run.length >= RING_STREAMED_BYTES_MIN && window::is_small_better();
    match is_long || distance.is_far() {
        true => Hint::Streamed,
        false => Hint::Handover,
    }
}

/// The sender's state for the ring.
#[derive(Debug, Default)]
pub(crate) struct SenderState {
    /// Number of cells that the sender has filled.
    filled: u64,
    /// Number of cells that the receiver had emptied when this end last read the count.
    drained: u64,
    /// Number of cells, from the first cell on, that have allocated pages.
    backed: u64,
    pub(crate) sleep_history: SleepHistory,
}

impl SenderState {
    /// The pace of the receiver, for a message of `length` bytes that begins now.
    fn pace(&self, lane: &Lane, length: u64) -> Pace {
        let is_small = self.sleep_history.is_awake() && window::is_small_better();
        // Reading `DRAINED` transfers a cache line, and the result matters only for a message of
        // several pieces.
        let is_cut = length > PIECE_BYTES_MIN as u64;
        Pace { is_small, is_behind: is_cut && !self.is_drained(lane) }
    }

    fn is_drained(&self, lane: &Lane) -> bool {
        lane.load(layout::DRAINED) == self.filled
    }

    /// Number of cells of all earlier messages, which the receiver may still be emptying.
    pub(crate) fn cells(&self) -> u64 {
        self.filled
    }

    /// Allocates the pages of the ring that a message goes through.
    fn back(&mut self, run: &Run, out: &mut Outgoing<'_, '_>) -> Result<(), Error> {
        let bytes = run.used as usize * CELL_BYTES;
        if self.backed < run.used {
            out.lane.link.region.reserve(out.lane.chunks(), bytes)?;
            out.lane.system_calls += 1;
            self.backed = run.used;
        }
        out.account.extra_memory_bytes += bytes as u64;
        Ok(())
    }
}

/// The sender's part.
#[derive(Debug)]
pub(crate) struct Sending {
    run: Run,
    /// Pieces that an engine copies while the sender does something else.
    ahead: Option<Ahead>,
}

impl Sending {
    pub(crate) fn new(link: &Link, length: u64) -> Self {
        Self { run: Run::new(0, length, link.chunk_bytes, Pace::default()), ahead: None }
    }

    /// The remainder, from `offset` on, of a message that another mechanism began.
    ///
    /// # Errors
    /// [`Error::System`] if the pages of the ring cannot be allocated.
    pub(crate) fn remainder(
        state: &mut SenderState,
        out: &mut Outgoing<'_, '_>,
        offset: u64,
    ) -> Result<Self, Error> {
        out.source.seek(offset);
        let run = Run::new(offset, out.length, out.lane.link.chunk_bytes, Pace::default());
        state.back(&run, out)?;
        Ok(Self { run, ahead: None })
    }

    /// Publishes pieces that an engine has copied, or starts to copy the next ones.
    fn go_ahead(
        &mut self,
        state: &mut SenderState,
        out: &mut Outgoing<'_, '_>,
    ) -> Result<Step<()>, Error> {
        let (lane, run) = (&mut *out.lane, &mut self.run);
        let Some(ahead) = &mut self.ahead else {
            let counts = (state.filled, &mut state.drained);
            self.ahead = Ahead::start(lane, out.source, run, counts)?;
            return Ok(if self.ahead.is_some() { Step::Moved } else { Step::Blocked });
        };
        let before = run.offset;
        let has_ended = ahead.publish(lane, run, &mut state.filled);
        if has_ended {
            self.ahead = None;
        }
        Ok(if has_ended || self.run.offset > before { Step::Moved } else { Step::Blocked })
    }
}

impl Sends for Sending {
    type State = SenderState;

    const SUMS: bool = true;

    /// If there is room, a message of one piece is copied into the ring before it is published.
    /// Then the receiver waits for one word instead of two.
    fn begin(
        &mut self,
        state: &mut SenderState,
        out: &mut Outgoing<'_, '_>,
    ) -> Result<Begun, Error> {
        let pace = state.pace(out.lane, out.length);
        self.run = Run::new(0, out.length, out.lane.link.chunk_bytes, pace);
        state.back(&self.run, out)?;
        if self.run.is_last(state.filled) {
            let counts = (&mut state.filled, &mut state.drained);
            fill(out.lane, out.source, &mut self.run, counts, Signal::Later)?;
            out.account.copied_bytes = self.run.offset;
        }
        let detail = pace.word();
        Ok(match self.run.is_complete() {
            true => Begun::Whole { detail },
            false => Begun::Moving { detail },
        })
    }

    fn step(
        &mut self,
        state: &mut SenderState,
        out: &mut Outgoing<'_, '_>,
    ) -> Result<Step<Then>, Error> {
        let (before, signal) = (self.run.offset, Signal::Now(out.message));
        let step = match self.ahead.is_some() || ahead::is_possible(out.lane, out.source) {
            true => self.go_ahead(state, out)?,
            false => {
                let counts = (&mut state.filled, &mut state.drained);
                fill(out.lane, out.source, &mut self.run, counts, signal)?
            }
        };
        out.account.copied_bytes += self.run.offset - before;
        Ok(match step {
            _ if self.run.is_complete() => Step::Done(Then::Complete),
            Step::Blocked => Step::Blocked,
            _ => Step::Moved,
        })
    }

    fn progress(&self) -> u64 {
        self.run.offset
    }

    fn copying(&mut self) -> Option<&mut Copying> {
        self.ahead.as_mut().map(|ahead| &mut ahead.copying)
    }
}

/// The receiver's part.
#[derive(Debug)]
pub(crate) struct Receiving {
    run: Run,
}

impl Receiving {
    /// The remainder, from `offset` on, of a message that another mechanism began.
    pub(crate) fn remainder(link: &Link, offset: u64, length: u64) -> Self {
        Self { run: Run::new(offset, length, link.chunk_bytes, Pace::default()) }
    }
}

impl Receives for Receiving {
    /// Number of cells that the receiver has emptied.
    type State = u64;

    const SUMS: bool = true;

    fn begin(_: &mut u64, header: &Header, lane: &mut Lane) -> Result<Self, Error> {
        let pace = Pace::from_word(header.detail);
        let pace = pace.ok_or_else(|| Error::protocol("pace", header.detail, Pace::COUNT))?;
        Ok(Self { run: Run::new(0, header.length, lane.link.chunk_bytes, pace) })
    }

    fn step(
        &mut self,
        drained: &mut u64,
        incoming: &mut Incoming<'_>,
        target: &mut [u8],
    ) -> Result<Step<Taken>, Error> {
        let before = self.run.offset;
        let sum = incoming.sum.as_deref_mut();
        let step = drain(incoming.lane, target, &mut self.run, drained, sum)?;
        incoming.account.copied_bytes += self.run.offset - before;
        Ok(step.map(|()| Taken::Whole))
    }

    fn progress(&self) -> u64 {
        self.run.offset
    }
}

/// Whether the cells up to `end` are free. `filled` is the sender's own count, `drained` the
/// receiver's count at the last read.
///
/// # Errors
/// [`Error::Protocol`] if the receiver's count of emptied cells is impossible.
#[inline]
fn has_room(
    lane: &mut Lane,
    run: &Run,
    end: u64,
    (filled, drained): (u64, &mut u64),
) -> Result<bool, Error> {
    if end - *drained <= run.cells {
        return Ok(true);
    }
    let reported = lane.load_timed(layout::DRAINED, *drained);
    if !(*drained..=filled).contains(&reported) {
        return Err(Error::protocol("count of emptied ring cells", reported, filled));
    }
    *drained = reported;
    Ok(end - reported <= run.cells)
}

/// Fills one piece of a message. `filled` is the sender's own count, `drained` the receiver's count
/// at the last read.
///
/// # Errors
/// [`Error::Protocol`] if the receiver's count of emptied cells is impossible.
fn fill(
    lane: &mut Lane,
    source: &mut Source<'_>,
    run: &mut Run,
    (filled, drained): (&mut u64, &mut u64),
    signal: Signal,
) -> Result<Step<()>, Error> {
    if run.is_complete() {
        return Ok(Step::Done(()));
    }
    let Piece { start, length, end } = run.next(*filled);
    if !has_room(lane, run, end, (*filled, drained))? {
        return Ok(Step::Blocked);
    }
    let (link, hint) = (&lane.link, hint(run, lane.distance));
    source.write_to(&link.region, lane.cell(start), length, hint, link.beside.as_ref());
    run.offset += length as u64;
    *filled = end;
    match signal {
        Signal::Later => lane.store(layout::FILLED, end),
        Signal::Now(message) => {
            if run.is_complete() {
                lane.put_sum(message, source.sum());
            }
            let goes_on = !run.is_complete() && run.next(end).end - *drained <= run.cells;
            lane.signal_lazily(layout::FILLED, end, goes_on);
        }
    }
    Ok(Step::Moved)
}

/// Empties one piece into its location in `target` and adds it to the checksum. `drained` is the
/// receiver's own count.
///
/// # Errors
/// [`Error::Protocol`] if the sender's count of filled cells is impossible.
fn drain(
    lane: &mut Lane,
    target: &mut [u8],
    run: &mut Run,
    drained: &mut u64,
    sum: Option<&mut Sum>,
) -> Result<Step<()>, Error> {
    if run.is_complete() {
        return Ok(Step::Done(()));
    }
    let (reported, limit) = (lane.load(layout::FILLED), *drained + run.cells);
    if !(*drained..=limit).contains(&reported) {
        return Err(Error::protocol("count of filled ring cells", reported, limit));
    }
    let Piece { start, length, end } = run.next(*drained);
    if reported < end {
        return Ok(Step::Blocked);
    }
    let is_streamed = run.length >= TARGET_STREAMED_BYTES_MIN;
    let (region, cell) = (&lane.link.region, lane.cell(start));
    let location = &mut target[run.offset as usize..][..length];
    let hint = if is_streamed { Hint::Streamed } else { Hint::Handover };
    match (sum, lane.link.beside.as_ref().filter(|_| length >= BYTES_MIN)) {
        (Some(sum), _) => sum.read(run.offset, (region, cell), location, is_streamed),
        (None, Some(beside)) => beside.read(region, cell, location, hint),
        (None, None) => region.read(cell, location, hint),
    }
    run.offset += length as u64;
    *drained = end;
    if run.is_complete() {
        // This end consumes the message next, which publishes this count as well.
        lane.store(layout::DRAINED, end);
    } else {
        lane.signal_lazily(layout::DRAINED, end, run.next(end).end <= reported);
    }
    Ok(Step::Moved)
}
