//! Whether this thread is inside a call to DPDK that calls our functions again, through the
//! loader's table, and means its own.

use core::cell::Cell;

thread_local! {
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// While one lives, this thread's allocations are DPDK's.
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

/// Whether one lives in this thread.
pub(crate) fn is_inside() -> bool {
    IS_INSIDE.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_end_does_not_end_the_outer() {
        let outer = Inside::enter();
        drop(Inside::enter());
        assert!(is_inside());
        drop(outer);
        assert!(!is_inside());
    }
}
