//! Pieces that an engine copies into the ring while the sender does something else.
//!
//! One copy has all pieces for which there is room, up to the end of the ring. A piece is published
//! when all of its bytes are there, so the receiver reads the first pieces while the engine copies
//! the last ones.

use std::sync::Arc;

use super::run::Run;
use super::{has_room, hint};
use crate::shared::beside::{BYTES_MIN, Copying, Keeper};
use crate::shared::error::Error;
use crate::shared::header::SumState;
use crate::shared::lane::Lane;
use crate::shared::layout;
use crate::shared::source::Source;

/// A copy of several pieces.
#[derive(Debug)]
pub(super) struct Ahead {
    pub(super) copying: Copying,
    /// The bytes of the message that the copy has.
    from: u64,
    to: u64,
}

/// Whether an engine may copy this message while the sender does something else.
pub(super) fn is_possible(lane: &Lane, source: &Source<'_>) -> bool {
    lane.link.beside.is_some()
        && source.shared_bytes().is_some()
        && source.sum() == SumState::None
        && source.length() >= BYTES_MIN as u64
}

impl Ahead {
    /// Starts to copy the next pieces. Returns `None` if there is no room.
    ///
    /// # Errors
    /// [`Error::Protocol`] if the receiver's count of emptied cells is impossible.
    pub(super) fn start(
        lane: &mut Lane,
        source: &mut Source<'_>,
        run: &Run,
        (filled, drained): (u64, &mut u64),
    ) -> Result<Option<Self>, Error> {
        let first = lane.cell(run.next(filled).start);
        let (mut ahead, mut cell, mut length) = (*run, filled, 0);
        while !ahead.is_complete() {
            let piece = ahead.next(cell);
            let is_adjacent = lane.cell(piece.start) == first + length;
            if !is_adjacent || !has_room(lane, run, piece.end, (filled, drained))? {
                break;
            }
            (cell, length) = (piece.end, length + piece.length);
            ahead.offset += piece.length as u64;
        }
        let link = &lane.link;
        let (Some(beside), Some(bytes)) = (&link.beside, source.shared_bytes()) else {
            return Ok(None);
        };
        if length == 0 {
            return Ok(None);
        }
        let memory = (&link.region, first, Arc::clone(link) as Keeper);
        let (from, to) = (run.offset, ahead.offset);
        // SAFETY: the region is the link's, and is mapped while the link exists.
        let copying =
            unsafe { beside.start(memory, (bytes, from), length, hint(run, lane.distance)) };
        source.seek(to);
        Ok(Some(Self { copying, from, to }))
    }

    /// Publishes the pieces that are there. Returns whether the copy has ended.
    pub(super) fn publish(&mut self, lane: &mut Lane, run: &mut Run, filled: &mut u64) -> bool {
        let has_ended = self.copying.has_ended();
        let there = match has_ended {
            true => self.to,
            false => self.from + self.copying.bytes_done() as u64,
        };
        let before = run.offset;
        while !run.is_complete() {
            let piece = run.next(*filled);
            if run.offset + piece.length as u64 > there {
                break;
            }
            run.offset += piece.length as u64;
            *filled = piece.end;
        }
        if run.offset > before {
            lane.signal(layout::FILLED, *filled);
        }
        has_ended
    }
}
