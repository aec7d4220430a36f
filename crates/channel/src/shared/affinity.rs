//! Where an end may run: each tells the other, so that both know whether they share one processor.
//! Of two threads that are pinned, as data planes pin theirs, neither sees that by itself.

use rustix::thread::{CpuSet, sched_getaffinity};

/// What an end says of the processors that its thread may run on. What a peer says is a hint: the
/// worst of a wrong one is a slower transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Affinity(u64);

impl Affinity {
    /// It was not told, or cannot be known.
    const UNKNOWN: u64 = 0;
    /// There are several.
    const SEVERAL: u64 = 1;
    /// Else there is one: its number from here on.
    const ONE: u64 = 2;

    /// That of the thread that calls. One system call.
    pub(crate) fn of_this_thread() -> Self {
        let Ok(set) = sched_getaffinity(None) else { return Self(Self::UNKNOWN) };
        let mut allowed = (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu));
        match (allowed.next(), allowed.next()) {
            (Some(only), None) => Self(Self::ONE + only as u64),
            (Some(_), Some(_)) => Self(Self::SEVERAL),
            (None, _) => Self(Self::UNKNOWN),
        }
    }

    pub(crate) fn word(self) -> u64 {
        self.0
    }

    /// Anything that a peer may have said.
    pub(crate) fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// Whether there is one processor only.
    pub(crate) fn is_one(self) -> bool {
        self.0 >= Self::ONE
    }

    /// Whether both may run on one processor only, and it is the same.
    pub(crate) fn is_the_one_of(self, other: Self) -> bool {
        self.is_one() && self == other
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;
    use std::time::Duration;

    use super::super::error::Error;
    use super::super::idle;
    use super::super::settings::Settings;
    use super::*;
    use crate::Channel;
    use haul_peer::socket::pair;

    #[test]
    fn two_share_one_processor_where_neither_has_another() {
        let affinity = Affinity::from_word;
        for (a, b, expected) in [
            (2, 2, true),
            (7, 7, true),
            (2, 3, false),
            (1, 1, false),
            (0, 0, false),
            (1, 2, false),
            (0, 2, false),
            (u64::MAX, 2, false),
        ] {
            assert_eq!(affinity(a).is_the_one_of(affinity(b)), expected, "{a} and {b}");
            assert_eq!(affinity(b).is_the_one_of(affinity(a)), expected, "{b} and {a}");
        }
    }

    fn allowed() -> Vec<usize> {
        let all = sched_getaffinity(None).unwrap();
        (0..CpuSet::MAX_CPU).filter(|&cpu| all.is_set(cpu)).collect()
    }

    fn pin_to(cpu: usize) {
        let mut one = CpuSet::new();
        one.set(cpu);
        rustix::thread::sched_setaffinity(None, &one).unwrap();
    }

    #[test]
    fn a_pinned_thread_has_one_place_and_another_that_is_pinned_there_shares_it() {
        let pinned = |cpu: usize| {
            let affinity = move || {
                pin_to(cpu);
                Affinity::of_this_thread()
            };
            thread::spawn(affinity).join().unwrap()
        };
        let allowed = allowed();
        assert!(pinned(allowed[0]).is_the_one_of(pinned(allowed[0])));
        if let Some(&second) = allowed.get(1) {
            assert!(!pinned(allowed[0]).is_the_one_of(pinned(second)));
            assert!(!Affinity::of_this_thread().is_the_one_of(Affinity::of_this_thread()));
        }
    }

    /// Each end on a thread that was pinned before they met, or is afterwards.
    #[test]
    fn ends_that_are_pinned_know_whether_they_share_a_processor() {
        let allowed = allowed();
        for is_early in [true, false] {
            for second in [allowed[0], allowed[allowed.len() - 1]] {
                let (one, other) = pair().unwrap();
                let (settings, met) = (&Settings::default(), &Barrier::new(2));
                let first = allowed[0];
                let found = thread::scope(|scope| {
                    let connecting = move || Channel::connect_over(one, settings);
                    let one = scope.spawn(move || are_alone(connecting, first, is_early, met));
                    let accepting = || Channel::accept_over(other, settings);
                    [are_alone(accepting, second, is_early, met), one.join().unwrap()]
                });
                let expected = allowed[0] == second || idle::is_single();
                assert_eq!(found, [[expected; 2]; 2], "{second}, {is_early}");
            }
        }
        let mut all = CpuSet::new();
        allowed.into_iter().for_each(|cpu| all.set(cpu));
        rustix::thread::sched_setaffinity(None, &all).unwrap();
    }

    /// What both lanes of an end find, which is on this processor from here on, or since they met.
    fn are_alone(
        meet: impl FnOnce() -> Result<Channel, Error>,
        cpu: usize,
        is_early: bool,
        met: &Barrier,
    ) -> [bool; 2] {
        if is_early {
            pin_to(cpu);
        }
        let mut channel = meet().unwrap();
        pin_to(cpu);
        // The first look tells the other end, the second sees what that one told.
        for _ in 0..2 {
            thread::sleep(Duration::from_millis(11));
            channel.sender.outbox.lane.refresh_affinity();
            channel.receiver.inbox.lane.refresh_affinity();
            met.wait();
        }
        [channel.sender.outbox.lane.has_one_cpu(), channel.receiver.inbox.lane.has_one_cpu()]
    }
}
