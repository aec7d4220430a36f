//! x86-64: a line in the registers of each instruction set, and the kernels that use it.
//!
//! From the bottom up:
//!
//! - `sse2`: four 16-byte registers per line;
//! - `avx2`: two 32-byte registers per line;
//! - `avx512vl`: AVX2's width on the registers ymm16 to ymm31;
//! - `avx512`: one 64-byte register per line;
//! - `string`: `rep movsb` and `rep stosb`;
//! - `masked`: small sizes, with masked loads and stores;
//! - `whole`: up to 256 bytes through C, without masks;
//! - `zmm_high`: sizes above the limit of `masked`, with AVX-512's lines in zmm16 to zmm31.

pub(crate) mod avx2;
pub(crate) mod avx512;
pub(crate) mod avx512vl;
pub(crate) mod masked;
pub(crate) mod sse2;
pub(crate) mod string;
pub(crate) mod whole;
pub(crate) mod zmm_high;

/// Implements [`Line`](crate::arch::Line) over an array of registers from the instruction set's
/// intrinsics and the registers' indices. Accesses are written out; `arch::generic` gives the
/// reason.
macro_rules! line_of_registers {
    (
        $line:ident, $register:ty, [$($index:literal),+], step: $step:literal, held: $held:literal,
        $load:path, $store:path, $store_aligned:path, $stream:path, $splat:path
        $(, $($override:item)+)?
    ) => {
        impl crate::arch::Line for $line {
            const STEP: usize = $step;
            const HELD: usize = $held;
            const ALIGNMENT: usize = size_of::<$register>();

            #[inline(always)]
            unsafe fn load(source: *const u8) -> Self {
                let source = source.cast::<$register>();
                // SAFETY: the caller can read 64 bytes and has the instruction set.
                Self(unsafe { [$($load(source.add($index).cast())),+] })
            }

            #[inline(always)]
            unsafe fn store(self, target: *mut u8) {
                let target = target.cast::<$register>();
                // SAFETY: the caller can write 64 bytes and has the instruction set.
                unsafe { $($store(target.add($index).cast(), self.0[$index]);)+ }
            }

            #[inline(always)]
            unsafe fn store_aligned(self, target: *mut u8) {
                let target = target.cast::<$register>();
                // SAFETY: as `store`, at a multiple of the register's size.
                unsafe { $($store_aligned(target.add($index).cast(), self.0[$index]);)+ }
            }

            #[inline(always)]
            unsafe fn store_first(self, target: *mut u8) {
                // SAFETY: the caller can write a register's bytes and has the instruction set.
                unsafe { $store(target.cast(), self.0[0]) }
            }

            #[inline(always)]
            unsafe fn stream(self, target: *mut u8) {
                let target = target.cast::<$register>();
                // SAFETY: as `store_aligned`; every function that streams ends in `fence`.
                unsafe { $($stream(target.add($index).cast(), self.0[$index]);)+ }
            }

            #[inline(always)]
            unsafe fn splat(byte: u8) -> Self {
                // SAFETY: the caller has the instruction set.
                let register = unsafe { $splat(byte.cast_signed()) };
                Self([$({ let _: usize = $index; register }),+])
            }

            #[inline(always)]
            fn fence() {
                // SAFETY: SSE is part of x86-64.
                unsafe { core::arch::x86_64::_mm_sfence() }
            }

            #[inline(always)]
            fn prefetch(source: *const u8) {
                use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
                // SAFETY: a prefetch never faults, at any address.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(source.cast()) }
            }

            #[inline(always)]
            fn prefetch_to_write(target: *const u8) {
                // SAFETY: a prefetch never faults, at any address; processors without this
                // instruction do nothing. The intrinsic would need a feature of the compiler.
                unsafe {
                    core::arch::asm!(
                        "prefetchw byte ptr [{}]",
                        in(reg) target,
                        options(nostack, preserves_flags, readonly)
                    );
                }
            }

            $($($override)+)?
        }
    };
}

pub(crate) use line_of_registers;
