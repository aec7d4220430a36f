//! Plain Rust: eight words of eight bytes. This code is the fallback on any processor, and Miri
//! runs it.

use core::mem::MaybeUninit;

use super::Line;

/// 64 bytes in general registers. Uninitialized bytes and pointers survive the copy.
#[derive(Clone, Copy)]
pub(crate) struct Words([MaybeUninit<u64>; 8]);

impl Line for Words {
    const STEP: usize = 1;
    const HELD: usize = 4;
    const ALIGNMENT: usize = 8;

    #[inline(always)]
    unsafe fn load(source: *const u8) -> Self {
        // SAFETY: the caller can read 64 bytes.
        Self(unsafe { source.cast::<[MaybeUninit<u64>; 8]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, target: *mut u8) {
        // SAFETY: the caller can write 64 bytes.
        unsafe { target.cast::<[MaybeUninit<u64>; 8]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn store_aligned(self, target: *mut u8) {
        // SAFETY: the caller can write 64 bytes at a multiple of 8.
        unsafe { target.cast::<[MaybeUninit<u64>; 8]>().write(self.0) }
    }

    #[inline(always)]
    unsafe fn store_first(self, target: *mut u8) {
        // SAFETY: the caller can write 8 bytes.
        unsafe { target.cast::<MaybeUninit<u64>>().write_unaligned(self.0[0]) }
    }

    #[inline(always)]
    unsafe fn stream(self, target: *mut u8) {
        // SAFETY: the caller can write 64 bytes at a multiple of 64.
        unsafe { self.store_aligned(target) }
    }

    #[inline(always)]
    unsafe fn splat(byte: u8) -> Self {
        Self([MaybeUninit::new(u64::from_ne_bytes([byte; 8])); 8])
    }
}

super::kernels! { Words }
