//! When a driver is called that waits for the chains of a ring from the guest.
//!
//! A driver that sends packet by packet, like Linux's, asks for a call for almost every packet,
//! only to free its buffer. Each call interrupts the guest, which costs more than the packet. So a
//! call waits for more packets, for a time that no sender notices, as a NIC moderates its
//! interrupts. The chains themselves are published at once.

use crate::clock::now_ns;

/// How long a call waits, in nanoseconds, while the worker polls the ring.
const HOLD_NS: u64 = 20_000;
/// A call for at least as many chains does not wait, nor one for a quarter of the ring: the driver
/// may have run out of chains.
const CHAINS: u16 = 16;

/// The call of a ring.
#[derive(Debug, Default)]
pub(super) struct Moderation {
    /// When the driver that waits is called.
    due_ns: Option<u64>,
    /// The number of chains, or of descriptors of a packed ring, that were published since the last
    /// call.
    chains: u16,
}

impl Moderation {
    /// Counts the chains of a burst, for which the driver may want a call, in a ring of `size`.
    /// If it is time for a call, returns the number of chains for which the driver is to be asked
    /// once more: it may have found them meanwhile, and a call without work counts as a fault.
    #[inline]
    pub(super) fn pass(&mut self, wants_call: bool, chains: u16, size: u16) -> Option<u16> {
        self.chains = self.chains.saturating_add(chains);
        if !wants_call && self.due_ns.is_none() {
            return None;
        }
        self.ask(size, now_ns)
    }

    fn ask(&mut self, size: u16, now_ns: impl FnOnce() -> u64) -> Option<u16> {
        if self.chains < CHAINS.min(size / 4) {
            let now = now_ns();
            if now < *self.due_ns.get_or_insert(now + HOLD_NS) {
                return None;
            }
        }
        Some(std::mem::take(self).chains)
    }

    /// Ends the wait. Returns whether there was one.
    pub(super) fn end(&mut self) -> bool {
        std::mem::take(self).due_ns.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn driver_that_waits_is_called_after_many_chains_or_a_time() {
        let mut moderation = Moderation::default();
        assert_eq!(moderation.pass(false, 1, 256), None);
        assert_eq!(moderation.ask(256, || 1_000), None);
        assert_eq!(moderation.ask(256, || 1_000 + HOLD_NS - 1), None);
        assert_eq!(moderation.ask(256, || 1_000 + HOLD_NS), Some(1));
        // The call ended the wait.
        assert_eq!(moderation.pass(false, CHAINS - 1, 256), None);
        assert!(!moderation.end());
        assert_eq!(moderation.pass(true, CHAINS, 256), Some(CHAINS));
        assert_eq!(moderation.pass(false, u16::MAX, 256), None);
        assert_eq!(moderation.pass(true, 9, 256), Some(u16::MAX));
        // A quarter of a small ring.
        assert_eq!(moderation.ask(8, || 2_000), None);
        assert_eq!(moderation.pass(true, 2, 8), Some(2));
        assert_eq!(moderation.ask(256, || 3_000), None);
        assert!(moderation.end() && !moderation.end());
    }
}
