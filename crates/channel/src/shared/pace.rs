//! How much of the ring a message goes through, and in which pieces.

use super::layout::{CELL_BYTES, CHUNKS, CHUNKS_ALL};

/// From this size on a message goes through all of the ring. On Zen 4, GB/s through 1 and through
/// 1.75 MiB, in turns, ends that sleep: 64 KiB to 2 MiB alike (10 to 20% less in another run, ends
/// that spin), 4 MiB 12.5 and 12.3, 16 MiB 8.5 and 11.2, 64 MiB 9.8 and 10.0, 256 MiB 12.3 and
/// 12.6.
const CHUNKS_ALL_BYTES_MIN: u64 = 4 << 20;
/// From this size on a message goes through all chunks even while neither end sleeps: it is through
/// the caches itself.
const SMALL_BYTES_MAX: u64 = 512 << 10;
/// Cells that smaller ones go through: 128 KiB, which stay in the caches beside source and target.
const SMALL_CELLS: u64 = 32;
/// Largest piece of a message: from here on larger ones gained nothing on Zen 4 (256 MiB: 15.4 GB/s
/// by 64 KiB, 16.0 by 256 KiB, noise 1), and what the other end waits for is as short as it can be.
const PIECE_BYTES_MAX: usize = 64 << 10;
/// Smallest piece that a message is cut into: below, telling of it costs what overlapping saves.
pub(crate) const PIECE_BYTES_MIN: usize = 16 << 10;
/// The same while the receiver is at messages before: both copies overlap anyway.
const PIECE_BYTES_MIN_BEHIND: usize = 32 << 10;

/// Cells of the ring, from its first on, that a message of `length` goes through.
pub(crate) fn cells_for(length: u64, chunk_bytes: usize, pace: Pace) -> u64 {
    let chunks = if length < CHUNKS_ALL_BYTES_MIN { CHUNKS } else { CHUNKS_ALL };
    let cells = chunks * (chunk_bytes / CELL_BYTES) as u64;
    if pace.is_small && length < SMALL_BYTES_MAX { cells.min(SMALL_CELLS) } else { cells }
}

/// The bytes that each piece of a message of `length` has, whole cells: small enough that both
/// copies overlap, large enough that a piece costs more than telling of it.
pub(crate) fn piece_bytes(length: u64, chunk_bytes: usize, pace: Pace) -> usize {
    let even = length.div_ceil(CHUNKS).next_multiple_of(CELL_BYTES as u64);
    let largest = PIECE_BYTES_MAX.min(chunk_bytes);
    let smallest = if pace.is_behind { PIECE_BYTES_MIN_BEHIND } else { PIECE_BYTES_MIN };
    usize::try_from(even).unwrap_or(usize::MAX).clamp(smallest.min(largest), largest)
}

/// How the ends keep up with each other, as the sender saw it when a message began; it goes through
/// the ring accordingly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Little of the ring is better than all of it (see `window`), and suffices: the sender has not
    /// slept for a while, so the receiver makes room as it goes.
    pub(crate) is_small: bool,
    /// The receiver is still at messages before this one.
    pub(crate) is_behind: bool,
}

impl Pace {
    /// How many there are.
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
    use super::super::layout::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, cells};
    use super::*;

    fn paces() -> impl Iterator<Item = Pace> {
        (0..Pace::COUNT).map(|word| Pace::from_word(word).unwrap())
    }

    #[test]
    fn pieces_are_whole_cells_and_several_of_them_fit_the_ring() {
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
    fn a_message_goes_through_as_much_of_the_ring_as_suits_it() {
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
    fn a_pace_survives_and_what_is_none_is_refused() {
        for (word, pace) in paces().enumerate() {
            assert_eq!(pace.word(), word as u64);
        }
        for word in [Pace::COUNT, 1 << 32, u64::MAX] {
            assert_eq!(Pace::from_word(word), None);
        }
    }
}
