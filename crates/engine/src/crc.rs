//! CRC-32C as RFC 3720 defines it (appendix B.4): the checksum of iSCSI, ext4 and DSA.

/// The polynomial 0x1EDC6F41, reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// The remainder of every byte.
static TABLE: [u32; 256] = table();

/// The CRC-32C of `bytes`, continued from that of the bytes before them; 0 at the beginning.
///
/// ```
/// assert_eq!(haul_engine::crc32c(0, b"123456789"), 0xe306_9283);
/// assert_eq!(haul_engine::crc32c(haul_engine::crc32c(0, b"1234"), b"56789"), 0xe306_9283);
/// ```
///
/// Cost: one instruction for 8 bytes on a processor with SSE 4.2, else a look-up in a table of 1 KiB
/// for each byte.
#[must_use]
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has SSE 4.2.
        return unsafe { by_instruction(seed, bytes) };
    }
    by_table(seed, bytes)
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "sse4.2")]
fn by_instruction(seed: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};
    let (words, rest) = bytes.as_chunks::<8>();
    let start = u64::from(!seed);
    let crc = words.iter().fold(start, |crc, word| _mm_crc32_u64(crc, u64::from_le_bytes(*word)));
    !rest.iter().fold(crc as u32, |crc, byte| _mm_crc32_u8(crc, *byte))
}

fn by_table(seed: u32, bytes: &[u8]) -> u32 {
    let update = |crc: u32, byte: &u8| TABLE[usize::from(crc as u8 ^ byte)] ^ (crc >> 8);
    !bytes.iter().fold(!seed, update)
}

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut remainder = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            let odd = remainder & 1;
            remainder >>= 1;
            if odd == 1 {
                remainder ^= POLYNOMIAL;
            }
            bit += 1;
        }
        table[byte] = remainder;
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc_has_the_published_values_by_both_methods() {
        for crc in [crc32c, by_table] {
            assert_eq!(crc(0, b"123456789"), 0xe306_9283);
            assert_eq!(crc(0, &[0; 32]), 0x8a91_36aa);
            assert_eq!(crc(0, &[0xff; 32]), 0x62a8_ab43);
            assert_eq!(crc(7, b""), 7);
        }
    }

    #[test]
    fn both_methods_agree_at_every_length_and_alignment() {
        let bytes: Vec<u8> = (0..200_u32).map(|number| (number * 37) as u8).collect();
        for start in 0..9 {
            for end in start..bytes.len() {
                let part = &bytes[start..end];
                assert_eq!(crc32c(5, part), by_table(5, part), "{start}..{end}");
            }
        }
    }
}
