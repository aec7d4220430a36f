//! The choice of a kernel above 64 bytes.
//!
//! # Cost
//!
//! One direct call, then a load of the instruction set's number and a comparison that always has
//! the same result, so that the branch predictor makes it free. An indirect call through a pointer
//! or the procedure linkage table would cost a slot in the indirect predictor and a load. DPDK
//! measured a loss of 16 to 20% at 128 to 256 bytes for a dispatch by pointer and reverted it.
//!
//! ```text
//! above 64:  which instruction set?          (jump)
//!   <= 256:  two or four lines               generic::copy_65_to_256
//!   below the smallest threshold: loop       generic::copy_above_256
//!   else:    by Thresholds: loop, string or stream
//! ```
//!
//! - [`above_64`]: the functions of each instruction set that the dispatch jumps to;
//! - [`without_masks`]: any size through C, if small copies do not use masks;
//! - [`by_masks`]: any size, if small copies use masks.

use core::sync::atomic::Ordering;

#[cfg(all(target_arch = "aarch64", not(miri)))]
use above_64::aarch64;
use above_64::scalar;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use above_64::x86_64;

use crate::arch;
use crate::cpu::Isa;
use crate::kernel::{CopyFn, FillFn};
use crate::policy::{self, CHOSEN};

pub(crate) mod above_64;
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) mod by_masks;
pub(crate) mod without_masks;

/// memmove of more than 64 bytes, for callers in Rust that have inlined the smaller sizes.
///
/// [`crate::c::memmove_above_64`] is the same function under an exported name, which a caller
/// within `libhaul.so` would call through the procedure linkage table. The compiler emits the
/// code of both only once.
///
/// # Safety
/// `source` must be readable and `target` writable for `length > 64` bytes.
#[inline(never)]
pub(crate) unsafe extern "C" fn copy_above_64(
    target: *mut u8,
    source: *const u8,
    length: usize,
) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { copy_above_64_here(target, source, length) }
}

/// memset of more than 64 bytes, for callers in Rust that have inlined the smaller sizes.
///
/// # Safety
/// `target` must be writable for `length > 64` bytes.
#[inline(never)]
pub(crate) unsafe extern "C" fn fill_above_64(
    target: *mut u8,
    byte: i32,
    length: usize,
) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { fill_above_64_here(target, byte, length) }
}

/// The inlined jump to the copy of the chosen instruction set.
///
/// # Safety
/// The conditions of [`copy_above_64`] apply.
#[inline(always)]
pub(crate) unsafe fn copy_above_64_here(
    target: *mut u8,
    source: *const u8,
    length: usize,
) -> *mut u8 {
    let chosen = CHOSEN.load(Ordering::Relaxed);
    // SAFETY: the caller's promise, and the chosen instruction set is available.
    unsafe {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if chosen == Isa::Avx2 as u8 {
            return x86_64::copy_avx2(target, source, length);
        } else if chosen == Isa::Avx512vl as u8 {
            return x86_64::copy_avx512vl(target, source, length);
        }
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        if chosen == Isa::Neon as u8 {
            return aarch64::copy_neon(target, source, length);
        }
        let _ = chosen;
        copy_otherwise(target, source, length)
    }
}

/// The inlined jump to the fill of the chosen instruction set.
///
/// # Safety
/// The conditions of [`fill_above_64`] apply.
#[inline(always)]
pub(crate) unsafe fn fill_above_64_here(target: *mut u8, byte: i32, length: usize) -> *mut u8 {
    let chosen = CHOSEN.load(Ordering::Relaxed);
    // SAFETY: the caller's promise, and the chosen instruction set is available.
    unsafe {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if chosen == Isa::Avx2 as u8 {
            return x86_64::fill_avx2(target, byte, length);
        } else if chosen == Isa::Avx512vl as u8 {
            return x86_64::fill_avx512vl(target, byte, length);
        }
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        if chosen == Isa::Neon as u8 {
            return aarch64::fill_neon(target, byte, length);
        }
        let _ = chosen;
        fill_otherwise(target, byte, length)
    }
}

