//! `double`: one copy, by both ends at once. The sender writes pieces from the front of the message
//! directly into the receiver's target. The receiver reads pieces from the back directly out of the
//! sender's memory. Both ends stop when their pieces meet.
//!
//! ```text
//! receiver:  counter = nothing claimed,  offer the target
//!            while claim a piece from the back: process_vm_readv
//!            wait until what the sender finished and what it claimed itself meet
//! sender:    publish the addresses of the bytes,  wait for the offer
//!            while claim a piece from the front: process_vm_writev, finished += 1
//! ```
//!
//! This mechanism is only for ends that trust each other, like `pull`. In addition, the sender
//! may write to the receiver's memory. The receiver does not trust the shared counter, see
//! `counter`. A sender without permission to write reports that, and the receiver reads the
//! remaining pieces. A receiver without permission to read keeps the pieces that the sender has
//! finished, and the ring carries the remainder.
//!
//! If the receiver's caller gets the target back even after an error, the sender must not write
//! at all. In that case, the receiver claims all pieces before it publishes the offer.
//!
//! A receiver that gives up claims all remaining pieces, so that the sender writes at most its
//! current piece; see [`Receiving::close`].
//!
//! - `sending`: the sender's part;
//! - `receiving`: the receiver's part.

mod receiving;
mod sending;

use crate::shared::counter;

pub(crate) use receiving::Receiving;
pub(crate) use sending::Sending;

/// Largest piece. A copy of this piece takes 0.1 ms, so neither end waits long for the other
/// end's last piece. The system call takes a hundredth of that time.
const PIECE_BYTES_MAX: u64 = 1 << 20;
/// Smallest piece. For a smaller piece, the system call takes more than a tenth of the time.
const PIECE_BYTES_MIN: u64 = 64 << 10;
/// Number of pieces of a small message, so that two ends which begin at slightly different times
/// still share the message.
const PIECES_OF_SMALL: u64 = 8;

/// A message cut into pieces. The message's length alone determines the pieces, so both ends
/// compute the same pieces.
#[derive(Clone, Copy, Debug)]
struct Pieces {
    length: u64,
    piece: u64,
}

impl Pieces {
    fn of(length: u64) -> Self {
        let even = length.div_ceil(PIECES_OF_SMALL).next_multiple_of(PIECE_BYTES_MIN);
        Self { length, piece: even.clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX) }
    }

    /// Whether the counter can represent the number of pieces.
    fn fit(self) -> bool {
        self.count() <= counter::PIECES_MAX
    }

    fn count(self) -> u64 {
        self.length.div_ceil(self.piece)
    }

    /// The offset of a piece's first byte; the message's length for the piece after the last one.
    fn start(self, piece: u64) -> u64 {
        (piece * self.piece).min(self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_a_message_of_any_length() {
        for length in [1, 65535, 65536, 65537, 600_001, 1 << 20, (8 << 20) + 1, 1 << 36] {
            let pieces = Pieces::of(length);
            assert_eq!(pieces.start(0), 0);
            assert_eq!(pieces.start(pieces.count()), length);
            assert!(pieces.start(pieces.count() - 1) < length && pieces.fit());
        }
        assert!(!Pieces::of(u64::MAX).fit());
    }
}
