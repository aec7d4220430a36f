//! Time limits for operations that need another process.

use std::time::{Duration, Instant};

/// The instant after `wait`, at most a hundred years from now, so that the clock can represent
/// it.
#[inline]
pub fn after(wait: Duration) -> Instant {
    /// A hundred years.
    const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    Instant::now() + wait.min(LONGEST)
}

/// The two time limits of an operation: until the peer begins, and from then on to the end. Or
/// the time limit of a pause.
#[derive(Clone, Copy)]
pub struct Clock {
    start: Option<Instant>,
    begun: Option<Instant>,
    wait: Option<Duration>,
    deadline: Option<Duration>,
    is_a_pause: bool,
}

impl Clock {
    /// A clock that allows `wait` until the peer begins, and `deadline` from then on to the end.
    /// It starts when the operation first has to wait. So an operation that need not wait does
    /// not read the time.
    #[inline]
    pub fn new(wait: Option<Duration>, deadline: Duration) -> Self {
        let deadline = Some(deadline);
        Self { start: None, begun: None, wait, deadline, is_a_pause: false }
    }

    /// A clock that starts now and ends after `time`, whether the peer has begun or not.
    #[inline]
    pub fn of_a_pause(time: Duration) -> Self {
        let start = Some(Instant::now());
        Self { start, begun: None, wait: Some(time), deadline: None, is_a_pause: true }
    }

    /// Whether this is the clock of a pause, whose end is not a failure.
    #[inline]
    pub fn is_a_pause(&self) -> bool {
        self.is_a_pause
    }

    /// The start of the wait. Starts the wait now if it has not started.
    #[inline]
    pub fn start(&mut self) -> Instant {
        *self.start.get_or_insert_with(Instant::now)
    }

    /// The elapsed time and the limit that applies to it.
    #[inline]
    fn spent(&mut self, has_begun: impl FnOnce() -> bool) -> (Duration, Option<Duration>) {
        if self.begun.is_none() && self.deadline.is_some() && has_begun() {
            self.begun = Some(Instant::now());
        }
        match self.begun {
            Some(begun) => (begun.elapsed(), self.deadline),
            None => (self.start().elapsed(), self.wait),
        }
    }

    /// The remaining time; `None` without a limit.
    #[inline]
    pub fn left(&mut self, has_begun: impl FnOnce() -> bool) -> Option<Duration> {
        let (spent, limit) = self.spent(has_begun);
        limit.map(|limit| limit.saturating_sub(spent))
    }

    /// The elapsed time and the limit, if the limit is reached; else `None`.
    #[inline]
    pub fn over(&mut self, has_begun: impl FnOnce() -> bool) -> Option<(Duration, Duration)> {
        let (waited, limit) = self.spent(has_begun);
        limit.filter(|limit| waited >= *limit).map(|limit| (waited, limit))
    }
}
