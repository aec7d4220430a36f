//! The sizes from which `auto` uses the helper thread: defaults, or what was measured here.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The size in bytes from which `auto` gives an operation to the helper thread, until a program
/// [sets](set_break_even) what `haul engine bench` measured. A stated default: two pieces of a
/// copy, so that a caller that waits can take part.
pub const BREAK_EVEN: usize = 64 << 10;

/// The sizes in bytes from which the helper thread pays. [`usize::MAX`]: never.
///
/// ```
/// use haul_engine::{BREAK_EVEN, BreakEven};
/// assert_eq!(BreakEven::default(), BreakEven { idle: BREAK_EVEN, busy: usize::MAX });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakEven {
    /// While the helper thread has a processor of its own.
    pub idle: usize,
    /// For a while after other threads have taken it: copies below 256 KiB after each such loss,
    /// longer ones if the thread has lost more than two thirds of its time.
    pub busy: usize,
}

impl Default for BreakEven {
    /// [`BREAK_EVEN`], and never for a while after a loss.
    fn default() -> Self {
        Self { idle: BREAK_EVEN, busy: usize::MAX }
    }
}

impl BreakEven {
    /// The least size of both. A stated limit: the CPU copies less in the time of a submission.
    pub const LEAST: usize = 4 << 10;

    /// These sizes, each at least [`LEAST`](Self::LEAST).
    #[must_use]
    pub fn clamped(self) -> Self {
        Self { idle: self.idle.max(Self::LEAST), busy: self.busy.max(Self::LEAST) }
    }
}

static IDLE: AtomicUsize = AtomicUsize::new(BREAK_EVEN);
static BUSY: AtomicUsize = AtomicUsize::new(usize::MAX);

/// The sizes from which [`Queue::auto`](crate::Queue::auto) uses the helper thread.
#[must_use]
pub fn break_even() -> BreakEven {
    BreakEven { idle: IDLE.load(Ordering::Relaxed), busy: BUSY.load(Ordering::Relaxed) }
}

/// Sets the sizes from which each later [`Queue::auto`](crate::Queue::auto) uses the helper
/// thread, [clamped](BreakEven::clamped). `haul::init` does this with those that `haul engine
/// bench` wrote into `haul.toml`. No value can make a copy wrong.
///
/// ```
/// use haul_engine::{BreakEven, Queue, set_break_even};
/// set_break_even(BreakEven { idle: 1 << 20, ..BreakEven::default() });
/// let is_alone = std::thread::available_parallelism().is_ok_and(|count| count.get() == 1);
/// assert!(is_alone || Queue::auto()?.settings().cpu_below == 1 << 20);
/// # Ok::<(), haul_engine::Error>(())
/// ```
pub fn set_break_even(sizes: BreakEven) {
    let sizes = sizes.clamped();
    IDLE.store(sizes.idle, Ordering::Relaxed);
    BUSY.store(sizes.busy, Ordering::Relaxed);
}
