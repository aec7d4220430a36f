//! Where secondary processes ask the primary one for extents, and to give idle ones back to DPDK, so that
//! none of them dies while it holds DPDK's locks or while an extent is on its way.

use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use std::time::{Duration, Instant};

use crate::futex;
use crate::memory::SOCKETS_MAX;

/// How long a secondary process waits for the primary one. DPDK gives memory within milliseconds; it
/// waits up to 5 s itself for a process that does not answer (MP_TIMEOUT_S in malloc_mp.c).
pub(crate) const PATIENCE: Duration = Duration::from_secs(6);

/// Part of the directory, so in memory that all processes share. `requests` and `answers` are futexes.
#[repr(C)]
pub(crate) struct Counter {
    /// The process whose thread answers; 0 for nobody.
    pub(crate) clerk: AtomicU32,
    /// Requests so far.
    pub(crate) requests: AtomicU32,
    /// Answers so far, of all kinds.
    pub(crate) answers: AtomicU32,
    /// Answers that there is no memory.
    pub(crate) refusals: AtomicU32,
    /// Pages asked for, by the heap's place; 0 for none.
    pub(crate) wanted: [AtomicU32; SOCKETS_MAX],
    /// Bytes that are to go back to DPDK; 0 for none.
    unwanted: AtomicU64,
    /// Bytes that went back because somebody asked, so far.
    returned: AtomicU64,
    /// Answers to who asked that, so far.
    returns: AtomicU32,
    rest: AtomicU32,
}

impl Counter {
    /// Sees to it that extents go back to DPDK until they come to `wanted` bytes: how many bytes went. The
    /// primary process does it by `give_one`, which gives one back and says how many bytes it had; a
    /// secondary one asks and waits, unless nobody would answer.
    pub(crate) fn give_back(
        &self,
        is_primary: bool,
        wanted: usize,
        mut give_one: impl FnMut() -> Option<usize>,
    ) -> usize {
        if !is_primary && self.clerk.load(Relaxed) != 0 {
            return self.ask_back(wanted);
        }
        let mut given = 0;
        while given < wanted {
            match give_one() {
                Some(bytes) => given += bytes,
                None => break,
            }
        }
        given
    }

    fn ask_back(&self, wanted: usize) -> usize {
        let start = Instant::now();
        let before = self.returned.load(Acquire);
        // The next answer may be to a request before this one; the one behind it is not.
        let last = self.returns.load(Acquire).wrapping_add(2);
        loop {
            let answers = self.answers.load(Acquire);
            let given = self.returned.load(Acquire).wrapping_sub(before) as usize;
            let is_answered = self.returns.load(Acquire).wrapping_sub(last) as i32 >= 0;
            let waited = start.elapsed();
            if given > 0 || is_answered || waited >= PATIENCE || self.clerk.load(Relaxed) == 0 {
                return given;
            }
            self.unwanted.fetch_max(wanted as u64, Relaxed);
            self.requests.fetch_add(1, Release);
            futex::wake(&self.requests);
            futex::wait(&self.answers, answers, PATIENCE - waited);
        }
    }

    /// Answers who asked that memory go back to DPDK: `give` gives so many bytes, and says how many it
    /// came to.
    pub(crate) fn answer_back(&self, give: impl FnOnce(usize) -> usize) {
        let unwanted = self.unwanted.swap(0, AcqRel) as usize;
        if unwanted > 0 {
            self.returned.fetch_add(give(unwanted) as u64, Release);
            self.returns.fetch_add(1, Release);
            self.answers.fetch_add(1, Release);
            futex::wake(&self.answers);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn counter() -> Box<Counter> {
        // SAFETY: every field is an atomic integer, which zero is a value of.
        unsafe { Box::new_zeroed().assume_init() }
    }

    fn nothing() -> Option<usize> {
        panic!("a secondary process must not give back by itself: it can die within")
    }

    #[test]
    fn a_secondary_process_has_the_primary_one_give_back() {
        let counter = counter();
        counter.clerk.store(1, Relaxed);
        thread::scope(|scope| {
            let asks = scope.spawn(|| {
                (counter.give_back(false, 5000, nothing), counter.give_back(false, 1, nothing))
            });
            let mut left = Some(8192);
            while !asks.is_finished() {
                counter.answer_back(|wanted| {
                    assert!(wanted == 5000 || left.is_none(), "{wanted}");
                    counter.give_back(true, wanted, || left.take())
                });
                thread::yield_now();
            }
            assert_eq!(asks.join().expect("no panic"), (8192, 0));
        });
    }

    #[test]
    fn where_nobody_answers_a_process_gives_back_itself() {
        let counter = counter();
        let mut left = vec![4096; 3];
        assert_eq!(counter.give_back(false, 5000, || left.pop()), 8192);
        assert_eq!(counter.give_back(true, 5000, || left.pop()), 4096);
    }
}
