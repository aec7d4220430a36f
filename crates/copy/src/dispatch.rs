//! The way that is taken above 64 bytes.
//!
//! # Cost
//!
//! One direct call, then a load of the instruction set's number and a comparison that always comes
//! out the same: the branch predictor makes it free, where an indirect call through a pointer or
//! the procedure linkage table costs a slot in the indirect predictor and the load before it.
//! DPDK measured 16 to 20% at 128 to 256 bytes for a dispatch by pointer and took it back.
//!
//! ```text
//! above 64:  which instruction set?          (jump)
//!   <= 256:  four lines, no branch           generic::copy_65_to_256
//!            or a branch at 128              generic::copy_65_to_256_branching
//!   below the smallest threshold: loop       generic::copy_above_256
//!   else:    by Thresholds: loop, string or stream
//! ```
//!
//! - [`without_masks`]: any size through C, where small ones do not go by masks;
//! - [`by_masks`]: any size, where they do.

use core::sync::atomic::Ordering;

use crate::arch;
use crate::arch::generic::{self, BLOCK_MAX};
use crate::arch::line::LINE;
use crate::cpu::Isa;
use crate::kernel::{CopyFn, FillFn};
use crate::policy::{self, CHOSEN, MASKS};
use crate::thresholds::{Way, copies_by_registers, copy_way, fill_way, fills_by_registers};

/// memmove of more than 64 bytes, for callers in Rust that have the others in their own code.
///
/// [`crate::c::memmove_above_64`] is the same under an exported name, by which a caller within
/// `libhaul.so` would come through the procedure linkage table. The compiler keeps the code once.
///
/// # Safety
/// `source` is readable and `target` writable for `length > 64` bytes.
#[inline(never)]
pub(crate) unsafe extern "C" fn copy_above_64(
    target: *mut u8,
    source: *const u8,
    length: usize,
) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { copy_above_64_branching(target, source, length) }
}

/// memset of more than 64 bytes, for callers in Rust that have the others in their own code.
///
/// # Safety
/// `target` is writable for `length > 64` bytes.
#[inline(never)]
pub(crate) unsafe extern "C" fn fill_above_64(
    target: *mut u8,
    byte: i32,
    length: usize,
) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { fill_above_64_branching(target, byte, length) }
}

/// The jump to what was chosen, inlined: once to code that has no branch on the size up to 256
/// bytes, for callers through C, and once to code that branches at 128, for those that are spared
/// that call up to 64 bytes. `small` says why.
macro_rules! jumps {
    (
        $copy_here:ident: $copy_avx2:ident, $copy_avx512vl:ident, $copy_neon:ident;
        $fill_here:ident: $fill_avx2:ident, $fill_avx512vl:ident, $fill_neon:ident;
    ) => {
        /// # Safety
        /// As [`copy_above_64`].
        #[inline(always)]
        pub(crate) unsafe fn $copy_here(
            target: *mut u8,
            source: *const u8,
            length: usize,
        ) -> *mut u8 {
            let chosen = CHOSEN.load(Ordering::Relaxed);
            // SAFETY: the caller's promise; only what is available was chosen.
            unsafe {
                #[cfg(all(target_arch = "x86_64", not(miri)))]
                if chosen == Isa::Avx2 as u8 {
                    return x86_64::$copy_avx2(target, source, length);
                } else if chosen == Isa::Avx512vl as u8 {
                    return x86_64::$copy_avx512vl(target, source, length);
                }
                #[cfg(all(target_arch = "aarch64", not(miri)))]
                if chosen == Isa::Neon as u8 {
                    return aarch64::$copy_neon(target, source, length);
                }
                let _ = chosen;
                copy_otherwise(target, source, length)
            }
        }

        /// # Safety
        /// As [`fill_above_64`].
        #[inline(always)]
        pub(crate) unsafe fn $fill_here(target: *mut u8, byte: i32, length: usize) -> *mut u8 {
            let chosen = CHOSEN.load(Ordering::Relaxed);
            // SAFETY: the caller's promise; only what is available was chosen.
            unsafe {
                #[cfg(all(target_arch = "x86_64", not(miri)))]
                if chosen == Isa::Avx2 as u8 {
                    return x86_64::$fill_avx2(target, byte, length);
                } else if chosen == Isa::Avx512vl as u8 {
                    return x86_64::$fill_avx512vl(target, byte, length);
                }
                #[cfg(all(target_arch = "aarch64", not(miri)))]
                if chosen == Isa::Neon as u8 {
                    return aarch64::$fill_neon(target, byte, length);
                }
                let _ = chosen;
                fill_otherwise(target, byte, length)
            }
        }
    };
}

jumps! {
    copy_above_64_here: copy_avx2, copy_avx512vl, copy_neon;
    fill_above_64_here: fill_avx2, fill_avx512vl, fill_neon;
}

