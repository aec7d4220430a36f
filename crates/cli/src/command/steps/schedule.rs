//! The time of a plan, and how much of it each step gets.

use std::time::{Duration, Instant};

use haul_experiments::experiment::Time;

/// The least part of its rounds' time that a step gets, however late it is. Every experiment takes
/// a few rounds in any case; with less than this they are all that it has.
const SHARE_MIN: f64 = 0.2;

/// Shares what is left until a deadline among the steps that are left. What one step takes too long
/// comes off the rounds of all that follow, and off none of them whole.
#[derive(Clone, Copy, Debug)]
pub(in crate::command) struct Schedule {
    left: Time,
    deadline: Option<Instant>,
}

impl Schedule {
    /// Without a deadline each step gets what it asks for.
    pub(in crate::command) fn endless() -> Self {
        Self { left: Time::default(), deadline: None }
    }

    /// For steps that take so much together.
    pub(in crate::command) fn until(deadline: Instant, total: Time) -> Self {
        Self { left: total, deadline: Some(deadline) }
    }

    /// What the rounds of the next step may take from now on; `None`: the deadline is over.
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
    fn on_time_each_step_has_what_it_asks_for() {
        let start = Instant::now();
        let mut schedule = schedule(start);
        for step in 0..10 {
            assert_eq!(schedule.next(STEP, start + step * STEP.whole()), Some(SECOND));
        }
    }

    #[test]
    fn what_one_step_takes_too_long_comes_off_all_that_follow() {
        let start = Instant::now();
        let (mut schedule, mut now) = (schedule(start), start);
        let mut given = Vec::new();
        for step in 0..10 {
            let rounds = schedule.next(STEP, now).expect("no step is left out");
            given.push(rounds);
            // The first takes six seconds more than it said.
            now += rounds + STEP.overhead + if step == 0 { 6 * SECOND } else { Duration::ZERO };
        }
        assert!(now <= start + 16 * SECOND + SECOND / 100, "{given:?}");
        for rounds in &given[1..] {
            assert!((0.40..0.50).contains(&rounds.as_secs_f64()), "{given:?}");
        }
    }

    #[test]
    fn beyond_the_deadline_nothing_begins_and_without_one_everything_does() {
        let start = Instant::now();
        assert_eq!(schedule(start).next(STEP, start + 16 * SECOND), None);
        let late = schedule(start).next(STEP, start + 15 * SECOND);
        assert_eq!(late, Some(SECOND.mul_f64(SHARE_MIN)));
        assert_eq!(Schedule::endless().next(STEP, start + 99 * SECOND), Some(SECOND));
    }
}
