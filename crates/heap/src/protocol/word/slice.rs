//! The word of a slice.

use super::{CacheId, PIECES};

/// The state of a slice's word. A length counts slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slice {
    /// The slice is free. Its slot words are zero in every array.
    Free,
    /// A cache holds the slice. It is not yet or no longer part of a span or block.
    Claimed(CacheId),
    /// The first of `length` slices that belong to a cache, which is building a span or block
    /// from them or is taking it apart.
    Run { cache: CacheId, class: u8, length: u32 },
    /// Part of a span of slots. All slices of the span have this state.
    Span { class: u8 },
    /// The head of a large block.
    Large { process: u8, tag: u8, length: u32 },
    /// A later slice of a large block.
    Tail,
    /// The provider of external memory keeps the slice.
    Outside,
    /// No valid state: the word is corrupt.
    Unknown,
}

/// A slice word. From bit 5 up, it contains the class (6 bits), the kind (3), the generation
/// (16), the owner (15) and the length (24). The highest bits of the length wrap around to bits 0
/// to 4. So the word, masked to class and kind, is the byte offset of an entry in a table with
/// entries of 32 bytes.
///
/// The word of a free or claimed slice, or of a later slice of a large block, contains no length.
/// Instead, the bits of the length contain how many of the slice's [`PIECES`], from the first on,
/// can be resident. In a new heap this number is 0. All memory that the owner of a block may
/// access counts as resident.
///
/// The generation increases by one each time that the slice becomes free. So a cache that claims
/// a slot detects that the span was taken apart and built again meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct SliceWord(pub(crate) u64);

const KIND_FREE: u64 = 0;
const KIND_CLAIMED: u64 = 1;
const KIND_RUN: u64 = 2;
const KIND_SPAN: u64 = 3;
const KIND_LARGE: u64 = 4;
const KIND_TAIL: u64 = 5;
const KIND_OUTSIDE: u64 = 6;

const CLASS_AT: u32 = 5;
const KIND_AT: u32 = 11;
const GENERATION_AT: u32 = 14;
const OWNER_AT: u32 = 30;
const LENGTH_AT: u32 = 45;

const GENERATION_MASK: u64 = 0xFFFF << GENERATION_AT;
const LENGTH_MASK: u64 = 0xFF_FFFF_u64.rotate_left(LENGTH_AT);
/// The length bits of a slice that is entirely resident.
const LENGTH_FULL: u64 = (PIECES as u64).rotate_left(LENGTH_AT);

impl SliceWord {
    /// The number of forms. A form is class and kind together.
    pub(crate) const FORMS: usize = 1 << (GENERATION_AT - CLASS_AT);

    /// The distance between consecutive forms. A form is the byte offset of an entry in a table
    /// with entries of this size.
    pub(crate) const FORM_UNIT: usize = 1 << CLASS_AT;

    /// The form of a slice word in a span of `class`.
    pub(crate) const fn form_of_span(class: usize) -> usize {
        class * Self::FORM_UNIT + ((KIND_SPAN as usize) << KIND_AT)
    }

    /// The class that a form contains.
    pub(crate) const fn class_of_form(form: usize) -> usize {
        (form / Self::FORM_UNIT) & 0x3F
    }

    /// Class and kind together: below [`Self::FORMS`], times [`Self::FORM_UNIT`].
    pub(crate) const fn form(self) -> usize {
        self.0 as usize & ((Self::FORMS - 1) << CLASS_AT)
    }

    const fn kind(self) -> u64 {
        self.0 >> KIND_AT & 7
    }

    const fn new(kind: u64, class: u8, generation: u16, owner: u16, length: u32) -> Self {
        Self(
            (class as u64 & 0x3F) << CLASS_AT
                | kind << KIND_AT
                | (generation as u64) << GENERATION_AT
                | (owner as u64 & 0x7FFF) << OWNER_AT
                | (length as u64).rotate_left(LENGTH_AT),
        )
    }

    pub(crate) const fn free(generation: u16) -> Self {
        Self::new(KIND_FREE, 0, generation, 0, 0)
    }

    pub(crate) const fn claimed(generation: u16, cache: CacheId) -> Self {
        Self::new(KIND_CLAIMED, 0, generation, cache, 0)
    }

    pub(crate) const fn run(generation: u16, cache: CacheId, class: u8, length: u32) -> Self {
        Self::new(KIND_RUN, class, generation, cache, length & 0xFF_FFFF)
    }

    pub(crate) const fn span(generation: u16, class: u8) -> Self {
        Self::new(KIND_SPAN, class, generation, 0, 0)
    }

