//! Programs that have nothing to do with a run, but run beside it. What two processes that wait for
//! each other do then is another case than that of a machine which does nothing else, and than that
//! of one whose processor the run itself keeps busy.

use std::time::{Duration, Instant};

use haul_machine::sys::Sys;

/// The kernel counts processor time in ticks of 10 ms: what is shorter says too little.
const SHORTEST: Duration = Duration::from_millis(100);

/// Watches them from the start of a run.
pub(super) struct Others {
    machine: Sys,
    start: Option<(f64, f64)>,
    started: Instant,
}

impl Others {
    pub(super) fn start(machine: Sys) -> Self {
        let start = machine.busy_and_own_seconds();
        Self { machine, start, started: Instant::now() }
    }

    /// How many processors they have kept busy since, on average; `None` where that is not known.
    pub(super) fn processors(&self) -> Option<f64> {
        let elapsed = self.started.elapsed();
        let (before, now) = (self.start?, self.machine.busy_and_own_seconds()?);
        (elapsed >= SHORTEST).then(|| processors(before, now, elapsed))
    }
}

/// From what all programs and the run's own had before and have now, in seconds. The kernel takes
/// the two at different moments, so that one may run ahead.
fn processors(before: (f64, f64), now: (f64, f64), elapsed: Duration) -> f64 {
    let of_others = (now.0 - before.0) - (now.1 - before.1);
    of_others.max(0.0) / elapsed.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    #[test]
    fn what_the_run_itself_takes_is_not_counted() {
        let second = Duration::from_secs(2);
        for (now, expected) in [((12.0, 3.0), 0.0), ((14.0, 3.0), 1.0), ((10.0, 5.0), 0.0)] {
            let found = processors((10.0, 1.0), now, second);
            assert!((found - expected).abs() < 1e-9, "{now:?}: {found}");
        }
    }

    /// Children on every processor for a while: what they take is not others', so what is left for
    /// others is no more than what those did not get.
    #[test]
    fn what_a_child_takes_is_the_runs_own() {
        let processors = haul_measure::sys::affinity().len();
        let others = Others::start(Sys::new());
        let mut children: Vec<Child> = (0..processors)
            .map(|_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap())
            .collect();
        std::thread::sleep(Duration::from_millis(500));
        let own = Sys::new().busy_and_own_seconds().zip(others.start);
        let (elapsed, found) = (others.started.elapsed(), others.processors());
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let (Some(((_, now), (_, before))), Some(found)) = (own, found) else { return };
        let own = (now - before) / elapsed.as_secs_f64();
        let all = std::thread::available_parallelism().map_or(1, usize::from).max(processors);
        assert!(found <= all as f64 - own + 0.3, "{found} beside {own} of {all}");
    }

    #[test]
    fn what_is_too_short_says_nothing() {
        assert_eq!(Others::start(Sys::new()).processors(), None);
        assert_eq!(Others::start(Sys::at("/nonexistent")).processors(), None);
    }
}
