//! The word of a page.

use super::CacheId;

/// The state of a page's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    /// The page has no memory, or only memory that no block uses.
    Absent,
    /// A cache is getting memory for the page from the kernel.
    Mapping(CacheId),
    /// The page can be accessed.
    Ready,
    /// A cache has claimed all slices of the page and is giving the page's memory back.
    Draining(CacheId),
}

/// A page word. From the lowest bit up, it contains the state (2 bits), the cache (15) and the
/// backing (3), which is a number for the kind of memory: see [`crate::region::backing`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct PageWord(pub(crate) u64);

const CACHE_AT: u32 = 2;
const BACKING_AT: u32 = 17;

impl PageWord {
    pub(crate) const ABSENT: Self = Self(0);

    /// Absent too: the page's external memory was provided before and given back.
    pub(crate) const GIVEN_BACK: Self = Self(1 << CACHE_AT);

    pub(crate) const fn mapping(cache: CacheId) -> Self {
        Self(1 | (cache as u64 & 0x7FFF) << CACHE_AT)
    }

    /// `backing` is the number for the kind of memory that the page got, below 8.
    pub(crate) const fn ready(backing: u8) -> Self {
        Self(2 | (backing as u64 & 7) << BACKING_AT)
    }

    pub(crate) const fn draining(cache: CacheId) -> Self {
        Self(3 | (cache as u64 & 0x7FFF) << CACHE_AT)
    }

    pub(crate) const fn is_ready(self) -> bool {
        self.0 & 3 == 2
    }

    pub(crate) const fn backing(self) -> u8 {
        (self.0 >> BACKING_AT & 7) as u8
    }

    pub(crate) const fn decode(self) -> Page {
        let cache = (self.0 >> CACHE_AT & 0x7FFF) as CacheId;
        match self.0 & 3 {
            0 => Page::Absent,
            1 => Page::Mapping(cache),
            2 => Page::Ready,
            _ => Page::Draining(cache),
        }
    }
}

const _: () = {
    assert!(size_of::<PageWord>() == 8);
    // Fresh, zeroed memory is a valid empty heap.
    assert!(PageWord::ABSENT.0 == 0);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoded_page_word_equals_its_parts() {
        assert_eq!(PageWord::ABSENT.decode(), Page::Absent);
        assert_eq!(PageWord::mapping(0x7FFF).decode(), Page::Mapping(0x7FFF));
        assert_eq!(PageWord::ready(5).decode(), Page::Ready);
        assert_eq!(PageWord::ready(5).backing(), 5);
        assert!(PageWord::ready(0).is_ready() && !PageWord::mapping(1).is_ready());
        assert_eq!(PageWord::draining(3).decode(), Page::Draining(3));
    }
}
