//! The operations that the algorithm needs from an instruction set: a line of 64 bytes in
//! registers.

/// The size of a cache line on every processor that haul has kernels for.
pub(crate) const LINE: usize = 64;

/// 64 bytes in one, two, four or eight registers.
///
/// The unit is the line, not the register, so that one algorithm serves registers of 8 to 64
/// bytes. Instruction sets differ in the number of instructions that a line needs.
///
/// # Safety of every method
/// The pointer must be valid for [`LINE`] bytes in the direction of the access, and the processor
/// must have the instruction set: an implementation may be used only inside a function that
/// enables this instruction set.
pub(crate) trait Line: Copy {
    /// Lines in one step of the loop: 1, 2 or 4, chosen so that a step, the saved head and the
    /// saved tail fit into the registers.
    const STEP: usize;

    /// Lines that fit into the registers at once: 4 or 8.
    const HELD: usize;

    /// Lines in one step of a fill's loop: 2 or 4.
    const FILL_STEP: usize = 2;

    /// Whether copies of 257 to 512 bytes always move eight lines, instead of six or eight lines,
    /// between which a branch chooses.
    const EIGHT_LINES: bool = false;

    /// Whether a long fill or forward copy prefetches the lines of its target for writing.
    const OWNS_AHEAD: bool = false;

    /// Loads 64 bytes from any address.
    unsafe fn load(source: *const u8) -> Self;

    /// Stores 64 bytes to any address.
    unsafe fn store(self, target: *mut u8);

    /// Stores 64 bytes to a multiple of [`Line::ALIGNMENT`].
    unsafe fn store_aligned(self, target: *mut u8);

    /// Stores the first [`Line::ALIGNMENT`] bytes to any address.
    unsafe fn store_first(self, target: *mut u8);

    /// Stores 64 bytes to a multiple of 64 and bypasses the caches. [`Line::fence`] orders the
    /// store.
    unsafe fn stream(self, target: *mut u8);

    /// A line whose 64 bytes all equal `byte`.
    unsafe fn splat(byte: u8) -> Self;

    /// Moves the four lines at `sources` to `targets`: all loads, then all stores.
    #[inline(always)]
    unsafe fn move_4(targets: [*mut u8; 4], sources: [*const u8; 4]) {
        // SAFETY: the caller's promise for each of the four.
        unsafe {
            let first = Self::load(sources[0]);
            let second = Self::load(sources[1]);
            let third = Self::load(sources[2]);
            let fourth = Self::load(sources[3]);
            first.store(targets[0]);
            second.store(targets[1]);
            third.store(targets[2]);
            fourth.store(targets[3]);
        }
    }

    /// The alignment that `store_aligned` needs: the size of one register in bytes.
    const ALIGNMENT: usize;

    /// The alignment of the target in a copy's loop: [`Line::ALIGNMENT`], or [`LINE`].
    const COPY_ALIGNMENT: usize = Self::ALIGNMENT;

    /// Makes the streamed lines visible before any later store.
    #[inline(always)]
    fn fence() {}

    /// Prefetches the line at `source`. The prefetch never faults, at any address.
    #[inline(always)]
    fn prefetch(_source: *const u8) {}

    /// Prefetches the line at `target` for writing: the line leaves the caches of other
    /// processors. The prefetch never faults, at any address.
    #[inline(always)]
    fn prefetch_to_write(_target: *const u8) {}
}
