//! Which processor an end ran on when it last waited: each tells the other. Two on one processor
//! take turns there, and one of them that waits awake keeps the other from moving.
//!
//! How many threads the machine runs does not say that. With one of two processors busy the ends
//! have the other one to themselves, or a busy one and a free one between them; the kernel moves
//! them from one to the other within milliseconds, and tells nobody.

/// What an end says of the processor that its thread runs on. What a peer says is a hint: the worst
/// of a wrong one is a slower transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cpu(u64);

impl Cpu {
    /// Not told yet.
    const UNKNOWN: u64 = 0;
    /// The first processor's number; the others follow.
    const FIRST: u64 = 1;

    /// That of the thread that calls. No system call: the kernel keeps the number where programs
    /// can read it.
    pub(crate) fn of_this_thread() -> Self {
        Self(Self::FIRST + rustix::thread::sched_getcpu() as u64)
    }

    pub(crate) fn word(self) -> u64 {
        self.0
    }

    /// Anything that a peer may have said.
    pub(crate) fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// Whether both ran on the same processor.
    pub(crate) fn is_the_one_of(self, other: Self) -> bool {
        self.0 != Self::UNKNOWN && self == other
    }
}

#[cfg(test)]
mod tests {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::*;

    #[test]
    fn a_seat_is_shared_by_threads_of_one_processor_and_by_no_others() {
        let all = sched_getaffinity(None).unwrap();
        let allowed: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| all.is_set(cpu)).collect();
        let on = |number: usize| {
            let cpu = move || {
                let mut one = CpuSet::new();
                one.set(number);
                sched_setaffinity(None, &one).unwrap();
                Cpu::of_this_thread()
            };
            std::thread::spawn(cpu).join().unwrap()
        };
        assert!(on(allowed[0]).is_the_one_of(on(allowed[0])));
        assert_eq!(on(allowed[0]), Cpu::from_word(allowed[0] as u64 + Cpu::FIRST));
        if let Some(&second) = allowed.get(1) {
            assert!(!on(allowed[0]).is_the_one_of(on(second)));
        }
    }

    #[test]
    fn what_was_not_told_is_no_seat() {
        assert!(!Cpu::default().is_the_one_of(Cpu::default()));
        assert!(!Cpu::of_this_thread().is_the_one_of(Cpu::default()));
        assert_eq!(Cpu::from_word(7).word(), 7);
    }
}
