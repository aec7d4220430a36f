//! Disturbances of a measurement by the machine, and their remedies.

use std::fmt;
use std::hint::black_box;

use haul_machine::sys::Sys;

use crate::clock::Clock;
use crate::statistics;

/// A change of the clock rate within a run is reported if it is larger than this, in percent.
const DRIFT_PERCENT_REPORTED: f64 = 3.0;

/// Context switches are reported if they hit more than this share of all rounds, in percent.
const SWITCHES_PERCENT_REPORTED: f64 = 10.0;

/// A condition that makes figures less certain. [`fmt::Display`] describes it;
/// [`Disturbance::hint`] gives the remedy.
#[derive(Clone, Debug, PartialEq)]
pub enum Disturbance {
    /// The processor's clock rate moved.
    FrequencyDrift {
        /// The range of the middle 90% of rounds, from slow to fast, in percent.
        percent: f64,
    },
    /// Other processes ran on the measurement's CPUs.
    ContextSwitches {
        /// The number of rounds in which other processes ran.
        rounds_hit: usize,
        /// The number of all rounds.
        rounds: usize,
        /// Whether these rounds were left out of the figures. Disturbed rounds are left out
        /// unless they are at least half of all rounds, or too few other rounds remain.
        discarded: bool,
    },
    /// There were more threads than CPUs, so that threads shared CPUs.
    SharedCpu {
        /// The number of threads.
        threads: usize,
        /// The number of CPUs.
        cpus: usize,
    },
    /// Threads could not be pinned to CPUs.
    Unpinned,
    /// Steal time is unknown, because `/proc/stat` does not report it.
    NoProc,
}

impl Disturbance {
    /// The remedy.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::FrequencyDrift { .. } => {
                "set the performance governor, or let the machine cool and repeat"
            }
            Self::ContextSwitches { .. } => {
                "stop other work on these CPUs, or choose idle ones with taskset"
            }
            Self::SharedCpu { .. } => "allow more CPUs (taskset, cpuset) or ask for fewer threads",
            Self::Unpinned => "allow sched_setaffinity to this process",
            Self::NoProc => "mount /proc, which reports steal time",
        }
    }
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
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

/// The machine's disturbances during a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Noticed {
    /// The share of all CPUs' time that the hypervisor gave to other guests, in percent; `None`
    /// if the kernel does not report it. This share is a separate figure. It counts as a
    /// disturbance only if it exceeds a limit that the caller sets.
    pub steal_percent: Option<f64>,
    /// The disturbances to report.
    pub disturbances: Vec<Disturbance>,
}

/// Watches the machine from the start of a run.
#[derive(Debug)]
pub struct Watch {
    machine: Sys,
    start: Option<(f64, f64)>,
    spins_ns: Vec<f64>,
}

impl Watch {
    /// Starts watching.
    #[must_use]
    pub fn start(machine: Sys) -> Self {
        let start = machine.steal_and_total_seconds();
        Self { machine, start, spins_ns: Vec::new() }
    }

    /// Measures the time of a fixed chain of dependent multiplications. The chain takes some
    /// microseconds, and its time depends only on the clock rate.
    pub fn tick(&mut self, clock: &Clock) {
        let start = clock.now();
        black_box(chain(black_box(3)));
        self.spins_ns.push(clock.ns_between(start, clock.now()));
    }

    /// The disturbances since the start.
    #[must_use]
    pub fn finish(&self) -> Noticed {
        let steal_percent = self.steal_percent();
        let unknown = steal_percent.is_none().then_some(Disturbance::NoProc);
        Noticed { steal_percent, disturbances: unknown.into_iter().chain(self.drift()).collect() }
    }

    /// The steal time since the start, limited to 0 to 100: the kernel reads its counters one after
    /// the other, so that one may be ahead of the others.
    fn steal_percent(&self) -> Option<f64> {
        let (steal_start, total_start) = self.start?;
        let (steal_end, total_end) = self.machine.steal_and_total_seconds()?;
        let share = (steal_end - steal_start) / (total_end - total_start).max(0.01);
        Some(100.0 * share.clamp(0.0, 1.0))
    }

