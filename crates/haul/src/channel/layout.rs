//! Where everything stands in the shared memory, and what the handshake says.

use super::checksum::Sum;
use super::error::Error;

/// Messages that may be under way in one direction, a power of two.
pub(super) const SLOTS: u64 = 16;
/// What stands at the beginning of a slot, before the bytes: one cache line.
pub(super) const HEADER_BYTES: usize = 64;
/// Longest message that travels inside its slot. On Cascade Lake, in turns with the ring, GB/s and half a round
/// trip in ns: 4 KiB 11.4 and 1050 (the ring 5.6 and 1580), 8 KiB 12.8 and 1850 (7.9 and 2500), 16 KiB 12.0
/// and 2900 (9.4 and 4000); but slots of 16 KiB and the whole ring together are more than 2 MiB.
pub(super) const INLINE_BYTES_MAX: usize = 8192;
/// From one slot to the next: its header, and the bytes of a message that travels inline, or a table. No
/// multiple of a page, so that slots do not meet in the same sets of a cache.
const SLOT_BYTES: usize = (HEADER_BYTES + INLINE_BYTES_MAX).next_multiple_of(LINE_BYTES);

/// Chunks of the ring that messages of less than [`CHUNKS_ALL_BYTES_MIN`] go through.
pub(super) const CHUNKS: u64 = 4;
/// Chunks of the ring in one direction: 1.75 MiB at most, so that no message takes 2 MiB.
pub(super) const CHUNKS_ALL: u64 = 7;
/// From this size on a message goes through all of the ring. On Zen 4, GB/s through 1 and through 1.75
/// MiB, in turns, ends that sleep: 64 KiB to 2 MiB alike (10 to 20% less in another run, ends that spin), 4
/// MiB 12.5 and 12.3, 16 MiB 8.5 and 11.2, 64 MiB 9.8 and 10.0, 256 MiB 12.3 and 12.6.
const CHUNKS_ALL_BYTES_MIN: u64 = 4 << 20;
/// Largest chunk: four of them are 1 MiB, the L2 of the servers of 2021 to 2025 (1 to 2 MiB).
pub(super) const CHUNK_BYTES_MAX: usize = 256 << 10;
/// Smallest chunk: what a small message takes is no more.
pub(super) const CHUNK_BYTES_MIN: usize = 16 << 10;
/// From this size on a message goes through all chunks even while neither end sleeps: it is through the
/// caches itself.
const NEAR_BYTES_MAX: u64 = 512 << 10;
/// Cells that smaller ones go through: 128 KiB, which stay in the caches beside source and target.
const NEAR_CELLS: u64 = 32;
/// What the ring is counted in: a page, the least that is copied past the caches.
pub(super) const CELL_BYTES: usize = 4096;
/// Largest piece of a message: from here on larger ones gained nothing on Zen 4 (256 MiB: 15.4 GB/s
/// by 64 KiB, 16.0 by 256 KiB, noise 1), and what the other end waits for is as short as it can be.
const PIECE_BYTES_MAX: usize = 64 << 10;
/// Smallest piece that a message is cut into: below, telling of it costs what overlapping saves.
pub(super) const PIECE_BYTES_MIN: usize = 16 << 10;
/// The same while the receiver is at messages before: both copies overlap anyway.
const PIECE_BYTES_MIN_BEHIND: usize = 32 << 10;

