//! What else the machine did while we measured, and what to do about it.

use std::fmt;
use std::hint::black_box;

use crate::clock::Clock;
use crate::statistics;
use crate::sys::Proc;

/// Steal above this share of the CPUs' time is told, in percent.
const STEAL_PERCENT_TOLD: f64 = 1.0;

/// A clock rate that moves by more than this within a run is told, in percent.
const DRIFT_PERCENT_TOLD: f64 = 3.0;

/// Rounds with a context switch above this share of all are told, in percent.
const SWITCHES_PERCENT_TOLD: f64 = 10.0;

/// Something that makes figures less certain. [`fmt::Display`] says what; [`Disturbance::hint`]
/// what to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Disturbance {
    /// The hypervisor gave the CPUs to other guests.
    Steal {
        /// Share of all the CPUs' time, in percent.
        percent: f64,
    },
    /// The processor's clock rate moved.
    FrequencyDrift {
        /// From the slow end to the fast end of the middle 90% of rounds, in percent.
        percent: f64,
    },
    /// Other processes ran on our CPUs.
    ContextSwitches {
        /// How many rounds were hit.
        rounds_hit: usize,
        /// How many rounds there were.
        rounds: usize,
        /// Whether the rounds hit were left out of the figures (not where they are the majority).
        discarded: bool,
    },
    /// More threads than CPUs: they took turns.
    SharedCpu {
        /// How many threads ran.
        threads: usize,
        /// How many CPUs they had.
        cpus: usize,
    },
    /// Threads could not be pinned to CPUs.
    Unpinned,
    /// Steal time is not known, for `/proc/stat` does not tell.
    NoProc,
}

impl Disturbance {
    /// What one can do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Steal { .. } => "measure on a dedicated host, or again at a quieter time",
            Self::FrequencyDrift { .. } => {
                "set the performance governor, or let the machine cool and repeat"
            }
            Self::ContextSwitches { .. } => {
                "stop other work on these CPUs, or choose idle ones with taskset"
            }
            Self::SharedCpu { .. } => "allow more CPUs (taskset, cpuset) or ask for fewer threads",
            Self::Unpinned => "allow sched_setaffinity to this process",
            Self::NoProc => "mount /proc to have steal time noticed",
        }
    }
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Steal { percent } => {
                write!(f, "the hypervisor took {percent:.1}% of the CPUs' time")
            }
            Self::FrequencyDrift { percent } => {
                write!(f, "the processor's clock rate moved by {percent:.1}%")
            }
            Self::ContextSwitches { rounds_hit, rounds, discarded } => {
                let fate = if *discarded { "left out" } else { "timed by CPU time" };
                write!(
                    f,
                    "other processes interrupted {rounds_hit} of {rounds} rounds, which were {fate}"
                )
            }
            Self::SharedCpu { threads, cpus } => write!(f, "{threads} threads shared {cpus} CPUs"),
            Self::Unpinned => f.write_str("threads were not pinned to CPUs"),
            Self::NoProc => f.write_str("steal time is unknown"),
        }
    }
}

/// Watches a run from its start.
#[derive(Debug)]
pub struct Watch {
    proc: Proc,
    start: Option<(f64, f64)>,
    spins_ns: Vec<f64>,
}

impl Watch {
    /// Begins to watch.
    #[must_use]
    pub fn start(proc: Proc) -> Self {
        let start = proc.steal_and_total_seconds();
        Self { proc, start, spins_ns: Vec::new() }
    }

    /// Times a fixed chain of dependent multiplications, some microseconds: only the clock rate
    /// makes it faster or slower.
    pub fn tick(&mut self, clock: &Clock) {
        let start = clock.now();
        black_box(chain(black_box(3)));
        self.spins_ns.push(clock.ns_between(start, clock.now()));
    }

    /// What was noticed since the start.
    #[must_use]
    pub fn finish(&self) -> Vec<Disturbance> {
        [self.steal(), self.drift()].into_iter().flatten().collect()
    }

