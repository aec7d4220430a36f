//! The settings of a queue.

#[cfg(doc)]
use crate::contract::Engine;

/// How a queue routes operations.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The largest number of pending operations, from 1 to [`SLOTS_MAX`](crate::SLOTS_MAX).
    pub entries: usize,
    /// The CPU does shorter operations in the call that submits them.
    pub cpu_below: usize,
    /// While the engine is not [ready](Engine::is_ready), the CPU also does operations that are
    /// shorter than this, until a series of them that the engine would have been ready for has this
    /// many bytes; then the queue makes the engine ready for the next ones. If this is 0,
    /// [`crowded_min`](Self::crowded_min) has no effect.
    pub wake_min: usize,
    /// While the engine is [crowded](Engine::skips_one), the CPU also does operations that are
    /// shorter than this.
    pub crowded_min: usize,
    /// Whether the CPU finishes what the engine could not do. If false, a result says what is
    /// missing.
    pub finishes_on_cpu: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            entries: 128,
            cpu_below: 0,
            wake_min: 0,
            crowded_min: usize::MAX,
            finishes_on_cpu: true,
        }
    }
}
