//! Offsets and sizes in the memory that both ends share.

/// Number of messages that may be in transit per direction, a power of two.
pub(crate) const SLOTS: u64 = 16;
/// The header at the beginning of a slot, before the bytes: one cache line.
pub(crate) const HEADER_BYTES: usize = 64;
/// The longest message that fits into its slot. On Cascade Lake, interleaved with the ring, GB/s
/// and half a round trip in ns: 4 KiB 11.4 and 1050 (the ring 5.6 and 1580), 8 KiB 12.8 and 1850
/// (7.9 and 2500), 16 KiB 12.0 and 2900 (9.4 and 4000). But slots of 16 KiB and the whole ring
/// together are more than 2 MiB.
pub(crate) const INLINE_BYTES_MAX: usize = 8192;
/// The stride of the slots: a header, and the bytes of an inline message or a table. The stride
/// is not a multiple of a page, so that slots do not share the same sets of a cache.
const SLOT_BYTES: usize = (HEADER_BYTES + INLINE_BYTES_MAX).next_multiple_of(LINE_BYTES);

/// Number of ring chunks for a message of less than `pace::CHUNKS_ALL_BYTES_MIN`.
pub(crate) const CHUNKS: u64 = 4;
/// Number of ring chunks per direction: 1.75 MiB at most, so that no message uses 2 MiB.
pub(crate) const CHUNKS_ALL: u64 = 7;
/// Largest chunk. Four chunks are 1 MiB; servers of 2021 to 2025 have an L2 of 1 to 2 MiB.
pub(crate) const CHUNK_BYTES_MAX: usize = 256 << 10;
/// Smallest chunk: a small message's piece is not larger.
pub(crate) const CHUNK_BYTES_MIN: usize = 16 << 10;
/// The unit in which the ring is counted: a page, the smallest size whose copy bypasses the
/// caches.
pub(crate) const CELL_BYTES: usize = 4096;
/// The distance between the words of one direction: two cache lines, because processors fetch
/// lines in pairs.
const LINE_BYTES: usize = 128;
/// u64, sender: messages published.
pub(crate) const PUBLISHED: usize = 0;
/// u64, receiver: messages consumed.
pub(crate) const CONSUMED: usize = LINE_BYTES;
/// u64, sender: number of ring cells that it has filled.
pub(crate) const FILLED: usize = 2 * LINE_BYTES;
/// u64, receiver: number of ring cells that it has emptied.
pub(crate) const DRAINED: usize = 3 * LINE_BYTES;
/// u64, receiver: the message that it cannot receive completely by the message's mechanism,
/// counted from 1.
pub(crate) const REFUSED: usize = 4 * LINE_BYTES;
/// u64, receiver: the number of bytes that it has received of the message in [`REFUSED`].
pub(crate) const REFUSED_AT: usize = REFUSED + 8;
/// u64, receiver: number of bytes of the current message that it has pulled, which shows its
/// progress.
pub(crate) const PULLED: usize = REFUSED + 16;
/// u64, receiver: whether it put its last large message into new memory, 1 or 0.
pub(crate) const INTO_NEW_MEMORY: usize = REFUSED + 24;
/// u32: the bell of the sender. The next word says how the sender sleeps.
pub(crate) const SENDER_BELL: usize = 5 * LINE_BYTES;
/// u32: the bell of the receiver. The next word says how the receiver sleeps.
pub(crate) const RECEIVER_BELL: usize = 6 * LINE_BYTES;
/// u32, sender: the state of its end, see [`OPEN`].
pub(crate) const SENDER_STATE: usize = 7 * LINE_BYTES;
/// u64, sender: the processors that it may run on, see `affinity`.
pub(crate) const SENDER_AFFINITY: usize = SENDER_STATE + 8;
/// u64, sender: the process that uses its end, 0 for the process of the handshake, see `lane`.
pub(crate) const SENDER_USER: usize = SENDER_STATE + 16;
/// u64, sender: the processor that it runs on, see `cpu`.
pub(crate) const SENDER_CPU: usize = SENDER_STATE + 24;
/// u32, receiver: the state of its end, see [`OPEN`].
pub(crate) const RECEIVER_STATE: usize = 8 * LINE_BYTES;
/// u64, receiver: the processors that it may run on, see `affinity`.
pub(crate) const RECEIVER_AFFINITY: usize = RECEIVER_STATE + 8;
/// u64, receiver: the process that uses its end.
pub(crate) const RECEIVER_USER: usize = RECEIVER_STATE + 16;
/// u64, receiver: the processor that it runs on, see `cpu`.
pub(crate) const RECEIVER_CPU: usize = RECEIVER_STATE + 24;

