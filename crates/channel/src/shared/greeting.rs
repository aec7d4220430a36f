//! The packets of the handshake.

use super::error::Error;

/// The first word of a handshake packet.
const MAGIC: u64 = u64::from_le_bytes(*b"haulchan");
/// The version of the protocol.
const VERSION: u32 = 9;
/// The length of a handshake packet.
pub(crate) const GREETING_BYTES: usize = 64;

/// The packets of the handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Greeting {
    /// The step of the handshake, 1 to 4, see `handshake`.
    pub(crate) step: u32,
    /// The length of a chunk in bytes; 0 in step 1.
    pub(crate) chunk_bytes: u32,
    /// Whether the sender of the packet trusts its peer.
    pub(crate) trusts: bool,
    /// Whether the sender of the packet has read the number at `probe` in the other end's memory.
    pub(crate) can_pull: bool,
    /// A random number that the sender chose, which the other end must send back.
    pub(crate) nonce: u64,
    /// The other end's number.
    pub(crate) echo: u64,
    /// The address of the sender's number in its memory, at which the other end tries to read it; 0
    /// if it must not try.
    pub(crate) probe: u64,
}

impl Greeting {
    pub(crate) fn to_bytes(self) -> [u8; GREETING_BYTES] {
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
    /// [`Error::Handshake`] if the packet is not the expected one.
    pub(crate) fn from_bytes(bytes: &[u8], step: u32) -> Result<Self, Error> {
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
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn from_bytes_reads_greeting_and_refuses_other_bytes(bytes: Vec<u8>, nonce: u64, step in 1..5_u32) {
            let greeting = Greeting { step, nonce, trusts: nonce & 1 == 0, probe: !nonce, ..Default::default() };
            prop_assert_eq!(Greeting::from_bytes(&greeting.to_bytes(), step).unwrap(), greeting);
            prop_assert!(Greeting::from_bytes(&greeting.to_bytes(), step + 1).is_err());
            prop_assert!(Greeting::from_bytes(&bytes, step).is_err());
        }
    }
}
