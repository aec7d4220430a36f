//! How an end waits for the other one: awake, by letting it run, or asleep.
//!
//! ```text
//! both run on one processor:  give way, a few times;             then sleep
//! else:                       look again and again, for 50 us;   then sleep
//! ```
//!
//! Two ends share a processor as soon as another program keeps the others busy. One that looks
//! again and again then keeps the other from moving, and to sleep and be woken costs more than the
//! transfer. To give way (`sched_yield`) is one switch from the one to the other. Half a round trip
//! of 64 B and a message of a stream of them, in ns, one of two processors of Zen 4 busy and both
//! ends on the other one: 1570 and 230 by giving way, 2840 and 1100 by sleeping, 2570 and 620
//! through a pipe. Where each end has a processor, and one of them shares it with that program, the
//! two run side by side half of the time, and move more in it than they would in all of it on one.
//!
//! Where a third program wants that processor as well it does not go so, see `turns`.

use super::lane::Lane;
use crate::peer::deadline::Clock;

/// Looks at the other end's words before sleeping: some 50 us, about what a sleep and a wake-up
/// cost together.
const LOOKS: u32 = 1000;
/// The looks, some 1 us, before the clock and the machine are asked: an answer to a small message
/// comes sooner than that, and asking takes 25 ns, and 1 us every 10 ms.
const LOOKS_UNASKED: u32 = 20;
/// How often an end gives way before it sleeps. What brings nothing takes 0.3 us.
const TURNS: u32 = 3;
/// What an end does before it looks once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Look,
    GiveWay,
    Sleep,
}

/// A wait, which begins anew as something moves, or after a sleep.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waiting {
    looks: u32,
    /// How many there are before it sleeps, once asked.
    looks_max: Option<u32>,
    turns: u32,
}

impl Waiting {
    pub(crate) fn next(&mut self, lane: &mut Lane, clock: &mut Clock) -> Next {
        let looks_max = match self.looks_max {
            None if self.looks < looks_unasked(lane) => LOOKS_UNASKED,
            None => {
                clock.start();
                lane.look_around();
                let looks = if lane.is_alone() || lane.is_together() { 0 } else { LOOKS };
                *self.looks_max.insert(looks)
            }
            Some(looks) => looks,
        };
        if self.looks < looks_max {
            self.looks += 1;
            return Next::Look;
        }
        if self.turns < TURNS && lane.may_give_way(self.turns) {
            self.turns += 1;
            return Next::GiveWay;
        }
        Next::Sleep
    }
}

/// How often to look before anything is asked.
pub(crate) fn looks_unasked(lane: &Lane) -> u32 {
    if lane.is_alone() || lane.was_together() { 0 } else { LOOKS_UNASKED }
}
