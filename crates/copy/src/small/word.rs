//! Loads and stores of 1 to 16 bytes. These functions move memory, not numbers, so that
//! uninitialized bytes and pointers survive.

use core::mem::MaybeUninit;

#[cfg(all(target_arch = "x86_64", not(miri)))]
use core::arch::x86_64::{__m128i, _mm_set1_epi8};

macro_rules! access {
    ($load:ident, $store:ident, $word:ty) => {
        #[inline(always)]
        pub(super) unsafe fn $load(source: *const u8) -> MaybeUninit<$word> {
            // SAFETY: the caller can read that many bytes.
            unsafe { source.cast::<MaybeUninit<$word>>().read_unaligned() }
        }

        #[inline(always)]
        pub(super) unsafe fn $store(target: *mut u8, word: MaybeUninit<$word>) {
            // SAFETY: the caller can write that many bytes.
            unsafe { target.cast::<MaybeUninit<$word>>().write_unaligned(word) }
        }
    };
}
access!(load_1, store_1, u8);
access!(load_2, store_2, u16);
access!(load_4, store_4, u32);
access!(load_8, store_8, u64);

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
access!(load_16, store_16, u128);

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline(always)]
pub(super) fn splat_16(byte: u8) -> MaybeUninit<u128> {
    MaybeUninit::new(u128::from_ne_bytes([byte; 16]))
}

// x86-64 would move a u128 through two general registers.
#[cfg(all(target_arch = "x86_64", not(miri)))]
access!(load_16, store_16, __m128i);

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
pub(super) fn splat_16(byte: u8) -> MaybeUninit<__m128i> {
    // SAFETY: SSE2 is part of x86-64.
    MaybeUninit::new(unsafe { _mm_set1_epi8(byte.cast_signed()) })
}
