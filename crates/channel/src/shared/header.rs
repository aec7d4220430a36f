//! The header of a message: eight words at the beginning of its slot.

use super::checksum::Sum;
use super::layout::HEADER_BYTES;

/// A message's header: eight words of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The number of the message, from 0.
    pub(crate) message: u64,
    /// The mechanism, see [`Mechanism`](super::names::Mechanism).
    pub(crate) kind: u64,
    /// The length in bytes.
    pub(crate) length: u64,
    /// A detail of the mechanism. Pull and double: the number of entries of the table in the slot.
    /// Ring: [`Pace`](super::pace::Pace).
    pub(crate) detail: u64,
    /// The checksum, if there is one and it is already known.
    pub(crate) sum: SumState,
}

/// The state of the message's checksum in a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SumState {
    /// The message has no checksum.
    None,
    /// The checksum follows before the message is complete.
    Due,
    /// The checksum.
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

    /// Parses the words. An unknown state counts as due.
    pub(crate) fn from_words([state, plain, weighted]: [u64; 3]) -> Self {
        match state {
            0 => Self::None,
            Self::KNOWN => Self::Known(Sum { plain, weighted }),
            _ => Self::Due,
        }
    }
}

/// The offset of the words of [`SumState`] in a header.
pub(crate) const SUM_AT: usize = 4 * 8;

/// The number of words in a header.
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
