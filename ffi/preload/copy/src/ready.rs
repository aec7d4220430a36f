//! Whether haul's kernels may run, and whether calls are profiled.

use core::ptr;
use core::sync::atomic::{AtomicU8, Ordering};

use haul_kernels::Policy;

/// Every exported function compares this byte with [`UNREADY`].
pub(crate) static MODE: AtomicU8 = AtomicU8::new(UNREADY);

/// Calls go to the kernels at once.
pub(crate) const PLAIN: u8 = 0;
/// No policy is in force yet, or this library is not relocated.
pub(crate) const UNREADY: u8 = 1;
/// Calls are counted and then go to the kernels.
pub(crate) const PROFILED: u8 = 2;

/// A pointer that the dynamic linker writes when it relocates this library.
struct Relocated(*const AtomicU8);
// SAFETY: only the dynamic linker writes it, before it is compared.
unsafe impl Sync for Relocated {}
static RELOCATED: Relocated = Relocated(&raw const MODE);

/// Whether the kernels may read their tables, which contain pointers.
fn is_relocated() -> bool {
    // SAFETY: the static is readable. The read is volatile because the compiler knows the value
    // that the static has after the relocation.
    let pointer = unsafe { (&raw const RELOCATED.0).read_volatile() };
    ptr::eq(pointer, &raw const MODE)
}

/// Whether kernels may run. Puts a policy into force if that has not happened yet. Threads may call
/// this at the same time.
#[cold]
fn become_ready() -> bool {
    if !is_relocated() {
        return false;
    }
    // Only the processor is read: no file and no system call.
    let _ = Policy::current();
    let _ = MODE.compare_exchange(UNREADY, PLAIN, Ordering::Release, Ordering::Relaxed);
    true
}

/// Whether kernels may run; called if [`MODE`] is not [`PLAIN`].
#[inline(always)]
pub(crate) fn may_run() -> bool {
    MODE.load(Ordering::Acquire) != UNREADY || become_ready()
}

/// Whether calls are profiled.
#[inline(always)]
pub(crate) fn is_profiled() -> bool {
    MODE.load(Ordering::Acquire) == PROFILED
}

/// Ends the time in which the first call has work to do. Only the constructor calls it.
pub(crate) fn begin(profiled: bool) {
    MODE.store(if profiled { PROFILED } else { PLAIN }, Ordering::Release);
}
