//! One timed piece of work on one thread, with the kernel's counters.

use crate::clock::Clock;
use crate::sys::{self, Usage};

/// The start, the end and the resource use of a piece of work.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The start, in the clock's ticks.
    pub start: u64,
    /// The end, in the clock's ticks.
    pub end: u64,
    /// Nanoseconds from the start to the end.
    pub ns: f64,
    /// The kernel's counters of the thread before the work.
    pub before: Usage,
    /// The kernel's counters of the thread after the work.
    pub after: Usage,
}

impl Sample {
    /// Times `work`. Returns the sample and the result of `work`. Makes four system calls, outside
    /// of the timed part.
    pub fn of<T>(clock: &Clock, work: impl FnOnce() -> T) -> (Self, T) {
        let before = sys::usage_thread();
        let start = clock.now();
        let outcome = work();
        let end = clock.now();
        let after = sys::usage_thread();
        (Self { start, end, ns: clock.ns_between(start, end), before, after }, outcome)
    }

    /// Whether another process ran during the work.
    #[must_use]
    pub fn is_hit(&self) -> bool {
        self.after.switches_involuntary > self.before.switches_involuntary
    }

    /// The elapsed time, without the time that another process used.
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
    fn disturbed_sample_counts_cpu_time() {
        let mut sample =
            Sample { start: 0, end: 1, ns: 900.0, before: usage(50, 3), after: usage(350, 3) };
        assert!(!sample.is_hit());
        assert_eq!(sample.own_ns(), 900.0);
        sample.after.switches_involuntary = 4;
        assert!(sample.is_hit());
        assert_eq!(sample.own_ns(), 300.0);
    }

    #[test]
    fn work_runs_once_and_its_result_is_returned() {
        let mut calls = 0;
        let (sample, outcome) = Sample::of(&Clock::get(), || {
            calls += 1;
            7
        });
        assert_eq!((calls, outcome), (1, 7));
        assert!(sample.end >= sample.start && sample.ns >= 0.0);
    }
}
