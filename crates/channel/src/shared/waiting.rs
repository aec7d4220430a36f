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
use haul_peer::deadline::Clock;

/// Looks at the other end's words before sleeping: some 50 us, about what a sleep and a wake-up
/// cost together.
const POLLS: u32 = 1000;
/// The looks, some 1 us, before the clock and the machine are asked: an answer to a small message
/// comes sooner than that, and asking takes 25 ns, and 1 us every 10 ms.
const POLLS_BEFORE_ASKING: u32 = 20;
/// How often an end gives way before it sleeps. What brings nothing takes 0.3 us.
const TURNS: u32 = 3;
/// What an end does before it looks once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Poll,
    GiveWay,
    Sleep,
}

/// A wait, which begins anew as something moves, or after a sleep.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waiting {
    polls: u32,
    /// How many there are before it sleeps, once asked.
    polls_max: Option<u32>,
    turns: u32,
}

impl Waiting {
    pub(crate) fn next(&mut self, lane: &mut Lane, clock: &mut Clock) -> Next {
        let polls_max = match self.polls_max {
            None if self.polls < polls_before_asking(lane) => POLLS_BEFORE_ASKING,
            None => {
                clock.start();
                lane.refresh_affinity();
                let polls = if lane.has_one_cpu() || lane.update_same_cpu() { 0 } else { POLLS };
                *self.polls_max.insert(polls)
            }
            Some(polls) => polls,
        };
        if self.polls < polls_max {
            self.polls += 1;
            return Next::Poll;
        }
        if self.turns < TURNS && lane.may_give_way(self.turns) {
            self.turns += 1;
            return Next::GiveWay;
        }
        Next::Sleep
    }
}

/// How often to look before anything is asked.
pub(crate) fn polls_before_asking(lane: &Lane) -> u32 {
    if lane.has_one_cpu() || lane.was_on_same_cpu() { 0 } else { POLLS_BEFORE_ASKING }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;
    use std::thread;
    use std::time::Duration;

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::super::layout;
    use super::super::settings::Settings;
    use super::*;
    use crate::Channel;
    use haul_peer::socket::pair;

    fn ends() -> (Channel, Channel) {
        let ((one, other), settings) = (pair().unwrap(), &Settings::default());
        let (mut one, mut other) = thread::scope(|scope| {
            let accepting = scope.spawn(|| Channel::accept_over(other, settings).unwrap());
            (Channel::connect_over(one, settings).unwrap(), accepting.join().unwrap())
        });
        // Each looks around again by now, after both have said where they may run.
        thread::sleep(Duration::from_millis(30));
        for end in [&mut one, &mut other] {
            end.sender.outbox.lane.refresh_affinity();
            end.receiver.inbox.lane.refresh_affinity();
        }
        (one, other)
    }

    /// What a wait of this lane goes through, and how often, until it sleeps.
    fn course(lane: &mut Lane) -> Vec<(Next, u32)> {
        let mut clock = Clock::new(None, Duration::from_secs(9));
        let mut waiting = Waiting::default();
        let mut course: Vec<(Next, u32)> = Vec::new();
        loop {
            let next = waiting.next(lane, &mut clock);
            match course.last_mut().filter(|(last, _)| *last == next) {
                Some((_, count)) => *count += 1,
                None => course.push((next, 1)),
            }
            if next == Next::Sleep {
                return course;
            }
        }
    }

    /// On a thread that may run on this processor only.
    fn on_one_processor<T: Send>(test: impl FnOnce() -> T + Send) -> T {
        let allowed = sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).unwrap();
        let pinned = || {
            let mut one = CpuSet::new();
            one.set(first);
            sched_setaffinity(None, &one).unwrap();
            test()
        };
        thread::scope(|scope| scope.spawn(pinned).join().unwrap())
    }

    #[test]
    fn an_end_on_the_processor_of_the_other_gives_way_and_does_not_look() {
        on_one_processor(|| {
            let (mut one, mut other) = ends();
            // The half that sends says where it runs for the half that is waited for, too.
            other.receiver.inbox.lane.update_same_cpu();
            let lane = &mut one.receiver.inbox.lane;
            assert!(lane.update_same_cpu(), "the other half of the channel did not say it");
            assert_eq!(course(lane), [(Next::Sleep, 1)], "the kernel may move it to a free one");
            assert_eq!(course(lane), [(Next::GiveWay, TURNS), (Next::Sleep, 1)]);
        });
    }

    #[test]
    fn an_end_on_another_processor_than_the_other_looks_for_long_and_gives_nothing_away() {
        let (mut one, _other) = ends();
        let lane = &mut one.receiver.inbox.lane;
        lane.word(layout::SENDER_CPU).store(u64::MAX, Relaxed);
        let polls = if lane.has_one_cpu() { vec![] } else { vec![(Next::Poll, POLLS)] };
        assert_eq!(course(lane), [polls, vec![(Next::Sleep, 1)]].concat());
    }

    #[test]
    fn an_end_whose_other_is_moved_to_its_processor_sees_it_at_the_next_wait() {
        on_one_processor(|| {
            let (mut one, mut other) = ends();
            let lane = &mut one.sender.outbox.lane;
            lane.word(layout::RECEIVER_CPU).store(u64::MAX, Relaxed);
            assert!(!course(lane).iter().any(|(next, _)| *next == Next::GiveWay));
            other.receiver.inbox.lane.update_same_cpu();
            course(lane);
            assert!(course(lane).iter().any(|(next, _)| *next == Next::GiveWay));
        });
    }

    /// Each half of a split channel has a thread, and a processor, of its own.
    #[test]
    fn a_half_of_a_split_channel_speaks_for_itself_alone() {
        let (one, other) = ends();
        let (mut sender, _receiver) = other.split();
        sender.outbox.lane.update_same_cpu();
        let published = |lane: &Lane, word| lane.word(word).load(Relaxed);
        assert_ne!(published(&one.receiver.inbox.lane, layout::SENDER_CPU), 0);
        assert_eq!(published(&one.sender.outbox.lane, layout::RECEIVER_CPU), 0);
    }

    /// Ends that share a processor pass messages on in both directions, asleep or not.
    #[test]
    fn messages_arrive_between_ends_on_one_processor() {
        on_one_processor(|| {
            let (mut one, mut other) = ends();
            thread::scope(|scope| {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let message = other.recv().unwrap();
                        other.send(&message).unwrap();
                    }
                });
                for index in 0..2000_usize {
                    let sent = vec![index as u8; 1 + index * 37 % 20_000];
                    one.send(&sent).unwrap();
                    assert!(one.recv().unwrap()[..] == sent[..], "{index}");
                }
            });
        });
    }
}
