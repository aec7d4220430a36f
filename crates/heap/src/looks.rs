//! How often all slots of a class are searched when no count says that one is free. A search takes
//! milliseconds in a large heap, and in a full one each request would begin one.

use crate::protocol::class::CLASSES;
use crate::sync::{AtomicU64, Ordering::Relaxed};
use crate::sys;

/// Searches in vain take at most this part of the time: one in twenty.
const SHARE: u64 = 20;

/// The longest search that counts, in nanoseconds: a longer one was interrupted.
const LONGEST_NS: u64 = 100_000_000;

/// When this process may search again, by class, in nanoseconds of [`sys::now_ns`].
pub(crate) struct Looks([AtomicU64; CLASSES]);

impl Looks {
    pub(crate) fn new() -> Self {
        Self(core::array::from_fn(|_| AtomicU64::new(0)))
    }

    /// Has `look` search, unless the last search in vain was too short a time ago: whether it found
    /// something.
    pub(crate) fn look(&self, class: usize, look: impl FnOnce() -> bool) -> bool {
        let (next, start) = (&self.0[class], sys::now_ns());
        if start < next.load(Relaxed) {
            return false;
        }
        let is_found = look();
        let took = sys::now_ns().saturating_sub(start).min(LONGEST_NS);
        next.store(if is_found { 0 } else { start + SHARE * took }, Relaxed);
        is_found
    }

    /// Lets all classes be searched again at once.
    #[cfg(test)]
    pub(crate) fn forget(&self) {
        self.0.iter().for_each(|next| next.store(0, Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn looks_in_vain_take_a_share_of_the_time() {
        let (looks, start) = (Looks::new(), sys::now_ns());
        let in_vain = || {
            thread::sleep(Duration::from_millis(2));
            false
        };
        assert!(!looks.look(3, in_vain));
        let next = looks.0[3].load(Relaxed);
        let latest = sys::now_ns() + SHARE * LONGEST_NS;
        assert!((start + SHARE * 2_000_000..=latest).contains(&next));
        looks.0[3].store(u64::MAX, Relaxed);
        assert!(!looks.look(3, || panic!("it is too early")));
        assert!(looks.look(4, || true) && looks.look(4, || true), "each class has its own time");
    }
}