    /// The range from the 5th to the 95th percentile, which excludes interrupts within a chain.
    fn drift(&self) -> Option<Disturbance> {
        let slow = statistics::quantile(&self.spins_ns, 0.95)?;
        let fast = statistics::quantile(&self.spins_ns, 0.05)?;
        let percent = 100.0 * (slow / fast.max(f64::MIN_POSITIVE) - 1.0);
        let is_reported = self.spins_ns.len() >= 20 && percent > DRIFT_PERCENT_REPORTED;
        is_reported.then_some(Disturbance::FrequencyDrift { percent })
    }
}

/// The disturbance through context switches, if they hit so many rounds that it must be reported.
#[must_use]
pub fn switches(rounds_hit: usize, rounds: usize, discarded: bool) -> Option<Disturbance> {
    let percent = 100.0 * rounds_hit as f64 / rounds.max(1) as f64;
    (percent > SWITCHES_PERCENT_REPORTED).then_some(Disturbance::ContextSwitches {
        rounds_hit,
        rounds,
        discarded,
    })
}

/// 4,000 steps of x <- x * x + 1. Each step depends on the previous one, and compilers know no
/// closed form.
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

    fn proc_with(text: Option<&str>) -> (tempfile::TempDir, Sys) {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("proc")).unwrap();
        if let Some(text) = text {
            fs::write(root.path().join("proc/stat"), text).unwrap();
        }
        let machine = Sys::at(root.path());
        (root, machine)
    }

    #[test]
    fn steal_time_is_a_figure_and_not_a_disturbance() {
        let (root, machine) = proc_with(Some("cpu 100 0 0 100 0 0 0 20 0 0\n"));
        let watch = Watch::start(machine);
        for (now, percent) in [
            ("cpu 100 0 0 100 0 0 0 20 0 0\n", 0.0),
            ("cpu 150 0 0 140 0 0 0 30 0 0\n", 10.0),
            // One counter decreased, and another was ahead of the sum.
            ("cpu 150 0 0 140 0 0 0 10 0 0\n", 0.0),
            ("cpu 0 0 0 0 0 0 0 400 0 0\n", 100.0),
        ] {
            fs::write(root.path().join("proc/stat"), now).unwrap();
            let noticed = watch.finish();
            assert!((noticed.steal_percent.unwrap() - percent).abs() < 1e-9, "{now}: {noticed:?}");
            assert_eq!(noticed.disturbances, []);
        }
    }

    #[test]
    fn missing_proc_is_reported() {
        let (_root, machine) = proc_with(None);
        let disturbances = vec![Disturbance::NoProc];
        let expected = Noticed { steal_percent: None, disturbances };
        assert_eq!(Watch::start(machine).finish(), expected);
    }

    #[test]
    fn clock_drift_is_reported() {
        let (_root, machine) = proc_with(Some("cpu 1 1 1 1 1 1 1 1\n"));
        let mut watch = Watch::start(machine);
        watch.spins_ns = vec![100.0; 50];
        assert_eq!(watch.finish().disturbances, []);
        watch.spins_ns.extend([110.0; 50]);
        let disturbances = watch.finish().disturbances;
        assert!(
            matches!(disturbances[..], [Disturbance::FrequencyDrift { percent }] if (percent - 10.0).abs() < 0.01)
        );
    }

    #[test]
    fn chain_is_not_optimized_away() {
        let (_root, machine) = proc_with(None);
        let mut watch = Watch::start(machine);
        watch.tick(&Clock::get());
        // 4,000 multiplications of at least 3 cycles, at 10 GHz at most.
        assert!(watch.spins_ns[0] > 1200.0, "{:?}", watch.spins_ns);
    }

    #[test]
    fn every_disturbance_has_a_hint() {
        for it in [
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
