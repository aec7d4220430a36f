//! What the header of a message says: eight words at the beginning of its slot.

use super::checksum::Sum;
use super::layout::HEADER_BYTES;

/// What stands at the beginning of a slot: eight words of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Which message it is, from 0.
    pub(crate) message: u64,
    /// How its bytes travel, see [`Mechanism`](super::names::Mechanism).
    pub(crate) kind: u64,
    /// How many bytes it has.
    pub(crate) length: u64,
    /// What its way needs to be known. Pull and double: entries of the table in the slot. Vmsplice:
    /// whether a pipe comes with it. Ring: [`Pace`].
    pub(crate) detail: u64,
    /// The checksum, if there is one and it is known already.
    pub(crate) sum: SumState,
}

/// What a header says of the message's checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SumState {
    /// There is none.
    None,
    /// It comes, before the message is complete.
    Due,
    /// This one.
    Known(Sum),
}

impl SumState {
    const DUE: u64 = 1;
    const KNOWN: u64 = 2;

    pub(crate) fn words(self) -> [u64; 3] {
        match self {
            Self::None => [0; 3],
            Self::Due => [Self::DUE, 0, 0],
            Self::Known(sum) => [Self::KNOWN, sum.plain, sum.weighted],
        }
    }

    /// Anything but a known sum is one that is still due.
    pub(crate) fn from_words([state, plain, weighted]: [u64; 3]) -> Self {
        match state {
            0 => Self::None,
            Self::KNOWN => Self::Known(Sum { plain, weighted }),
            _ => Self::Due,
        }
    }
}

/// Where the words of [`SumState`] stand in a header.
pub(crate) const SUM_AT: usize = 4 * 8;

/// The words of a header in the order in which they stand in the slot.
pub(crate) const HEADER_WORDS: usize = HEADER_BYTES / 8;

impl Header {
    pub(crate) fn words(self) -> [u64; HEADER_WORDS] {
        let [state, plain, weighted] = self.sum.words();
        [self.message, self.kind, self.length, self.detail, state, plain, weighted, 0]
    }

    pub(crate) fn from_words(words: [u64; HEADER_WORDS]) -> Self {
        let [message, kind, length, detail, state, plain, weighted, _] = words;
        let sum = SumState::from_words([state, plain, weighted]);
        Self { message, kind, length, detail, sum }
    }
}
