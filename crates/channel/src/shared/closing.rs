//! How an end says that nothing more is to come of it, and what the other end makes of that.
//!
//! ```text
//! closes:    what it has to tell;   state = closed
//! waits:     state?   what was told?        nothing told, and it was closed before: nothing comes
//! gives up:  state = given up;   fence;   its bytes may be others from here on
//! took:      the bytes, without asking;   fence;   state?    not given up: they were right
//! ```

use super::layout::GIVEN_UP;
use super::words::Flags;

/// Says that this end is closed, or gave up; before anything that follows it in this thread.
pub(crate) fn publish<F: Flags>(state: &F, what: u32) {
    // SYNC: closed: what was told before is seen by whoever sees this.
    state.put(what);
    // SYNC: given up: before the bytes change.
    F::fence();
}

/// What the other end's state was, and what is found after that: whatever was told before the other
/// end closed.
pub(crate) fn poll<F: Flags, T>(state: &F, find: impl FnOnce() -> T) -> (u32, T) {
    // SYNC: closed.
    let state = state.get();
    (state, find())
}

/// After bytes were taken that the other end may change once it gave them up: whether it had.
pub(crate) fn has_given_up<F: Flags>(state: &F) -> bool {
    // SYNC: given up: after the bytes were read.
    F::fence();
    state.get() == GIVEN_UP
}
