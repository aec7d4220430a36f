//! Copies and fills of more than 256 bytes with AVX-512's lines in zmm16 to zmm31, as text that
//! continues `masked::copy_text` and `masked::fill_text`.
//!
//! The compiler would choose zmm0 to zmm15, whose lower parts SSE uses, and end with
//! `vzeroupper`. `vzeroupper` adds four operations to the critical path of a call whose size was
//! mispredicted. For packet sizes (64, 594 and 1,518 bytes) in L1 on Emerald Rapids, copies in
//! the compiler's registers, reached through two jumps, take 1.03 of glibc's time, and the copies
//! here take 0.99; fills take 1.11 and 1.01.

/// A step of a copy's loop: four lines at the offset `rcx`, which moves on.
macro_rules! copy_step_text {
    () => {
        concat!(
            "vmovdqu64 zmm21, zmmword ptr [rsi + rcx]\n",
            "vmovdqu64 zmm22, zmmword ptr [rsi + rcx + 64]\n",
            "vmovdqu64 zmm23, zmmword ptr [rsi + rcx + 128]\n",
            "vmovdqu64 zmm24, zmmword ptr [rsi + rcx + 192]\n",
            "vmovdqa64 zmmword ptr [rdi + rcx], zmm21\n",
            "vmovdqa64 zmmword ptr [rdi + rcx + 64], zmm22\n",
            "vmovdqa64 zmmword ptr [rdi + rcx + 128], zmm23\n",
            "vmovdqa64 zmmword ptr [rdi + rcx + 192], zmm24\n",
            "add rcx, 256\n",
        )
    };
}
pub(crate) use copy_step_text;

/// memmove of more than 256 bytes. The label `91` gets sizes from the threshold `{lookup}` in
/// `{thresholds}` on, and copies of more than 512 bytes whose target starts inside the source.
///
/// Up to 512 bytes, the first four lines and the last four are copied, all loads before all stores.
/// Above, head and tail are loaded first, and a loop steps from the first multiple of 64 in the
/// target. A step completes its loads before it stores, and stores only below what later steps
/// load.
macro_rules! copy_above_256_text {
    () => {
        concat!(
            "cmp rdx, qword ptr [rip + {thresholds} + {lookup}]\n",
            "jae 91f\n",
            "cmp rdx, 512\n",
            "ja 50f\n",
            "vmovdqu64 zmm16, zmmword ptr [rsi]\n",
            "vmovdqu64 zmm17, zmmword ptr [rsi + 64]\n",
            "vmovdqu64 zmm18, zmmword ptr [rsi + 128]\n",
            "vmovdqu64 zmm19, zmmword ptr [rsi + 192]\n",
            "vmovdqu64 zmm20, zmmword ptr [rsi + rdx - 256]\n",
            "vmovdqu64 zmm21, zmmword ptr [rsi + rdx - 192]\n",
            "vmovdqu64 zmm22, zmmword ptr [rsi + rdx - 128]\n",
            "vmovdqu64 zmm23, zmmword ptr [rsi + rdx - 64]\n",
            "vmovdqu64 zmmword ptr [rdi], zmm16\n",
            "vmovdqu64 zmmword ptr [rdi + 64], zmm17\n",
            "vmovdqu64 zmmword ptr [rdi + 128], zmm18\n",
            "vmovdqu64 zmmword ptr [rdi + 192], zmm19\n",
            "vmovdqu64 zmmword ptr [rdi + rdx - 256], zmm20\n",
            "vmovdqu64 zmmword ptr [rdi + rdx - 192], zmm21\n",
            "vmovdqu64 zmmword ptr [rdi + rdx - 128], zmm22\n",
            "vmovdqu64 zmmword ptr [rdi + rdx - 64], zmm23\n",
            "ret\n",
            "50:\n",
            // One comparison for both "the target starts inside the source" and, by wrapping, "it
            // does not": see `generic::copy_above_256`.
            "mov rcx, rdi\n",
            "sub rcx, rsi\n",
            "cmp rcx, rdx\n",
            "jb 91f\n",
            "mov rcx, rdi\n",
            "or rcx, -64\n",
            "neg rcx\n",
            "lea r8, [rdx - 256]\n",
            "vmovdqu64 zmm16, zmmword ptr [rsi]\n",
            "vmovdqu64 zmm17, zmmword ptr [rsi + r8]\n",
            "vmovdqu64 zmm18, zmmword ptr [rsi + r8 + 64]\n",
            "vmovdqu64 zmm19, zmmword ptr [rsi + r8 + 128]\n",
            "vmovdqu64 zmm20, zmmword ptr [rsi + r8 + 192]\n",
            "cmp rdx, {ahead_min}\n",
            "jae 57f\n",
            ".p2align 4\n",
            "55:\n",
            $crate::arch::x86_64::zmm_high::copy_step_text!(),
            "cmp rcx, r8\n",
            "jb 55b\n",
            "vmovdqu64 zmmword ptr [rdi + r8], zmm17\n",
            "vmovdqu64 zmmword ptr [rdi + r8 + 64], zmm18\n",
            "vmovdqu64 zmmword ptr [rdi + r8 + 128], zmm19\n",
            "vmovdqu64 zmmword ptr [rdi + r8 + 192], zmm20\n",
            "vmovdqu64 zmmword ptr [rdi], zmm16\n",
            "ret\n",
            "57:\n",
            "lea r9, [r8 - {ahead}]\n",
            ".p2align 4\n",
            "58:\n",
            "prefetchw byte ptr [rdi + rcx + {ahead}]\n",
            "prefetchw byte ptr [rdi + rcx + {ahead} + 64]\n",
            "prefetchw byte ptr [rdi + rcx + {ahead} + 128]\n",
            "prefetchw byte ptr [rdi + rcx + {ahead} + 192]\n",
            $crate::arch::x86_64::zmm_high::copy_step_text!(),
            "cmp rcx, r9\n",
            "jb 58b\n",
            "jmp 55b\n",
        )
    };
}
pub(crate) use copy_above_256_text;