jumps! {
    copy_above_64_branching: copy_branching_avx2, copy_branching_avx512vl, copy_branching_neon;
    fill_above_64_branching: fill_branching_avx2, fill_branching_avx512vl, fill_branching_neon;
}

/// The first call, and the instruction sets that few processors are left with: in a function of
/// its own, because more cases than two would become a table and an indirect jump.
#[inline(never)]
unsafe extern "C" fn copy_otherwise(target: *mut u8, source: *const u8, length: usize) -> *mut u8 {
    // SAFETY: the caller's promise; only what is available was chosen.
    unsafe {
        let chosen = CHOSEN.load(Ordering::Relaxed);
        if chosen == 0 {
            policy::ensure();
            return copy_above_64(target, source, length);
        }
        // Among masks the instruction set is what it is without.
        let chosen = chosen & !MASKS;
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

/// The first call, and the instruction sets that few processors are left with: in a function of
/// its own, because more cases than two would become a table and an indirect jump.
#[inline(never)]
unsafe extern "C" fn fill_otherwise(target: *mut u8, byte: i32, length: usize) -> *mut u8 {
    // SAFETY: the caller's promise; only what is available was chosen.
    unsafe {
        let chosen = CHOSEN.load(Ordering::Relaxed);
        if chosen == 0 {
            policy::ensure();
            return fill_above_64(target, byte, length);
        }
        // Among masks the instruction set is what it is without.
        let chosen = chosen & !MASKS;
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

#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) mod by_masks;
pub(crate) mod without_masks;

/// The kernels of the instruction set in force, for callers that say which they want.
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
    /// Copies past the caches.
    stream_copy -> CopyFn: stream_copy;
    /// Fills past the caches.
    stream_fill -> FillFn: stream_fill;
    /// Copies into the caches, whatever the size.
    cached_copy -> CopyFn: copy;
    /// Fills into the caches, whatever the size.
    cached_fill -> FillFn: fill;
}

/// Copies what is handed from core to core: by string where thresholds use strings and the
/// processor moves any, else through registers, either way into the caches.
pub(crate) fn handover_copy() -> CopyFn {
    let by_registers = cached_copy();
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if crate::thresholds::moves_strings() && policy::moves_any_string() {
        return arch::x86_64::string::copy;
    }
    by_registers
}

/// A copy above 64 bytes: the lines at hand, or a jump to what is long enough to choose.
macro_rules! copy_above_64 {
    ($(#[$features:meta])? $line:ty, $copy:ident: $block:ident, $copy_long:ident) => {
        $(#[$features])?
        pub(super) unsafe extern "C" fn $copy(
            target: *mut u8,
            source: *const u8,
            length: usize,
        ) -> *mut u8 {
            // SAFETY: the caller's promise, the features are enabled here, and the lengths are
            // those that each asks for.
            unsafe {
                if length <= BLOCK_MAX {
                    generic::$block::<$line>(target, source, length);
                } else if copies_by_registers(length) {
                    generic::copy_above_256::<$line>(target, source, length);
                } else {
                    return $copy_long(target, source, length);
                }
            }
            arch::same(target)
        }
    };
}

/// As `copy_above_64`, a fill.
macro_rules! fill_above_64 {
    ($(#[$features:meta])? $line:ty, $fill:ident: $block:ident, $fill_long:ident) => {
        $(#[$features])?
        pub(super) unsafe extern "C" fn $fill(
            target: *mut u8,
            byte: i32,
            length: usize,
        ) -> *mut u8 {
            // SAFETY: as in the copy.
            unsafe {
                if length <= BLOCK_MAX {
                    generic::$block::<$line>(target, arch::low_byte(byte), length);
                } else if fills_by_registers(length) {
                    generic::fill_above_256::<$line>(target, arch::low_byte(byte), length);
                } else {
                    return $fill_long(target, byte, length);
                }
            }
            arch::same(target)
        }
    };
}

/// The copy and the fill above 64 bytes of one instruction set, each ending in a jump.
///
/// What is long enough to choose sits in a function of its own: it needs a frame, and those that
/// are short should not pay for it.
macro_rules! above_64 {
    (
        $(#[$features:meta])? $line:ty,
        copy: $copy:ident, $copy_long:ident, $string_copy:path, $stream_copy:path, $paged_copy:path;
        fill: $fill:ident, $fill_long:ident, $string_fill:path, $stream_fill:path;
    ) => {
        copy_above_64!($(#[$features])? $line, $copy: copy_65_to_256, $copy_long);
        fill_above_64!($(#[$features])? $line, $fill: fill_65_to_256, $fill_long);

        $(#[$features])?
        #[inline(never)]
        unsafe extern "C" fn $copy_long(
            target: *mut u8,
            source: *const u8,
            length: usize,
        ) -> *mut u8 {
            let alike = (target.addr() ^ source.addr()) & (LINE - 1) == 0;
            // SAFETY: the caller's promise, and the features are enabled here.
            unsafe {
                match copy_way(length, alike || policy::moves_any_string()) {
                    Way::Registers => generic::copy_above_256::<$line>(target, source, length),
                    Way::String => return $string_copy(target, source, length),
                    Way::Stream => return $stream_copy(target, source, length),
                    Way::Paged => return $paged_copy(target, source, length),
                }
            }
            arch::same(target)
        }

        $(#[$features])?
        #[inline(never)]
        unsafe extern "C" fn $fill_long(target: *mut u8, byte: i32, length: usize) -> *mut u8 {
            // SAFETY: as above.
            unsafe {
                match fill_way(length) {
                    Way::Registers => {
                        generic::fill_above_256::<$line>(target, arch::low_byte(byte), length);
                    }
                    Way::String => return $string_fill(target, byte, length),
                    Way::Stream | Way::Paged => return $stream_fill(target, byte, length),
                }
            }
            arch::same(target)
        }
    };
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64 {
    use super::{
        BLOCK_MAX, LINE, Way, arch, copies_by_registers, copy_way, fill_way, fills_by_registers,
        generic,
    };
    use crate::arch::x86_64::{avx2, avx512, avx512vl, sse2, string};
    use crate::policy;

    above_64! {
        #[target_feature(enable = "sse2")] sse2::Xmm,
        copy: copy_sse2, copy_long_sse2, string::copy, sse2::stream_copy, sse2::paged_copy;
        fill: fill_sse2, fill_long_sse2, string::fill, sse2::stream_fill;
    }
    above_64! {
        #[target_feature(enable = "avx2")] avx2::Ymm,
        copy: copy_avx2, copy_long_avx2, string::copy, avx2::stream_copy, avx2::paged_copy;
        fill: fill_avx2, fill_long_avx2, string::fill, avx2::stream_fill;
    }
    copy_above_64! {
        #[target_feature(enable = "avx2")]
        avx2::Ymm, copy_branching_avx2: copy_65_to_256_branching, copy_long_avx2
    }
    fill_above_64! {
        #[target_feature(enable = "avx2")]
        avx2::Ymm, fill_branching_avx2: fill_65_to_256_branching, fill_long_avx2
    }
    above_64! {
        #[target_feature(enable = "avx2,avx512f,avx512vl,avx512bw")] avx512vl::YmmHigh,
        copy: copy_avx512vl, copy_long_avx512vl, string::copy, avx512vl::stream_copy, avx512vl::paged_copy;
        fill: fill_avx512vl, fill_long_avx512vl, string::fill, avx512vl::stream_fill;
    }
    copy_above_64! {
        #[target_feature(enable = "avx2,avx512f,avx512vl,avx512bw")]
        avx512vl::YmmHigh, copy_branching_avx512vl: copy_65_to_256_branching, copy_long_avx512vl
    }
    fill_above_64! {
        #[target_feature(enable = "avx2,avx512f,avx512vl,avx512bw")]
        avx512vl::YmmHigh, fill_branching_avx512vl: fill_65_to_256_branching, fill_long_avx512vl
    }
    above_64! {
        #[target_feature(enable = "avx512f,avx512bw")] avx512::Zmm,
        copy: copy_avx512, copy_long_avx512, string::copy, avx512::stream_copy, avx512::paged_copy;
        fill: fill_avx512, fill_long_avx512, string::fill, avx512::stream_fill;
    }
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
mod aarch64 {
    use super::{
        BLOCK_MAX, LINE, Way, arch, copies_by_registers, copy_way, fill_way, fills_by_registers,
        generic,
    };
    use crate::arch::aarch64::neon;
    use crate::policy;

    above_64! {
        #[target_feature(enable = "neon")] neon::Quads,
        copy: copy_neon, copy_long_neon, neon::copy, neon::stream_copy, neon::paged_copy;
        fill: fill_neon, fill_long_neon, neon::fill, neon::stream_fill;
    }
    copy_above_64! {
        #[target_feature(enable = "neon")]
        neon::Quads, copy_branching_neon: copy_65_to_256_branching, copy_long_neon
    }
    fill_above_64! {
        #[target_feature(enable = "neon")]
        neon::Quads, fill_branching_neon: fill_65_to_256_branching, fill_long_neon
    }
}

mod scalar {
    use super::{
        BLOCK_MAX, LINE, Way, arch, copies_by_registers, copy_way, fill_way, fills_by_registers,
        generic,
    };
    use crate::arch::scalar::{self, Words};
    use crate::policy;

    above_64! {
        Words,
        copy: copy_scalar, copy_long_scalar, scalar::copy, scalar::stream_copy, scalar::paged_copy;
        fill: fill_scalar, fill_long_scalar, scalar::fill, scalar::stream_fill;
    }
}
