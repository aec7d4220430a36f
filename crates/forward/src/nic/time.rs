//! When packets come: by the clock, or by a core that is modelled, too.

use crate::clock::now_ns;

/// Whose time packets come by.
#[derive(Clone, Debug)]
pub enum Time {
    /// The system's monotonic clock.
    Clock,
    /// A core that takes the same for each poll and for each packet of it: the same run again gives
    /// the same figures, on any machine.
    Core(ModelledCore),
}

/// A modelled core, and how far it has come.
#[derive(Clone, Debug)]
pub struct ModelledCore {
    poll_ns: f64,
    packet_ns: f64,
    now_ns: f64,
}

impl Time {
    /// A core that takes so long for a poll, and for each packet that it returns.
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

    /// A poll returned so many packets, which are then dealt with.
    #[inline]
    pub(super) fn poll(&mut self, packets: usize) {
        if let Self::Core(core) = self {
            core.now_ns += core.poll_ns + core.packet_ns * packets as f64;
        }
    }
}
