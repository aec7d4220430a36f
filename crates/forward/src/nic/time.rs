//! When packets arrive: by the clock, or by a modelled core.

use crate::clock::now_ns;

/// The time that schedules packets.
#[derive(Clone, Debug)]
pub enum Time {
    /// The system's monotonic clock.
    Clock,
    /// A core that needs a constant time for each poll and for each packet of it: a repeated run
    /// yields the same figures, on any machine.
    Core(ModelledCore),
}

/// A modelled core, and its present time.
#[derive(Clone, Debug)]
pub struct ModelledCore {
    poll_ns: f64,
    packet_ns: f64,
    now_ns: f64,
}

impl Time {
    /// A core that needs `poll_ns` for a poll, and `packet_ns` for each packet that the poll
    /// returns.
    #[must_use]
    pub fn core(poll_ns: f64, packet_ns: f64) -> Self {
        Self::Core(ModelledCore { poll_ns, packet_ns, now_ns: 0.0 })
    }

    #[inline]
    pub(super) fn now_ns(&self) -> u64 {
        match self {
            Self::Clock => now_ns(),
            Self::Core(core) => core.now_ns as u64,
        }
    }

    /// Advances a modelled core by a poll of `packets` packets and their processing.
    #[inline]
    pub(super) fn poll(&mut self, packets: usize) {
        if let Self::Core(core) = self {
            core.now_ns += core.poll_ns + core.packet_ns * packets as f64;
        }
    }
}