/// The words of one direction, each on cache lines of its own. Two lines each: processors fetch
/// lines in pairs.
const LINE_BYTES: usize = 128;
/// u64, sender: messages published.
pub(super) const PUBLISHED: usize = 0;
/// u64, receiver: messages taken whole.
pub(super) const CONSUMED: usize = LINE_BYTES;
/// u64, sender: cells of the ring filled.
pub(super) const FILLED: usize = 2 * LINE_BYTES;
/// u64, receiver: cells of the ring emptied.
pub(super) const DRAINED: usize = 3 * LINE_BYTES;
/// u64, receiver: which message it could not pull any further, counted from 1.
pub(super) const REFUSED: usize = 4 * LINE_BYTES;
/// u64, receiver: how many bytes of that message it has.
pub(super) const REFUSED_AT: usize = REFUSED + 8;
/// u64, receiver: bytes of the message under way that it has pulled; tells that it moves.
pub(super) const PULLED: usize = REFUSED + 16;
/// u64, receiver: whether the memory that it took its last large message into was new, 1 or 0.
pub(super) const TOOK_INTO_NEW: usize = REFUSED + 24;
/// u32: what the sender sleeps on, and behind it how it sleeps.
pub(super) const SENDER_BELL: usize = 5 * LINE_BYTES;
/// u32: what the receiver sleeps on, and behind it how it sleeps.
pub(super) const RECEIVER_BELL: usize = 6 * LINE_BYTES;
/// u32, sender: whether there is more to come, see [`OPEN`].
pub(super) const SENDER_STATE: usize = 7 * LINE_BYTES;
/// u64, sender: where it may run, see `place`.
pub(super) const SENDER_PLACE: usize = SENDER_STATE + 8;
/// u32, receiver: likewise.
pub(super) const RECEIVER_STATE: usize = 8 * LINE_BYTES;
/// u64, receiver: likewise.
pub(super) const RECEIVER_PLACE: usize = RECEIVER_STATE + 8;

/// u64, receiver: the message whose target the sender may write to, counted from 1.
pub(super) const OFFERED: usize = 9 * LINE_BYTES;
/// u64, receiver: where that target stands: an address, or an offset into the pool.
pub(super) const OFFERED_AT: usize = OFFERED + 8;
/// u64, receiver: the pool that the target stands in.
pub(super) const OFFERED_POOL: usize = OFFERED + 16;
/// u64, receiver: which places have a pool, a bit for each; the sender unmaps what was in others.
pub(super) const OFFERED_KEPT: usize = OFFERED + 24;
/// u64, both: the pieces that either end has claimed, see `counter`.
pub(super) const CLAIMED: usize = 10 * LINE_BYTES;
/// u64, sender: what it has put into the target of the message under way: pieces of `double`, bytes
/// that went into the pipe of `vmsplice`.
pub(super) const PUSHED: usize = 11 * LINE_BYTES;
/// u64, sender: the message that it pushes no more of, counted from 1.
pub(super) const ABANDONED: usize = PUSHED + 8;
/// u64, sender: the last message that it has put into its lease, counted from 1. It may be at the
/// next one by the time the receiver looks.
pub(super) const LAID: usize = PUSHED + 16;

/// The end is in use.
pub(super) const OPEN: u32 = 0;
/// The end was closed after a whole message.
pub(super) const CLOSED: u32 = 1;
/// The end gave a message up in the middle.
pub(super) const GIVEN_UP: u32 = 2;

/// The words of a direction have a page of their own.
const WORDS_BYTES: usize = 4096;
const _: () = assert!(PUSHED + LINE_BYTES <= WORDS_BYTES);
const _: () = assert!(SLOTS.is_power_of_two() && CHUNKS.is_power_of_two() && CHUNKS < CHUNKS_ALL);

/// Shared memory for both directions: words, slots, then chunks, which only some channels use.
pub(super) const fn region_bytes(chunk_bytes: usize) -> usize {
    chunks_start(2, chunk_bytes)
}

/// Words and slots of both directions, which every channel uses.
pub(super) const fn fixed_bytes() -> usize {
    chunks_start(0, 0)
}

/// Where the words of a direction begin.
pub(super) const fn words_start(lane: usize) -> usize {
    lane * WORDS_BYTES
}

/// Where a slot begins.
pub(super) const fn slot_start(lane: usize, message: u64) -> usize {
    let index = (message % SLOTS) as usize;
    2 * WORDS_BYTES + (lane * SLOTS as usize + index) * SLOT_BYTES
}

/// The slots of one direction.
pub(super) const SLOTS_BYTES: usize = SLOTS as usize * SLOT_BYTES;

/// Where the chunks of a direction begin.
pub(super) const fn chunks_start(lane: usize, chunk_bytes: usize) -> usize {
    slot_start(2, 0).next_multiple_of(CELL_BYTES) + lane * CHUNKS_ALL as usize * chunk_bytes
}

/// Cells of the ring in one direction.
pub(super) const fn cells(chunk_bytes: usize) -> u64 {
    CHUNKS_ALL * (chunk_bytes / CELL_BYTES) as u64
}

