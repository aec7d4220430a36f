//! NEON: four 16-byte registers per line, loaded and stored in pairs.

use core::arch::aarch64::{uint8x16_t, vdupq_n_u8, vld1q_u8, vst1q_u8};
use core::arch::asm;

use crate::arch::Line;

/// 64 bytes in four q registers.
#[derive(Clone, Copy)]
pub(crate) struct Quads([uint8x16_t; 4]);

impl Line for Quads {
    const STEP: usize = 1;
    const HELD: usize = 4;
    const ALIGNMENT: usize = 16;

    #[inline(always)]
    unsafe fn load(source: *const u8) -> Self {
        // SAFETY: the caller can read 64 bytes; NEON is part of the target.
        Self(unsafe {
            [
                vld1q_u8(source),
                vld1q_u8(source.add(16)),
                vld1q_u8(source.add(32)),
                vld1q_u8(source.add(48)),
            ]
        })
    }

    #[inline(always)]
    unsafe fn store(self, target: *mut u8) {
        // SAFETY: the caller can write 64 bytes; NEON is part of the target.
        unsafe {
            vst1q_u8(target, self.0[0]);
            vst1q_u8(target.add(16), self.0[1]);
            vst1q_u8(target.add(32), self.0[2]);
            vst1q_u8(target.add(48), self.0[3]);
        }
    }

    #[inline(always)]
    unsafe fn store_aligned(self, target: *mut u8) {
        // SAFETY: the caller can write 64 bytes. The instruction is the same.
        unsafe { self.store(target) }
    }

    #[inline(always)]
    unsafe fn store_first(self, target: *mut u8) {
        // SAFETY: the caller can write 16 bytes; NEON is part of the target.
        unsafe { vst1q_u8(target, self.0[0]) }
    }

    /// `stnp`, which is only a hint: its stores are ordered as plain stores, so it needs no fence.
    #[inline(always)]
    unsafe fn stream(self, target: *mut u8) {
        let [a, b, c, d] = self.0;
        // SAFETY: the caller can write 64 bytes.
        unsafe {
            asm!(
                "stnp {a:q}, {b:q}, [{target}]",
                "stnp {c:q}, {d:q}, [{target}, #32]",
                a = in(vreg) a, b = in(vreg) b, c = in(vreg) c, d = in(vreg) d,
                target = in(reg) target,
                options(nostack, preserves_flags),
            );
        }
    }

    #[inline(always)]
    unsafe fn splat(byte: u8) -> Self {
        // SAFETY: NEON is part of the target.
        Self([unsafe { vdupq_n_u8(byte) }; 4])
    }
}

crate::arch::kernels! { #[target_feature(enable = "neon")] Quads }
