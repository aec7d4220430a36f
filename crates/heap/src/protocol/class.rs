//! Size classes: multiples of one cache line, with four classes per doubling. Every power of two
//! is a class.

use super::word::SliceWord;

/// Bytes of a slice: the unit of spans.
pub(crate) const SLICE: usize = 64 << 10;

/// Bytes of the smallest block, and the step between the smallest classes. It is one cache line,
/// so that two blocks never share a cache line.
pub(crate) const QUANTUM: usize = 64;

/// Bytes of the largest block that is a slot of a span. A larger block is a run of slices.
pub(crate) const SLOT_SIZE_MAX: usize = 256 << 10;

/// The number of classes: 64, 128, 192 and 256 bytes, then four classes in each of ten doublings.
pub(crate) const CLASSES: usize = 44;

/// The fewest slots of a span, if its length allows this. With fewer slots, building a span costs
/// too much per slot.
const SPAN_SLOTS_MIN: usize = 8;

/// Slot words per cache line. A span has at least this many slot words, unless it would be too
/// long. With fewer, two threads with adjacent spans store to the same cache line. (An allocation
/// of 4 KiB and its free on two threads then needed 8 ns instead of 4.)
const LINE_WORDS: usize = QUANTUM / size_of::<u16>();

/// The most slices of a span that is lengthened to have [`LINE_WORDS`] slot words.
const APART_SLICES_MAX: usize = 4;

/// The most slices of a span: one page.
const SPAN_SLICES_MAX: usize = 32;

/// The most bytes of one class that a thread's bin keeps after a free. This limits the memory
/// that an idle thread holds. (For a class above 16 KiB, a thread that only allocates can hold
/// more: up to a refill of 16 slots.)
const BIN_BYTES_MAX: usize = 256 << 10;

/// The most slots of a bin: together with its count, they fill four cache lines.
pub(crate) const BIN_SLOTS_MAX: usize = 63;

/// The fewest slots of a full bin, for any slot size. With fewer slots, every second call would
/// access the span.
const BIN_SLOTS_MIN: usize = 4;

/// The parameters of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class {
    /// Bytes of a slot.
    pub(crate) size: u32,
    /// Slices of a span, a power of two up to 32.
    pub(crate) span_slices: u32,
    /// Slots of a span.
    pub(crate) span_slots: u32,
    /// The number of zero bits below the lowest set bit of `size`. It selects the array that
    /// contains the slot words.
    pub(crate) shift: u32,
    /// The most slots of a thread's bin.
    pub(crate) bin_slots: u32,
}

/// The class table, by class number. Entries 44 to 63 repeat the last class, because a class that
/// was read from shared memory has six bits. So any value is a valid index.
pub(crate) const TABLE: [Class; 64] = table();

/// For each size in cache lines, up to [`SMALL_LINES_MAX`]: the span form of the size's class.
const SMALL: [u16; SMALL_LINES_MAX + 1] = small();

/// The largest size, in cache lines, for which a table contains the class: a page. With the
/// table, an allocation of 4 KiB and its free need 3.6 ns; if the class is computed from the
/// size's bits, 5.3 ns.
const SMALL_LINES_MAX: usize = 64;

/// The largest size, in bytes, for which a table contains the class.
pub(crate) const SMALL_SIZE_MAX: usize = SMALL_LINES_MAX * QUANTUM;

/// The class for a block of `size` bytes, at most [`SMALL_SIZE_MAX`].
#[inline(always)]
pub(crate) const fn of_small(size: usize) -> usize {
    SliceWord::class_of_form(form_of_small(size))
}

/// The span form of the class that [`of_small`] returns.
#[inline(always)]
pub(crate) const fn form_of_small(size: usize) -> usize {
    SMALL[size.div_ceil(QUANTUM)] as usize
}

/// The class for a block of `size` bytes with an alignment of at most a cache line; `None` above
/// [`SLOT_SIZE_MAX`].
#[inline]
pub(crate) const fn of_size(size: usize) -> Option<usize> {
    if size <= SMALL_SIZE_MAX {
        return Some(of_small(size));
    }
    if size > SLOT_SIZE_MAX { None } else { Some(by_bits(size)) }
}

/// The class for a block of `size` bytes that is aligned to `align`, a power of two. It is the
/// smallest class that is not below `size` and is divisible by `align`. `None` if there is no
/// such class.
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
    // At most three steps: every power of two is a class, and is divisible by every smaller power
    // of two.
    while class < CLASSES {
        if TABLE[class].shift >= align.trailing_zeros() {
            return Some(class);
        }
        class += 1;
    }
    None
}

/// The smallest class that is not below `size`, computed from the bits of `size`, which is 1 to
/// [`SLOT_SIZE_MAX`].
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
    // A block of 0 bytes also uses a cache line.
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

/// The number of slices for a span: the shortest span that has enough slots and slot words and
/// wastes at most 1/32 at its end. If there is none, the span that wastes the least.
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
    fn classes_are_a_quantum_apart_then_four_per_doubling() {
        let sizes: Vec<u32> = TABLE[..CLASSES].iter().map(|class| class.size).collect();
        assert_eq!(sizes[..12], [64, 128, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024]);
        assert_eq!(sizes[CLASSES - 1] as usize, SLOT_SIZE_MAX);
        assert!(sizes.is_sorted_by(|a, b| a < b));
        for bits in 6..=18 {
            assert!(sizes.contains(&(1 << bits)));
        }
    }

    #[test]
    fn size_gets_the_smallest_class_that_holds_it() {
        for size in 1..=SLOT_SIZE_MAX {
            let class = of_size(size).unwrap();
            assert!(TABLE[class].size as usize >= size, "{size}");
            assert!(class == 0 || (TABLE[class - 1].size as usize) < size, "{size}");
        }
        assert_eq!(of_size(SLOT_SIZE_MAX + 1), None);
    }

    #[test]
    fn size_zero_gets_the_smallest_class() {
        assert_eq!(of_size(0), Some(0));
        // The result selects a bin, so it must be the form of a class.
        assert_eq!(form_of_small(0), SliceWord::form_of_span(0));
    }

    #[test]
    fn aligned_size_gets_a_class_divisible_by_the_alignment() {
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

    /// At most a fifth of a block is unused after the last cache line of the request. For a power
    /// of two, nothing is unused.
    #[test]
    fn internal_waste_is_at_most_a_fifth() {
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

    /// Spans of larger classes would be too long.
    #[test]
    fn spans_up_to_8_kib_share_no_line_of_slot_words() {
        for class in TABLE[..CLASSES].iter().filter(|class| class.size <= 8192) {
            let words = (class.span_slices as usize * SLICE) >> class.shift;
            assert!(words.is_multiple_of(LINE_WORDS), "{class:?}");
        }
    }

    #[test]
    fn page_aligned_pages_pack_without_gaps() {
        let class = TABLE[of(4096, 4096).unwrap()];
        assert_eq!((class.size, class.span_slices, class.span_slots), (4096, 2, 32));
    }
}
