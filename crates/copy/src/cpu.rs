//! The processor's instruction sets and identity, without the standard library.

/// An instruction set that haul has kernels for. The order is from weakest to strongest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Isa {
    /// General registers, on any processor.
    Scalar = 1,
    /// x86-64 with SSE2. SSE2, which every x86-64 processor has.
    Sse2 = 2,
    /// x86-64 with AVX2 and an operating system that saves the ymm registers.
    Avx2 = 3,
    /// AVX-512 F, BW and VL, used at 32 bytes on ymm16 to ymm31.
    Avx512vl = 4,
    /// AVX-512 F and BW, used at 64 bytes.
    Avx512 = 5,
    /// aarch64 with NEON. NEON, which every aarch64 processor that runs Linux has.
    Neon = 6,
}

impl Isa {
    /// All instruction sets, weakest first.
    pub const ALL: [Self; 6] =
        [Self::Scalar, Self::Sse2, Self::Avx2, Self::Avx512vl, Self::Avx512, Self::Neon];

    /// Whether this processor and its operating system support this instruction set.
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

    /// The instruction sets that are available here, weakest first.
    pub fn available() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|isa| isa.is_available())
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

    /// The instruction set with this [name](Self::name); `None` if there is none.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|isa| same(isa.name(), name))
    }

    /// The instruction set with this number, which is its `isa as u8`.
    pub(crate) const fn from_number(number: u8) -> Self {
        match number {
            2 => Self::Sse2,
            3 => Self::Avx2,
            4 => Self::Avx512vl,
            5 => Self::Avx512,
            6 => Self::Neon,
            _ => Self::Scalar,
        }
    }
}

/// Whether two names are equal. This function does not call the C library's comparison, because
/// this crate must not depend on that library.
pub(crate) fn same(one: &str, other: &str) -> bool {
    one.len() == other.len() && one.bytes().zip(other.bytes()).all(|(a, b)| a == b)
}

/// The maker of the processor, as far as policies distinguish it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Vendor {
    /// Intel.
    Intel,
    /// AMD, and Hygon, which uses AMD's cores.
    Amd,
    /// Any other maker.
    Other,
}

/// The largest accepted size of a reported last-level cache, in bytes: twice the largest that one
/// core had in 2024 (504 MiB, Intel Xeon 6980P). A larger value is a hypervisor's mistake (one
/// reported 1 TiB) and is ignored.
pub const LAST_CACHE_MAX_BYTES: usize = 1 << 30;

/// The assumed size, in bytes, of a last-level cache whose size is unknown or not accepted: the
/// size in one core complex (AMD EPYC) or in an average desktop processor. If the assumed size is
/// too small, copies between this size and the real one are somewhat slower. If it is too large,
/// copies that need non-temporal stores do not use them.
pub const LAST_CACHE_STAND_IN_BYTES: usize = 32 << 20;

/// The largest part of a last-level cache that one process is assumed to have, in bytes: the
/// largest cache that few cores share (96 MiB for eight cores, AMD EPYC with stacked cache). Dozens
/// of cores share a larger cache.
pub const LAST_CACHE_SHARE_BYTES: usize = 96 << 20;

/// The facts about a processor that determine its default policy, see
/// [`Policy::for_processor`](crate::Policy::for_processor).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The maker.
    pub vendor: Vendor,
    /// The family as manuals count it: 6 for Intel's processors, 25 for Zen 3 and 4.
    pub family: u32,
    /// The model within its family.
    pub model: u32,
    /// The widest instruction set that the processor and its operating system support.
    pub widest: Isa,
    /// Whether one masked instruction can move up to 64 bytes and one instruction can compute the
    /// mask: AVX-512 BW and VL, and BMI2.
    pub has_masks: bool,
    /// Whether the processor has AVX-512 and lowers its clock for registers of 64 bytes: processors
    /// without VNNI (Skylake-SP).
    pub lowers_clock: bool,
    /// Whether the processor announces enhanced `rep movsb` and `rep stosb` (ERMS), which move more
    /// than one byte at a time.
    pub enhanced_string: bool,
    /// Whether the processor announces fast short `rep movsb` (FSRM). This is an announcement of
    /// the processor, not a measurement.
    pub fast_short_string: bool,
    /// The size of the last-level cache in bytes as the processor reports it. A hypervisor may
    /// report a wrong size. 0 if it is not reported.
    pub last_cache_bytes: usize,
}

