//! The default policies: one row for each microarchitecture.
//!
//! A row is based on a record, or on reasoning from a related microarchitecture; its `source`
//! says which. A processor without a row gets a policy that follows from its features: the widest
//! instruction set that does not lower the clock, and string instructions if the processor
//! announces them as fast, as in the C library.

use super::{Policy, Small, Strings};
use crate::cpu::{self, Facts, Isa, Vendor};
use crate::thresholds::{NEVER, Thresholds};

/// The choices for a microarchitecture.
pub(super) struct Row {
    /// The usual name of the microarchitecture.
    pub(super) name: &'static str,
    vendor: Vendor,
    family: u32,
    models: &'static [core::ops::RangeInclusive<u32>],
    choices: Choices,
    /// The source of the choices: a record under `bench/record`, or reasoning.
    pub(super) source: &'static str,
}

impl Row {
    fn is_of(&self, facts: &Facts) -> bool {
        self.vendor == facts.vendor
            && self.family == facts.family
            && self.models.iter().any(|models| models.contains(&facts.model))
    }
}

/// The choices of a row. Choices that follow from the size of the last-level cache are not part
/// of a row, because one rule holds for all rows.
#[derive(Clone, Copy)]
struct Choices {
    small: Small,
    isa: Isa,
    strings: Strings,
    /// The sizes in bytes that `rep movsb` copies: from the first up to, but not including, the
    /// second.
    string_copy: (usize, usize),
    /// Like `string_copy`, for `rep stosb`. Sizes that are streamed are excluded.
    string_fill: (usize, usize),
    /// Whether `rep movsb` also copies sizes beyond the caches, which are streamed otherwise.
    strings_stream: bool,
    /// Whether streamed copies interleave pages.
    paged: bool,
}

const NO_STRING: (usize, usize) = (NEVER, NEVER);

/// For Zen 4. AVX-512VL's loops take 1.04 to 1.17 times as long as AVX2's from 512 bytes to 16
/// KiB, and interleaved pages take a quarter longer than consecutive pages
/// (`bench/record/2026-11-24-zen4-avx512-2cpu-copy`).
const AVX2_PIECES: Choices = Choices {
    small: Small::Pieces,
    isa: Isa::Avx2,
    strings: Strings::Alike,
    string_copy: NO_STRING,
    string_fill: NO_STRING,
    strings_stream: false,
    paged: false,
};

/// For Zen 4, which forwards no masked store to a load. Copies inlined with pieces take 0.6 to
/// 0.9 of libc's time for one size at a time and 0.95 to 1.0 if the data is not in L1, but 0.92
/// for sizes that no predictor knows; called functions with masks take 0.74 to 0.78 for these,
/// and up to 1.07 otherwise, where called functions with pieces take up to 1.6. Fills with masks
/// take 1.02 for sizes that no predictor knows, and fills with pieces 1.5 (2026-11-27, 2
/// processors).
const ZEN_4: Choices = Choices { small: Small::MasksInCalls, ..AVX2_PIECES };

/// For Zen 5. `rep movsb` becomes faster than registers at 24 KiB, where both buffers together
/// fill L1 (48 KiB), at any alignment; beyond the caches, `rep movsb` takes as long as a streamed
/// copy, or up to 7% less. `rep stosb` becomes faster than registers at the size of L2, 1 MiB
/// (`bench/record/2026-11-25-zen5-2cpu-copy`).
const ZEN_5: Choices = Choices {
    small: Small::Masks,
    isa: Isa::Avx512vl,
    strings: Strings::Any,
    string_copy: (24 << 10, NEVER),
    string_fill: (1 << 20, NEVER),
    strings_stream: true,
    paged: false,
};

/// For Intel processors with ERMS and without FSRM: string instructions are not fast at short
/// sizes. On Cascade Lake, `rep movsb` becomes faster than registers at 8 KiB, and `rep stosb` at
/// 4 KiB (`bench/record/2026-11-23-cascade-lake-2cpu-copy`).
const INTEL_ERMS: Choices = Choices {
    small: Small::Pieces,
    isa: Isa::Avx512vl,
    strings: Strings::Any,
    string_copy: (8 << 10, NEVER),
    string_fill: (4 << 10, NEVER),
    strings_stream: false,
    paged: true,
};

/// For Intel processors with FSRM. Masks are faster, although the processor does not forward a
/// masked store to a load (5.6 ns instead of 2.1). Registers of 64 bytes do not lower the clock.
/// `rep movsb` is as fast as registers where the buffers are larger than L1, from 32 KiB on
/// (`bench/record/2026-11-25-emerald-rapids-2cpu-copy`).
const INTEL_FSRM: Choices = Choices {
    small: Small::Masks,
    isa: Isa::Avx512,
    string_copy: (32 << 10, NEVER),
    string_fill: (32 << 10, NEVER),
    ..INTEL_ERMS
};

