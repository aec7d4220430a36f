//! The counter with which both ends of `double` claim pieces: the sender from the front, the
//! receiver from the back, until they meet.
//!
//! ```text
//! 63      48 47          24 23           0
//! | message | from the back | from the front |
//! ```
//!
//! The word is shared, so each end trusts only its own operations. The sender writes only pieces
//! of its own message, whatever the word says. The receiver counts its own pieces in private
//! memory. The message is complete when the receiver's pieces meet the pieces that the sender
//! reports as *finished*. Then every piece before that point was written, and every piece from
//! there to the end was read.

use super::words::Word;

/// Number of bits of a piece count.
const BITS: u32 = 24;
const MASK: u64 = (1 << BITS) - 1;
/// The largest number of pieces per message.
pub(crate) const PIECES_MAX: u64 = MASK;
/// The bits of the message's number that the word holds: enough to distinguish adjacent messages.
const TAG_MASK: u64 = 0xffff;

/// The result of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The end must move this piece.
    Piece(u64),
    /// No piece is left: the ends have met.
    Nothing,
    /// The word has this impossible value.
    Nonsense(u64),
}

fn pack(message: u64, back: u64, front: u64) -> u64 {
    (message & TAG_MASK) << (2 * BITS) | back << BITS | front
}

fn back_of(word: u64) -> u64 {
    word >> BITS & MASK
}

fn front_of(word: u64) -> u64 {
    word & MASK
}

/// The receiver begins a message: nothing is claimed.
pub(crate) fn begin(word: &impl Word, message: u64) {
    word.put(pack(message, 0, 0));
}

/// The sender claims the next piece from the front.
pub(crate) fn claim_front(word: &impl Word, message: u64, count: u64) -> Claim {
    let mut seen = word.get();
    loop {
        let (back, front) = (back_of(seen), front_of(seen));
        if seen != pack(message, back, front) || back + front > count {
            return Claim::Nonsense(seen);
        }
        if back + front == count {
            return Claim::Nothing;
        }
        match word.exchange(seen, pack(message, back, front + 1)) {
            Ok(()) => return Claim::Piece(front),
            Err(now) => seen = now,
        }
    }
}

/// The receiver, which has claimed `own` pieces so far, claims the next piece from the back.
pub(crate) fn claim_back(word: &impl Word, message: u64, count: u64, own: u64) -> Claim {
    let mut seen = word.get();
    loop {
        let front = front_of(seen);
        if seen != pack(message, own, front) || own + front > count {
            return Claim::Nonsense(seen);
        }
        if own + front == count {
            return Claim::Nothing;
        }
        match word.exchange(seen, pack(message, own + 1, front)) {
            Ok(()) => return Claim::Piece(count - own - 1),
            Err(now) => seen = now,
        }
    }
}

/// The receiver claims all remaining pieces. Returns how many pieces the sender had claimed by
/// then: it will write no others.
pub(crate) fn close(word: &impl Word, message: u64, count: u64) -> u64 {
    let mut seen = word.get();
    loop {
        let front = front_of(seen).min(count);
        match word.exchange(seen, pack(message, count - front, front)) {
            Ok(()) => return front,
            Err(now) => seen = now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn ends_meet_at_every_piece() {
        for fronts in 0..=5 {
            let word = AtomicU64::new(u64::MAX);
            begin(&word, 70_000);
            for piece in 0..fronts {
                assert_eq!(claim_front(&word, 70_000, 5), Claim::Piece(piece));
            }
            for own in 0..5 - fronts {
                assert_eq!(claim_back(&word, 70_000, 5, own), Claim::Piece(4 - own));
            }
            assert_eq!(claim_front(&word, 70_000, 5), Claim::Nothing);
            assert_eq!(claim_back(&word, 70_000, 5, 5 - fronts), Claim::Nothing);
            assert_eq!(close(&word, 70_000, 5), fronts);
        }
    }

    #[test]
    fn sender_claims_nothing_after_close() {
        let word = AtomicU64::new(0);
        begin(&word, 3);
        assert_eq!(claim_front(&word, 3, 9), Claim::Piece(0));
        assert_eq!(close(&word, 3, 9), 1);
        assert_eq!(claim_front(&word, 3, 9), Claim::Nothing);
    }

    proptest! {
        /// For any word, neither end claims a piece that does not exist or belongs to the other
        /// end.
        #[test]
        fn any_word_yields_claims_within_message(seen: u64, message: u64, count in 1..=PIECES_MAX, own: u64) {
            let own = own % (count + 1);
            let word = AtomicU64::new(seen);
            if let Claim::Piece(piece) = claim_front(&word, message, count) {
                prop_assert!(piece < count);
            }
            let word = AtomicU64::new(seen);
            if let Claim::Piece(piece) = claim_back(&word, message, count, own) {
                prop_assert_eq!(piece, count - own - 1);
            }
            prop_assert!(close(&word, message, count) <= count);
            prop_assert_eq!(claim_front(&word, message, count), Claim::Nothing);
        }

        #[test]
        fn claim_reports_words_with_one_flipped_bit(message: u64, count in 1..1000_u64, own in 0..1000_u64, flip in 24..64_u32) {
            let own = own % count;
            let word = AtomicU64::new(pack(message, own, 0) ^ 1 << flip);
            prop_assert!(matches!(claim_back(&word, message, count, own), Claim::Nonsense(_)));
        }
    }
}