/// Reads the facts from the processor. Cost: some hundred cycles, or tens of thousands under a
/// hypervisor that traps the instruction.
#[must_use]
pub fn facts() -> Facts {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    return x86_64::facts();
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    Facts {
        vendor: Vendor::Other,
        family: 0,
        model: 0,
        widest: Isa::available().last().unwrap_or(Isa::Scalar),
        has_masks: false,
        lowers_clock: false,
        enhanced_string: false,
        fast_short_string: false,
        last_cache_bytes: 0,
    }
}

/// The value of [`Facts::has_masks`] for this processor.
#[must_use]
pub fn has_masks() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    return x86_64::features().has_masks();
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    false
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64 {
    use core::arch::asm;
    use core::arch::x86_64::{__cpuid, __cpuid_count, CpuidResult};

    use super::{Facts, Isa, Vendor};

    /// The feature bits that determine the instruction sets.
    pub(super) struct Features {
        leaf_1_ecx: u32,
        leaf_7_ebx: u32,
        xcr0: u64,
    }

    /// Intel SDM volume 1, 13.3: the XCR0 bits that the operating system sets if it saves xmm and
    /// ymm, and opmask and both halves of zmm.
    const YMM_SAVED: u64 = 0b110;
    const ZMM_SAVED: u64 = 0b1110_0110;

    const OSXSAVE: u32 = 1 << 27;
    const AVX: u32 = 1 << 28;
    const AVX2: u32 = 1 << 5;
    const BMI2: u32 = 1 << 8;
    const AVX512F: u32 = 1 << 16;
    const AVX512BW: u32 = 1 << 30;
    const AVX512VL: u32 = 1 << 31;
    const AVX512_VNNI: u32 = 1 << 11;
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

        pub(super) fn has_masks(&self) -> bool {
            self.has(Isa::Avx512vl) && self.leaf_7_ebx & BMI2 != 0
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
        let (family, model) = family_and_model(__cpuid(1).eax);
        let leaf_7 = (__cpuid(0).eax >= 7).then(|| __cpuid_count(7, 0));
        let features = features();
        let has_avx512 = features.has(Isa::Avx512);
        Facts {
            vendor,
            family,
            model,
            widest: Isa::ALL.into_iter().rfind(|&isa| features.has(isa)).unwrap_or(Isa::Sse2),
            has_masks: features.has_masks(),
            lowers_clock: has_avx512 && leaf_7.is_some_and(|leaf| leaf.ecx & AVX512_VNNI == 0),
            enhanced_string: leaf_7.is_some_and(|leaf| leaf.ebx & ERMS != 0),
            fast_short_string: leaf_7.is_some_and(|leaf| leaf.edx & FSRM != 0),
            last_cache_bytes: last_cache_bytes(vendor),
        }
    }

    /// Intel SDM, CPUID leaf 1: the extended family counts only if the family is 15; the extended
    /// model counts if the family is 15 or 6.
    fn family_and_model(eax: u32) -> (u32, u32) {
        let (family, model) = (eax >> 8 & 0xf, eax >> 4 & 0xf);
        match family {
            0xf => (family + (eax >> 20 & 0xff), model | eax >> 12 & 0xf0),
            6 => (family, model | eax >> 12 & 0xf0),
            _ => (family, model),
        }
    }

    /// The size of the last-level cache in bytes; 0 if the processor does not report it.
    fn last_cache_bytes(vendor: Vendor) -> usize {
        // Leaf 4 on Intel and 0x8000_001D on AMD describe a cache in the same fields.
        let leaf = match vendor {
            Vendor::Amd if __cpuid(0x8000_0000).eax >= 0x8000_001D => 0x8000_001D,
            Vendor::Amd => return 0,
            _ if __cpuid(0).eax >= 4 => 4,
            _ => return 0,
        };
        (0..8)
            .map(|index| cache_bytes(__cpuid_count(leaf, index)))
            .take_while(|&bytes| bytes != 0)
            .last()
            .unwrap_or(0)
    }

    fn vendor(leaf_0: CpuidResult) -> Vendor {
        match (&leaf_0.ebx.to_le_bytes(), &leaf_0.edx.to_le_bytes(), &leaf_0.ecx.to_le_bytes()) {
            (b"Genu", b"ineI", b"ntel") => Vendor::Intel,
            (b"Auth", b"enti", b"cAMD") | (b"Hygo", b"nGen", b"uine") => Vendor::Amd,
            _ => Vendor::Other,
        }
    }

    /// Intel SDM, CPUID leaf 4: the fields hold ways, partitions, line size and sets, each minus
    /// one; type 0 ends the list of caches.
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
