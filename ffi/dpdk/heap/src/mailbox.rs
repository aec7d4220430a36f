//! Where secondary processes ask the primary one for extents, and to give idle ones back to DPDK,
//! so that none of them dies while it holds DPDK's locks or while an extent is on its way.

use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use std::time::{Duration, Instant};

use crate::futex;
use crate::memory::SOCKETS_MAX;

/// How long a secondary process waits for the primary one. DPDK gives memory within milliseconds;
/// it waits up to 5 s itself for a process that does not answer (MP_TIMEOUT_S in malloc_mp.c).
const PATIENCE: Duration = Duration::from_secs(6);

/// How long it waits at a time, and so what a time counts at most in which the whole application
/// was stopped (SIGSTOP, a control group's freezer, a virtual machine that pauses or moves): the
/// primary process could not answer then either.
const NAP: Duration = Duration::from_millis(50);

/// What is left of [`PATIENCE`]. A process that loses it asks DPDK itself, and must not for
/// nothing: one that dies under DPDK's lock stops all others.
pub(crate) struct Patience {
    left: Duration,
    last: Instant,
    /// The answers there were when it asked last.
    asked: Option<u32>,
}

impl Patience {
    pub(crate) fn new() -> Self {
        Self { left: PATIENCE, last: Instant::now(), asked: None }
    }

    fn is_over(&self) -> bool {
        self.left.is_zero()
    }

    /// Waits while the word has this value, for a nap at most.
    fn nap(&mut self, word: &AtomicU32, value: u32) {
        futex::wait(word, value, NAP.min(self.left));
        let now = Instant::now();
        self.spend(now - self.last);
        self.last = now;
    }

    fn spend(&mut self, passed: Duration) {
        self.left = self.left.saturating_sub(passed.min(NAP));
    }
}

/// Part of the directory, so in memory that all processes share. `requests` and `answers` are
/// futexes.
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
    /// The answers there were, and 1, when somebody last lost patience: nobody waits until there is
    /// one more. An allocation tries several ways to get memory, and a program many allocations.
    silence: AtomicU32,
    /// 1 once DPDK was asked for memory, or given some back, since the primary process looked last.
    asked: AtomicU32,
    _unused: AtomicU32,
}

impl Counter {
    /// Sees to it that extents go back to DPDK until they come to `wanted` bytes: how many bytes
    /// went. The primary process does it by `give_one`, which gives one back and says how many
    /// bytes it had; a secondary one asks and waits, unless nobody would answer.
    pub(crate) fn give_back(
        &self,
        is_primary: bool,
        wanted: usize,
        mut give_one: impl FnMut() -> Option<usize>,
    ) -> usize {
        if !is_primary && self.is_attended() {
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
        let mut patience = Patience::new();
        let before = self.returned.load(Acquire);
        // The next answer may be to a request before this one; the one behind it is not.
        let last = self.returns.load(Acquire).wrapping_add(2);
        loop {
            let answers = self.answers.load(Acquire);
            let given = self.returned.load(Acquire).wrapping_sub(before) as usize;
            let is_answered = self.returns.load(Acquire).wrapping_sub(last) as i32 >= 0;
            let post = || _ = self.unwanted.fetch_max(wanted as u64, Relaxed);
            if given > 0 || is_answered || !self.wait(&mut patience, answers, post) {
                return given;
            }
        }
    }

    /// Notes that DPDK is asked for memory, or given some, under its lock.
    pub(crate) fn note_asked(&self) {
        // Who asks often writes once in each time that the housekeeper looks.
        if self.asked.load(Relaxed) == 0 {
            self.asked.store(1, Relaxed);
        }
    }

    /// Whether DPDK was asked since [`Self::forget_asked`].
    pub(crate) fn was_asked(&self) -> bool {
        self.asked.load(Relaxed) != 0
    }

    pub(crate) fn forget_asked(&self) {
        self.asked.store(0, Relaxed);
    }

    /// Whether a thread should answer.
    pub(crate) fn is_attended(&self) -> bool {
        self.clerk.load(Relaxed) != 0
    }

    /// Waits for a while for the answer after so many, and has `post` say before what is wanted.
    /// False where there is no use in it: nobody answers, or did not for as long as somebody
    /// waited.
    pub(crate) fn wait(&self, patience: &mut Patience, answers: u32, post: impl FnOnce()) -> bool {
        let silence = answers.wrapping_add(1);
        let is_asked = patience.asked == Some(answers);
        if is_asked && patience.is_over() {
            // What it asked for stays posted: the answer to it ends the silence.
            self.silence.store(silence, Relaxed);
        }
        let is_silent = self.silence.load(Relaxed) == silence || !self.is_attended();
        if is_silent || patience.is_over() {
            return false;
        }
        if !is_asked {
            post();
            self.requests.fetch_add(1, Release);
            futex::wake(&self.requests);
            patience.asked = Some(answers);
        }
        patience.nap(&self.answers, answers);
        true
    }

    /// Answers who asked that memory go back to DPDK: `give` gives so many bytes, and says how many
    /// it came to.
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
    fn patience_ends_and_no_stop_of_all_ends_it() {
        let word = AtomicU32::new(0);
        let mut patience = Patience::new();
        patience.spend(Duration::from_secs(3600));
        assert!(!patience.is_over(), "the whole application was stopped for an hour");
        let start = Instant::now();
        patience.left = 3 * NAP;
        while !patience.is_over() {
            patience.nap(&word, 0);
        }
        assert!(start.elapsed() >= 3 * NAP);
        patience.left = PATIENCE;
        for _ in 0..PATIENCE.as_millis() / NAP.as_millis() {
            patience.spend(NAP);
        }
        assert!(patience.is_over());
    }

    #[test]
    fn nobody_waits_again_for_one_who_did_not_answer() {
        let counter = counter();
        counter.clerk.store(1, Relaxed);
        let lost = |asked| Patience { left: Duration::ZERO, last: Instant::now(), asked };
        let nothing = || ();
        assert!(!counter.wait(&mut lost(Some(6)), 7, nothing));
        assert!(counter.wait(&mut Patience::new(), 7, nothing), "it was answered, for another");
        assert!(!counter.wait(&mut lost(Some(7)), 7, nothing));
        assert!(!counter.wait(&mut Patience::new(), 7, || panic!("it was asked already")));
        assert!(counter.wait(&mut Patience::new(), 8, nothing), "there was an answer");
    }

    #[test]
    fn who_is_not_answered_gives_up() {
        let counter = counter();
        counter.clerk.store(1, Relaxed);
        thread::scope(|scope| {
            let asks = scope.spawn(|| counter.give_back(false, 5000, nothing));
            // The primary process ends before it answers.
            while counter.requests.load(Acquire) == 0 {
                thread::yield_now();
            }
            counter.clerk.store(0, Relaxed);
            assert_eq!(asks.join().expect("no panic"), 0);
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
