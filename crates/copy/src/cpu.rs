//! Which instruction sets this processor has, asked once, without the standard library.

use core::sync::atomic::{AtomicU8, Ordering};

/// An instruction set that haul has kernels for, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Isa {
    /// General registers, on any processor.
    Scalar = 1,
    /// x86-64 with SSE2: every one.
    Sse2 = 2,
    /// x86-64 with AVX2, and an operating system that saves ymm registers.
    Avx2 = 3,
    /// AVX-512 F, BW and VL, used at 32 bytes on ymm16 to ymm31.
    Avx512vl = 4,
    /// AVX-512 F and BW, used at 64 bytes.
    Avx512 = 5,
    /// aarch64 with NEON: every one.
    Neon = 6,
}

impl Isa {
    /// All of them, weakest first.
    pub const ALL: [Self; 6] =
        [Self::Scalar, Self::Sse2, Self::Avx2, Self::Avx512vl, Self::Avx512, Self::Neon];

    /// Whether this processor and its operating system offer it.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            Self::Scalar => true,
            Self::Neon => cfg!(target_arch = "aarch64"),
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            _ => x86_64::features().has(self),
            #[cfg(any(not(target_arch = "x86_64"), miri))]
            _ => false,
        }
    }

    /// What is available here, weakest first.
    pub fn available() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|isa| isa.is_available())
    }

    /// The one that haul's dispatch uses for blocks and loops on this processor.
    ///
    /// AVX-512 is used at 32 bytes: at 64 some parts lower their clock for the whole core, which a
    /// copy of a few hundred bytes does not earn back. AMD's processors are taken at AVX2, whose loops are
    /// the faster ones there: copies of 512 bytes to 16 KiB within L1 take AVX-512VL 1.04 to 1.17 times as
    /// long on Zen 4, 257 to 512 bytes 0.96, and all else as long.
    ///
    /// Costs a relaxed load after the first call; the first asks the processor.
    #[must_use]
    #[inline]
    pub fn best() -> Self {
        match BEST.load(Ordering::Relaxed) {
            2 => Self::Sse2,
            3 => Self::Avx2,
            4 => Self::Avx512vl,
            6 => Self::Neon,
            1 => Self::Scalar,
            _ => find_best(),
        }
    }

    /// The name in commands and records: `avx2`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Sse2 => "sse2",
            Self::Avx2 => "avx2",
            Self::Avx512vl => "avx512vl",
            Self::Avx512 => "avx512",
            Self::Neon => "neon",
        }
    }
}

/// [`Isa::best`] as its number; 0 before it was asked.
static BEST: AtomicU8 = AtomicU8::new(0);

#[cold]
fn find_best() -> Isa {
    let vendor = facts().vendor;
    let is_passed_over =
        |isa| isa == Isa::Avx512 || (isa == Isa::Avx512vl && vendor == Vendor::Amd);
    let best = Isa::available().filter(|&isa| !is_passed_over(isa)).last().unwrap_or(Isa::Scalar);
    // Any thread that comes here at the same time finds the same.
    STRINGS.store(u8::from(vendor == Vendor::Intel), Ordering::Relaxed);
    BEST.store(best as u8, Ordering::Relaxed);
    best
}

/// Whether strings of any two places move fast, and not of those alone that are aligned alike: 1 if so.
/// [`Isa::best`] asks, which every copy comes after.
static STRINGS: AtomicU8 = AtomicU8::new(0);

/// Whether `rep movsb` is as fast where target and source have different places in their cache lines. On
/// Intel it is: 16 KiB on Cascade Lake took 0.98 of glibc's time either way.
#[inline]
pub(crate) fn moves_any_string() -> bool {
    STRINGS.load(Ordering::Relaxed) != 0
}

/// Who made the processor, as far as thresholds care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Vendor {
    /// Intel.
    Intel,
    /// AMD, and Hygon, whose cores are AMD's.
    Amd,
    /// Anybody else.
    Other,
}

/// The largest last-level cache that is believed, in bytes: twice the largest that one core had in 2024
/// (504 MiB, Intel Xeon 6980P). More is a hypervisor's fancy (one told of 1 TiB) and says nothing.
pub const LAST_CACHE_MAX_BYTES: usize = 1 << 30;

/// What stands in for a last-level cache that is not told or not believed, in bytes: that of one core
/// complex (AMD EPYC) or of a middling desktop part. Too small costs some speed between the real size
/// and this; too large would keep non-temporal stores from copies that need them.
pub const LAST_CACHE_STAND_IN_BYTES: usize = 32 << 20;

/// The most of a last-level cache that one process is taken to have, in bytes: the largest that few
/// cores share (96 MiB for eight, AMD EPYC with stacked cache). Larger ones serve dozens of cores.
pub const LAST_CACHE_SHARE_BYTES: usize = 96 << 20;

/// What [`Thresholds::defaults`](crate::Thresholds::defaults) starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Who made it.
    pub vendor: Vendor,
    /// Enhanced `rep movsb` and `rep stosb` are announced (ERMS): they move more than a byte at a time.
    pub enhanced_string: bool,
    /// Fast short `rep movsb` is announced (FSRM). An announcement, not a measurement.
    pub fast_short_string: bool,
    /// The last-level cache in bytes as the processor tells it; hypervisors lie. 0: not told.
    pub last_cache_bytes: usize,
}