    fn steal(&self) -> Option<Disturbance> {
        let (Some((steal_start, total_start)), Some((steal_end, total_end))) =
            (self.start, self.proc.steal_and_total_seconds())
        else {
            return Some(Disturbance::NoProc);
        };
        let percent = 100.0 * (steal_end - steal_start) / (total_end - total_start).max(0.01);
        (percent > STEAL_PERCENT_TOLD).then_some(Disturbance::Steal { percent })
    }

    /// From the 5th to the 95th percentile: an interrupt within a spin is not the clock rate.
    fn drift(&self) -> Option<Disturbance> {
        let slow = statistics::quantile(&self.spins_ns, 0.95)?;
        let fast = statistics::quantile(&self.spins_ns, 0.05)?;
        let percent = 100.0 * (slow / fast.max(f64::MIN_POSITIVE) - 1.0);
        let told = self.spins_ns.len() >= 20 && percent > DRIFT_PERCENT_TOLD;
        told.then_some(Disturbance::FrequencyDrift { percent })
    }
}

/// Whether so many rounds were hit by context switches that it has to be told.
#[must_use]
pub fn switches(rounds_hit: usize, rounds: usize, discarded: bool) -> Option<Disturbance> {
    let percent = 100.0 * rounds_hit as f64 / rounds.max(1) as f64;
    (percent > SWITCHES_PERCENT_TOLD).then_some(Disturbance::ContextSwitches {
        rounds_hit,
        rounds,
        discarded,
    })
}

/// 4,000 steps of x <- x * x + 1: each waits for the one before, and no closed form is known to a
/// compiler.
fn chain(mut x: u64) -> u64 {
    for _ in 0..4000 {
        x = x.wrapping_mul(x).wrapping_add(1);
    }
    x
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn proc_with(text: Option<&str>) -> (tempfile::TempDir, Proc) {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("proc")).unwrap();
        if let Some(text) = text {
            fs::write(root.path().join("proc/stat"), text).unwrap();
        }
        let proc = Proc::at(root.path());
        (root, proc)
    }

    #[test]
    fn steal_is_told_above_a_percent() {
        let (root, proc) = proc_with(Some("cpu 100 0 0 100 0 0 0 0 0 0\n"));
        let watch = Watch::start(proc);
        assert_eq!(watch.finish(), []);
        fs::write(root.path().join("proc/stat"), "cpu 150 0 0 140 0 0 0 10 0 0\n").unwrap();
        assert_eq!(watch.finish(), [Disturbance::Steal { percent: 10.0 }]);
    }

    #[test]
    fn no_proc_is_told() {
        let (_root, proc) = proc_with(None);
        assert_eq!(Watch::start(proc).finish(), [Disturbance::NoProc]);
    }

    #[test]
    fn drift_is_told() {
        let (_root, proc) = proc_with(Some("cpu 1 1 1 1 1 1 1 1\n"));
        let mut watch = Watch::start(proc);
        watch.spins_ns = vec![100.0; 50];
        assert_eq!(watch.finish(), []);
        watch.spins_ns.extend([110.0; 50]);
        let told = watch.finish();
        assert!(
            matches!(told[..], [Disturbance::FrequencyDrift { percent }] if (percent - 10.0).abs() < 0.01)
        );
    }

    #[test]
    fn the_chain_takes_time() {
        let (_root, proc) = proc_with(None);
        let mut watch = Watch::start(proc);
        watch.tick(&Clock::get());
        // 4,000 multiplications of at least 3 cycles at 10 GHz at most.
        assert!(watch.spins_ns[0] > 1200.0, "{:?}", watch.spins_ns);
    }

    #[test]
    fn everything_has_a_hint() {
        for it in [
            Disturbance::Steal { percent: 2.0 },
            Disturbance::FrequencyDrift { percent: 5.0 },
            Disturbance::ContextSwitches { rounds_hit: 3, rounds: 9, discarded: true },
            Disturbance::SharedCpu { threads: 2, cpus: 1 },
            Disturbance::Unpinned,
            Disturbance::NoProc,
        ] {
            assert!(!it.hint().is_empty() && !it.to_string().is_empty());
        }
        assert_eq!(switches(1, 100, true), None);
        assert!(switches(20, 100, true).is_some());
    }
}