/// u64, receiver: the message whose target the sender may write to, counted from 1.
pub(crate) const OFFERED: usize = 9 * LINE_BYTES;
/// u64, receiver: the location of that target: an address, or an offset into the pool.
pub(crate) const OFFERED_AT: usize = OFFERED + 8;
/// u64, receiver: the pool of the target.
pub(crate) const OFFERED_POOL: usize = OFFERED + 16;
/// u64, receiver: the slots that hold a pool, one bit per slot; the sender unmaps the pools of
/// the other slots.
pub(crate) const OFFERED_KEPT: usize = OFFERED + 24;
/// u64, both: the pieces that either end has claimed, see `counter`.
pub(crate) const CLAIMED: usize = 10 * LINE_BYTES;
/// u64, sender: its progress with the current message: pieces written by `double`.
pub(crate) const PUSHED: usize = 11 * LINE_BYTES;
/// u64, sender: the message that it has abandoned, counted from 1.
pub(crate) const ABANDONED: usize = PUSHED + 8;
/// u64, sender: the last message that it has copied into its lease, counted from 1. The sender may
/// have begun the next message when the receiver reads this word.
pub(crate) const LEASE_FILLED: usize = PUSHED + 16;

/// The end is in use.
pub(crate) const OPEN: u32 = 0;
/// The end was closed after a whole message.
pub(crate) const CLOSED: u32 = 1;
/// The end gave up a message before it was complete.
pub(crate) const GIVEN_UP: u32 = 2;

/// The words of a direction are on a separate page.
const WORDS_BYTES: usize = 4096;
const _: () = assert!(PUSHED + LINE_BYTES <= WORDS_BYTES);
const _: () = assert!(SLOTS.is_power_of_two() && CHUNKS.is_power_of_two() && CHUNKS < CHUNKS_ALL);

/// The length of the shared memory: words and slots of both directions, then the chunks, which only
/// some channels use.
pub(crate) const fn region_bytes(chunk_bytes: usize) -> usize {
    chunks_start(2, chunk_bytes)
}

/// The length of the words and slots of both directions, which every channel uses.
pub(crate) const fn fixed_bytes() -> usize {
    chunks_start(0, 0)
}

/// The offset of the words of a direction.
pub(crate) const fn words_start(lane: usize) -> usize {
    lane * WORDS_BYTES
}

/// The offset of a slot.
pub(crate) const fn slot_start(lane: usize, message: u64) -> usize {
    let index = (message % SLOTS) as usize;
    2 * WORDS_BYTES + (lane * SLOTS as usize + index) * SLOT_BYTES
}

/// The length of the slots of one direction.
pub(crate) const SLOTS_BYTES: usize = SLOTS as usize * SLOT_BYTES;

/// The offset of the chunks of a direction.
pub(crate) const fn chunks_start(lane: usize, chunk_bytes: usize) -> usize {
    slot_start(2, 0).next_multiple_of(CELL_BYTES) + lane * CHUNKS_ALL as usize * chunk_bytes
}

/// Number of ring cells per direction.
pub(crate) const fn cells(chunk_bytes: usize) -> u64 {
    CHUNKS_ALL * (chunk_bytes / CELL_BYTES) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_slots_and_chunks_do_not_overlap() {
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
}