    pub(crate) const fn large(generation: u16, process: u8, tag: u8, length: u32) -> Self {
        let owner = (process as u16 & 0x7F) << 8 | tag as u16;
        Self::new(KIND_LARGE, 0, generation, owner, length & 0xFF_FFFF)
    }

    pub(crate) const fn tail(generation: u16) -> Self {
        Self::new(KIND_TAIL, 0, generation, 0, 0)
    }

    pub(crate) const fn outside(generation: u16) -> Self {
        Self::new(KIND_OUTSIDE, 0, generation, 0, 0)
    }

    /// The new word for a slice with the word `self` when `cache` claims it. Generation and
    /// resident pieces stay the same.
    pub(crate) const fn to_claimed(self, cache: CacheId) -> Self {
        self.changed(KIND_CLAIMED, cache)
    }

    /// The new word for a slice with the word `self` when it becomes free. Generation and
    /// resident pieces stay the same.
    pub(crate) const fn to_free(self) -> Self {
        self.changed(KIND_FREE, 0)
    }

    /// Like [`SliceWord::to_free`], but with the next generation.
    pub(crate) const fn to_next_free(self) -> Self {
        self.to_free().of_next_generation()
    }

    /// The word for a free slice with the next generation. `self` is the word of a free or
    /// claimed slice.
    pub(crate) const fn of_next_generation(self) -> Self {
        let kept = GENERATION_MASK | LENGTH_MASK;
        Self(((self.0 & kept) + (1 << GENERATION_AT)) & kept)
    }

    /// The new word for a slice with the word `self` when it becomes a later slice of a large
    /// block. Generation and resident pieces stay the same.
    pub(crate) const fn to_tail(self) -> Self {
        self.changed(KIND_TAIL, 0)
    }

    /// Like [`SliceWord::to_claimed`], but `self` must be the word of a free slice.
    pub(crate) const fn free_to_claimed(self, cache: CacheId) -> Self {
        let owner = (cache as u64 & 0x7FFF) << OWNER_AT;
        Self(self.0 & (GENERATION_MASK | LENGTH_MASK) | owner | KIND_CLAIMED << KIND_AT)
    }

    /// This word with another kind. The new kind must be one that contains the number of resident
    /// pieces.
    const fn changed(self, kind: u64, owner: u16) -> Self {
        let resident = if self.counts_resident() { self.0 & LENGTH_MASK } else { LENGTH_FULL };
        let owner = (owner as u64 & 0x7FFF) << OWNER_AT;
        Self(self.0 & GENERATION_MASK | resident | owner | kind << KIND_AT)
    }

    /// This word with `pieces` resident pieces; unchanged if its kind does not contain that
    /// number.
    pub(crate) const fn with_resident(self, pieces: u32) -> Self {
        if !self.counts_resident() {
            return self;
        }
        Self(self.0 & !LENGTH_MASK | (pieces as u64).rotate_left(LENGTH_AT))
    }

    /// How many pieces of the slice, from the first on, can be resident. If the word does not
    /// contain this number, all pieces can.
    pub(crate) const fn resident(self) -> u32 {
        let length = self.length();
        if self.counts_resident() && length < PIECES { length } else { PIECES }
    }

    /// The word's length field, which can have any value.
    pub(crate) const fn length(self) -> u32 {
        self.0.rotate_right(LENGTH_AT) as u32 & 0xFF_FFFF
    }

    const fn counts_resident(self) -> bool {
        // The result is the same as with a comparison for each kind, but a block of 256 slices
        // needs half the instructions.
        (1 << KIND_FREE | 1 << KIND_CLAIMED | 1 << KIND_TAIL) >> self.kind() & 1 == 1
    }

    pub(crate) const fn generation(self) -> u16 {
        (self.0 >> GENERATION_AT) as u16
    }

    /// The class field of a word of any kind: below 64.
    pub(crate) const fn class(self) -> u8 {
        (self.0 >> CLASS_AT & 0x3F) as u8
    }

    pub(crate) const fn is_span(self) -> bool {
        self.kind() == KIND_SPAN
    }

    pub(crate) const fn is_free(self) -> bool {
        self.kind() == KIND_FREE
    }

    /// Whether the slice is claimed by `cache`. Same result as decoding, with fewer instructions.
    pub(crate) const fn is_claimed_by(self, cache: CacheId) -> bool {
        let wanted = KIND_CLAIMED << KIND_AT | (cache as u64 & 0x7FFF) << OWNER_AT;
        self.0 & (7 << KIND_AT | 0x7FFF << OWNER_AT) == wanted
    }

