//! The content of messages: bytes that follow from a seed, so that the receiver can verify every
//! byte.

/// The golden ratio as a fraction of 2^64, whose successive multiples are far apart (Knuth, The
/// Art of Computer Programming, volume 3, 6.4).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

const WORD_BYTES: usize = size_of::<u64>();

/// Fills consecutive messages with the content of this seed.
pub fn fill(messages: &mut [u8], seed: u64) {
    let mut words = messages.chunks_exact_mut(WORD_BYTES);
    let mut index = 0;
    for chunk in &mut words {
        chunk.copy_from_slice(&word(seed, index).to_le_bytes());
        index += 1;
    }
    let rest = words.into_remainder();
    let last = word(seed, index).to_le_bytes();
    rest.copy_from_slice(&last[..rest.len()]);
}

/// Compares every byte with the content of this seed.
///
/// # Errors
/// The index of the first byte that differs.
pub fn verify(messages: &[u8], seed: u64) -> Result<(), usize> {
    let words = messages.chunks_exact(WORD_BYTES);
    let mut different = 0;
    for (index, chunk) in (0..).zip(words) {
        let found = u64::from_le_bytes(chunk.try_into().unwrap_or_default());
        different |= found ^ word(seed, index);
    }
    let whole = messages.len() / WORD_BYTES * WORD_BYTES;
    let last = word(seed, (whole / WORD_BYTES) as u64).to_le_bytes();
    let rest = &messages[whole..];
    if different == 0 && *rest == last[..rest.len()] {
        return Ok(());
    }
    Err(first_difference(messages, seed))
}

/// One byte of the content of this seed.
#[must_use]
pub fn byte(seed: u64, index: usize) -> u8 {
    word(seed, (index / WORD_BYTES) as u64).to_le_bytes()[index % WORD_BYTES]
}

fn first_difference(messages: &[u8], seed: u64) -> usize {
    let mut found = messages.iter().enumerate();
    let different = found.position(|(index, &found)| found != byte(seed, index));
    different.unwrap_or(messages.len())
}

/// The word at an index. Every index has a different word, so that a message at a wrong index or
/// from an earlier task is detected. `peers/driver.h` has the same function.
fn word(seed: u64, index: u64) -> u64 {
    let word = index.wrapping_add(seed).wrapping_mul(GOLDEN);
    word ^ (word >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verify_finds_single_wrong_byte_anywhere() {
        for length in [0, 1, 7, 8, 9, 63, 64, 1000] {
            let mut messages = vec![0; length];
            fill(&mut messages, 7);
            assert_eq!(verify(&messages, 7), Ok(()), "{length}");
            for index in 0..length {
                messages[index] ^= 0x80;
                assert_eq!(verify(&messages, 7), Err(index), "{length}");
                messages[index] ^= 0x80;
            }
        }
    }

    #[test]
    fn content_differs_by_seed_and_position() {
        let mut messages = vec![0; 4096];
        fill(&mut messages, 9);
        assert!(verify(&messages, 10).is_err());
        messages.copy_within(0..64, 64);
        assert_eq!(verify(&messages, 9), Err(64));
    }

    #[test]
    fn content_has_words_of_drivers_in_c() {
        let mut messages = [0; 16];
        fill(&mut messages, 5);
        let words = [5_u64, 6].map(|n| n.wrapping_mul(GOLDEN)).map(|w| w ^ (w >> 32));
        assert_eq!(messages[..8], words[0].to_le_bytes());
        assert_eq!(messages[8..], words[1].to_le_bytes());
    }
}
