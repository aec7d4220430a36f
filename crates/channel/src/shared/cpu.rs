//! The processor that an end ran on when it last waited. Each end publishes its processor. Two
//! ends on one processor alternate, and an end that polls keeps the other end from running.
//!
//! The number of running threads does not show whether the ends share a processor. With one of
//! two processors busy, the ends may share the free processor, or each end may use one of the
//! two. The kernel migrates the ends between these cases within milliseconds, without notice.

/// The processor that an end's thread runs on, as published. A peer's value is a hint: a false
/// value can only make the transfer slower.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cpu(u64);

impl Cpu {
    /// Not published yet.
    const UNKNOWN: u64 = 0;
    /// The value of processor 0; the values of the other processors follow.
    const FIRST: u64 = 1;

    /// The processor of the calling thread. Costs no system call: the kernel keeps the number in
    /// memory that programs can read.
    pub(crate) fn of_this_thread() -> Self {
        Self(Self::FIRST + rustix::thread::sched_getcpu() as u64)
    }

    pub(crate) fn word(self) -> u64 {
        self.0
    }

    /// Decodes a word that a peer may have written.
    pub(crate) fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// Whether both ends ran on the same processor.
    pub(crate) fn is_the_one_of(self, other: Self) -> bool {
        self.0 != Self::UNKNOWN && self == other
    }
}

#[cfg(test)]
mod tests {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::*;

    #[test]
    fn only_threads_on_one_processor_share_cpu() {
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
    fn unpublished_cpu_is_shared_by_none() {
        assert!(!Cpu::default().is_the_one_of(Cpu::default()));
        assert!(!Cpu::of_this_thread().is_the_one_of(Cpu::default()));
        assert_eq!(Cpu::from_word(7).word(), 7);
    }
}
