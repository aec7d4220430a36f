//! The protocol that wakes a sleeping end. The publisher writes its word, then checks whether the
//! other end sleeps. The sleeper announces that it sleeps, then polls the word once more. At
//! least one of the two ends sees the other end's write.
//!
//! ```text
//! publisher:  word = value;     fence;  how?  -> wake
//! sleeper:    how |= asleep;    fence;  word? -> go on, else sleep while the bell has not rung
//! ```

use super::words::Flags;

/// The owner of the bell sleeps on the futex.
pub(crate) const ASLEEP: u32 = 1;
/// The owner of the bell sleeps in poll(2), on the socket.
pub(crate) const POLLING: u32 = 2;

/// Announces that this end is about to sleep and returns the bell's value to wait on. The caller
/// must poll once more before it sleeps.
pub(crate) fn announce<F: Flags>(bell: &F, how: &F, way: u32) -> u32 {
    let seen = bell.get();
    // SYNC: sleep announced.
    how.set(way);
    F::fence();
    seen
}

/// How the other end sleeps, if it does. Must be called after a word was published.
pub(crate) fn sleep_state<F: Flags>(how: &F) -> u32 {
    // SYNC: sleep announced: either this end sees that the other end sleeps, or the other end,
    // which polls once more after its announcement, sees the word that was just published.
    F::fence();
    how.peek()
}

/// Rings the bell. The caller then wakes the sleeper.
pub(crate) fn ring<F: Flags>(bell: &F, how: &F) {
    how.clear(ASLEEP);
    bell.count_up();
}
