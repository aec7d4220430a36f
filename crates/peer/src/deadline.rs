//! How long something that another process takes part in may last.

use std::time::{Duration, Instant};

/// The moment after that time; where no clock goes so far, the last that a deadline need mean.
pub fn after(wait: Duration) -> Instant {
    /// A hundred years.
    const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    Instant::now() + wait.min(LONGEST)
}

/// How long it may last: until the peer begins, and from there to the end; or until the caller goes
/// on.
#[derive(Clone, Copy)]
pub struct Clock {
    start: Option<Instant>,
    begun: Option<Instant>,
    wait: Option<Duration>,
    deadline: Option<Duration>,
    is_a_pause: bool,
}

impl Clock {
    /// Until the peer begins, for `wait` at most, and to the end, for `deadline` at most. Stands
    /// still until there is something to wait for: what is there already costs no look at the
    /// clock.
    pub fn new(wait: Option<Duration>, deadline: Duration) -> Self {
        let deadline = Some(deadline);
        Self { start: None, begun: None, wait, deadline, is_a_pause: false }
    }

    /// Begins now, and ends whether the peer has begun or not.
    pub fn of_a_pause(time: Duration) -> Self {
        let start = Some(Instant::now());
        Self { start, begun: None, wait: Some(time), deadline: None, is_a_pause: true }
    }

    /// Whether its end is no failure.
    pub fn is_a_pause(&self) -> bool {
        self.is_a_pause
    }

    /// When the wait began: now, if it had not begun.
    pub fn start(&mut self) -> Instant {
        *self.start.get_or_insert_with(Instant::now)
    }

    /// Time spent, and how much there is.
    fn spent(&mut self, has_begun: impl FnOnce() -> bool) -> (Duration, Option<Duration>) {
        if self.begun.is_none() && self.deadline.is_some() && has_begun() {
            self.begun = Some(Instant::now());
        }
        match self.begun {
            Some(begun) => (begun.elapsed(), self.deadline),
            None => (self.start().elapsed(), self.wait),
        }
    }

    /// How much is left; `None` where there is no end.
    pub fn left(&mut self, has_begun: impl FnOnce() -> bool) -> Option<Duration> {
        let (spent, limit) = self.spent(has_begun);
        limit.map(|limit| limit.saturating_sub(spent))
    }

    /// Time spent and the limit, where that is reached.
    pub fn over(&mut self, has_begun: impl FnOnce() -> bool) -> Option<(Duration, Duration)> {
        let (waited, limit) = self.spent(has_begun);
        limit.filter(|limit| waited >= *limit).map(|limit| (waited, limit))
    }
}
