//! Whether a sender sleeps now and then, so that messages should use the whole ring.

/// Number of messages that a sender must send without sleeping before it uses less of the ring.
/// The number is so large that a sender which sleeps now and then, because the ends share a
/// processor, uses the whole ring.
const AWAKE_MIN: u32 = 64;

/// Whether a sender has to sleep now and then until the receiver has made room.
#[derive(Debug)]
pub(crate) struct SleepHistory {
    /// How often the sender had slept at the last call.
    seen: u64,
    /// Number of messages since the sender last slept.
    since: u32,
}

impl Default for SleepHistory {
    fn default() -> Self {
        Self { seen: 0, since: AWAKE_MIN }
    }
}

impl SleepHistory {
    /// Records that a message begins. The sender has slept `sleeps` times in all.
    pub(crate) fn note(&mut self, sleeps: u64) {
        self.since = if sleeps == self.seen { self.since.saturating_add(1) } else { 0 };
        self.seen = sleeps;
    }

    /// Whether the sender has not slept for many messages.
    pub(crate) fn is_awake(&self) -> bool {
        self.since >= AWAKE_MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sender_that_slept_uses_whole_ring_until_it_has_sent_many_messages_awake() {
        let mut sleep_history = SleepHistory::default();
        let mut is_awake = |sleeps| {
            sleep_history.note(sleeps);
            sleep_history.is_awake()
        };
        assert!(is_awake(0));
        assert!(!is_awake(1));
        for _ in 1..AWAKE_MIN {
            assert!(!is_awake(1));
        }
        assert!(is_awake(1));
        assert!(!is_awake(3));
    }
}
