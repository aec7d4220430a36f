//! Whole numbers in as few bytes as possible: seven bits a byte, the lowest first, with the eighth
//! bit set on all bytes but the last (LEB128, as in DWARF 5, section 7.6).

/// The largest number of bytes that 64 bits need, at seven bits a byte.
pub(crate) const NUMBER_BYTES_MAX: usize = 10;

/// Writes the number into `room` and returns its length in bytes; `None` if it does not fit.
pub(crate) fn put(mut value: u64, room: &mut [u8]) -> Option<usize> {
    let mut length = 0;
    loop {
        let low = (value & 0x7f) as u8;
        value >>= 7;
        *room.get_mut(length)? = if value == 0 { low } else { low | 0x80 };
        length += 1;
        if value == 0 {
            return Some(length);
        }
    }
}

/// Reads a number from the start of `bytes` and returns it with its length in bytes. `None` if it
/// does not end, or does not fit into 64 bits.
pub(crate) fn take(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0_u64;
    for (index, byte) in bytes.iter().take(NUMBER_BYTES_MAX).enumerate() {
        let bits = u64::from(byte & 0x7f);
        // The tenth byte contains only the 64th bit.
        if index == NUMBER_BYTES_MAX - 1 && bits > 1 {
            return None;
        }
        value |= bits << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, index + 1));
        }
    }
    None
}

/// Encodes a difference of two addresses so that a small difference of either sign is a small
/// number.
pub(crate) fn folded(difference: u64) -> u64 {
    (difference << 1) ^ (((difference as i64) >> 63) as u64)
}

/// The inverse of [`folded`].
pub(crate) fn unfolded(value: u64) -> u64 {
    (value >> 1) ^ (value & 1).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn put_and_take_use_shortest_length() {
        for (value, length) in
            [(0, 1), (127, 1), (128, 2), (16_383, 2), (1 << 35, 6), (u64::MAX, 10)]
        {
            let mut room = [0; NUMBER_BYTES_MAX];
            assert_eq!(put(value, &mut room), Some(length));
            assert_eq!(take(&room), Some((value, length)));
            assert_eq!(put(value, &mut room[..length - 1]), None);
            assert_eq!(take(&room[..length - 1]), None, "{value} cut off");
        }
    }

    #[test]
    fn take_rejects_numbers_above_64_bits() {
        let mut bytes = [0xff; 10];
        bytes[9] = 0x02;
        assert_eq!(take(&bytes), None);
        assert_eq!(take(&[0x80; 11]), None);
    }

    proptest! {
        #[test]
        fn folded_and_unfolded_are_inverse(value: u64) {
            prop_assert_eq!(unfolded(folded(value)), value);
        }

        #[test]
        fn take_accepts_or_rejects_any_bytes(bytes: Vec<u8>) {
            if let Some((value, length)) = take(&bytes) {
                let mut room = [0; NUMBER_BYTES_MAX];
                // A number may be written longer than it needs to be; its value is the same.
                let shortest = put(value, &mut room).unwrap();
                prop_assert!(shortest <= length);
            }
        }
    }
}