/// Asks the processor. Some hundred cycles, tens of thousands under a hypervisor that traps it.
#[must_use]
pub fn facts() -> Facts {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    return x86_64::facts();
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    Facts {
        vendor: Vendor::Other,
        enhanced_string: false,
        fast_short_string: false,
        last_cache_bytes: 0,
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64 {
    use core::arch::asm;
    use core::arch::x86_64::{__cpuid, __cpuid_count, CpuidResult};

    use super::{Facts, Isa, Vendor};

    /// The feature bits that decide.
    pub(super) struct Features {
        leaf_1_ecx: u32,
        leaf_7_ebx: u32,
        xcr0: u64,
    }

    /// Intel SDM volume 1, 13.3: XCR0 bits that the system sets when it saves xmm and ymm, and
    /// opmask and both halves of zmm.
    const YMM_SAVED: u64 = 0b110;
    const ZMM_SAVED: u64 = 0b1110_0110;

    const OSXSAVE: u32 = 1 << 27;
    const AVX: u32 = 1 << 28;
    const AVX2: u32 = 1 << 5;
    const AVX512F: u32 = 1 << 16;
    const AVX512BW: u32 = 1 << 30;
    const AVX512VL: u32 = 1 << 31;
    const FSRM: u32 = 1 << 4;
    const ERMS: u32 = 1 << 9;

    impl Features {
        pub(super) fn has(&self, isa: Isa) -> bool {
            let avx2 = self.leaf_1_ecx & AVX != 0
                && self.leaf_7_ebx & AVX2 != 0
                && self.xcr0 & YMM_SAVED == YMM_SAVED;
            let wide = AVX512F | AVX512BW;
            let avx512 =
                avx2 && self.leaf_7_ebx & wide == wide && self.xcr0 & ZMM_SAVED == ZMM_SAVED;
            match isa {
                Isa::Scalar | Isa::Sse2 => true,
                Isa::Avx2 => avx2,
                Isa::Avx512vl => avx512 && self.leaf_7_ebx & AVX512VL != 0,
                Isa::Avx512 => avx512,
                Isa::Neon => false,
            }
        }
    }

    pub(super) fn features() -> Features {
        let leaf_1_ecx = __cpuid(1).ecx;
        let leaf_7_ebx = if __cpuid(0).eax >= 7 { __cpuid_count(7, 0).ebx } else { 0 };
        let xcr0 = if leaf_1_ecx & OSXSAVE == 0 { 0 } else { read_xcr0() };
        Features { leaf_1_ecx, leaf_7_ebx, xcr0 }
    }

    fn read_xcr0() -> u64 {
        let (low, high): (u32, u32);
        // SAFETY: OSXSAVE is set, so xgetbv is permitted; register 0 is XCR0.
        unsafe {
            asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack));
        }
        u64::from(high) << 32 | u64::from(low)
    }

    pub(super) fn facts() -> Facts {
        let vendor = vendor(__cpuid(0));
        let leaf_7 = (__cpuid(0).eax >= 7).then(|| __cpuid_count(7, 0));
        let enhanced_string = leaf_7.is_some_and(|leaf| leaf.ebx & ERMS != 0);
        let fast_short_string = leaf_7.is_some_and(|leaf| leaf.edx & FSRM != 0);
        let without_cache =
            Facts { vendor, enhanced_string, fast_short_string, last_cache_bytes: 0 };
        // Leaf 4 on Intel and 0x8000_001D on AMD describe a cache in the same fields.
        let leaf = match vendor {
            Vendor::Amd if __cpuid(0x8000_0000).eax >= 0x8000_001D => 0x8000_001D,
            Vendor::Amd => return without_cache,
            _ if __cpuid(0).eax >= 4 => 4,
            _ => return without_cache,
        };
        let last_cache_bytes = (0..8)
            .map(|index| cache_bytes(__cpuid_count(leaf, index)))
            .take_while(|&bytes| bytes != 0)
            .last()
            .unwrap_or(0);
        Facts { last_cache_bytes, ..without_cache }
    }

    fn vendor(leaf_0: CpuidResult) -> Vendor {
        match (&leaf_0.ebx.to_le_bytes(), &leaf_0.edx.to_le_bytes(), &leaf_0.ecx.to_le_bytes()) {
            (b"Genu", b"ineI", b"ntel") => Vendor::Intel,
            (b"Auth", b"enti", b"cAMD") | (b"Hygo", b"nGen", b"uine") => Vendor::Amd,
            _ => Vendor::Other,
        }
    }

    /// Intel SDM, CPUID leaf 4: ways, partitions, line and sets, each less one; type 0 ends the list.
    fn cache_bytes(leaf: CpuidResult) -> usize {
        if leaf.eax & 0x1f == 0 {
            return 0;
        }
        let ways = (leaf.ebx >> 22) as usize + 1;
        let partitions = (leaf.ebx >> 12 & 0x3ff) as usize + 1;
        let line = (leaf.ebx & 0xfff) as usize + 1;
        ways.saturating_mul(partitions).saturating_mul(line).saturating_mul(leaf.ecx as usize + 1)
    }
}
