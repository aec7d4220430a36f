//! The mailbox in which secondary processes ask the primary process to allocate extents and to
//! return idle extents to DPDK. So no secondary process dies while it holds DPDK's locks or while
//! an extent is in transit.

use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use std::time::{Duration, Instant};

use crate::futex;
use crate::memory::SOCKETS_MAX;

/// How long a secondary process waits for the primary process. DPDK allocates within
/// milliseconds, but waits up to 5 s for a process that does not answer (MP_TIMEOUT_S in
/// malloc_mp.c).
const PATIENCE: Duration = Duration::from_secs(6);

/// How long one wait lasts. A wait never counts for longer, even if the whole application was
/// stopped meanwhile (SIGSTOP, a control group's freezer, a paused or migrated virtual machine),
/// because the primary process could not answer then either.
const WAIT: Duration = Duration::from_millis(50);

/// The remainder of [`PATIENCE`]. When the patience is used up, the process asks DPDK itself. A
/// process should not do so without need, because a process that dies under DPDK's lock stops all
/// others.
pub(crate) struct Patience {
    left: Duration,
    last: Instant,
    /// The number of answers when this process sent its last request.
    asked: Option<u32>,
}

impl Patience {
    pub(crate) fn new() -> Self {
        Self { left: PATIENCE, last: Instant::now(), asked: None }
    }

    fn is_over(&self) -> bool {
        self.left.is_zero()
    }

    /// Waits while the word has this value, for at most [`WAIT`].
    fn wait_once(&mut self, word: &AtomicU32, value: u32) {
        futex::wait(word, value, WAIT.min(self.left));
        let now = Instant::now();
        self.spend(now - self.last);
        self.last = now;
    }

    fn spend(&mut self, passed: Duration) {
        self.left = self.left.saturating_sub(passed.min(WAIT));
    }
}

/// The mailbox. The mailbox is a part of the directory, so it is in memory that all processes
/// share. `requests` and `answers` are futexes.
#[repr(C)]
pub(crate) struct Mailbox {
    /// The process ID of the process whose thread answers; 0 if no thread answers.
    pub(crate) server: AtomicU32,
    /// The number of requests so far.
    pub(crate) requests: AtomicU32,
    /// The number of answers of all kinds so far.
    pub(crate) answers: AtomicU32,
    /// The number of answers so far that refuse memory.
    pub(crate) refusals: AtomicU32,
    /// The number of requested pages, by the heap's index; 0 if no pages are requested.
    pub(crate) wanted: [AtomicU32; SOCKETS_MAX],
    /// The number of bytes that a process asks to return to DPDK; 0 if there is no such request.
    to_return: AtomicU64,
    /// The number of bytes returned on request so far.
    returned: AtomicU64,
    /// The number of answers so far to requests for a return.
    returns: AtomicU32,
    /// The number of answers plus 1 when a process last gave up waiting. Until there is another
    /// answer, no process waits, because an allocation tries several sources, and a program makes
    /// many allocations.
    silence: AtomicU32,
    /// 1 if a process has allocated from DPDK or returned memory to it since the last check by the
    /// primary process.
    is_dpdk_used: AtomicU32,
    _unused: AtomicU32,
}

