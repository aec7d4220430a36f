//! The time of a plan, and the share of each step.

use std::time::{Duration, Instant};

use haul_experiments::experiment::Time;

/// However late the plan is, a step gets at least this share of the time for its rounds. Every
/// experiment makes a few rounds in any case; with less time than this it makes no additional
/// rounds.
const SHARE_MIN: f64 = 0.2;

/// Divides the time until a deadline among the remaining steps. If one step overruns, all later
/// steps get shorter rounds; no step is left out.
#[derive(Clone, Copy, Debug)]
pub(in crate::command) struct Schedule {
    left: Time,
    deadline: Option<Instant>,
}

impl Schedule {
    /// Without a deadline, each step gets the time that it asks for.
    pub(in crate::command) fn endless() -> Self {
        Self { left: Time::default(), deadline: None }
    }

    /// A schedule for steps that need `total` together.
    pub(in crate::command) fn until(deadline: Instant, total: Time) -> Self {
        Self { left: total, deadline: Some(deadline) }
    }

    /// The time for the rounds of the next step from `now` on; `None` if the deadline has passed.
    pub(in crate::command) fn next(&mut self, step: Time, now: Instant) -> Option<Duration> {
        let Some(deadline) = self.deadline else { return Some(step.rounds) };
        let until = deadline.saturating_duration_since(now);
        if until.is_zero() {
            return None;
        }
        let for_rounds = until.saturating_sub(self.left.overhead).as_secs_f64();
        let asked = self.left.rounds.as_secs_f64();
        let share = if for_rounds >= asked { 1.0 } else { (for_rounds / asked).max(SHARE_MIN) };
        self.left = Time {
            rounds: self.left.rounds.saturating_sub(step.rounds),
            overhead: self.left.overhead.saturating_sub(step.overhead),
        };
        Some(step.rounds.mul_f64(share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const STEP: Time = Time { rounds: SECOND, overhead: Duration::from_millis(500) };

    /// Ten steps of 1.5 s in 16 s.
    fn schedule(start: Instant) -> Schedule {
        Schedule::until(start + 16 * SECOND, (0..10).map(|_| STEP).sum())
    }

    #[test]
    fn schedule_gives_punctual_steps_their_time() {
        let start = Instant::now();
        let mut schedule = schedule(start);
        for step in 0..10 {
            assert_eq!(schedule.next(STEP, start + step * STEP.whole()), Some(SECOND));
        }
    }

    #[test]
    fn overrun_shortens_all_later_steps() {
        let start = Instant::now();
        let (mut schedule, mut now) = (schedule(start), start);
        let mut given = Vec::new();
        for step in 0..10 {
            let rounds = schedule.next(STEP, now).expect("no step is left out");
            given.push(rounds);
            // The first step needs six seconds more than planned.
            now += rounds + STEP.overhead + if step == 0 { 6 * SECOND } else { Duration::ZERO };
        }
        assert!(now <= start + 16 * SECOND + SECOND / 100, "{given:?}");
        for rounds in &given[1..] {
            assert!((0.40..0.50).contains(&rounds.as_secs_f64()), "{given:?}");
        }
    }

    #[test]
    fn schedule_ends_at_deadline_if_there_is_one() {
        let start = Instant::now();
        assert_eq!(schedule(start).next(STEP, start + 16 * SECOND), None);
        let late = schedule(start).next(STEP, start + 15 * SECOND);
        assert_eq!(late, Some(SECOND.mul_f64(SHARE_MIN)));
        assert_eq!(Schedule::endless().next(STEP, start + 99 * SECOND), Some(SECOND));
    }
}
