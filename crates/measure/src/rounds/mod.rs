//! Rounds: every entrant once in a new random order, repeated until the time is over; then ratios.
//!
//! Every comparison is made in rounds: `interleave` runs threads of this process; other callers
//! control processes or virtual machines. The entrants are the subjects and, as the last entrant,
//! the baseline a second time. The baseline's ratio to itself gives the noise floor.
//!
//! From the bottom up:
//!
//! - [`evaluation`]: computes ratios from rounds;
//! - [`placed`]: rounds of whole programs, in which the place within a round may matter.

pub mod evaluation;
pub mod placed;

pub use evaluation::{Evaluation, Round, evaluate};

use std::time::{Duration, Instant};

use crate::clock::Clock;
use crate::disturbance::Watch;
use crate::random::Random;

/// The limits of a run.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The time that rounds may take, counted from `started`.
    pub budget: Duration,
    /// The moment at which that time starts.
    pub started: Instant,
    /// The number of rounds that run even if the budget is exceeded.
    pub least: usize,
    /// The number of rounds after which the run ends in any case.
    pub most: usize,
}

/// The progress of a run.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Completed rounds.
    pub rounds: usize,
    /// Time used.
    pub elapsed: Duration,
    /// Time allowed.
    pub budget: Duration,
}

/// What a run does after one of its rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The round counts, and another may follow.
    Round,
    /// The round counts and is the last.
    Last,
    /// The run was stopped within the round, which does not count.
    Stopped,
}

/// Runs rounds within these limits. `watch` checks the machine before each round. `round`
/// receives the number of the round, and `after` receives the progress of the run.
///
/// Returns the number of rounds that count, and the error that ended the run; the rounds before
/// the error are complete.
pub fn repeat<C, E>(
    limits: Limits,
    watch: &mut Watch,
    context: &mut C,
    mut round: impl FnMut(&mut C, u64) -> Result<Next, E>,
    mut after: impl FnMut(&mut C, Progress),
) -> (usize, Result<(), E>) {
    let Limits { budget, started, least, most } = limits;
    let mut done = 0;
    while done < most && (done < least || started.elapsed() < budget) {
        watch.tick(&Clock::get());
        let next = match round(context, done as u64) {
            Ok(Next::Stopped) => break,
            Ok(next) => next,
            Err(error) => return (done, Err(error)),
        };
        done += 1;
        after(context, Progress { rounds: done, elapsed: started.elapsed(), budget });
        if next == Next::Last {
            break;
        }
    }
    (done, Ok(()))
}

/// The order in which the entrants of a round run.
#[derive(Clone, Debug)]
pub struct Order {
    random: Random,
    entrants: Vec<usize>,
}

impl Order {
    /// The order of these entrants, drawn from `seed`.
    #[must_use]
    pub fn new(entrants: impl IntoIterator<Item = usize>, seed: u64) -> Self {
        Self { random: Random::new(seed), entrants: entrants.into_iter().collect() }
    }

    /// All entrants in a new random order.
    pub fn draw(&mut self) -> Vec<usize> {
        self.random.shuffle(&mut self.entrants);
        self.entrants.clone()
    }
}

#[cfg(test)]
mod tests {
    use haul_machine::sys::Sys;

    use super::*;

    fn limits(budget: Duration, least: usize, most: usize) -> Limits {
        Limits { budget, started: Instant::now(), least, most }
    }

    /// The numbers that the rounds received, and the number of rounds that count.
    fn run(limits: Limits, ending: impl Fn(u64) -> Result<Next, u64>) -> (usize, Result<(), u64>) {
        let mut watch = Watch::start(Sys::new());
        let mut numbers = (Vec::new(), Vec::new());
        let ended = repeat(
            limits,
            &mut watch,
            &mut numbers,
            |numbers, number| {
                numbers.0.push(number);
                ending(number)
            },
            |numbers, progress| numbers.1.push(progress.rounds),
        );
        assert_eq!(numbers.0, (0..numbers.0.len() as u64).collect::<Vec<_>>());
        assert_eq!(numbers.1, (1..=ended.0).collect::<Vec<_>>());
        ended
    }

    #[test]
    fn rounds_stay_within_their_limits() {
        let none = Duration::ZERO;
        assert_eq!(run(limits(none, 3, 10), |_| Ok(Next::Round)), (3, Ok(())));
        let hour = Duration::from_secs(3600);
        assert_eq!(run(limits(hour, 3, 10), |_| Ok(Next::Round)), (10, Ok(())));
        assert_eq!(run(limits(hour, 3, 0), |_| Ok(Next::Round)), (0, Ok(())));
    }

    #[test]
    fn round_ends_the_run_and_may_count() {
        let at = |last: u64, next: Result<Next, u64>| {
            let hour = Duration::from_secs(3600);
            run(
                limits(hour, 3, 10),
                move |number| {
                    if number == last { next } else { Ok(Next::Round) }
                },
            )
        };
        assert_eq!(at(4, Ok(Next::Last)), (5, Ok(())));
        assert_eq!(at(4, Ok(Next::Stopped)), (4, Ok(())));
        assert_eq!(at(4, Err(7)), (4, Err(7)));
    }

    #[test]
    fn every_order_contains_every_entrant() {
        let mut order = Order::new(0..20, 1);
        let (first, second) = (order.draw(), order.draw());
        assert_ne!(first, second);
        for mut drawn in [first, second] {
            drawn.sort_unstable();
            assert_eq!(drawn, (0..20).collect::<Vec<_>>());
        }
        assert_eq!(Order::new(0..20, 1).draw(), Order::new(0..20, 1).draw());
    }
}
