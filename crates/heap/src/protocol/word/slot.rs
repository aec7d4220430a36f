//! The word of a slot.

use super::CacheId;

/// The state of a slot's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Free,
    Cached(CacheId),
    Live { process: u8, tag: u8 },
}

/// A slot word: 0 is free, `1..=0x7FFF` is cached by the cache with this number, `0x8000 |
/// process << 8 | tag` is live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct SlotWord(pub(crate) u16);

impl SlotWord {
    pub(crate) const FREE: Self = Self(0);
    /// The bit that is set only in the word of a live slot.
    pub(crate) const LIVE: u16 = 0x8000;

    pub(crate) const fn cached(cache: CacheId) -> Self {
        Self(cache & 0x7FFF)
    }

    pub(crate) const fn live(process: u8, tag: u8) -> Self {
        Self(Self::LIVE | (process as u16 & 0x7F) << 8 | tag as u16)
    }

    pub(crate) const fn is_live(self) -> bool {
        self.0 & Self::LIVE != 0
    }

    pub(crate) const fn decode(self) -> Slot {
        match self.0 {
            0 => Slot::Free,
            word if word & Self::LIVE == 0 => Slot::Cached(word),
            word => Slot::Live { process: (word >> 8 & 0x7F) as u8, tag: word as u8 },
        }
    }
}

const _: () = assert!(size_of::<SlotWord>() == 2 && align_of::<SlotWord>() == 2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoded_slot_word_equals_its_parts() {
        assert_eq!(SlotWord::FREE.decode(), Slot::Free);
        for cache in [1, 2, 0x7FFF] {
            assert_eq!(SlotWord::cached(cache).decode(), Slot::Cached(cache));
            assert!(!SlotWord::cached(cache).is_live());
        }
        for (process, tag) in [(0, 0), (127, 255), (1, 2)] {
            assert_eq!(SlotWord::live(process, tag).decode(), Slot::Live { process, tag });
            assert!(SlotWord::live(process, tag).is_live());
        }
    }
}
