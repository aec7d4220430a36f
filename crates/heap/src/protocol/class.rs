//! Size classes: a quantum of one cache line, four steps in each doubling, and every power of two.

use super::word::SliceWord;

/// Bytes of a slice: what a span is built of.
pub(crate) const SLICE: usize = 64 << 10;

/// Smallest block and step of the smallest classes, in bytes: one cache line, so that two blocks
/// never share one.
pub(crate) const QUANTUM: usize = 64;

/// Largest block that is a slot of a span, in bytes. Above it a block is a run of slices.
pub(crate) const SLOT_SIZE_MAX: usize = 256 << 10;

/// How many classes there are: 64, 128, 192 and 256, then four in each of ten doublings.
pub(crate) const CLASSES: usize = 44;

/// Slots that a span must have at least where its length allows, so that building one pays.
const SPAN_SLOTS_MIN: usize = 8;

/// Slot words in a cache line. A span has so many, where that is not too long for it: else two
/// threads whose spans lie side by side store to one line (4 KiB on two threads: 8 ns a pair, else
/// 4).
const LINE_WORDS: usize = QUANTUM / size_of::<u16>();

/// Slices of the longest span that is made longer for that.
const APART_SLICES_MAX: usize = 4;

/// Slices of the longest span: one page.
const SPAN_SLICES_MAX: usize = 32;

/// Bytes of one class that a thread keeps to itself at most once it has freed one: a bound on what
/// an idle thread holds. (One that only allocates has up to a refill, 16 slots, of a class above 16
/// KiB.)
const BIN_BYTES_MAX: usize = 256 << 10;

/// Slots that a bin holds at most: with its count it is four cache lines.
pub(crate) const BIN_SLOTS_MAX: usize = 63;

/// Slots that a bin holds at least, however large: fewer would go to the span at every other call.
const BIN_SLOTS_MIN: usize = 4;

/// What is known of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class {
    /// Bytes of a slot.
    pub(crate) size: u32,
    /// Slices of a span, a power of two up to 32.
    pub(crate) span_slices: u32,
    /// Slots of a span.
    pub(crate) span_slots: u32,
    /// Number of zero bits below the lowest set bit of `size`: which array has its slot words.
    pub(crate) shift: u32,
    /// Slots that a thread's bin holds at most.
    pub(crate) bin_slots: u32,
}

/// The class table, by class number. From 44 to 63 it repeats the last class: a class field that
/// was read from shared memory has six bits, and indexes it whatever they are.
pub(crate) const TABLE: [Class; 64] = table();

/// The form of the spans of the class of each count of cache lines that is looked up.
const SMALL: [u16; SMALL_LINES_MAX + 1] = small();

/// Cache lines up to which a class is looked up: to a page, for a pair of 4 KiB takes 3.6 ns so,
/// and 5.3 where the class comes from the size's bits.
const SMALL_LINES_MAX: usize = 64;

/// The largest size whose class is looked up, in bytes.
pub(crate) const SMALL_SIZE_MAX: usize = SMALL_LINES_MAX * QUANTUM;

/// The class of a block of `size` bytes up to [`SMALL_SIZE_MAX`].
#[inline(always)]
pub(crate) const fn of_small(size: usize) -> usize {
    SliceWord::class_of_form(form_of_small(size))
}

/// The form of the spans of that class.
#[inline(always)]
pub(crate) const fn form_of_small(size: usize) -> usize {
    SMALL[size.div_ceil(QUANTUM)] as usize
}

/// The class of a block of `size` bytes whose alignment is at most a cache line; `None` above
/// [`SLOT_SIZE_MAX`].
#[inline]
pub(crate) const fn of_size(size: usize) -> Option<usize> {
    if size <= SMALL_SIZE_MAX {
        return Some(of_small(size));
    }
    if size > SLOT_SIZE_MAX { None } else { Some(by_bits(size)) }
}

/// The class of a block of `size` bytes aligned to `align`, a power of two: the smallest that holds
/// `size` and is divisible by `align`. `None` where there is none.
#[inline]
pub(crate) const fn of(size: usize, align: usize) -> Option<usize> {
    if align <= QUANTUM { of_size(size) } else { of_aligned(size, align) }
}

#[inline]
const fn of_aligned(size: usize, align: usize) -> Option<usize> {
    if size > SLOT_SIZE_MAX || align > SLOT_SIZE_MAX {
        return None;
    }
    let least = if size < align { align } else { size };
    let mut class = by_bits(least);
    // At most three steps: every power of two is a class, and is divisible by every smaller one.
    while class < CLASSES {
        if TABLE[class].shift >= align.trailing_zeros() {
            return Some(class);
        }
        class += 1;
    }
    None
}

/// The smallest class that holds `size`, which is 1 to [`SLOT_SIZE_MAX`], from its bits alone.
#[inline]
const fn by_bits(size: usize) -> usize {
    if size <= 4 * QUANTUM {
        return size.div_ceil(QUANTUM).saturating_sub(1);
    }
    // 2^exponent < size <= 2^(exponent + 1), in steps of a quarter of 2^exponent.
    let last = size - 1;
    let exponent = last.ilog2() as usize;
    let quarter = last >> (exponent - 2) & 3;
    (exponent - 8) * 4 + 4 + quarter
}

const fn small() -> [u16; SMALL_LINES_MAX + 1] {
    // A block of no bytes takes a line too.
    let mut forms = [SliceWord::form_of_span(0) as u16; SMALL_LINES_MAX + 1];
    let mut lines = 1;
    while lines <= SMALL_LINES_MAX {
        forms[lines] = SliceWord::form_of_span(by_bits(lines * QUANTUM)) as u16;
        lines += 1;
    }
    forms
}