impl Mailbox {
    /// Gives extents of at least `wanted` bytes back to DPDK. Returns the number of these bytes.
    /// The primary process calls `give_one`, which gives back one extent and returns its bytes. A
    /// secondary process sends a request and waits, unless no process answers.
    pub(crate) fn give_back(
        &self,
        is_primary: bool,
        wanted: usize,
        mut give_one: impl FnMut() -> Option<usize>,
    ) -> usize {
        if !is_primary && self.has_server() {
            return self.request_return(wanted);
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

    fn request_return(&self, wanted: usize) -> usize {
        let mut patience = Patience::new();
        let before = self.returned.load(Acquire);
        // The next answer may belong to an earlier request, but the answer after that does not.
        let last = self.returns.load(Acquire).wrapping_add(2);
        loop {
            let answers = self.answers.load(Acquire);
            let given = self.returned.load(Acquire).wrapping_sub(before) as usize;
            let is_answered = self.returns.load(Acquire).wrapping_sub(last) as i32 >= 0;
            let post = || _ = self.to_return.fetch_max(wanted as u64, Relaxed);
            if given > 0 || is_answered || !self.wait(&mut patience, answers, post) {
                return given;
            }
        }
    }

    /// Records that a process allocates from DPDK or returns memory to it, under DPDK's lock.
    pub(crate) fn note_dpdk_use(&self) {
        // A process that asks often writes only once between two checks by the housekeeper.
        if self.is_dpdk_used.load(Relaxed) == 0 {
            self.is_dpdk_used.store(1, Relaxed);
        }
    }

    /// Whether a process used DPDK's heap since [`Self::clear_dpdk_use`].
    pub(crate) fn is_dpdk_used(&self) -> bool {
        self.is_dpdk_used.load(Relaxed) != 0
    }

    pub(crate) fn clear_dpdk_use(&self) {
        self.is_dpdk_used.store(0, Relaxed);
    }

    /// Whether a thread answers requests.
    pub(crate) fn has_server(&self) -> bool {
        self.server.load(Relaxed) != 0
    }

    /// Calls `post` to write the request, and waits for the next answer after `answers`, for at
    /// most [`WAIT`]. Returns false if waiting is useless: there is no answering thread, or it
    /// did not answer while an earlier process used up its patience.
    pub(crate) fn wait(&self, patience: &mut Patience, answers: u32, post: impl FnOnce()) -> bool {
        let silence = answers.wrapping_add(1);
        let is_asked = patience.asked == Some(answers);
        if is_asked && patience.is_over() {
            // The request stays posted. The answer to the request ends the silence.
            self.silence.store(silence, Relaxed);
        }
        let is_silent = self.silence.load(Relaxed) == silence || !self.has_server();
        if is_silent || patience.is_over() {
            return false;
        }
        if !is_asked {
            post();
            self.requests.fetch_add(1, Release);
            futex::wake(&self.requests);
            patience.asked = Some(answers);
        }
        patience.wait_once(&self.answers, answers);
        true
    }

    /// Answers a request to return memory to DPDK. `give` gives at least the requested number of
    /// bytes back to DPDK, if there are that many, and returns their number.
    pub(crate) fn answer_return(&self, give: impl FnOnce(usize) -> usize) {
        let bytes = self.to_return.swap(0, AcqRel) as usize;
        if bytes > 0 {
            self.returned.fetch_add(give(bytes) as u64, Release);
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

    fn mailbox() -> Box<Mailbox> {
        // SAFETY: every field is an atomic integer, for which zero is a valid value.
        unsafe { Box::new_zeroed().assume_init() }
    }

    fn nothing() -> Option<usize> {
        panic!("a secondary process must not return memory itself, because it may die meanwhile")
    }

    #[test]
    fn secondary_process_lets_primary_return_memory() {
        let mailbox = mailbox();
        mailbox.server.store(1, Relaxed);
        thread::scope(|scope| {
            let asks = scope.spawn(|| {
                (mailbox.give_back(false, 5000, nothing), mailbox.give_back(false, 1, nothing))
            });
            let mut left = Some(8192);
            while !asks.is_finished() {
                mailbox.answer_return(|wanted| {
                    assert!(wanted == 5000 || left.is_none(), "{wanted}");
                    mailbox.give_back(true, wanted, || left.take())
                });
                thread::yield_now();
            }
            assert_eq!(asks.join().expect("no panic"), (8192, 0));
        });
    }

    #[test]
    fn patience_ignores_stop_of_application() {
        let word = AtomicU32::new(0);
        let mut patience = Patience::new();
        patience.spend(Duration::from_secs(3600));
        assert!(!patience.is_over(), "the whole application was stopped for an hour");
        let start = Instant::now();
        patience.left = 3 * WAIT;
        while !patience.is_over() {
            patience.wait_once(&word, 0);
        }
        assert!(start.elapsed() >= 3 * WAIT);
        patience.left = PATIENCE;
        for _ in 0..PATIENCE.as_millis() / WAIT.as_millis() {
            patience.spend(WAIT);
        }
        assert!(patience.is_over());
    }

    #[test]
    fn processes_do_not_wait_for_silent_server() {
        let mailbox = mailbox();
        mailbox.server.store(1, Relaxed);
        let lost = |asked| Patience { left: Duration::ZERO, last: Instant::now(), asked };
        let nothing = || ();
        assert!(!mailbox.wait(&mut lost(Some(6)), 7, nothing));
        assert!(
            mailbox.wait(&mut Patience::new(), 7, nothing),
            "there was an answer to another process"
        );
        assert!(!mailbox.wait(&mut lost(Some(7)), 7, nothing));
        assert!(!mailbox.wait(&mut Patience::new(), 7, || panic!("the request is posted already")));
        assert!(mailbox.wait(&mut Patience::new(), 8, nothing), "there was an answer");
    }

    #[test]
    fn unanswered_process_gives_up() {
        let mailbox = mailbox();
        mailbox.server.store(1, Relaxed);
        thread::scope(|scope| {
            let asks = scope.spawn(|| mailbox.give_back(false, 5000, nothing));
            // The primary process ends before it answers.
            while mailbox.requests.load(Acquire) == 0 {
                thread::yield_now();
            }
            mailbox.server.store(0, Relaxed);
            assert_eq!(asks.join().expect("no panic"), 0);
        });
    }

    #[test]
    fn process_without_server_returns_memory_itself() {
        let mailbox = mailbox();
        let mut left = vec![4096; 3];
        assert_eq!(mailbox.give_back(false, 5000, || left.pop()), 8192);
        assert_eq!(mailbox.give_back(true, 5000, || left.pop()), 4096);
    }
}
