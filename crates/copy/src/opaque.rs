//! Values that the compiler can't see through, where what it would make of them is slower.

/// `target`, which the compiler can't tell is the same: a function that returns what it was given
/// would otherwise be called and not jumped to, for the sake of a register that already holds it.
#[inline(always)]
#[cfg_attr(
    not(miri),
    expect(clippy::pointers_in_nomem_asm_block, reason = "the pointer is passed on, not followed")
)]
pub(crate) fn same(target: *mut u8) -> *mut u8 {
    #[cfg(not(miri))]
    {
        let mut target = target;
        // SAFETY: no instruction at all.
        unsafe {
            core::arch::asm!(
                "/* {0} */",
                inlateout(reg) target,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        target
    }
    #[cfg(miri)]
    target
}

/// `at`, which the compiler can't tell is the same: a loop that counts with it is not unrolled into
/// one with a remainder, whose two ends would both be mispredicted.
#[inline(always)]
pub(crate) fn rolled(at: usize) -> usize {
    #[cfg(not(miri))]
    {
        let mut at = at;
        // SAFETY: no instruction at all.
        unsafe {
            core::arch::asm!(
                "/* {0} */",
                inlateout(reg) at,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        at
    }
    #[cfg(miri)]
    at
}
