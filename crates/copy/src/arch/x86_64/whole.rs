//! Copies and fills of up to 256 bytes through C with whole registers of AVX2, without masks.
//!
//! # Idea
//!
//! ```text
//! n <= 3:      bytes at 0, n/2 and n-1
//! n <= 15:     4 bytes at n-4 and at max(0, n-8), then 8 at 0 (n < 8: to a scratch)
//! n <= 32:     16 bytes at 0 and at n-16
//! n <= 64:     32 bytes at 0 and at n-32
//! n <= 128:    32 bytes at 0, 32, n-64, n-32
//! n <= 256:    32 bytes at 0, 32, 64, 96, n-128, n-96, n-64, n-32
//! ```
//!
//! Up to 15 bytes, which are more than half of a fleet's calls, there is one branch, at 4. Above,
//! each class has the stores that the C library has: a call with one size, whose branches a
//! predictor knows, pays for every unnecessary store. On Zen 3, four 16-byte moves for 17 to 64
//! bytes take 0.85 of the C library's time for services' sizes in a random order instead of 0.97,
//! but up to 1.36 instead of 1.08 for one size at a time.
//!
//! The text belongs to the functions of `dispatch::by_masks`, which come here if the policy uses
//! no masks or if a mask would be slow at an address. All loads precede all stores.

/// The text of a memmove: `rdi` is the target, `rsi` the source, `rdx` the length; `rax` already
/// has the result. Sizes of 64 bytes and more begin at the label `89`. Sizes above 256 bytes jump
/// to `{above}` with AVX2, and to `{otherwise}` with another instruction set, as all sizes of one
/// below AVX2 do.
///
/// A copy of 400 bytes whose size repeats takes 1.21 of the time of glibc 2.43 on Zen 3; it took
/// 1.36 when it passed every comparison of the smaller sizes and jumped to `{otherwise}`.
macro_rules! copy_whole_text {
    () => {
        concat!(
            "cmp byte ptr [rip + {chosen}], {avx2}\n",
            "jb 99f\n",
            "cmp rdx, 16\n",
            "jb 94f\n",
            "cmp rdx, 32\n",
            "ja 92f\n",
            "movups xmm0, xmmword ptr [rsi]\n",
            "movups xmm1, xmmword ptr [rsi + rdx - 16]\n",
            "movups xmmword ptr [rdi], xmm0\n",
            "movups xmmword ptr [rdi + rdx - 16], xmm1\n",
            "ret\n",
            ".p2align 4\n",
            "92:\n",
            "cmp rdx, 64\n",
            "ja 93f\n",
            "vmovdqu ymm0, ymmword ptr [rsi]\n",
            "vmovdqu ymm1, ymmword ptr [rsi + rdx - 32]\n",
            "vmovdqu ymmword ptr [rdi], ymm0\n",
            "vmovdqu ymmword ptr [rdi + rdx - 32], ymm1\n",
            "vzeroupper\n",
            "ret\n",
            ".p2align 4\n",
            "89:\n",
            "cmp byte ptr [rip + {chosen}], {avx2}\n",
            "jb 99f\n",
            "93:\n",
            "cmp rdx, 256\n",
            "ja 98f\n",
            "vmovdqu ymm0, ymmword ptr [rsi]\n",
            "vmovdqu ymm1, ymmword ptr [rsi + 32]\n",
            "vmovdqu ymm2, ymmword ptr [rsi + rdx - 64]\n",
            "vmovdqu ymm3, ymmword ptr [rsi + rdx - 32]\n",
            "cmp rdx, 128\n",
            "ja 97f\n",
            "vmovdqu ymmword ptr [rdi], ymm0\n",
            "vmovdqu ymmword ptr [rdi + 32], ymm1\n",
            "vmovdqu ymmword ptr [rdi + rdx - 64], ymm2\n",
            "vmovdqu ymmword ptr [rdi + rdx - 32], ymm3\n",
            "vzeroupper\n",
            "ret\n",
            ".p2align 4\n",
            "97:\n",
            "vmovdqu ymm4, ymmword ptr [rsi + 64]\n",
            "vmovdqu ymm5, ymmword ptr [rsi + 96]\n",
            "vmovdqu ymm6, ymmword ptr [rsi + rdx - 128]\n",
            "vmovdqu ymm7, ymmword ptr [rsi + rdx - 96]\n",
            "vmovdqu ymmword ptr [rdi], ymm0\n",
            "vmovdqu ymmword ptr [rdi + 32], ymm1\n",
            "vmovdqu ymmword ptr [rdi + 64], ymm4\n",
            "vmovdqu ymmword ptr [rdi + 96], ymm5\n",
            "vmovdqu ymmword ptr [rdi + rdx - 128], ymm6\n",
            "vmovdqu ymmword ptr [rdi + rdx - 96], ymm7\n",
            "vmovdqu ymmword ptr [rdi + rdx - 64], ymm2\n",
            "vmovdqu ymmword ptr [rdi + rdx - 32], ymm3\n",
            "vzeroupper\n",
            "ret\n",
            ".p2align 4\n",
            "94:\n",
            "cmp edx, 4\n",
            "jb 95f\n",
            // The scratch lies in the 128 bytes below the stack pointer, which belong to this
            // function.
            "lea r10, [rsp - 8]\n",
            "mov r11, r10\n",
            "xor ecx, ecx\n",
            "mov r8, rdx\n",
            "sub r8, 8\n",
            "cmovae rcx, r8\n",
            "cmovae r10, rdi\n",
            "cmovae r11, rsi\n",
            "mov r11, qword ptr [r11]\n",
            "mov r9d, dword ptr [rsi + rcx]\n",
            "mov esi, dword ptr [rsi + rdx - 4]\n",
            "mov dword ptr [rdi + rcx], r9d\n",
            "mov dword ptr [rdi + rdx - 4], esi\n",
            "mov qword ptr [r10], r11\n",
            "ret\n",
            "95:\n",
            "test edx, edx\n",
            "jz 96f\n",
            "mov r10, rdx\n",
            "shr r10, 1\n",
            "movzx ecx, byte ptr [rsi]\n",
            "movzx r9d, byte ptr [rsi + r10]\n",
            "movzx r8d, byte ptr [rsi + rdx - 1]\n",
            "mov byte ptr [rdi], cl\n",
            "mov byte ptr [rdi + r10], r9b\n",
            "mov byte ptr [rdi + rdx - 1], r8b\n",
            "96:\n",
            "ret\n",
            "98:\n",
            "cmp byte ptr [rip + {chosen}], {avx2}\n",
            "je {above}\n",
            "99:\n",
            "jmp {otherwise}\n",
        )
    };
}
pub(crate) use copy_whole_text;

