//! Whether an end that shares a processor with the other one gives way to it (`sched_yield`).
//!
//! Where a third program wants that processor as well, an end that gives way may have it back a
//! time slice later. So it looks at the clock, and gives way no more for [`PAUSE`] times as long.

use std::time::{Duration, Instant};

/// One wait of so many is slept through even so: the kernel looks for an idle processor as it wakes
/// an end, and seldom for one that is ready to run.
const WAITS_UNTIL_ASLEEP: u32 = 256;
/// Longer than this a third program ran, or the other end had so much to do that to sleep would
/// have cost nothing beside it.
const LONG: Duration = Duration::from_micros(200);
/// How many times as long as it took nobody gives way after that: 2% of the time is lost at most.
const PAUSE: u32 = 50;

/// What giving way has brought an end so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turns {
    /// Waits since it slept through one.
    waits: u32,
    /// It gives way no more until then.
    paused_until: Option<Instant>,
}

impl Turns {
    /// Whether to give way, for the first time in a wait or once more.
    pub(crate) fn may(&mut self, is_first: bool) -> bool {
        if self.paused_until.is_some_and(|until| Instant::now() < until) {
            return false;
        }
        self.paused_until = None;
        self.waits += u32::from(is_first);
        if self.waits < WAITS_UNTIL_ASLEEP {
            return true;
        }
        self.waits = 0;
        false
    }

    /// It gave way, and had the processor again after so long.
    pub(crate) fn note(&mut self, now: Instant, took: Duration) {
        if took >= LONG {
            self.paused_until = now.checked_add(took * PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_gives_way_until_it_would_be_slept_through() {
        let mut turns = Turns::default();
        for _ in 1..WAITS_UNTIL_ASLEEP {
            assert!(turns.may(true) && turns.may(false));
            turns.note(Instant::now(), LONG / 2);
        }
        assert!(!turns.may(true), "the kernel is never asked for an idle processor");
        assert!(turns.may(true));
    }

    #[test]
    fn an_end_that_lost_a_time_slice_gives_way_no_more_for_many() {
        let (mut turns, slice) = (Turns::default(), LONG * 20);
        let now = Instant::now();
        assert!(turns.may(true));
        turns.note(now, slice);
        assert!(!turns.may(true));
        // As if it were that long ago.
        let Some(before) = now.checked_sub(slice * PAUSE) else { return };
        turns.note(before, slice);
        assert!(turns.may(true));
    }
}
