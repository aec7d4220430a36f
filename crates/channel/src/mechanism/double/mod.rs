//! `double`: one copy, by both ends at once. The sender writes pieces from the front of the message
//! straight into the receiver's target, the receiver reads pieces from its back straight out of the
//! sender's memory, until they meet.
//!
//! ```text
//! receiver:  counter = nothing claimed,  offer the target
//!            while claim a piece from the back: process_vm_readv
//!            wait until what the sender finished and what it claimed itself meet
//! sender:    publish where the bytes stand,  wait for the offer
//!            while claim a piece from the front: process_vm_writev, finished += 1
//! ```
//!
//! Only between ends that trust each other, as `pull`; and the receiver lets its memory be written.
//! Trust goes no further than that: the shared counter proves nothing, see `counter`. A sender that
//! may not write says so, and the receiver reads what is left; a receiver that may not read takes
//! what the sender has finished, and the rest goes through the ring.
//!
//! Where the caller of the receiver gets the target back whatever happens, the sender is let write
//! nothing: the receiver claims all pieces before it makes the offer.
//!
//! A receiver that gives up takes the rest of the pieces for itself, so that the sender writes at
//! most the one that it is at; see [`Receiving::close`].
//!
//! - `sending`: the sender's part;
//! - `receiving`: the receiver's part.

mod receiving;
mod sending;

use crate::shared::counter;

pub(crate) use receiving::Receiving;
pub(crate) use sending::Sending;

/// Largest piece: 0.1 ms, so that neither end waits long for the other at the end, and large enough
/// that the system call is a hundredth of it.
const PIECE_BYTES_MAX: u64 = 1 << 20;
/// Smallest piece: below, the system call is a tenth of it.
const PIECE_BYTES_MIN: u64 = 64 << 10;
/// Pieces that a small message is cut into: two ends that begin a little apart still share it.
const PIECES_OF_SMALL: u64 = 8;

/// A message cut into pieces, by its length alone, so that both ends cut alike.
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

    /// Whether the counter has room for them.
    fn fit(self) -> bool {
        self.count() <= counter::PIECES_MAX
    }

    fn count(self) -> u64 {
        self.length.div_ceil(self.piece)
    }

    /// Where a piece begins, or the message's end.
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