const ROWS: &[Row] = &[
    Row {
        name: "Zen 1 and 2",
        vendor: Vendor::Amd,
        family: 0x17,
        models: &[0x00..=0xff],
        choices: AVX2_PIECES,
        source: "reasoned: like Zen 4, whose AVX2 loops they share",
    },
    Row {
        name: "Zen 3",
        vendor: Vendor::Amd,
        family: 0x19,
        models: &[0x00..=0x0f, 0x20..=0x5f],
        choices: AVX2_PIECES,
        source: "bench/record/2026-11-28-zen3-2cpu-copy",
    },
    Row {
        name: "Zen 4",
        vendor: Vendor::Amd,
        family: 0x19,
        models: &[0x10..=0x1f, 0x60..=0x7f, 0xa0..=0xaf],
        choices: ZEN_4,
        source: "bench/record/2026-11-24-zen4-avx512-2cpu-copy",
    },
    Row {
        name: "Zen 5",
        vendor: Vendor::Amd,
        family: 0x1a,
        models: &[0x00..=0x4f, 0x60..=0x7f],
        choices: ZEN_5,
        source: "bench/record/2026-11-25-zen5-2cpu-copy",
    },
    Row {
        name: "Skylake-SP and Cascade Lake",
        vendor: Vendor::Intel,
        family: 6,
        models: &[0x55..=0x55],
        choices: INTEL_ERMS,
        source: "bench/record/2026-11-23-cascade-lake-2cpu-copy",
    },
    Row {
        name: "Ice Lake to Granite Rapids",
        vendor: Vendor::Intel,
        family: 6,
        models: &[0x6a..=0x6a, 0x6c..=0x6c, 0x8f..=0x8f, 0xad..=0xae, 0xcf..=0xcf],
        choices: INTEL_FSRM,
        source: "bench/record/2026-11-25-emerald-rapids-2cpu-copy",
    },
];

/// The row that matches a processor.
pub(super) fn row(facts: &Facts) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.is_of(facts))
}

/// The number of rows that match a processor.
#[cfg(test)]
pub(super) fn claims(facts: &Facts) -> usize {
    ROWS.iter().filter(|row| row.is_of(facts)).count()
}

/// The default policy of a processor.
pub(super) fn policy(facts: &Facts) -> Policy {
    let choices = row(facts).map_or_else(|| by_features(facts), |row| row.choices);
    let has_masks = choices.small != Small::Pieces && facts.has_masks;
    Policy {
        // A processor's row may choose a feature that a hypervisor hides. The policy then has the
        // next best choice.
        small: if has_masks { choices.small } else { Small::Pieces },
        isa: if facts.widest == Isa::Neon { Isa::Neon } else { choices.isa.min(facts.widest) },
        strings: choices.strings,
        thresholds: thresholds(facts, &choices),
    }
}

/// The choices for a processor without a row, which follow from the features that it announces.
///
/// With AVX-512, an Intel processor with fast short strings uses registers of 64 bytes: on a Xeon
/// whose hypervisor hid its model, they take 0.78 of AVX-512VL's time at 192 bytes, 0.88 at 448
/// and 0.95 at 12 KiB. Other processors use AVX-512VL: its blocks use registers of 32 bytes, and
/// its loops use registers of 64 bytes, because the compiler joins two registers of 32 bytes.
fn by_features(facts: &Facts) -> Choices {
    /// In bytes. The C library uses string instructions from 2112 bytes on (glibc 2.36); this
    /// value is larger, because of the time that a string instruction takes to start.
    const FAST_STRING_MIN: usize = 4 << 10;
    let fast = (FAST_STRING_MIN, NEVER);
    let strings = match (facts.fast_short_string, facts.enhanced_string) {
        (true, _) if facts.vendor == Vendor::Intel => INTEL_FSRM,
        (true, _) => Choices { string_copy: fast, string_fill: fast, ..INTEL_ERMS },
        // AMD's processors before Zen 3 announced only ERMS, and have slow cases.
        (false, true) if facts.vendor == Vendor::Intel => INTEL_ERMS,
        _ => AVX2_PIECES,
    };
    Choices {
        small: if facts.lowers_clock { Small::Pieces } else { Small::Masks },
        isa: if facts.lowers_clock { Isa::Avx2 } else { strings.isa.max(Isa::Avx512vl) },
        // Interleaved pages take 1.11 of libc's time at 512 MiB; consecutive pages take 0.96.
        paged: false,
        ..strings
    }
}

fn thresholds(facts: &Facts, choices: &Choices) -> Thresholds {
    /// The smallest assumed size of a last-level cache, in bytes: the size in Intel's cores
    /// without an L3 (Atom, 2008).
    const CACHE_MIN: usize = 512 << 10;
    let cache = match facts.last_cache_bytes {
        1..=cpu::LAST_CACHE_MAX_BYTES => facts.last_cache_bytes,
        _ => cpu::LAST_CACHE_STAND_IN_BYTES,
    };
    let cache = cache.clamp(CACHE_MIN, cpu::LAST_CACHE_SHARE_BYTES);
    let mut thresholds = Thresholds::REGISTERS_ONLY;
    if !cfg!(target_arch = "x86_64") {
        return thresholds;
    }
    // Source and target share the cache.
    thresholds.stream_copy_min = cache / 2;
    // A fill has no source that the target could displace, and a fill of the size of the cache is
    // still faster with plain stores: with plain stores, 32 MiB takes 3 to 17% less time than
    // with streaming stores, in five runs on Zen 4, which has a cache of 32 MiB.
    thresholds.stream_fill_min = cache * 2;
    if choices.paged {
        thresholds.paged_copy_min = thresholds.stream_copy_min;
    }
    if !(facts.enhanced_string || facts.fast_short_string) {
        return thresholds;
    }
    let (copy_min, copy_max) = choices.string_copy;
    let (fill_min, fill_max) = choices.string_fill;
    if copy_min != NEVER {
        thresholds.rep_movsb_min = copy_min;
        let end = if choices.strings_stream { NEVER } else { thresholds.stream_copy_min };
        thresholds.rep_movsb_max = copy_max.min(end);
    }
    if fill_min != NEVER {
        thresholds.rep_stosb_min = fill_min;
        thresholds.rep_stosb_max = fill_max.min(thresholds.stream_fill_min);
    }
    thresholds
}