    pub(crate) const fn decode(self) -> Slice {
        let class = self.class();
        let owner = (self.0 >> OWNER_AT & 0x7FFF) as u16;
        let length = self.length();
        match self.kind() {
            KIND_FREE => Slice::Free,
            KIND_CLAIMED => Slice::Claimed(owner),
            KIND_RUN => Slice::Run { cache: owner, class, length },
            KIND_SPAN => Slice::Span { class },
            KIND_LARGE => Slice::Large { process: (owner >> 8) as u8, tag: owner as u8, length },
            KIND_TAIL => Slice::Tail,
            KIND_OUTSIDE => Slice::Outside,
            _ => Slice::Unknown,
        }
    }
}

const _: () = {
    assert!(size_of::<SliceWord>() == 8 && align_of::<SliceWord>() == 8);
    // Fresh, zeroed memory is a valid empty heap.
    assert!(SliceWord::free(0).0 == 0);
    assert!(LENGTH_AT + 24 == 64 + CLASS_AT);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoded_slice_word_equals_its_parts() {
        for generation in [0, 1, u16::MAX] {
            let cases = [
                (SliceWord::free(generation), Slice::Free),
                (SliceWord::claimed(generation, 0x7FFF), Slice::Claimed(0x7FFF)),
                (
                    SliceWord::run(generation, 9, 63, 0xFF_FFFF),
                    Slice::Run { cache: 9, class: 63, length: 0xFF_FFFF },
                ),
                (SliceWord::span(generation, 43), Slice::Span { class: 43 }),
                (
                    SliceWord::large(generation, 127, 255, 16384),
                    Slice::Large { process: 127, tag: 255, length: 16384 },
                ),
                (SliceWord::tail(generation), Slice::Tail),
                (SliceWord::outside(generation), Slice::Outside),
            ];
            for (word, slice) in cases {
                assert_eq!(word.decode(), slice);
                assert_eq!(word.generation(), generation);
                assert_eq!(word.is_free(), slice == Slice::Free);
                assert_eq!(word.is_span(), matches!(slice, Slice::Span { .. }));
            }
        }
        assert_eq!(SliceWord(u64::MAX).decode(), Slice::Unknown);
    }

    #[test]
    fn slice_word_holds_resident_pieces() {
        for word in [SliceWord::free(7), SliceWord::claimed(7, 3), SliceWord::tail(7)] {
            assert_eq!(word.resident(), 0);
            for pieces in 0..=PIECES {
                let with = word.with_resident(pieces);
                assert_eq!((with.resident(), with.generation()), (pieces, 7));
                assert_eq!(with.decode(), word.decode());
                assert_eq!(with.with_resident(0), word);
            }
            assert_eq!(word.with_resident(0xFF_FFFF).resident(), PIECES);
        }
        for word in [SliceWord::span(7, 3), SliceWord::large(7, 1, 2, 5)] {
            assert_eq!((word.with_resident(3), word.resident()), (word, PIECES));
        }
    }

    #[test]
    fn slice_word_keeps_generation_and_resident_pieces() {
        let scribbled = SliceWord(u64::MAX);
        for generation in [0, 7, u16::MAX] {
            let counted = [
                SliceWord::free(generation),
                SliceWord::claimed(generation, 0x7FFF),
                SliceWord::tail(generation),
            ];
            let others = [
                SliceWord::span(generation, 63),
                SliceWord::large(generation, 127, 255, 0xFF_FFFF),
                SliceWord::run(generation, 9, 63, 5),
            ];
            let next = generation.wrapping_add(1);
            let check = |old: SliceWord, pieces| {
                let with = |word: SliceWord| word.with_resident(pieces);
                assert_eq!(old.to_claimed(3), with(SliceWord::claimed(generation, 3)));
                assert_eq!(old.to_free().free_to_claimed(3), old.to_claimed(3));
                assert_eq!(old.to_claimed(3).of_next_generation(), old.to_next_free());
                assert_eq!(old.to_tail(), with(SliceWord::tail(generation)));
                assert_eq!(old.to_free(), with(SliceWord::free(generation)));
                assert_eq!(old.to_next_free(), with(SliceWord::free(next)));
            };
            for pieces in 0..=PIECES {
                counted.into_iter().for_each(|old| check(old.with_resident(pieces), pieces));
            }
            others.into_iter().for_each(|old| check(old, PIECES));
        }
        assert!(scribbled.to_next_free().is_free() && scribbled.to_claimed(5).is_claimed_by(5));
    }
}
