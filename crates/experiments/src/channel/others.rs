//! Programs that do not belong to a run, but run at the same time. If such programs run, two
//! processes that wait for each other behave differently than on an otherwise idle machine. These
//! processes also behave differently than on a machine on which the run itself keeps a processor
//! busy.

use std::time::{Duration, Instant};

use haul_machine::sys::Sys;

/// The kernel counts processor time in ticks of 10 ms, so that the average over a shorter time is
/// too inaccurate.
const SHORTEST: Duration = Duration::from_millis(100);

/// Counts the processor time of these programs from the start of a run.
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

    /// The average number of processors that these programs have kept busy since the start;
    /// `None` if it is not known.
    pub(super) fn processors(&self) -> Option<f64> {
        let (before, now) = (self.start?, self.machine.busy_and_own_seconds()?);
        // After the readings, which a busy machine may delay.
        let elapsed = self.started.elapsed();
        (elapsed >= SHORTEST).then(|| processors(before, now, elapsed))
    }
}

/// Computes the average number of busy processors from the processor times of all programs and of
/// the run, at the start and now, in seconds. The kernel reads the time of all programs and the
/// time of the run at different moments, so one may be ahead of the other.
fn processors(before: (f64, f64), now: (f64, f64), elapsed: Duration) -> f64 {
    let of_others = (now.0 - before.0) - (now.1 - before.1);
    of_others.max(0.0) / elapsed.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    #[test]
    fn own_processor_time_does_not_count_as_others() {
        let second = Duration::from_secs(2);
        for (now, expected) in [((12.0, 3.0), 0.0), ((14.0, 3.0), 1.0), ((10.0, 5.0), 0.0)] {
            let found = processors((10.0, 1.0), now, second);
            assert!((found - expected).abs() < 1e-9, "{now:?}: {found}");
        }
    }

    /// Keeps every processor busy with children for a while. The children's time must not count
    /// as time of other programs. The time of other programs is therefore at most the processor
    /// time that the children did not get.
    #[test]
    fn processor_time_of_children_does_not_count_as_others() {
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
    fn short_time_gives_no_processors() {
        assert_eq!(Others::start(Sys::new()).processors(), None);
        assert_eq!(Others::start(Sys::at("/nonexistent")).processors(), None);
    }
}
