//! AVX-512VL: AVX2's width on the registers ymm16 to ymm31.
//!
//! Those registers have no SSE halves, so a block of up to 256 bytes that uses no other registers
//! needs no `vzeroupper` before it returns and never aborts a hardware transaction. The block is
//! assembly because the compiler prefers ymm0 to ymm15; in the loops above 256 bytes, the
//! compiler chooses the registers. The compiler joins two accesses to adjacent ymm registers into
//! one access to a zmm register, so the loop aligns the target to a line. If the loop aligned the
//! target to a ymm register, every store would cross a line boundary in half of the calls. In L1
//! on Cascade Lake, the alignment to a ymm register takes 1.00 (768 B), 1.23 (2 KiB) and 1.18 (4
//! KiB) times as long; a step in assembly with ymm16 to ymm19 takes 1.11 to 1.19 times as long.
//! Fills align the target to a register: aligned to a line, they take 1.03 to 1.08 times as long.

use core::arch::asm;
use core::arch::x86_64::{
    __m256i, _mm256_loadu_si256, _mm256_set1_epi8, _mm256_store_si256, _mm256_storeu_si256,
    _mm256_stream_si256,
};

/// 64 bytes in two ymm registers.
#[derive(Clone, Copy)]
pub(crate) struct YmmHigh([__m256i; 2]);

super::line_of_registers!(
    YmmHigh,
    __m256i, [0, 1], step: 2, held: 8,
    _mm256_loadu_si256,
    _mm256_storeu_si256,
    _mm256_store_si256,
    _mm256_stream_si256,
    _mm256_set1_epi8,
    const COPY_ALIGNMENT: usize = 64;
    #[inline(always)]
    unsafe fn move_4(targets: [*mut u8; 4], sources: [*const u8; 4]) {
        let [t0, t1, t2, t3] = targets;
        let [s0, s1, s2, s3] = sources;
        // SAFETY: the caller can read 64 bytes at each source and write 64 at each target, and has
        // AVX-512VL. All loads precede all stores. Only clobbered registers are written.
        unsafe {
            asm!(
                "vmovdqu64 ymm16, ymmword ptr [{s0}]",
                "vmovdqu64 ymm17, ymmword ptr [{s0} + 32]",
                "vmovdqu64 ymm18, ymmword ptr [{s1}]",
                "vmovdqu64 ymm19, ymmword ptr [{s1} + 32]",
                "vmovdqu64 ymm20, ymmword ptr [{s2}]",
                "vmovdqu64 ymm21, ymmword ptr [{s2} + 32]",
                "vmovdqu64 ymm22, ymmword ptr [{s3}]",
                "vmovdqu64 ymm23, ymmword ptr [{s3} + 32]",
                "vmovdqu64 ymmword ptr [{t0}], ymm16",
                "vmovdqu64 ymmword ptr [{t0} + 32], ymm17",
                "vmovdqu64 ymmword ptr [{t1}], ymm18",
                "vmovdqu64 ymmword ptr [{t1} + 32], ymm19",
                "vmovdqu64 ymmword ptr [{t2}], ymm20",
                "vmovdqu64 ymmword ptr [{t2} + 32], ymm21",
                "vmovdqu64 ymmword ptr [{t3}], ymm22",
                "vmovdqu64 ymmword ptr [{t3} + 32], ymm23",
                s0 = in(reg) s0, s1 = in(reg) s1, s2 = in(reg) s2, s3 = in(reg) s3,
                t0 = in(reg) t0, t1 = in(reg) t1, t2 = in(reg) t2, t3 = in(reg) t3,
                out("ymm16") _, out("ymm17") _, out("ymm18") _, out("ymm19") _,
                out("ymm20") _, out("ymm21") _, out("ymm22") _, out("ymm23") _,
                options(nostack, preserves_flags),
            );
        }
    }
);

crate::arch::kernels! { #[target_feature(enable = "avx2,avx512f,avx512vl,avx512bw")] YmmHigh }