/// Cells of the ring, from its first on, that a message of `length` goes through.
pub(super) fn cells_for(length: u64, chunk_bytes: usize, pace: Pace) -> u64 {
    let chunks = if length < CHUNKS_ALL_BYTES_MIN { CHUNKS } else { CHUNKS_ALL };
    let cells = chunks * (chunk_bytes / CELL_BYTES) as u64;
    if pace.is_near && length < NEAR_BYTES_MAX { cells.min(NEAR_CELLS) } else { cells }
}

/// The bytes that each piece of a message of `length` has, whole cells: small enough that both
/// copies overlap, large enough that a piece costs more than telling of it.
pub(super) fn piece_bytes(length: u64, chunk_bytes: usize, pace: Pace) -> usize {
    let even = length.div_ceil(CHUNKS).next_multiple_of(CELL_BYTES as u64);
    let largest = PIECE_BYTES_MAX.min(chunk_bytes);
    let smallest = if pace.is_behind { PIECE_BYTES_MIN_BEHIND } else { PIECE_BYTES_MIN };
    usize::try_from(even).unwrap_or(usize::MAX).clamp(smallest.min(largest), largest)
}

/// How the ends keep up with each other, as the sender saw it when a message began; it goes through the
/// ring accordingly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pace {
    /// Little of the ring is better than all of it (see `near`), and suffices: the sender has not slept for a
    /// while, so the receiver makes room as it goes.
    pub(super) is_near: bool,
    /// The receiver is still at messages before this one.
    pub(super) is_behind: bool,
}

impl Pace {
    /// How many there are.
    pub(super) const COUNT: u64 = 4;

    pub(super) fn word(self) -> u64 {
        u64::from(self.is_near) | u64::from(self.is_behind) << 1
    }

    pub(super) fn from_word(word: u64) -> Option<Self> {
        let is = |bit| word & bit != 0;
        (word < Self::COUNT).then(|| Self { is_near: is(1), is_behind: is(2) })
    }
}

/// What stands at the beginning of a slot: eight words of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Which message it is, from 0.
    pub(super) message: u64,
    /// How its bytes travel, see [`super::Mechanism`].
    pub(super) kind: u64,
    /// How many bytes it has.
    pub(super) length: u64,
    /// What its way needs to be known. Pull and double: entries of the table in the slot. Vmsplice: whether
    /// a pipe comes with it. Ring: [`Pace`].
    pub(super) detail: u64,
    /// The checksum, if there is one and it is known already.
    pub(super) sum: SumState,
}

/// What a header says of the message's checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SumState {
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

    pub(super) fn words(self) -> [u64; 3] {
        match self {
            Self::None => [0; 3],
            Self::Due => [Self::DUE, 0, 0],
            Self::Known(sum) => [Self::KNOWN, sum.plain, sum.weighted],
        }
    }

    /// Anything but a known sum is one that is still due.
    pub(super) fn from_words([state, plain, weighted]: [u64; 3]) -> Self {
        match state {
            0 => Self::None,
            Self::KNOWN => Self::Known(Sum { plain, weighted }),
            _ => Self::Due,
        }
    }
}

/// Where the words of [`SumState`] stand in a header.
pub(super) const SUM_AT: usize = 4 * 8;

/// The words of a header in the order in which they stand in the slot.
pub(super) const HEADER_WORDS: usize = HEADER_BYTES / 8;

impl Header {
    pub(super) fn words(self) -> [u64; HEADER_WORDS] {
        let [state, plain, weighted] = self.sum.words();
        [self.message, self.kind, self.length, self.detail, state, plain, weighted, 0]
    }

    pub(super) fn from_words(words: [u64; HEADER_WORDS]) -> Self {
        let [message, kind, length, detail, state, plain, weighted, _] = words;
        let sum = SumState::from_words([state, plain, weighted]);
        Self { message, kind, length, detail, sum }
    }
}

/// Marks a packet of the handshake.
const MAGIC: u64 = u64::from_le_bytes(*b"haulchan");
/// The version of everything on this page.
const VERSION: u32 = 8;
/// One packet of the handshake.
pub(super) const GREETING_BYTES: usize = 64;

