//! `ring`: four chunks that stay in the L2 cache; while one end fills one, the other empties
//! another, so both copies overlap.
//!
//! ```text
//! sender:    while filled - drained < 4: copy a piece in,  filled += 1,  ring
//! receiver:  while filled > drained:     copy a piece out, drained += 1, ring
//! ```
//!
//! Both count chunks over the life of the channel and keep their own count in private memory; the
//! other's is read once and must be where it can be.

use haul_copy::Hint;

use super::checksum::Sum;
use super::error::Error;
use super::layout::{self, CHUNKS};
use super::link::Lane;
use super::source::Source;
use super::transfer::Step;

/// From this size on the target goes past the caches: it would not stay in them, and what it
/// displaces is the ring. The L3 share of one core complex of EPYC, see `sys::cache`.
const STREAMED_BYTES_MIN: u64 = 32 << 20;

/// When the receiver is told of a chunk.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tell {
    /// With the message, which it does not know of yet.
    Later,
    /// Now, of this message; with the last chunk of the checksum as well.
    Of(u64),
}

/// Where a message stands in the ring, at either end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// Bytes moved so far, of the whole message.
    pub(super) offset: u64,
    /// Bytes of the whole message.
    length: u64,
    /// Bytes of a chunk of this message.
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

    /// Whether one chunk carries all that is left.
    pub(super) fn is_last(&self) -> bool {
        self.length - self.offset <= self.piece as u64
    }

    fn next(&self) -> usize {
        (self.length - self.offset).min(self.piece as u64) as usize
    }
}

/// Fills one chunk of a message. `filled` is the sender's own count, `drained` what it last knew of the other's.
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
    if *filled - *drained == CHUNKS {
        let told = lane.load(layout::DRAINED);
        if !(*drained..=*filled).contains(&told) {
            return Err(Error::protocol("count of chunks taken", told, *filled));
        }
        if told == *drained {
            return Ok(Step::Blocked);
        }
        *drained = told;
    }
    let length = run.next();
    source.write_to(&lane.link.region, lane.chunk(*filled), length, Hint::ReadSoon);
    run.offset += length as u64;
    *filled += 1;
    match tell {
        Tell::Later => lane.note(layout::FILLED, *filled),
        Tell::Of(message) => {
            if run.is_complete() {
                lane.put_sum(message, source.sum());
            }
            lane.tell(layout::FILLED, *filled);
        }
    }
    Ok(Step::Moved)
}

/// Empties one chunk into its place in `target`, and adds it to the checksum. `drained` is the receiver's own count.
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
    let told = lane.load(layout::FILLED);
    if !(*drained..=*drained + CHUNKS).contains(&told) {
        return Err(Error::protocol("count of chunks filled", told, *drained + CHUNKS));
    }
    if told == *drained {
        return Ok(Step::Blocked);
    }
    let (start, length) = (run.offset as usize, run.next());
    let is_streamed = run.length >= STREAMED_BYTES_MIN;
    let (region, chunk) = (&lane.link.region, lane.chunk(*drained));
    let place = &mut target[start..start + length];
    match sum {
        Some(sum) => region.read_summed(chunk, place, is_streamed, (sum, run.offset)),
        None if is_streamed => region.read(chunk, place, Hint::Streamed),
        None => region.read(chunk, place, Hint::Unknown),
    }
    run.offset += length as u64;
    *drained += 1;
    if run.is_complete() {
        // The message, which is taken next, tells of it.
        lane.note(layout::DRAINED, *drained);
    } else {
        lane.tell(layout::DRAINED, *drained);
    }
    Ok(Step::Moved)
}
