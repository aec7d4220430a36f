//! Whether the process filters its system calls. If it does, the recorder makes none. The recorder
//! of copies has this file too.
//!
//! A filter may end the process at any call that it does not expect. The recorder sees a request
//! for a filter that is made with libc's `prctl` or `syscall`, but not a request in the program's
//! own assembly.

use core::sync::atomic::{AtomicU32, Ordering};

/// The number of requests for a filter that are pending or were granted. A forked child inherits
/// the filters and this number.
static FILTERS: AtomicU32 = AtomicU32::new(0);

/// Whether the recorder must not make a system call.
pub(crate) fn is_on() -> bool {
    FILTERS.load(Ordering::Acquire) != 0
}

/// Counts a request for a filter.
pub(crate) fn begin() {
    FILTERS.fetch_add(1, Ordering::AcqRel);
}

/// Removes a request that the kernel refused.
pub(crate) fn refused() {
    FILTERS.fetch_sub(1, Ordering::AcqRel);
}
