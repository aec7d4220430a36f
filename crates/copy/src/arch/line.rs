//! What the algorithm needs of an instruction set: 64 bytes in registers.

/// The size of a cache line on every processor that haul has kernels for.
pub(crate) const LINE: usize = 64;

/// 64 bytes in one, two, four or eight registers.
///
/// The unit is the line, not the register, so that one algorithm serves registers of 8 to 64 bytes:
/// what differs between instruction sets is how many instructions a line takes.
///
/// # Safety of every method
/// The pointer is good for [`LINE`] bytes in the direction of the access, and the processor has the
/// instruction set: an implementation is only named inside a function that enables it.
pub(crate) trait Line: Copy {
    /// Lines in one step of the loop: 1, 2 or 4, chosen so that a step, the saved head and the
    /// saved tail fit into the registers.
    const STEP: usize;

    /// Lines that fit into the registers at once: 4 or 8.
    const HELD: usize;

    /// Lines in one step of a fill's loop above 512 bytes: 2 or 4. Below, two: four more lines of a
    /// tail cost a program with many fills of 256 to 300 bytes 15% on Emerald Rapids.
    const FILL_STEP: usize = 2;

    /// Whether copies of 257 to 512 bytes are eight lines whatever the size, rather than six or
    /// eight by a branch.
    const EIGHT_LINES: bool = false;

    /// Loads 64 bytes from any address.
    unsafe fn load(source: *const u8) -> Self;

    /// Stores 64 bytes to any address.
    unsafe fn store(self, target: *mut u8);

    /// Stores 64 bytes to an address that [`Line::ALIGNMENT`] divides.
    unsafe fn store_aligned(self, target: *mut u8);

    /// Stores the first [`Line::ALIGNMENT`] bytes to any address.
    unsafe fn store_first(self, target: *mut u8);

    /// Stores 64 bytes past the caches to an address that 64 divides. [`Line::fence`] orders it.
    unsafe fn stream(self, target: *mut u8);

    /// 64 times `byte`.
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

    /// What `store_aligned` needs: the size of one register.
    const ALIGNMENT: usize;

    /// What the target of a copy's loop is aligned to: [`Line::ALIGNMENT`], or [`LINE`].
    const COPY_ALIGNMENT: usize = Self::ALIGNMENT;

    /// Makes the streamed lines visible before whatever is stored next.
    #[inline(always)]
    fn fence() {}

    /// Asks for the line at `source` to come nearer. Never faults, whatever the address.
    #[inline(always)]
    fn prefetch(_source: *const u8) {}
}
