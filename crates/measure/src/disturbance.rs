//! What else the machine did while we measured, and what to do about it.

use std::fmt;
use std::hint::black_box;

use haul_machine::sys::Sys;

use crate::clock::Clock;
use crate::statistics;

/// A clock rate that moves by more than this within a run is told, in percent.
const DRIFT_PERCENT_TOLD: f64 = 3.0;

/// Rounds with a context switch above this share of all are told, in percent.
const SWITCHES_PERCENT_TOLD: f64 = 10.0;

/// Something that makes figures less certain. [`fmt::Display`] says what; [`Disturbance::hint`]
/// what to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Disturbance {
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

/// What was noticed of the machine during a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Noticed {
    /// The share of all CPUs' time that the hypervisor gave to other guests, in percent; `None`
    /// where the kernel does not tell. It is a figure like any other, and counts as a disturbance
    /// only for whoever sets a limit.
    pub steal_percent: Option<f64>,
    /// What has to be told.
    pub disturbances: Vec<Disturbance>,
}

/// Watches a run from its start.
#[derive(Debug)]
pub struct Watch {
    machine: Sys,
    start: Option<(f64, f64)>,
    spins_ns: Vec<f64>,
}

impl Watch {
    /// Begins to watch.
    #[must_use]
    pub fn start(machine: Sys) -> Self {
        let start = machine.steal_and_total_seconds();
        Self { machine, start, spins_ns: Vec::new() }
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
    pub fn finish(&self) -> Noticed {
        let steal_percent = self.steal_percent();
        let unknown = steal_percent.is_none().then_some(Disturbance::NoProc);
        Noticed { steal_percent, disturbances: unknown.into_iter().chain(self.drift()).collect() }
    }

    /// Between 0 and 100: the kernel reads its counters one after the other, and one may run ahead.
    fn steal_percent(&self) -> Option<f64> {
        let (steal_start, total_start) = self.start?;
        let (steal_end, total_end) = self.machine.steal_and_total_seconds()?;
        let share = (steal_end - steal_start) / (total_end - total_start).max(0.01);
        Some(100.0 * share.clamp(0.0, 1.0))
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
    fn steal_is_a_figure_and_no_disturbance() {
        let (root, machine) = proc_with(Some("cpu 100 0 0 100 0 0 0 20 0 0\n"));
        let watch = Watch::start(machine);
        for (now, percent) in [
            ("cpu 100 0 0 100 0 0 0 20 0 0\n", 0.0),
            ("cpu 150 0 0 140 0 0 0 30 0 0\n", 10.0),
            // A counter that went back, and one that ran ahead of the sum.
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
    fn no_proc_is_told() {
        let (_root, machine) = proc_with(None);
        let told = vec![Disturbance::NoProc];
        let expected = Noticed { steal_percent: None, disturbances: told };
        assert_eq!(Watch::start(machine).finish(), expected);
    }

    #[test]
    fn drift_is_told() {
        let (_root, machine) = proc_with(Some("cpu 1 1 1 1 1 1 1 1\n"));
        let mut watch = Watch::start(machine);
        watch.spins_ns = vec![100.0; 50];
        assert_eq!(watch.finish().disturbances, []);
        watch.spins_ns.extend([110.0; 50]);
        let told = watch.finish().disturbances;
        assert!(
            matches!(told[..], [Disturbance::FrequencyDrift { percent }] if (percent - 10.0).abs() < 0.01)
        );
    }

    #[test]
    fn the_chain_takes_time() {
        let (_root, machine) = proc_with(None);
        let mut watch = Watch::start(machine);
        watch.tick(&Clock::get());
        // 4,000 multiplications of at least 3 cycles at 10 GHz at most.
        assert!(watch.spins_ns[0] > 1200.0, "{:?}", watch.spins_ns);
    }

    #[test]
    fn everything_has_a_hint() {
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
