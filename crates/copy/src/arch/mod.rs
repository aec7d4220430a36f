//! The algorithm once, over a cache line held in registers, and one thin file an instruction set.
//!
//! From the bottom up:
//!
//! - `line`: what the algorithm needs of an instruction set;
//! - `generic`: the algorithms, over a line;
//! - `scalar`: plain Rust;
//! - `x86_64`: its instruction sets;
//! - `aarch64`: its instruction set.

pub(crate) mod generic;
pub(crate) mod line;

/// The five kernels of a vector instruction set, each a complete memmove or memset.
///
/// The attribute must enable what the line uses; a kernel may only run where the processor has it.
macro_rules! kernels {
    ($(#[$features:meta])? $line:ty) => {
        /// memmove by this instruction set's registers.
        ///
        /// # Safety
        /// As `generic::copy`.
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

        /// memset by this instruction set's registers.
        ///
        /// # Safety
        /// As `generic::fill`.
        $(#[$features])?
        pub(crate) unsafe extern "C" fn fill(target: *mut u8, byte: i32, length: usize) -> *mut u8 {
            let byte = crate::arch::low_byte(byte);
            // SAFETY: the caller's promise; the features are enabled here.
            unsafe { crate::arch::generic::fill::<$line>(target, byte, length) };
            crate::arch::same(target)
        }

        /// memmove by non-temporal stores of this instruction set's registers.
        ///
        /// # Safety
        /// As `generic::stream_copy`.
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

        /// memmove by non-temporal stores of this instruction set's registers, four pages side by
        /// side.
        ///
        /// # Safety
        /// As `generic::stream_copy`.
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

        /// memset by non-temporal stores of this instruction set's registers.
        ///
        /// # Safety
        /// As `generic::stream_fill`.
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

/// The byte that C's memset means by its `int`: the lowest eight bits.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "C says so")]
pub(crate) const fn low_byte(value: i32) -> u8 {
    value as u8
}
