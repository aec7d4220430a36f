//! The algorithm, written once over a cache line in registers, and one thin file for each
//! instruction set.
//!
//! From the bottom up:
//!
//! - `line`: the operations that the algorithm needs from an instruction set;
//! - `generic`: the algorithms, over a line;
//! - `scalar`: plain Rust;
//! - `x86_64`: the instruction sets of x86-64;
//! - `aarch64`: the instruction set of aarch64.

pub(crate) mod generic;
pub(crate) mod line;

/// Defines the five kernels of an instruction set, each a complete memmove or memset.
///
/// The attribute must enable the features that the line uses. A kernel may only run on a
/// processor that has these features.
macro_rules! kernels {
    ($(#[$features:meta])? $line:ty) => {
        /// memmove with this instruction set's registers.
        ///
        /// # Safety
        /// The conditions of `generic::copy` apply.
        $(#[$features])?
        pub(crate) unsafe extern "C" fn copy(
            target: *mut u8,
            source: *const u8,
            length: usize,
        ) -> *mut u8 {
            // SAFETY: the caller's promise; the features are enabled here.
            unsafe { crate::arch::generic::copy::<$line>(target, source, length) };
            crate::arch::same(target)
        }

        /// memset with this instruction set's registers.
        ///
        /// # Safety
        /// The conditions of `generic::fill` apply.
        $(#[$features])?
        pub(crate) unsafe extern "C" fn fill(target: *mut u8, byte: i32, length: usize) -> *mut u8 {
            let byte = crate::arch::low_byte(byte);
            // SAFETY: the caller's promise; the features are enabled here.
            unsafe { crate::arch::generic::fill::<$line>(target, byte, length) };
            crate::arch::same(target)
        }

        /// memmove with non-temporal stores of this instruction set's registers.
        ///
        /// # Safety
        /// The conditions of `generic::stream_copy` apply.
        $(#[$features])?
        pub(crate) unsafe extern "C" fn stream_copy(
            target: *mut u8,
            source: *const u8,
            length: usize,
        ) -> *mut u8 {
            // SAFETY: the caller's promise; the features are enabled here.
            unsafe { crate::arch::generic::stream_copy::<$line, 1>(target, source, length) };
            crate::arch::same(target)
        }

        /// memmove with non-temporal stores of this instruction set's registers, four pages
        /// interleaved.
        ///
        /// # Safety
        /// The conditions of `generic::stream_copy` apply.
        $(#[$features])?
        pub(crate) unsafe extern "C" fn paged_copy(
            target: *mut u8,
            source: *const u8,
            length: usize,
        ) -> *mut u8 {
            // SAFETY: the caller's promise; the features are enabled here.
            unsafe { crate::arch::generic::stream_copy::<$line, 4>(target, source, length) };
            crate::arch::same(target)
        }

        /// memset with non-temporal stores of this instruction set's registers.
        ///
        /// # Safety
        /// The conditions of `generic::stream_fill` apply.
        $(#[$features])?
        pub(crate) unsafe extern "C" fn stream_fill(
            target: *mut u8,
            byte: i32,
            length: usize,
        ) -> *mut u8 {
            let byte = crate::arch::low_byte(byte);
            // SAFETY: the caller's promise; the features are enabled here.
            unsafe { crate::arch::generic::stream_fill::<$line>(target, byte, length) };
            crate::arch::same(target)
        }
    };
}

pub(crate) use kernels;

pub(crate) mod scalar;

pub(crate) use crate::opaque::{rolled, same};
pub(crate) use line::Line;

#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) mod x86_64;

#[cfg(all(target_arch = "aarch64", not(miri)))]
pub(crate) mod aarch64;

/// The byte that C's memset takes from its `int` argument: the lowest eight bits.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "C says so")]
pub(crate) const fn low_byte(value: i32) -> u8 {
    value as u8
}
