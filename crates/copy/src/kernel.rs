//! Every kernel that copies or fills, by name. Benchmarks compare these kernels, and tests check
//! them.
//!
//! Each kernel is a complete memmove or memset of any length, with C's calling convention.

use crate::arch;
use crate::cpu::Isa;

/// A memmove: accepts any length and any overlap, and returns `target`.
pub type CopyFn =
    unsafe extern "C" fn(target: *mut u8, source: *const u8, length: usize) -> *mut u8;

/// A memset: accepts any length, uses the lowest eight bits of `byte`, and returns `target`.
pub type FillFn = unsafe extern "C" fn(target: *mut u8, byte: i32, length: usize) -> *mut u8;

/// A named implementation of the operation `F`.
///
/// Only this crate creates kernels: [`Kernel::function`] is safe because no other crate can state
/// which instruction set a function needs.
#[derive(Clone, Copy, Debug)]
pub struct Kernel<F> {
    name: &'static str,
    summary: &'static str,
    isa: Isa,
    function: F,
}

/// A kernel that copies.
pub type CopyKernel = Kernel<CopyFn>;

/// A kernel that fills.
pub type FillKernel = Kernel<FillFn>;

impl<F: Copy> Kernel<F> {
    /// The name in commands and records: `avx2`, `rep_movsb`, `stream_avx2`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// A one-line description.
    #[must_use]
    pub fn summary(&self) -> &'static str {
        self.summary
    }

    /// The instruction set that the processor must have.
    #[must_use]
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Whether this processor can run this kernel.
    #[must_use]
    pub fn is_available(&self) -> bool {
        // In addition to AVX-512, masks need an instruction of BMI2, and a hypervisor may hide
        // BMI2.
        self.isa.is_available() && (self.name != "masks" || crate::cpu::has_masks())
    }

    /// The function; `None` if this processor cannot run this kernel.
    #[must_use]
    pub fn function(&self) -> Option<F> {
        self.is_available().then_some(self.function)
    }

    /// The function, on any processor.
    ///
    /// # Safety
    /// The caller must run the function on a processor, or under an emulator, that has
    /// [`Kernel::isa`].
    #[must_use]
    pub unsafe fn function_unchecked(&self) -> F {
        self.function
    }
}

macro_rules! table {
    ($type:ident: $($name:literal, $isa:ident, $function:path, $summary:literal;)*) => {
        &[$($type { name: $name, summary: $summary, isa: Isa::$isa, function: $function },)*]
    };
}

/// All kernels that copy on this architecture, including those that this processor cannot run.
#[must_use]
pub fn copies() -> &'static [CopyKernel] {
    COPIES
}

/// All kernels that fill on this architecture, including those that this processor cannot run.
#[must_use]
pub fn fills() -> &'static [FillKernel] {
    FILLS
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
static COPIES: &[CopyKernel] = table! { CopyKernel:
    "scalar", Scalar, arch::scalar::copy, "general registers, 8 bytes at a time";
    "sse2", Sse2, arch::x86_64::sse2::copy, "xmm registers, 16 bytes at a time";
    "avx2", Avx2, arch::x86_64::avx2::copy, "ymm registers, 32 bytes at a time";
    "avx512vl", Avx512vl, arch::x86_64::avx512vl::copy, "ymm16 to ymm31 up to 256 bytes, no vzeroupper";
    "avx512", Avx512, arch::x86_64::avx512::copy, "zmm registers, 64 bytes at a time";
    "masks", Avx512vl, arch::x86_64::masked::copy, "a mask up to 15 bytes, two whole registers up to 128, four up to 256";
    "rep_movsb", Sse2, arch::x86_64::string::copy, "the microcode's loop, target aligned first";
    "stream_sse2", Sse2, arch::x86_64::sse2::stream_copy, "non-temporal xmm stores, source prefetched";
    "paged_sse2", Sse2, arch::x86_64::sse2::paged_copy, "non-temporal xmm stores, four pages interleaved";
    "stream_avx2", Avx2, arch::x86_64::avx2::stream_copy, "non-temporal ymm stores, source prefetched";
    "paged_avx2", Avx2, arch::x86_64::avx2::paged_copy, "non-temporal ymm stores, four pages interleaved";
    "stream_avx512", Avx512, arch::x86_64::avx512::stream_copy, "non-temporal zmm stores, source prefetched";
    "paged_avx512", Avx512, arch::x86_64::avx512::paged_copy, "non-temporal zmm stores, four pages interleaved";
};

#[cfg(all(target_arch = "x86_64", not(miri)))]
static FILLS: &[FillKernel] = table! { FillKernel:
    "scalar", Scalar, arch::scalar::fill, "general registers, 8 bytes at a time";
    "sse2", Sse2, arch::x86_64::sse2::fill, "xmm registers, 16 bytes at a time";
    "avx2", Avx2, arch::x86_64::avx2::fill, "ymm registers, 32 bytes at a time";
    "avx512vl", Avx512vl, arch::x86_64::avx512vl::fill, "ymm registers of AVX-512VL";
    "avx512", Avx512, arch::x86_64::avx512::fill, "zmm registers, 64 bytes at a time";
    "masks", Avx512vl, arch::x86_64::masked::fill, "two masks up to 64 bytes, two whole registers up to 128, four up to 256";
    "rep_stosb", Sse2, arch::x86_64::string::fill, "the microcode's loop, target aligned first";
    "stream_sse2", Sse2, arch::x86_64::sse2::stream_fill, "non-temporal xmm stores";
    "stream_avx2", Avx2, arch::x86_64::avx2::stream_fill, "non-temporal ymm stores";
    "stream_avx512", Avx512, arch::x86_64::avx512::stream_fill, "non-temporal zmm stores";
};

#[cfg(all(target_arch = "aarch64", not(miri)))]
static COPIES: &[CopyKernel] = table! { CopyKernel:
    "scalar", Scalar, arch::scalar::copy, "general registers, 8 bytes at a time";
    "neon", Neon, arch::aarch64::neon::copy, "q registers, 16 bytes at a time";
    "stream_neon", Neon, arch::aarch64::neon::stream_copy, "non-temporal pair stores";
    "paged_neon", Neon, arch::aarch64::neon::paged_copy, "non-temporal pair stores, four pages interleaved";
};

#[cfg(all(target_arch = "aarch64", not(miri)))]
static FILLS: &[FillKernel] = table! { FillKernel:
    "scalar", Scalar, arch::scalar::fill, "general registers, 8 bytes at a time";
    "neon", Neon, arch::aarch64::neon::fill, "q registers, 16 bytes at a time";
    "stream_neon", Neon, arch::aarch64::neon::stream_fill, "non-temporal pair stores";
};

#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
static COPIES: &[CopyKernel] = table! { CopyKernel:
    "scalar", Scalar, arch::scalar::copy, "general registers, 8 bytes at a time";
    "stream_scalar", Scalar, arch::scalar::stream_copy, "plain stores, a line at a time";
    "paged_scalar", Scalar, arch::scalar::paged_copy, "plain stores, four pages interleaved";
};

#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
static FILLS: &[FillKernel] = table! { FillKernel:
    "scalar", Scalar, arch::scalar::fill, "general registers, 8 bytes at a time";
    "stream_scalar", Scalar, arch::scalar::stream_fill, "plain stores, line by line";
};
