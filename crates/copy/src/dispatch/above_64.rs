//! Copies and fills above 64 bytes of each instruction set. The dispatch jumps to these
//! functions.

use crate::arch;
use crate::arch::generic::{self, BLOCK_MAX};
use crate::arch::line::LINE;
use crate::thresholds::{
    Method, copies_by_registers, copy_method, fill_method, fills_by_registers,
};

/// A copy above 64 bytes through registers. For a size that may use another method, the function
/// jumps to `$copy_long`.
macro_rules! copy_above_64 {
    ($(#[$features:meta])? $line:ty, $copy:ident, $copy_long:ident) => {
        $(#[$features])?
        pub(crate) unsafe extern "C" fn $copy(
            target: *mut u8,
            source: *const u8,
            length: usize,
        ) -> *mut u8 {
            // SAFETY: the caller's promise, the features are enabled here, and each branch has the
            // length that its callee requires.
            unsafe {
                if length <= BLOCK_MAX {
                    generic::copy_65_to_256::<$line>(target, source, length);
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

/// A fill above 64 bytes, structured as `copy_above_64`.
macro_rules! fill_above_64 {
    ($(#[$features:meta])? $line:ty, $fill:ident, $fill_long:ident) => {
        $(#[$features])?
        pub(in crate::dispatch) unsafe extern "C" fn $fill(
            target: *mut u8,
            byte: i32,
            length: usize,
        ) -> *mut u8 {
            // SAFETY: as in the copy.
            unsafe {
                if length <= BLOCK_MAX {
                    generic::fill_65_to_256::<$line>(target, arch::low_byte(byte), length);
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

/// The copy and the fill above 64 bytes of one instruction set, and the choice of a method for
/// long copies and fills.
///
/// A separate function chooses the method, because the choice needs a frame, which would slow
/// down short copies.
macro_rules! above_64 {
    (
        $(#[$features:meta])? $line:ty,
        copy: $copy:ident, $copy_long:ident, $string_copy:path, $stream_copy:path, $paged_copy:path;
        fill: $fill:ident, $fill_long:ident, $string_fill:path, $stream_fill:path;
    ) => {
        copy_above_64!($(#[$features])? $line, $copy, $copy_long);
        fill_above_64!($(#[$features])? $line, $fill, $fill_long);

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
                match copy_method(length, alike || policy::allows_any_string()) {
                    Method::Registers => generic::copy_above_256::<$line>(target, source, length),
                    Method::String => return $string_copy(target, source, length),
                    Method::Stream => return $stream_copy(target, source, length),
                    Method::Paged => return $paged_copy(target, source, length),
                }
            }
            arch::same(target)
        }

        $(#[$features])?
        #[inline(never)]
        unsafe extern "C" fn $fill_long(target: *mut u8, byte: i32, length: usize) -> *mut u8 {
            // SAFETY: the caller's promise, and the features are enabled here.
            unsafe {
                match fill_method(length) {
                    Method::Registers => {
                        generic::fill_above_256::<$line>(target, arch::low_byte(byte), length);
                    }
                    Method::String => return $string_fill(target, byte, length),
                    Method::Stream | Method::Paged => return $stream_fill(target, byte, length),
                }
            }
            arch::same(target)
        }
    };
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) mod x86_64 {
    use super::{
        BLOCK_MAX, LINE, Method, arch, copies_by_registers, copy_method, fill_method,
        fills_by_registers, generic,
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
    above_64! {
        #[target_feature(enable = "avx2,avx512f,avx512vl,avx512bw")] avx512vl::YmmHigh,
        copy: copy_avx512vl, copy_long_avx512vl, string::copy, avx512vl::stream_copy, avx512vl::paged_copy;
        fill: fill_avx512vl, fill_long_avx512vl, string::fill, avx512vl::stream_fill;
    }
    above_64! {
        #[target_feature(enable = "avx512f,avx512bw")] avx512::Zmm,
        copy: copy_avx512, copy_long_avx512, string::copy, avx512::stream_copy, avx512::paged_copy;
        fill: fill_avx512, fill_long_avx512, string::fill, avx512::stream_fill;
    }
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
pub(super) mod aarch64 {
    use super::{
        BLOCK_MAX, LINE, Method, arch, copies_by_registers, copy_method, fill_method,
        fills_by_registers, generic,
    };
    use crate::arch::aarch64::neon;
    use crate::policy;

    above_64! {
        #[target_feature(enable = "neon")] neon::Quads,
        copy: copy_neon, copy_long_neon, neon::copy, neon::stream_copy, neon::paged_copy;
        fill: fill_neon, fill_long_neon, neon::fill, neon::stream_fill;
    }
}

pub(super) mod scalar {
    use super::{
        BLOCK_MAX, LINE, Method, arch, copies_by_registers, copy_method, fill_method,
        fills_by_registers, generic,
    };
    use crate::arch::scalar::{self, Words};
    use crate::policy;

    above_64! {
        Words,
        copy: copy_scalar, copy_long_scalar, scalar::copy, scalar::stream_copy, scalar::paged_copy;
        fill: fill_scalar, fill_long_scalar, scalar::fill, scalar::stream_fill;
    }
}