const fn table() -> [Class; 64] {
    let mut table = [Class { size: 0, span_slices: 0, span_slots: 0, shift: 0, bin_slots: 0 }; 64];
    let mut class = 0;
    while class < 64 {
        table[class] = describe(size_of_class(if class < CLASSES { class } else { CLASSES - 1 }));
        class += 1;
    }
    table
}

const fn size_of_class(class: usize) -> usize {
    if class < 4 {
        return (class + 1) * QUANTUM;
    }
    let base = (4 * QUANTUM) << ((class - 4) / 4);
    base + (base / 4) * ((class - 4) % 4 + 1)
}

const fn describe(size: usize) -> Class {
    let slices = span_slices(size);
    let bin = BIN_BYTES_MAX / size;
    let bin = if bin > BIN_SLOTS_MAX { BIN_SLOTS_MAX } else { bin };
    Class {
        size: size as u32,
        span_slices: slices as u32,
        span_slots: (slices * SLICE / size) as u32,
        shift: size.trailing_zeros(),
        bin_slots: if bin < BIN_SLOTS_MIN { BIN_SLOTS_MIN } else { bin } as u32,
    }
}

/// The shortest span with enough slots and words, and at most 1/32 of it wasted at its end; else
/// the one that wastes the least.
const fn span_slices(size: usize) -> usize {
    let apart = (LINE_WORDS << size.trailing_zeros()).div_ceil(SLICE);
    let mut best = SPAN_SLICES_MAX;
    let mut slices = if apart <= APART_SLICES_MAX { apart } else { 1 };
    while slices <= SPAN_SLICES_MAX {
        let bytes = slices * SLICE;
        let is_enough = bytes / size >= SPAN_SLOTS_MIN;
        if is_enough && bytes % size <= bytes / 32 {
            return slices;
        }
        if is_enough && bytes % size * best < (best * SLICE) % size * slices {
            best = slices;
        }
        slices *= 2;
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn classes_are_a_quantum_apart_then_four_in_a_doubling() {
        let sizes: Vec<u32> = TABLE[..CLASSES].iter().map(|class| class.size).collect();
        assert_eq!(sizes[..12], [64, 128, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024]);
        assert_eq!(sizes[CLASSES - 1] as usize, SLOT_SIZE_MAX);
        assert!(sizes.is_sorted_by(|a, b| a < b));
        for bits in 6..=18 {
            assert!(sizes.contains(&(1 << bits)));
        }
    }

    #[test]
    fn every_size_gets_the_smallest_class_that_holds_it() {
        for size in 1..=SLOT_SIZE_MAX {
            let class = of_size(size).unwrap();
            assert!(TABLE[class].size as usize >= size, "{size}");
            assert!(class == 0 || (TABLE[class - 1].size as usize) < size, "{size}");
        }
        assert_eq!(of_size(SLOT_SIZE_MAX + 1), None);
    }

    #[test]
    fn a_block_of_no_bytes_has_the_smallest_class() {
        assert_eq!(of_size(0), Some(0));
        // What leads to a bin must be the form of some class.
        assert_eq!(form_of_small(0), SliceWord::form_of_span(0));
    }

    #[test]
    fn an_aligned_size_gets_a_class_that_its_alignment_divides() {
        for align_bits in 0..=18 {
            let align = 1 << align_bits;
            for size in (1..=SLOT_SIZE_MAX).step_by(61) {
                let best = (0..CLASSES).find(|&class| {
                    let class_size = TABLE[class].size as usize;
                    class_size >= size && class_size.is_multiple_of(align)
                });
                assert_eq!(of(size, align), best, "{size}@{align}");
            }
        }
        assert_eq!(of(1, 2 * SLOT_SIZE_MAX), None);
    }

    /// Of what a block occupies, at most a fifth is beyond the cache lines that it asked for;
    /// nothing at powers of two.
    #[test]
    fn the_worst_internal_waste_is_a_fifth() {
        let mut worst = 0.0_f64;
        for lines in 1..=SLOT_SIZE_MAX / QUANTUM {
            let size = lines * QUANTUM;
            let slot = TABLE[of_size(size).unwrap()].size as usize;
            let waste = (slot - size) as f64 / slot as f64;
            worst = worst.max(waste);
            assert!(!size.is_power_of_two() || waste == 0.0, "{size}");
        }
        assert!(worst <= 0.2, "{worst}");
    }

    #[test]
    fn spans_waste_little_at_their_end() {
        for class in &TABLE[..CLASSES] {
            let bytes = class.span_slices as usize * SLICE;
            let waste = bytes - class.span_slots as usize * class.size as usize;
            assert!(class.span_slices.is_power_of_two() && class.span_slices <= 32);
            assert!(class.span_slots >= 8, "{class:?}");
            assert!(waste * 16 <= bytes, "{class:?}: {waste} of {bytes}");
            assert!(!class.size.is_power_of_two() || waste == 0);
        }
    }

    /// Above 8 KiB they would be too long.
    #[test]
    fn spans_up_to_8_kib_share_no_line_of_slot_words() {
        for class in TABLE[..CLASSES].iter().filter(|class| class.size <= 8192) {
            let words = (class.span_slices as usize * SLICE) >> class.shift;
            assert!(words.is_multiple_of(LINE_WORDS), "{class:?}");
        }
    }

    #[test]
    fn pages_at_pages_pack_sixteen_to_a_slice() {
        let class = TABLE[of(4096, 4096).unwrap()];
        assert_eq!((class.size, class.span_slices, class.span_slots), (4096, 2, 32));
    }
}
