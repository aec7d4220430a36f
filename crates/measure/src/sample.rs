//! One timed piece of work on one thread, and what the kernel counted beside it.

use crate::clock::Clock;
use crate::sys::{self, Usage};

/// When it began and ended, and what the thread used.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// When it began, in the clock's ticks.
    pub start: u64,
    /// When it ended, in the clock's ticks.
    pub end: u64,
    /// Nanoseconds between the two.
    pub ns: f64,
    /// What the kernel had counted for the thread before it.
    pub before: Usage,
    /// What the kernel had counted for the thread after it.
    pub after: Usage,
}

impl Sample {
    /// Times `work`; what it returns comes back beside its sample. Four system calls, outside the
    /// timed part.
    pub fn of<T>(clock: &Clock, work: impl FnOnce() -> T) -> (Self, T) {
        let before = sys::usage_thread();
        let start = clock.now();
        let outcome = work();
        let end = clock.now();
        let after = sys::usage_thread();
        (Self { start, end, ns: clock.ns_between(start, end), before, after }, outcome)
    }

    /// Whether another process ran in it.
    #[must_use]
    pub fn is_hit(&self) -> bool {
        self.after.switches_involuntary > self.before.switches_involuntary
    }

    /// The time, without what another process took of it.
    #[must_use]
    pub fn own_ns(&self) -> f64 {
        let cpu = self.after.cpu.saturating_sub(self.before.cpu);
        if self.is_hit() { self.ns.min(cpu.as_nanos() as f64) } else { self.ns }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn usage(cpu_ns: u64, switches_involuntary: u64) -> Usage {
        Usage { cpu: Duration::from_nanos(cpu_ns), switches_involuntary, ..Usage::default() }
    }

    #[test]
    fn a_sample_that_was_hit_counts_its_own_time() {
        let mut sample =
            Sample { start: 0, end: 1, ns: 900.0, before: usage(50, 3), after: usage(350, 3) };
        assert!(!sample.is_hit());
        assert_eq!(sample.own_ns(), 900.0);
        sample.after.switches_involuntary = 4;
        assert!(sample.is_hit());
        assert_eq!(sample.own_ns(), 300.0);
    }

    #[test]
    fn work_is_done_once_and_its_result_comes_back() {
        let mut calls = 0;
        let (sample, outcome) = Sample::of(&Clock::get(), || {
            calls += 1;
            7
        });
        assert_eq!((calls, outcome), (1, 7));
        assert!(sample.end >= sample.start && sample.ns >= 0.0);
    }
}
