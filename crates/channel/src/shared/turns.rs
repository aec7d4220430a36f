//! Whether an end that shares a processor with the other end yields to it (`sched_yield`).
//!
//! If a third program also uses that processor, an end that yields may get it back only after a
//! time slice. So the end measures the time of each yield. After a long yield, the end does not
//! yield again for [`PAUSE`] times as long.

use std::time::{Duration, Instant};

/// After this time without a sleep, an end sleeps once: the kernel searches for an idle processor
/// when it wakes a thread, but seldom when a thread is ready to run. So if two ends were placed
/// on one processor, for example by a pipe between them, and another processor is free, they get
/// two processors again within this time. If no processor is free, a sleep and a wake-up cost
/// about 2 us of this time.
const AWAKE_MAX: Duration = Duration::from_millis(1);
/// If a yield was this long, a third program ran, or the other end had so much to do that the
/// cost of a sleep would not have mattered.
const LONG: Duration = Duration::from_micros(200);
/// After a long yield, an end does not yield for this many times the length of that yield: at
/// most 2% of the time is lost.
const PAUSE: u32 = 50;

/// The history of an end's yields.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turns {
    /// When the end last slept so that the kernel could find an idle processor.
    slept: Option<Instant>,
    /// The end does not yield before this time.
    paused_until: Option<Instant>,
}

impl Turns {
    /// Whether to yield at this time, for the first time in a wait or once more.
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

    /// Records a yield: the end got the processor back after `elapsed`.
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
