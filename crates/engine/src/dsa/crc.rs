//! CRC-32C as the device computes it: polynomial 0x1EDC6F41 with bits reflected, seed and result
//! inverted (Intel DSA Architecture Specification, "CRC Generation"; RFC 3720, appendix B.4).

/// The polynomial, reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// The remainder of every byte.
static TABLE: [u32; 256] = table();

/// The CRC of `bytes`, continued from the CRC of the bytes before them; 0 at the beginning.
pub(crate) fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
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

    /// RFC 3720, appendix B.4, and the check value of the CRC catalogue.
    #[test]
    fn crc_has_the_published_values() {
        assert_eq!(crc32c(0, b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(0, &[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(0, &[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(crc32c(0, b"1234"), b"56789"), 0xe306_9283);
        assert_eq!(crc32c(7, b""), 7);
    }
}
