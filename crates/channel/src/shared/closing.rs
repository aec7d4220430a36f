//! How an end publishes that it sends nothing more, and how the other end interprets that.
//!
//! ```text
//! closes:    last words;   state = closed
//! waits:     state?   words?              no word, and the state was closed: no word follows
//! gives up:  state = given up;   fence;   its bytes may change from here on
//! read:      the bytes;   fence;   state?    not given up: the bytes were right
//! ```

use super::layout::GIVEN_UP;
use super::words::Flags;

/// Publishes that this end is closed, or gave up. The other end sees this before the effects of
/// any later operation of this thread.
pub(crate) fn publish<F: Flags>(state: &F, what: u32) {
    // SYNC: closed: an end that sees this also sees every word published before.
    state.put(what);
    // SYNC: given up: before the bytes change.
    F::fence();
}

/// Returns the other end's state, and then the result of `find`, which sees every word that the
/// other end published before it closed.
pub(crate) fn poll<F: Flags, T>(state: &F, find: impl FnOnce() -> T) -> (u32, T) {
    // SYNC: closed.
    let state = state.get();
    (state, find())
}

/// Whether the other end gave up. Must be called after bytes were read that the other end may
/// change once it gave up.
pub(crate) fn has_given_up<F: Flags>(state: &F) -> bool {
    // SYNC: given up: after the bytes were read.
    F::fence();
    state.get() == GIVEN_UP
}
