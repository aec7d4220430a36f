//! A byte-wise memmove and memset as the oracle, and patterns of bytes that reveal every mistake.

/// The value of every byte that no copy has written. No pattern contains it.
pub(crate) const UNTOUCHED: u8 = 0;

/// memmove inside `buffer`: all bytes are read before one is written.
#[expect(clippy::manual_memcpy, reason = "the library's own copy is no oracle for a copy")]
pub(crate) fn memmove(buffer: &mut [u8], target: usize, source: usize, length: usize) {
    if cfg!(miri) {
        // Miri itself implements this operation, which is therefore an oracle too, and is faster.
        return buffer.copy_within(source..source + length, target);
    }
    let mut held = Vec::new();
    for index in 0..length {
        held.push(buffer[source + index]);
    }
    for index in 0..length {
        buffer[target + index] = held[index];
    }
}

/// memset inside `buffer`.
pub(crate) fn memset(buffer: &mut [u8], target: usize, byte: u8, length: usize) {
    if cfg!(miri) {
        return buffer[target..target + length].fill(byte);
    }
    for index in 0..length {
        buffer[target + index] = byte;
    }
}

/// The byte at `index` of the pattern of `seed`. The pattern has no period, so that a shift is
/// detected. The pattern's bytes are 1 to 254, so that neither they nor their complements are
/// [`UNTOUCHED`].
pub(crate) fn pattern(index: usize, seed: u64) -> u8 {
    // splitmix64 (Steele, Lea and Flood, 2014).
    let mut word = (index as u64).wrapping_add(seed << 32).wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    u8::try_from((word ^ (word >> 31)) % 254 + 1).expect("at most 254")
}

/// The period of the pattern under Miri, where every byte takes microseconds.
const MIRI_PERIOD: usize = 251;

/// Fills `bytes` with the pattern of `seed`.
pub(crate) fn paint(bytes: &mut [u8], seed: u64) {
    if cfg!(miri) && bytes.len() > MIRI_PERIOD {
        // The period is a prime, so that a shift by a line or a register is detected.
        let (first, rest) = bytes.split_at_mut(MIRI_PERIOD);
        paint(first, seed);
        return rest.chunks_mut(MIRI_PERIOD).for_each(|part| {
            part.copy_from_slice(&first[..part.len()]);
        });
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = pattern(index, seed);
    }
}

/// The first index at which two slices of equal length differ.
pub(crate) fn first_difference(left: &[u8], right: &[u8]) -> Option<usize> {
    assert_eq!(left.len(), right.len());
    if left == right {
        return None;
    }
    left.iter().zip(right).position(|(left, right)| left != right)
}

/// The first byte of `bytes` that is not [`UNTOUCHED`].
pub(crate) fn first_touched(bytes: &[u8]) -> Option<usize> {
    static ZEROS: [u8; 256] = [UNTOUCHED; 256];
    let is_clean = bytes.chunks(ZEROS.len()).all(|chunk| chunk == &ZEROS[..chunk.len()]);
    if is_clean { None } else { bytes.iter().position(|&byte| byte != UNTOUCHED) }
}

/// The first byte of `bytes` that is not `byte`.
pub(crate) fn first_other(bytes: &[u8], byte: u8) -> Option<usize> {
    // All bytes are equal if the slice equals itself one byte further on: one memcmp instead of a
    // loop.
    let is_even = bytes.first().is_none_or(|&first| first == byte)
        && bytes.get(1..).is_none_or(|rest| rest == &bytes[..rest.len()]);
    if is_even { None } else { bytes.iter().position(|&found| found != byte) }
}