/// memset of more than 256 bytes and fewer than 2,048; `zmm16` holds the byte. The label `91` gets
/// the other sizes, for which thresholds choose the method. Filling both ends before the middle
/// would also be slower there than one line and a loop: 2 KiB in L1 takes 1.00 of libc's time,
/// against 0.87 (Xeon of family 6, model 167).
///
/// The first four and the last four lines come before the branch at 512, which is mispredicted if
/// sizes vary: sizes of packets in L1 take 0.97 of the time of one line and a loop (the same Xeon).
/// The loop fills whole lines of the middle.
macro_rules! fill_above_256_text {
    () => {
        concat!(
            "cmp rdx, 2048\n",
            "jae 91f\n",
            "vmovdqu64 zmmword ptr [rdi], zmm16\n",
            "vmovdqu64 zmmword ptr [rdi + 64], zmm16\n",
            "vmovdqu64 zmmword ptr [rdi + 128], zmm16\n",
            "vmovdqu64 zmmword ptr [rdi + 192], zmm16\n",
            "vmovdqu64 zmmword ptr [rdi + rdx - 256], zmm16\n",
            "vmovdqu64 zmmword ptr [rdi + rdx - 192], zmm16\n",
            "vmovdqu64 zmmword ptr [rdi + rdx - 128], zmm16\n",
            "vmovdqu64 zmmword ptr [rdi + rdx - 64], zmm16\n",
            "cmp rdx, 512\n",
            "ja 50f\n",
            "ret\n",
            "50:\n",
            "lea rcx, [rdi + 256]\n",
            "and rcx, -64\n",
            "lea r8, [rdi + rdx - 256]\n",
            ".p2align 4\n",
            "55:\n",
            "vmovdqa64 zmmword ptr [rcx], zmm16\n",
            "vmovdqa64 zmmword ptr [rcx + 64], zmm16\n",
            "vmovdqa64 zmmword ptr [rcx + 128], zmm16\n",
            "vmovdqa64 zmmword ptr [rcx + 192], zmm16\n",
            "add rcx, 256\n",
            "cmp rcx, r8\n",
            "jb 55b\n",
            "ret\n",
        )
    };
}
pub(crate) use fill_above_256_text;
