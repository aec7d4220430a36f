//! Values that hide their origin from the compiler, for code that the compiler's optimization
//! would make slower.

/// Returns `target` without the compiler knowing that the value is unchanged. Otherwise the
/// compiler would turn a jump to a function that returns its argument into a call, to reuse a
/// register that already holds the value.
#[inline(always)]
#[cfg_attr(
    not(miri),
    expect(clippy::pointers_in_nomem_asm_block, reason = "the pointer is passed on, not followed")
)]
pub(crate) fn same(target: *mut u8) -> *mut u8 {
    #[cfg(not(miri))]
    {
        let mut target = target;
        // SAFETY: the assembly has no instruction.
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

/// Returns `at` without the compiler knowing that the value is unchanged. A loop that counts with
/// this value is therefore not unrolled into a main loop and a remainder, whose two exits would
/// both be mispredicted.
#[inline(always)]
pub(crate) fn rolled(at: usize) -> usize {
    #[cfg(not(miri))]
    {
        let mut at = at;
        // SAFETY: the assembly has no instruction.
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