/// Handles the first call and the instruction sets that few processors are limited to. It is a
/// separate function, because the compiler would turn more than two cases into a table and an
/// indirect jump.
#[inline(never)]
unsafe extern "C" fn copy_otherwise(target: *mut u8, source: *const u8, length: usize) -> *mut u8 {
    // SAFETY: the caller's promise, and the chosen instruction set is available.
    unsafe {
        let chosen = CHOSEN.load(Ordering::Relaxed);
        if chosen == 0 {
            policy::ensure();
            return copy_above_64(target, source, length);
        }
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if chosen == Isa::Avx512 as u8 {
            return x86_64::copy_avx512(target, source, length);
        } else if chosen == Isa::Avx512vl as u8 {
            return x86_64::copy_avx512vl(target, source, length);
        } else if chosen == Isa::Avx2 as u8 {
            return x86_64::copy_avx2(target, source, length);
        } else if chosen == Isa::Sse2 as u8 {
            return x86_64::copy_sse2(target, source, length);
        }
        let _ = chosen;
        scalar::copy_scalar(target, source, length)
    }
}

/// Handles the first call and the instruction sets that few processors are limited to. It is a
/// separate function, because the compiler would turn more than two cases into a table and an
/// indirect jump.
#[inline(never)]
unsafe extern "C" fn fill_otherwise(target: *mut u8, byte: i32, length: usize) -> *mut u8 {
    // SAFETY: the caller's promise, and the chosen instruction set is available.
    unsafe {
        let chosen = CHOSEN.load(Ordering::Relaxed);
        if chosen == 0 {
            policy::ensure();
            return fill_above_64(target, byte, length);
        }
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if chosen == Isa::Avx512 as u8 {
            return x86_64::fill_avx512(target, byte, length);
        } else if chosen == Isa::Avx512vl as u8 {
            return x86_64::fill_avx512vl(target, byte, length);
        } else if chosen == Isa::Avx2 as u8 {
            return x86_64::fill_avx2(target, byte, length);
        } else if chosen == Isa::Sse2 as u8 {
            return x86_64::fill_sse2(target, byte, length);
        }
        let _ = chosen;
        scalar::fill_scalar(target, byte, length)
    }
}

/// The kernels of the instruction set in force, for callers that choose the kernel.
macro_rules! best {
    ($($(#[$doc:meta])* $name:ident -> $type:ty: $kernel:ident;)*) => {$(
        $(#[$doc])*
        pub(crate) fn $name() -> $type {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            return match policy::isa() {
                Isa::Avx2 => arch::x86_64::avx2::$kernel,
                Isa::Avx512vl => arch::x86_64::avx512vl::$kernel,
                Isa::Avx512 => arch::x86_64::avx512::$kernel,
                Isa::Scalar => arch::scalar::$kernel,
                _ => arch::x86_64::sse2::$kernel,
            };
            #[cfg(all(target_arch = "aarch64", not(miri)))]
            return arch::aarch64::neon::$kernel;
            #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
            arch::scalar::$kernel
        }
    )*};
}

best! {
    /// Copies and bypasses the caches.
    stream_copy -> CopyFn: stream_copy;
    /// Fills and bypasses the caches.
    stream_fill -> FillFn: stream_fill;
    /// Copies into the caches at any size.
    cached_copy -> CopyFn: copy;
    /// Fills into the caches at any size.
    cached_fill -> FillFn: fill;
}

/// The copy for data that one core passes to another: `rep movsb` if the thresholds use it and
/// the policy allows it at any alignment, else registers. Both kernels copy into the caches.
pub(crate) fn handover_copy() -> CopyFn {
    let by_registers = cached_copy();
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if crate::thresholds::uses_strings() && policy::allows_any_string() {
        return arch::x86_64::string::copy;
    }
    by_registers
}
