//! How much of the ring a message uses, and in which pieces.

use super::layout::{CELL_BYTES, CHUNKS, CHUNKS_ALL};

/// From this size on, a message uses all of the ring. Interleaved measurements on Zen 4 with ends
/// that sleep, GB/s through 1 and through 1.75 MiB: 64 KiB to 2 MiB equal (10 to 20% less in
/// another run with ends that spin), 4 MiB 12.5 and 12.3, 16 MiB 8.5 and 11.2, 64 MiB 9.8 and
/// 10.0, 256 MiB 12.3 and 12.6.
const CHUNKS_ALL_BYTES_MIN: u64 = 4 << 20;
/// From this size on, a message uses all chunks even if neither end sleeps, because the message
/// itself exceeds the caches.
const SMALL_BYTES_MAX: u64 = 512 << 10;
/// Number of cells that smaller messages use: 128 KiB, which stay in the caches together with
/// source and target.
const SMALL_CELLS: u64 = 32;
/// Largest piece of a message. Larger pieces gained nothing on Zen 4 (256 MiB: 15.4 GB/s with
/// pieces of 64 KiB, 16.0 with 256 KiB, noise 1), and a small piece keeps the other end's wait
/// short.
const PIECE_BYTES_MAX: usize = 64 << 10;
/// Smallest piece of a message: publishing a smaller one costs as much as the overlap saves.
pub(crate) const PIECE_BYTES_MIN: usize = 16 << 10;
/// Smallest piece while the receiver still empties earlier messages, because both copies then
/// overlap anyway.
const PIECE_BYTES_MIN_BEHIND: usize = 32 << 10;

/// Number of cells that a message of `length` bytes uses, from the ring's first cell on.
pub(crate) fn cells_for(length: u64, chunk_bytes: usize, pace: Pace) -> u64 {
    let chunks = if length < CHUNKS_ALL_BYTES_MIN { CHUNKS } else { CHUNKS_ALL };
    let cells = chunks * (chunk_bytes / CELL_BYTES) as u64;
    if pace.is_small && length < SMALL_BYTES_MAX { cells.min(SMALL_CELLS) } else { cells }
}

/// The size in bytes of each piece, for a message of `length` bytes; a multiple of a cell. A
/// piece is small enough that both copies overlap, and large enough that its copy costs more than
/// its publication.
pub(crate) fn piece_bytes(length: u64, chunk_bytes: usize, pace: Pace) -> usize {
    let even = length.div_ceil(CHUNKS).next_multiple_of(CELL_BYTES as u64);
    let largest = PIECE_BYTES_MAX.min(chunk_bytes);
    let smallest = if pace.is_behind { PIECE_BYTES_MIN_BEHIND } else { PIECE_BYTES_MIN };
    usize::try_from(even).unwrap_or(usize::MAX).clamp(smallest.min(largest), largest)
}

/// How the ends keep up with each other, as the sender observed it when a message began. The pace
/// determines how the message uses the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pace {
    /// A small part of the ring is better than all of it (see `window`), and the small part
    /// suffices, because the sender has not slept for a while: the receiver keeps up.
    pub(crate) is_small: bool,
    /// The receiver still empties earlier messages.
    pub(crate) is_behind: bool,
}

impl Pace {
    /// The number of paces.
    pub(crate) const COUNT: u64 = 4;

    pub(crate) fn word(self) -> u64 {
        u64::from(self.is_small) | u64::from(self.is_behind) << 1
    }

    pub(crate) fn from_word(word: u64) -> Option<Self> {
        let is = |bit| word & bit != 0;
        (word < Self::COUNT).then(|| Self { is_small: is(1), is_behind: is(2) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::layout::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, cells};

    fn paces() -> impl Iterator<Item = Pace> {
        (0..Pace::COUNT).map(|word| Pace::from_word(word).unwrap())
    }

    #[test]
    fn pieces_are_whole_cells_and_ring_holds_several() {
        for pace in paces() {
            for chunk in [CHUNK_BYTES_MIN, 32 << 10, CHUNK_BYTES_MAX] {
                for length in [1, 4097, 16384, 65536, 300_000, 1 << 20, 1 << 33, u64::MAX] {
                    let piece = piece_bytes(length, chunk, pace);
                    assert!(piece.is_multiple_of(CELL_BYTES), "{length}: {piece}");
                    assert!((PIECE_BYTES_MIN..=chunk).contains(&piece), "{length}: {piece}");
                    let used = cells_for(length, chunk, pace) * CELL_BYTES as u64;
                    assert!(used >= 2 * piece as u64, "{length}, {pace:?}: {used}");
                }
            }
        }
        let pieces =
            |length| paces().map(move |pace| piece_bytes(length, CHUNK_BYTES_MAX, pace) >> 10);
        assert_eq!(pieces(64 << 10).collect::<Vec<_>>(), [16, 16, 32, 32]);
        assert_eq!(pieces(1 << 30).collect::<Vec<_>>(), [64; 4]);
    }

    #[test]
    fn cells_for_grows_with_length_and_pace() {
        let bytes = |cells| cells * CELL_BYTES as u64;
        assert_eq!(bytes(cells(CHUNK_BYTES_MAX)), 1792 << 10);
        for (length, used, used_small) in [
            (1, 1024, 128),
            ((512 << 10) - 1, 1024, 128),
            (512 << 10, 1024, 1024),
            ((4 << 20) - 1, 1024, 1024),
            (4 << 20, 1792, 1792),
            (u64::MAX, 1792, 1792),
        ] {
            for pace in paces() {
                let used = if pace.is_small { used_small } else { used };
                assert_eq!(bytes(cells_for(length, CHUNK_BYTES_MAX, pace)), used << 10, "{length}");
            }
        }
    }

    #[test]
    fn from_word_reads_every_pace_and_refuses_other_words() {
        for (word, pace) in paces().enumerate() {
            assert_eq!(pace.word(), word as u64);
        }
        for word in [Pace::COUNT, 1 << 32, u64::MAX] {
            assert_eq!(Pace::from_word(word), None);
        }
    }
}
