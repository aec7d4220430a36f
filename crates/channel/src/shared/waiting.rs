//! How an end waits for the other end: it polls, yields or sleeps.
//!
//! ```text
//! both run on one processor:  yield a few times;   then sleep
//! else:                       poll for 50 us;      then sleep
//! ```
//!
//! Two ends share a processor as soon as another program keeps the other processors busy. An end
//! that polls then keeps the other end from running, and a sleep and a wake-up cost more than the
//! transfer. A yield (`sched_yield`) is one switch from one end to the other. Half a round trip
//! of 64 B, and a message of 64 B in a stream, in ns, with one of two processors of Zen 4 busy
//! and both ends on the free one: 1570 and 230 by yielding, 2840 and 1100 by sleeping, 2570 and
//! 620 through a pipe. If each end has a processor, and one of the ends shares its processor with
//! the other program, both ends run concurrently half of the time. In that half of the time, they
//! move more than in the whole time on one processor.
//!
//! If a third program also uses that processor, an end yields less, see `turns`.

use super::lane::Lane;
use haul_peer::deadline::Clock;

/// Number of polls of the other end's words before a sleep: about 50 us, which is about the cost
/// of a sleep and a wake-up together.
const POLLS: u32 = 1000;
/// Number of polls, about 1 us, before the clock and the processors are read. An answer to a
/// small message arrives sooner than that. The reads take 25 ns, and every 10 ms they take 1 us.
const POLLS_BEFORE_ASKING: u32 = 20;
/// How often an end yields before it sleeps. A yield without effect takes 0.3 us.
const TURNS: u32 = 3;
/// What an end does before its next poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Poll,
    GiveWay,
    Sleep,
}

/// A wait. A new wait begins when bytes move, or after a sleep.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waiting {
    polls: u32,
    /// The number of polls before a sleep, once it is known.
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

/// How often to poll before the clock and the processors are read.
pub(crate) fn polls_before_asking(lane: &Lane) -> u32 {
    if lane.has_one_cpu() || lane.was_on_same_cpu() { 0 } else { POLLS_BEFORE_ASKING }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;
    use std::thread;
    use std::time::Duration;

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::*;
    use crate::Channel;
    use crate::shared::layout;
    use crate::shared::settings::Settings;
    use haul_peer::socket::pair;

    fn ends() -> (Channel, Channel) {
        let ((one, other), settings) = (pair().unwrap(), &Settings::default());
        let (mut one, mut other) = thread::scope(|scope| {
            let accepting = scope.spawn(|| Channel::accept_over(other, settings).unwrap());
            (Channel::connect_over(one, settings).unwrap(), accepting.join().unwrap())
        });
        // By now each end reads the other end's affinity again, after both ends have published
        // their affinity.
        thread::sleep(Duration::from_millis(30));
        for end in [&mut one, &mut other] {
            end.sender.outbox.lane.refresh_affinity();
            end.receiver.inbox.lane.refresh_affinity();
        }
        (one, other)
    }

    /// The steps of a wait of this lane until it sleeps, with their counts.
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

    /// Runs a test on a thread that may run on one processor only.
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
    fn end_on_processor_of_other_yields_and_does_not_poll() {
        on_one_processor(|| {
            let (mut one, mut other) = ends();
            // This call publishes the other end's processor for both directions.
            other.receiver.inbox.lane.update_same_cpu();
            let lane = &mut one.receiver.inbox.lane;
            assert!(lane.update_same_cpu(), "the other half of the channel did not publish it");
            // The second wait must follow the first within a millisecond.
            let courses = || [course(lane), course(lane)];
            let asleep_first = [(Next::Sleep, 1)]; // the kernel may move it to a free one
            let awake_next = [(Next::GiveWay, TURNS), (Next::Sleep, 1)];
            let mut tries = std::iter::repeat_with(courses).take(100);
            assert!(tries.any(|courses| courses == [&asleep_first[..], &awake_next[..]]));
        });
    }

    #[test]
    fn end_on_another_processor_polls_and_does_not_yield() {
        let (mut one, _other) = ends();
        let lane = &mut one.receiver.inbox.lane;
        lane.word(layout::SENDER_CPU).store(u64::MAX, Relaxed);
        let polls = if lane.has_one_cpu() { vec![] } else { vec![(Next::Poll, POLLS)] };
        assert_eq!(course(lane), [polls, vec![(Next::Sleep, 1)]].concat());
    }

    #[test]
    fn end_yields_at_next_wait_after_other_moves_to_its_processor() {
        on_one_processor(|| {
            let (mut one, mut other) = ends();
            let lane = &mut one.sender.outbox.lane;
            lane.word(layout::RECEIVER_CPU).store(u64::MAX, Relaxed);
            assert!(!course(lane).iter().any(|(next, _)| *next == Next::GiveWay));
            other.receiver.inbox.lane.update_same_cpu();
            // The second wait must follow the first within a millisecond.
            let has_given_way = |_| {
                course(lane);
                course(lane).iter().any(|(next, _)| *next == Next::GiveWay)
            };
            assert!((0..100).any(has_given_way));
        });
    }

    /// Each half of a split channel has its own thread and processor.
    #[test]
    fn half_of_split_channel_publishes_its_cpu_alone() {
        let (one, other) = ends();
        let (mut sender, _receiver) = other.split();
        sender.outbox.lane.update_same_cpu();
        let published = |lane: &Lane, word| lane.word(word).load(Relaxed);
        assert_ne!(published(&one.receiver.inbox.lane, layout::SENDER_CPU), 0);
        assert_eq!(published(&one.sender.outbox.lane, layout::RECEIVER_CPU), 0);
    }

    /// Ends that share a processor exchange messages in both directions, whether they sleep or
    /// not.
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
