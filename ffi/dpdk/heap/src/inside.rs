//! Whether this thread is in a call of DPDK that calls the drop-in's functions through the
//! loader's table but needs DPDK's own functions.

use core::cell::Cell;

thread_local! {
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// While this lives, DPDK serves this thread's allocations.
pub(crate) struct Inside {
    before: bool,
}

impl Inside {
    pub(crate) fn enter() -> Self {
        Self { before: IS_INSIDE.replace(true) }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        IS_INSIDE.set(self.before);
    }
}

/// Whether an [`Inside`] lives in this thread.
pub(crate) fn is_inside() -> bool {
    IS_INSIDE.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_guard_does_not_end_outer() {
        let outer = Inside::enter();
        drop(Inside::enter());
        assert!(is_inside());
        drop(outer);
        assert!(!is_inside());
    }
}
