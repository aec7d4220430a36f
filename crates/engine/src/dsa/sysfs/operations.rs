//! The set of operations that sysfs lists for a device or a queue.

use super::number;
use crate::dsa::descriptor::Opcode;

/// The operations of a device or a queue, as a set of 256 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operations {
    /// The bits, from operation 0.
    words: [u64; 4],
}

impl Operations {
    /// A set of operations.
    #[must_use]
    pub fn of(opcodes: &[Opcode]) -> Self {
        let mut set = Self::default();
        for opcode in opcodes {
            let number = *opcode as usize;
            set.words[number / 64] |= 1 << (number % 64);
        }
        set
    }

    /// Whether the set has an operation.
    #[must_use]
    pub fn has(&self, opcode: Opcode) -> bool {
        let number = opcode as usize;
        self.words[number / 64] >> (number % 64) & 1 == 1
    }

    /// Reads `op_cap` in both forms: groups of 32 bits with commas, the highest first (since Linux
    /// 6.1), or numbers of 64 bits with spaces, the lowest first.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = [0u64; 4];
        if text.contains("0x") {
            for (index, word) in text.split_whitespace().enumerate() {
                *words.get_mut(index)? = number(word)?;
            }
            return Some(Self { words });
        }
        for (index, group) in text.split(',').rev().enumerate() {
            let bits = u64::from(u32::from_str_radix(group.trim(), 16).ok()?);
            *words.get_mut(index / 2)? |= bits << (32 * (index % 2));
        }
        Some(Self { words })
    }

    /// The form of sysfs with commas.
    #[must_use]
    pub fn text(&self) -> String {
        let halves = self.words.iter().rev().flat_map(|word| [word >> 32, word & 0xffff_ffff]);
        halves.map(|half| format!("{half:08x}")).collect::<Vec<_>>().join(",")
    }

    pub(super) fn and(mut self, other: Self) -> Self {
        self.words.iter_mut().zip(other.words).for_each(|(word, other)| *word &= other);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dsa::sysfs::tests::SPR;

    #[test]
    fn operations_are_read_in_both_forms() {
        let new = Operations::parse(SPR).unwrap();
        assert!(!new.has(Opcode::Batch) && new.has(Opcode::Copy) && new.has(Opcode::Flush));
        let old = Operations::parse("0x1003f03ff 0x0 0x0 0x0").unwrap();
        assert!(old.has(Opcode::Batch) && old.has(Opcode::CopyCrc) && old.has(Opcode::Flush));
        assert_eq!(Operations::parse(&old.text()), Some(old));
        assert_eq!(new.text(), SPR);
        for bad in ["x", "", "0x", "0x1 0x2 0x3 0x4 0x5", "1,2,3,4,5,6,7,8,9", "100000000"] {
            assert_eq!(Operations::parse(bad), None, "{bad}");
        }
        let all = Operations::of(&Opcode::ALL);
        assert!(Opcode::ALL.iter().all(|opcode| all.has(*opcode)));
    }
}