/// The text of a memset: `rdi` is the target, `esi` the byte, `rdx` the length; `rax` already has
/// the result. Sizes above 256 bytes, and all sizes of an instruction set below AVX2, jump to
/// `{otherwise}`.
macro_rules! fill_whole_text {
    () => {
        concat!(
            "cmp byte ptr [rip + {chosen}], {avx2}\n",
            "jb 99f\n",
            "cmp rdx, 16\n",
            "jb 94f\n",
            "vmovd xmm0, esi\n",
            "cmp rdx, 32\n",
            "ja 92f\n",
            "vpbroadcastb xmm0, xmm0\n",
            "vmovdqu xmmword ptr [rdi], xmm0\n",
            "vmovdqu xmmword ptr [rdi + rdx - 16], xmm0\n",
            "ret\n",
            ".p2align 4\n",
            "92:\n",
            "cmp rdx, 256\n",
            "ja 99f\n",
            "vpbroadcastb ymm0, xmm0\n",
            "vmovdqu ymmword ptr [rdi], ymm0\n",
            "vmovdqu ymmword ptr [rdi + rdx - 32], ymm0\n",
            "cmp rdx, 64\n",
            "jbe 93f\n",
            "vmovdqu ymmword ptr [rdi + 32], ymm0\n",
            "vmovdqu ymmword ptr [rdi + rdx - 64], ymm0\n",
            "cmp rdx, 128\n",
            "jbe 93f\n",
            "vmovdqu ymmword ptr [rdi + 64], ymm0\n",
            "vmovdqu ymmword ptr [rdi + 96], ymm0\n",
            "vmovdqu ymmword ptr [rdi + rdx - 128], ymm0\n",
            "vmovdqu ymmword ptr [rdi + rdx - 96], ymm0\n",
            "93:\n",
            "vzeroupper\n",
            "ret\n",
            ".p2align 4\n",
            "94:\n",
            "movzx esi, sil\n",
            "movabs rcx, 0x0101010101010101\n",
            "imul rcx, rsi\n",
            "cmp edx, 4\n",
            "jb 95f\n",
            // The scratch lies in the 128 bytes below the stack pointer, which belong to this
            // function.
            "lea r10, [rsp - 8]\n",
            "xor r8d, r8d\n",
            "mov r9, rdx\n",
            "sub r9, 8\n",
            "cmovae r8, r9\n",
            "cmovae r10, rdi\n",
            "mov dword ptr [rdi + r8], ecx\n",
            "mov dword ptr [rdi + rdx - 4], ecx\n",
            "mov qword ptr [r10], rcx\n",
            "ret\n",
            "95:\n",
            "test edx, edx\n",
            "jz 96f\n",
            "mov r10, rdx\n",
            "shr r10, 1\n",
            "mov byte ptr [rdi], cl\n",
            "mov byte ptr [rdi + r10], cl\n",
            "mov byte ptr [rdi + rdx - 1], cl\n",
            "96:\n",
            "ret\n",
            "99:\n",
            "jmp {otherwise}\n",
        )
    };
}
pub(crate) use fill_whole_text;
