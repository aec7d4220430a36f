//! Whether the process filters its system calls: from then on the recorder makes none.
//!
//! A filter may end the process at any call that it does not expect. What asks for one goes through
//! libc's `prctl` or `syscall`, where it is seen; a program that asks in its own assembly is not.

use core::sync::atomic::{AtomicU32, Ordering};

/// Requests for a filter that are under way or were granted. A forked child inherits filters, and
/// this.
static FILTERS: AtomicU32 = AtomicU32::new(0);

/// Whether no system call may be made.
pub(crate) fn is_on() -> bool {
    FILTERS.load(Ordering::Acquire) != 0
}

/// A filter is being asked for.
pub(crate) fn begin() {
    FILTERS.fetch_add(1, Ordering::AcqRel);
}

/// It was refused.
pub(crate) fn refused() {
    FILTERS.fetch_sub(1, Ordering::AcqRel);
}