/// What both ends say as they meet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Greeting {
    /// 1 to 4: see `handshake`.
    pub(super) step: u32,
    /// Bytes of a chunk; 0 in step 1.
    pub(super) chunk_bytes: u32,
    /// Whether the sender of this trusts its peer.
    pub(super) trusts: bool,
    /// Whether the sender of this has read `probe` in the other's memory.
    pub(super) can_pull: bool,
    /// A number of the sender's choice, to be sent back.
    pub(super) nonce: u64,
    /// The other's number.
    pub(super) echo: u64,
    /// Where in the sender's memory the number stands, to try whether it can be read; 0 for no.
    pub(super) probe: u64,
}

impl Greeting {
    pub(super) fn to_bytes(self) -> [u8; GREETING_BYTES] {
        let flags = u64::from(self.trusts) | u64::from(self.can_pull) << 1;
        let words = [
            MAGIC,
            u64::from(VERSION) | u64::from(self.step) << 32,
            u64::from(self.chunk_bytes),
            flags,
            self.nonce,
            self.echo,
            self.probe,
            0,
        ];
        let mut bytes = [0; GREETING_BYTES];
        for (target, word) in bytes.chunks_exact_mut(8).zip(words) {
            target.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// # Errors
    /// [`Error::Handshake`] where it is not the greeting that is due.
    pub(super) fn from_bytes(bytes: &[u8], step: u32) -> Result<Self, Error> {
        let check = |what, found: u64, expected: u64| match found == expected {
            true => Ok(()),
            false => Err(Error::Handshake {
                what,
                found: found.to_string(),
                expected: expected.to_string(),
            }),
        };
        check("greeting's length", bytes.len() as u64, GREETING_BYTES as u64)?;
        let word = |index: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[index * 8..][..8]);
            u64::from_le_bytes(word)
        };
        check("mark", word(0), MAGIC)?;
        check("version", word(1) & 0xffff_ffff, VERSION.into())?;
        check("step", word(1) >> 32, step.into())?;
        check("chunk size", word(2) & !0xffff_ffff, 0)?;
        check("flags", word(3) & !3, 0)?;
        Ok(Self {
            step,
            chunk_bytes: word(2) as u32,
            trusts: word(3) & 1 != 0,
            can_pull: word(3) & 2 != 0,
            nonce: word(4),
            echo: word(5),
            probe: word(6),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_overlaps() {
        let chunk = CHUNK_BYTES_MAX;
        assert!(words_start(1) + WORDS_BYTES <= slot_start(0, 0));
        assert!(slot_start(0, SLOTS - 1) + SLOT_BYTES <= slot_start(1, 0));
        let slots_end = slot_start(1, SLOTS - 1) + SLOT_BYTES;
        assert!((slots_end..slots_end + CELL_BYTES).contains(&chunks_start(0, chunk)));
        assert!(chunks_start(0, chunk).is_multiple_of(CELL_BYTES));
        assert!(slot_start(1, 1).is_multiple_of(HEADER_BYTES));
        assert_eq!(chunks_start(1, chunk) - chunks_start(0, chunk), 7 * chunk);
        assert_eq!(region_bytes(chunk), chunks_start(1, chunk) + 7 * chunk);
        assert_eq!(fixed_bytes(), chunks_start(0, chunk));
    }

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
        for (length, used, used_near) in [
            (1, 1024, 128),
            ((512 << 10) - 1, 1024, 128),
            (512 << 10, 1024, 1024),
            ((4 << 20) - 1, 1024, 1024),
            (4 << 20, 1792, 1792),
            (u64::MAX, 1792, 1792),
        ] {
            for pace in paces() {
                let used = if pace.is_near { used_near } else { used };
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

    proptest! {
        #[test]
        fn a_greeting_survives_and_anything_else_is_refused_or_read(bytes: Vec<u8>, nonce: u64, step in 1..5_u32) {
            let greeting = Greeting { step, nonce, trusts: nonce & 1 == 0, probe: !nonce, ..Default::default() };
            prop_assert_eq!(Greeting::from_bytes(&greeting.to_bytes(), step).unwrap(), greeting);
            prop_assert!(Greeting::from_bytes(&greeting.to_bytes(), step + 1).is_err());
            prop_assert!(Greeting::from_bytes(&bytes, step).is_err());
        }
    }
}
