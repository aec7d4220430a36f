//! The default policies: one row a microarchitecture.
//!
//! A row is what a record says, or what was reasoned about a relative; which of the two is in its
//! `source`. A processor without a row has a policy by its features: as wide as does not lower the
//! clock, and strings where they are announced as fast, as the C library has them.

use super::{Policy, Small, Strings};
use crate::cpu::{self, Facts, Isa, Vendor};
use crate::thresholds::{NEVER, Thresholds};

/// What a microarchitecture does well.
pub(super) struct Row {
    /// The name that people know it by.
    pub(super) name: &'static str,
    vendor: Vendor,
    family: u32,
    models: &'static [core::ops::RangeInclusive<u32>],
    choices: Choices,
    /// Where the choices come from: a record under `bench/record`, or reasoning.
    pub(super) source: &'static str,
}

impl Row {
    fn is_of(&self, facts: &Facts) -> bool {
        self.vendor == facts.vendor
            && self.family == facts.family
            && self.models.iter().any(|models| models.contains(&facts.model))
    }
}

/// What a row chooses. What follows from the size of the last-level cache is the same for all.
#[derive(Clone, Copy)]
struct Choices {
    small: Small,
    isa: Isa,
    strings: Strings,
    /// Bytes that `rep movsb` copies, from the first on and below the second.
    string_copy: (usize, usize),
    /// The same of `rep stosb`; at most until fills stream.
    string_fill: (usize, usize),
    /// Whether strings copy what is longer than the caches too; else that is streamed.
    strings_stream: bool,
    /// Whether streamed copies interleave pages.
    paged: bool,
}

const NO_STRING: (usize, usize) = (NEVER, NEVER);

/// As the records of Zen 4 have it: AVX-512VL's loops take 1.04 to 1.17 times as long as AVX2's
/// there from 512 bytes to 16 KiB, and interleaved pages a quarter more than straight ones.
const AVX2_PIECES: Choices = Choices {
    small: Small::Pieces,
    isa: Isa::Avx2,
    strings: Strings::Alike,
    string_copy: NO_STRING,
    string_fill: NO_STRING,
    strings_stream: false,
    paged: false,
};

/// Zen 5, GB/s of copies at drawn alignments by AVX2, AVX-512VL, AVX-512 and `rep movsb`: 4 KiB
/// 170, 201, 183, 140; 16 KiB 169, 218, 218, 161; 32 KiB 94, 93, 93, 164; 512 KiB 83, 87, 87, 115;
/// 8 MiB 48, 48, 49, 55. Both buffers fill L1 (48 KiB) at 24 KiB each. No offset is pathological.
/// Beyond the caches `rep movsb` takes as long as what streams, or up to 7% less (128 MiB to 1
/// GiB). Fills by registers and by `rep stosb`: 32 KiB 245, 169; 512 KiB 257, 175; 1 MiB, which is
/// L2, 160, 173; 8 MiB 101, 132.
const ZEN_5: Choices = Choices {
    small: Small::Masks,
    isa: Isa::Avx512vl,
    strings: Strings::Any,
    string_copy: (24 << 10, NEVER),
    string_fill: (1 << 20, NEVER),
    strings_stream: true,
    paged: false,
};

/// Enhanced strings that are not fast when short. Time of `rep movsb` over registers' on Cascade
/// Lake, aligned:
/// 0.98 at 4 KiB (misaligned: 1.09), 0.79 at 8 KiB, 0.72 at 16 KiB, 1.02 at 64 and 256 KiB, 0.73 at
/// 1 MiB, 0.95 at 8 MiB. `rep stosb`: 1.19 at 2 KiB, 0.79 at 4 KiB, 0.57 at 16 KiB, 0.88 at 64 KiB,
/// 0.71 at 1 MiB.
const INTEL_ERMS: Choices = Choices {
    small: Small::Pieces,
    isa: Isa::Avx512vl,
    strings: Strings::Any,
    string_copy: (8 << 10, NEVER),
    string_fill: (4 << 10, NEVER),
    strings_stream: false,
    paged: true,
};

