//! `ring`: a piece of a message at a time goes through 1 MiB that both ends have; while one end fills
//! it, the other empties it, so both copies overlap.
//!
//! ```text
//! sender:    while there is room for a piece: copy it in,   filled += its cells,   ring
//! receiver:  while a piece is there:          copy it out,  drained += its cells,  ring
//! ```
//!
//! Both count cells over the life of the channel and keep their own count in private memory; the
//! other's is read once and must be where it can be. Where a piece ends follows from its message's
//! length and from the count, at both ends alike: pieces lie one behind the other, and none is cut
//! by the end of the ring. Lying close is worth it: the processor that reads them fetches ahead, into
//! the next piece.
//!
//! # By way of the caches, or of memory
//! A line that one core has written and another reads goes from cache to cache, one after the other as
//! the reader asks for them. Between two cores that share their last cache that is as fast as it gets;
//! between two that do not it is slow. Written past the caches, the same bytes come from memory, which
//! processors fetch ahead as any other array. So the sender goes by what it finds, see `distance`, and
//! by memory where the message is so large that it would not stay in a cache. Measured in turns, GB/s
//! and half a round trip in ns, on Zen 4 with both ends within one core complex and in two:
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
//! What gained nothing or lost, at 256 MiB in a program of its own: prefetching the source (into the
//! first cache alone, too) or the ring, pieces of 16 to 256 KiB, a receiver that stays half a ring
//! behind, `rep movsb` at either end, four pages side by side. A ring of 4 MiB stays in the last cache
//! and gains a third there, but it is more memory than a channel may take.

use haul_copy::Hint;

use super::checksum::Sum;
use super::distance::Distance;
use super::error::Error;
use super::layout::{self, CELL_BYTES};
use super::link::Lane;
use super::source::Source;
use super::transfer::Step;

/// From this size on the target goes past the caches: it would not stay in them beside the source.
/// Half the last cache of a core complex of EPYC, see `sys::cache`. On Zen 4, GB/s in one complex and
/// between two: 16 MiB 7.5 and 8.8 by cached stores, 9.3 and 12.4 past the caches; 4 MiB 12.3 and 12.2,
/// 10.7 and 11.3.
const TARGET_STREAMED_BYTES_MIN: u64 = 16 << 20;
/// From this size on the ring goes past the caches wherever the other end is: source and target run
/// through them and leave nothing of it. On Zen 4 in one complex, GB/s by cached stores and past the
/// caches: 64 MiB 7.7 and 8.1, 256 MiB 8.3 and 8.7; 4 MiB 18 and 12.
const RING_STREAMED_BYTES_MIN: u64 = 32 << 20;

/// When the receiver is told of a piece.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tell {
    /// With the message, which it does not know of yet.
    Later,
    /// Now, of this message; with the last piece of the checksum as well.
    Of(u64),
}

/// Where a message stands in the ring, at either end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// Bytes moved so far, of the whole message.
    pub(super) offset: u64,
    /// Bytes of the whole message.
    length: u64,
    /// Bytes of a piece of this message, whole cells.
    piece: usize,
}

impl Run {
    /// The part of a message of `length` from `offset` on.
    pub(super) fn new(offset: u64, length: u64, chunk_bytes: usize) -> Self {
        Self { offset, length, piece: layout::piece_bytes(length - offset, chunk_bytes) }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.offset == self.length
    }

    /// Whether one piece, which begins at this cell of a ring of `cells`, carries all that is left.
    pub(super) fn is_last(&self, cell: u64, cells: u64) -> bool {
        self.length - self.offset == self.next(cell, cells) as u64
    }

    /// Bytes of the piece that begins at this cell: not beyond the end of the ring.
    fn next(&self, cell: u64, cells: u64) -> usize {
        let room = (cells - cell % cells) as usize * CELL_BYTES;
        (self.length - self.offset).min(self.piece.min(room) as u64) as usize
    }
}

/// Cells that a piece takes.
fn cells_of(piece: usize) -> u64 {
    piece.div_ceil(CELL_BYTES) as u64
}

/// What happens to the ring's lines after they are written, see "By way of the caches, or of
/// memory".
fn hint(run: &Run, distance: Distance) -> Hint {
    match run.length >= RING_STREAMED_BYTES_MIN || distance.is_far() {
        true => Hint::Streamed,
        false => Hint::ReadSoon,
    }
}

/// Fills one piece of a message. `filled` is the sender's own count, `drained` what it last knew of the other's.
///
/// # Errors
/// [`Error::Protocol`] where the receiver cannot have emptied so many.
pub(super) fn fill(
    lane: &mut Lane,
    source: &mut Source<'_>,
    run: &mut Run,
    (filled, drained): (&mut u64, &mut u64),
    tell: Tell,
) -> Result<Step<()>, Error> {
    if run.is_complete() {
        return Ok(Step::Done(()));
    }
    let cells = lane.cells();
    let length = run.next(*filled, cells);
    let after = *filled + cells_of(length);
    if after - *drained > cells {
        let told = lane.load_timed(layout::DRAINED, *drained);
        if !(*drained..=*filled).contains(&told) {
            return Err(Error::protocol("count of pages of the ring taken", told, *filled));
        }
        *drained = told;
        if after - told > cells {
            return Ok(Step::Blocked);
        }
    }
    source.write_to(&lane.link.region, lane.cell(*filled), length, hint(run, lane.distance));
    run.offset += length as u64;
    *filled = after;
    match tell {
        Tell::Later => lane.note(layout::FILLED, after),
        Tell::Of(message) => {
            if run.is_complete() {
                lane.put_sum(message, source.sum());
            }
            lane.tell(layout::FILLED, after);
        }
    }
    Ok(Step::Moved)
}

/// Empties one piece into its place in `target`, and adds it to the checksum. `drained` is the receiver's own count.
///
/// # Errors
/// [`Error::Protocol`] where the sender cannot have filled so many.
pub(super) fn drain(
    lane: &mut Lane,
    target: &mut [u8],
    run: &mut Run,
    drained: &mut u64,
    sum: Option<&mut Sum>,
) -> Result<Step<()>, Error> {
    if run.is_complete() {
        return Ok(Step::Done(()));
    }
    let cells = lane.cells();
    let told = lane.load(layout::FILLED);
    if !(*drained..=*drained + cells).contains(&told) {
        return Err(Error::protocol("count of pages of the ring filled", told, *drained + cells));
    }
    let (start, length) = (run.offset as usize, run.next(*drained, cells));
    let after = *drained + cells_of(length);
    if told < after {
        return Ok(Step::Blocked);
    }
    let is_streamed = run.length >= TARGET_STREAMED_BYTES_MIN;
    let (region, cell) = (&lane.link.region, lane.cell(*drained));
    let place = &mut target[start..start + length];
    match sum {
        Some(sum) => region.read_summed(cell, place, is_streamed, (sum, run.offset)),
        None if is_streamed => region.read(cell, place, Hint::Streamed),
        None => region.read(cell, place, Hint::ReadSoon),
    }
    run.offset += length as u64;
    *drained = after;
    if run.is_complete() {
        // The message, which is taken next, tells of it.
        lane.note(layout::DRAINED, after);
    } else {
        lane.tell(layout::DRAINED, after);
    }
    Ok(Step::Moved)
}
