//! The processors that an end may run on. Each end publishes its processors, so that both ends
//! know whether they share one processor. If both threads are pinned, as in data planes, neither
//! end can determine this alone.

use rustix::thread::{CpuSet, sched_getaffinity};

/// The processors that an end's thread may run on, as published. A peer's value is a hint: a
/// false value can only make the transfer slower.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Affinity(u64);

impl Affinity {
    /// Not published, or unknown.
    const UNKNOWN: u64 = 0;
    /// Several processors.
    const SEVERAL: u64 = 1;
    /// A single processor, published as its number plus this value.
    const ONE: u64 = 2;

    /// The affinity of the calling thread. Costs one system call.
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

    /// Decodes a word that a peer may have written.
    pub(crate) fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// Whether the affinity is a single processor.
    pub(crate) fn is_one(self) -> bool {
        self.0 >= Self::ONE
    }

    /// Whether both ends may run only on the same single processor.
    pub(crate) fn is_the_one_of(self, other: Self) -> bool {
        self.is_one() && self == other
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::Channel;
    use crate::shared::error::Error;
    use crate::shared::idle;
    use crate::shared::settings::Settings;
    use haul_peer::socket::pair;

    #[test]
    fn ends_share_processor_only_if_neither_has_another() {
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
    fn threads_pinned_to_one_processor_share_it() {
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

    /// Each end runs on a thread that is pinned before the handshake, or afterwards.
    #[test]
    fn pinned_ends_know_whether_they_share_processor() {
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

    /// The results of both lanes of an end that is pinned to this processor, before the handshake
    /// if `is_early`.
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
        // The first call publishes this end's affinity, the second reads the affinity that the
        // other end published.
        for _ in 0..2 {
            thread::sleep(Duration::from_millis(11));
            channel.sender.outbox.lane.refresh_affinity();
            channel.receiver.inbox.lane.refresh_affinity();
            met.wait();
        }
        [channel.sender.outbox.lane.has_one_cpu(), channel.receiver.inbox.lane.has_one_cpu()]
    }
}
