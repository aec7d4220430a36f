//! The location of a message's pieces in the ring. The location follows from the message's
//! length, its pace and the count of cells, so both ends compute the same location.

use crate::shared::layout::{self, CELL_BYTES};
use crate::shared::pace::{Pace, cells_for, piece_bytes};

/// The progress of a message through the ring, at either end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// Number of bytes of the message that were moved so far.
    pub(super) offset: u64,
    /// Bytes of the whole message.
    pub(super) length: u64,
    /// Size of this message's pieces in bytes, a multiple of a cell.
    piece: usize,
    /// Number of cells in the ring.
    pub(super) cells: u64,
    /// Number of cells that this message goes through, from the ring's first cell on.
    pub(super) used: u64,
}

/// A piece: its first cell, its bytes, and the cell behind it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) start: u64,
    pub(super) length: usize,
    pub(super) end: u64,
}

impl Run {
    /// The part of a message of `length` bytes that begins at `offset`.
    #[inline]
    pub(super) fn new(offset: u64, length: u64, chunk_bytes: usize, pace: Pace) -> Self {
        let piece = piece_bytes(length - offset, chunk_bytes, pace);
        let (cells, used) = (layout::cells(chunk_bytes), cells_for(length, chunk_bytes, pace));
        Self { offset, length, piece, cells, used }
    }

    #[inline]
    pub(super) fn is_complete(&self) -> bool {
        self.offset == self.length
    }

    /// Whether one piece carries the remainder of the message when the count is `cell`.
    #[inline]
    pub(super) fn is_last(&self, cell: u64) -> bool {
        self.length - self.offset == self.next(cell).length as u64
    }

    /// The next piece when the count is `cell`. The piece ends within the cells that this message
    /// goes through. Behind these cells the count skips the remainder of the ring.
    #[inline]
    pub(super) fn next(&self, cell: u64) -> Piece {
        let at = cell % self.cells;
        let start = if at < self.used { cell } else { cell - at + self.cells };
        let room = (self.used - start % self.cells) as usize * CELL_BYTES;
        let length = (self.length - self.offset).min(self.piece.min(room) as u64) as usize;
        Piece { start, length, end: start + length.div_ceil(CELL_BYTES) as u64 }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    const CHUNK: usize = 64 << 10;

    /// One end: its current message and its count.
    struct End {
        lengths: VecDeque<(u64, Pace)>,
        run: Run,
        count: u64,
    }

    impl End {
        fn new(lengths: &[(u64, Pace)]) -> Self {
            let mut lengths: VecDeque<_> = lengths.iter().copied().collect();
            let run = Self::run(lengths.pop_front().unwrap());
            Self { lengths, run, count: 0 }
        }

        fn run((length, pace): (u64, Pace)) -> Run {
            Run::new(0, length, CHUNK, pace)
        }

        fn is_done(&self) -> bool {
            self.run.is_complete()
        }

        fn pass(&mut self, piece: Piece) {
            self.run.offset += piece.length as u64;
            self.count = piece.end;
            if self.run.is_complete()
                && let Some(next) = self.lengths.pop_front()
            {
                self.run = Self::run(next);
            }
        }
    }

    fn lengths() -> impl Strategy<Value = Vec<(u64, Pace)>> {
        let all = CHUNK as u64 * layout::CHUNKS_ALL;
        let length = prop_oneof![1..20_000_u64, 1..all * 3, (4 << 20) - 5000..(4 << 20) + 5000_u64];
        let pace = (0..Pace::COUNT).prop_map(|word| Pace::from_word(word).unwrap());
        proptest::collection::vec((length, pace), 1..12)
    }

    proptest! {
        /// For any lengths, and whichever end is ahead, both ends compute the same pieces, no
        /// piece is overwritten before it was read, and both ends complete all messages.
        #[test]
        fn both_ends_compute_same_pieces_in_free_cells(lengths in lengths(), mut order: u64) {
            let cells = layout::cells(CHUNK);
            let (mut sender, mut receiver) = (End::new(&lengths), End::new(&lengths));
            let mut taken = vec![false; cells as usize];
            let mut pieces = VecDeque::new();
            while !receiver.is_done() {
                order = order.rotate_left(1);
                let piece = sender.run.next(sender.count);
                let has_room = piece.end - receiver.count <= cells;
                if !sender.is_done() && has_room && (order & 1 == 0 || pieces.is_empty()) {
                    prop_assert!(piece.length > 0 && piece.start >= sender.count);
                    prop_assert!((piece.end - 1) % cells < sender.run.used);
                    for cell in piece.start..piece.end {
                        let cell = &mut taken[(cell % cells) as usize];
                        prop_assert!(!*cell, "{piece:?}");
                        *cell = true;
                    }
                    pieces.push_back((piece.start, piece.length));
                    sender.pass(piece);
                    continue;
                }
                let Some(expected) = pieces.pop_front() else {
                    return Err(TestCaseError::fail("the sender waits for an empty ring"));
                };
                let piece = receiver.run.next(receiver.count);
                prop_assert!(piece.end <= sender.count && sender.count - receiver.count <= cells);
                prop_assert_eq!((piece.start, piece.length), expected);
                for cell in piece.start..piece.end {
                    taken[(cell % cells) as usize] = false;
                }
                receiver.pass(piece);
            }
            prop_assert_eq!(sender.count, receiver.count);
        }
    }
}
