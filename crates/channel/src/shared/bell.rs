//! How an end is woken that sleeps: by telling, then looking whether the other sleeps, while the
//! other announces that it sleeps, then looks whether something was told. One of the two sees the
//! other.
//!
//! ```text
//! teller:   word = told;          fence;  how?  -> wake
//! sleeper:  how |= asleep;        fence;  word? -> go on, else sleep while the bell has not rung
//! ```

use super::words::Flags;

/// How the owner of a bell sleeps: on the futex.
pub(crate) const ASLEEP: u32 = 1;
/// Or in poll, on the socket.
pub(crate) const POLLING: u32 = 2;

/// Announces that this end is about to sleep, and says which ring it is to wait for; it must look
/// once more before it sleeps.
pub(crate) fn announce<F: Flags>(bell: &F, how: &F, way: u32) -> u32 {
    let seen = bell.get();
    // SYNC: sleep announced.
    how.set(way);
    F::fence();
    seen
}

/// After something was told: how the other end sleeps, if it does.
pub(crate) fn sleep_state<F: Flags>(how: &F) -> u32 {
    // SYNC: sleep announced: either this sees that the other end sleeps, or the other end, which
    // looks once more after it announced that, sees what was just told.
    F::fence();
    how.peek()
}

/// Rings: who waits for this ring is to be woken.
pub(crate) fn ring<F: Flags>(bell: &F, how: &F) {
    how.clear(ASLEEP);
    bell.count_up();
}
