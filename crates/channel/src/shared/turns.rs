//! Whether an end that shares a processor with the other one gives way to it (`sched_yield`).
//!
//! Where a third program wants that processor as well, an end that gives way may have it back a
//! time slice later. So it looks at the clock, and gives way no more for [`PAUSE`] times as long.

use std::time::{Duration, Instant};

/// After so long of giving way one wait is slept through: the kernel looks for an idle processor as
/// it wakes an end, and seldom for one that is ready to run. Two ends that something has put on one
/// processor, say a pipe between the two, so have two again within this time, if there is a free
/// one. If there is none, a sleep and a wake-up take some 2 us of it.
const AWAKE_MAX: Duration = Duration::from_millis(1);
/// Longer than this a third program ran, or the other end had so much to do that to sleep would
/// have cost nothing beside it.
const LONG: Duration = Duration::from_micros(200);
/// How many times as long as it took nobody gives way after that: 2% of the time is lost at most.
const PAUSE: u32 = 50;

/// What giving way has brought an end so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turns {
    /// When it slept through a wait.
    slept: Option<Instant>,
    /// It gives way no more until then.
    paused_until: Option<Instant>,
}

impl Turns {
    /// Whether to give way at this time, for the first time in a wait or once more.
    pub(crate) fn may(&mut self, now: Instant, is_first: bool) -> bool {
        if self.paused_until.is_some_and(|until| now < until) {
            return false;
        }
        self.paused_until = None;
        if !is_first || self.slept.is_some_and(|slept| now - slept < AWAKE_MAX) {
            return true;
        }
        self.slept = Some(now);
        false
    }

    /// It gave way, and had the processor again after so long.
    pub(crate) fn note(&mut self, now: Instant, elapsed: Duration) {
        if elapsed >= LONG {
            self.paused_until = now.checked_add(elapsed * PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_sleeps_through_one_wait_each_millisecond() {
        let (mut turns, start) = (Turns::default(), Instant::now());
        let waits_at = |turns: &mut Turns, microseconds| {
            turns.may(start + Duration::from_micros(microseconds), true)
        };
        assert!(!waits_at(&mut turns, 0), "the kernel is not asked for an idle processor at first");
        assert!(turns.may(start, false));
        assert!((1..1000).all(|microseconds| waits_at(&mut turns, microseconds)));
        assert!(!waits_at(&mut turns, 1000), "the kernel is never asked for an idle processor");
        assert!(waits_at(&mut turns, 1001));
    }

    #[test]
    fn end_that_lost_a_time_slice_gives_way_no_more_for_many() {
        let (mut turns, slice) = (Turns::default(), LONG * 20);
        let start = Instant::now();
        turns.may(start, true);
        assert!(turns.may(start, false));
        turns.note(start, slice);
        assert!(!turns.may(start, false));
        assert!(!turns.may(start + slice * PAUSE - LONG, false));
        assert!(turns.may(start + slice * PAUSE, false));
    }
}
