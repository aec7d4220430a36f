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
//! If one core reads a line that another core has written, the line moves from cache to cache.
//! The lines move one after the other, as the reader requests them. Between two cores that share
//! their last cache, this is the fastest transfer; between other cores, it is slow. If the stores
//! bypass the caches, the bytes come from memory, where processors prefetch them like any other
//! array. So the sender decides by the measured `distance`, and on Intel it uses memory for large
//! messages. Interleaved measurements through 1 MiB, GB/s and half a round trip in ns, on Zen 4
//! with both ends within one core complex and in two:
//!
//! | message | caches, one | memory, one | caches, two | memory, two |
//! |---|---|---|---|---|
//! | 4 KiB | 8.1, 981 | 5.8, 1383 | 3.5, 2632 | 4.2, 1848 |
//! | 8 KiB | 11.3, 1408 | 7.1, 2032 | 4.0, 4593 | 6.0, 2678 |
//! | 16 KiB | 8.8, 2105 | 8.3, 2996 | 3.8, 7533 | 6.6, 3619 |
//! | 64 KiB | 7.4, 9559 | 6.7, 11914 | 3.8, 30113 | 6.0, 12730 |
//! | 1 MiB | 16.6 | 11.0 | 4.3 | 9.6 |
//! | 16 MiB | 10.0 | 7.5 | 2.1 | 8.8 |
//! | 256 MiB | 8.3 | 8.7 | 3.1 | 12.3 |
//!
//! # How much of it
//! Lines circulate in the caches as long as the used part of the ring fits into them. So on Intel
//! (see `window`) messages of less than 512 KiB go through 128 KiB of the ring while the sender
//! does not sleep. A sender that has slept waits until the receiver is scheduled. Then an end
//! should move many bytes before the other end runs, so messages go through all of the ring.
//! While the receiver is behind, pieces are larger, because the copies overlap anyway.
//! Interleaved measurements on Cascade Lake, where L2 has 1 MiB, in GB/s and half a round trip in
//! ns: before, with 1 MiB of ring and copy loops through registers; now, with less of the ring,
//! `rep movsb` at both ends ([`Hint::Handover`]) and larger pieces:
//!
//! | message | before | now |
//! |---|---|---|
//! | 4 KiB | 3.7, 2302 | 4.4, 2103 |
//! | 8 KiB | 4.6, 3293 | 6.1, 2972 |
//! | 16 KiB | 4.8, 4841 | 7.3, 4448 |
//! | 32 KiB | 4.9, 8085 | 7.7, 6814 |
//! | 64 KiB | 4.9, 14415 | 6.4, 12666 |
//! | 256 KiB | 6.2 | 7.8 |
//!
//! Tried at 256 MiB in a separate program, without gain or with a loss: prefetching the source
//! (also into the first cache alone) or the ring, for reading or writing; pieces of 16 to 256
//! KiB; a receiver that stays half a ring behind; `rep movsb` at either end; copying four pages
//! in parallel. A ring of 4 MiB stays in the last cache and gains a third there, but it is more
//! memory than a channel may use.

mod run;

use haul_copy::Hint;

use super::contract::{Begun, Incoming, Outgoing, Receives, Sends, Taken, Then};
use super::window;
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
use run::{Piece, Run};

/// From this size on, stores to the target bypass the caches, which would not hold the target
/// together with the source. This size is half of the last cache of an EPYC core complex. On Zen
/// 4, GB/s in one complex and between two: 16 MiB 7.5 and 8.8 with cached stores, 9.3 and 12.4 if
/// they bypass the caches; 4 MiB 12.3 and 12.2 by cached stores, 10.7 and 11.3 otherwise.
const TARGET_STREAMED_BYTES_MIN: u64 = 16 << 20;
/// From this size on, stores to Intel's rings (see `window`) bypass the caches wherever the other
/// end runs. On other processors, stores do not bypass the caches, because the used part of the
/// ring exceeds a core's own caches, and the evicted lines go to the last cache, which is fast.
/// Interleaved measurements on Zen 4 in one complex, bypassing the caches and through them, in
/// GB/s: 32 MiB 11.0 and 13.6, 64 MiB 11.1 and 13.6, 256 MiB 10.6 and 14.5. Through 1 MiB of the
/// ring instead of 1.75 MiB, 256 MiB would move at 10.7.
const RING_STREAMED_BYTES_MIN: u64 = 32 << 20;
/// Number of messages that a sender must send without sleeping before it uses less of the ring.
/// The number is so large that a sender which sleeps now and then, because the ends share a
/// processor, uses the whole ring.
const AWAKE_MIN: u32 = 64;

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

/// Whether a sender has to sleep now and then until the receiver has made room.
#[derive(Debug)]
pub(crate) struct SleepHistory {
    /// How often the sender had slept at the last call.
    seen: u64,
    /// Number of messages since the sender last slept.
    since: u32,
}

impl Default for SleepHistory {
    fn default() -> Self {
        Self { seen: 0, since: AWAKE_MIN }
    }
}

impl SleepHistory {
    /// Records that a message begins. The sender has slept `sleeps` times in all.
    pub(crate) fn note(&mut self, sleeps: u64) {
        self.since = if sleeps == self.seen { self.since.saturating_add(1) } else { 0 };
        self.seen = sleeps;
    }

    /// Whether the sender has not slept for many messages.
    pub(crate) fn is_awake(&self) -> bool {
        self.since >= AWAKE_MIN
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
}

impl Sending {
    pub(crate) fn new(link: &Link, length: u64) -> Self {
        Self { run: Run::new(0, length, link.chunk_bytes, Pace::default()) }
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
        Ok(Self { run })
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
        let counts = (&mut state.filled, &mut state.drained);
        let (before, signal) = (self.run.offset, Signal::Now(out.message));
        let step = fill(out.lane, out.source, &mut self.run, counts, signal)?;
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
    if end - *drained > run.cells {
        let reported = lane.load_timed(layout::DRAINED, *drained);
        if !(*drained..=*filled).contains(&reported) {
            return Err(Error::protocol("count of emptied ring cells", reported, *filled));
        }
        *drained = reported;
        if end - reported > run.cells {
            return Ok(Step::Blocked);
        }
    }
    source.write_to(&lane.link.region, lane.cell(start), length, hint(run, lane.distance));
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
    match sum {
        Some(sum) => sum.read(run.offset, (region, cell), location, is_streamed),
        None if is_streamed => region.read(cell, location, Hint::Streamed),
        None => region.read(cell, location, Hint::Handover),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sender_that_slept_uses_whole_ring_until_it_has_sent_many_messages_awake() {
        let mut sleep_history = SleepHistory::default();
        let mut is_awake = |sleeps| {
            sleep_history.note(sleeps);
            sleep_history.is_awake()
        };
        assert!(is_awake(0));
        assert!(!is_awake(1));
        for _ in 1..AWAKE_MIN {
            assert!(!is_awake(1));
        }
        assert!(is_awake(1));
        assert!(!is_awake(3));
    }
}