/// Masks, which win although what is stored under one is not forwarded to a load (5.6 ns instead of
/// 2.1), registers of 64 bytes at the same clock, and strings that are as fast as registers where
/// buffers are longer than L1. Time of `rep movsb` over registers' on
/// Emerald Rapids: 1.6 at 2 KiB, 1.3 at 4 KiB, 1.04 at 16 KiB, 1.01 at 32 KiB, 0.94 at 1 MiB.
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
        source: "reasoned: as Zen 4, whose loops by AVX2 they share",
    },
    Row {
        name: "Zen 3",
        vendor: Vendor::Amd,
        family: 0x19,
        models: &[0x00..=0x0f, 0x20..=0x5f],
        choices: AVX2_PIECES,
        source: "reasoned: as Zen 4, with which it shares the bad cases of rep movsb",
    },
    Row {
        name: "Zen 4",
        vendor: Vendor::Amd,
        family: 0x19,
        models: &[0x10..=0x1f, 0x60..=0x7f, 0xa0..=0xaf],
        choices: AVX2_PIECES,
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

/// The row of a processor.
pub(super) fn row(facts: &Facts) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.is_of(facts))
}

/// How many rows say that they are a processor's.
#[cfg(test)]
pub(super) fn claims(facts: &Facts) -> usize {
    ROWS.iter().filter(|row| row.is_of(facts)).count()
}

/// The default policy of a processor.
pub(super) fn policy(facts: &Facts) -> Policy {
    let choices = row(facts).map_or_else(|| by_features(facts), |row| row.choices);
    let has_masks = choices.small == Small::Masks && facts.has_masks;
    Policy {
        // What a hypervisor hides of a processor that has a row is done by the next best.
        small: if has_masks { Small::Masks } else { Small::Pieces },
        isa: if facts.widest == Isa::Neon { Isa::Neon } else { choices.isa.min(facts.widest) },
        strings: choices.strings,
        thresholds: thresholds(facts, &choices),
    }
}

/// What a processor that nobody knows does well, by what it says of itself.
///
/// Where AVX-512 is: on Intel with fast short strings registers of 64 bytes, which on a Xeon whose
/// hypervisor hid its model copied in 0.78 of AVX-512VL's time at 192 bytes, 0.88 at 448 and 0.95
/// at 12 KiB. Elsewhere AVX-512VL: its blocks are of registers of 32 bytes, and its loops of what
/// the compiler joins them to, 64.
fn by_features(facts: &Facts) -> Choices {
    /// As small as the C library has it (2112 bytes, glibc 2.36), and no smaller: the start of a
    /// string costs more.
    const FAST_STRING_MIN: usize = 4 << 10;
    let fast = (FAST_STRING_MIN, NEVER);
    let strings = match (facts.fast_short_string, facts.enhanced_string) {
        (true, _) if facts.vendor == Vendor::Intel => INTEL_FSRM,
        (true, _) => Choices { string_copy: fast, string_fill: fast, ..INTEL_ERMS },
        // AMD announced these alone before Zen 3, and has bad cases.
        (false, true) if facts.vendor == Vendor::Intel => INTEL_ERMS,
        _ => AVX2_PIECES,
    };
    Choices {
        small: if facts.lowers_clock { Small::Pieces } else { Small::Masks },
        isa: if facts.lowers_clock { Isa::Avx2 } else { strings.isa.max(Isa::Avx512vl) },
        // Pages in turn took 1.11 of libc's time at 512 MiB where straight streaming took 0.96.
        paged: false,
        ..strings
    }
}

fn thresholds(facts: &Facts, choices: &Choices) -> Thresholds {
    /// The least, in bytes: that of Intel's cores without an L3 (Atom, 2008).
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
    // Source and target share the cache, and so do other cores.
    thresholds.stream_copy_min = cache / 2;
    // A fill has no source to lose to the target, and one as long as the cache is still faster in
    // it: 32 MiB on Zen 4's 32 MiB took 3 to 17% less by plain stores than past it, in five runs.
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
