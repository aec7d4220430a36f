//! The engine `worker`: a helper thread that copies in the order of submission.
//!
//! ```text
//! caller: put the operation into the ring; wake the thread if it sleeps
//! thread: take an operation, claim its pieces from the front, copy them
//!         without one: poll for a while, then sleep
//! caller that waits: claim pieces from the back, copy them
//! ```
//!
//! A caller that waits takes part, so a copy that is submitted and waited for at once never waits
//! for a thread that does not run. The thread that completes the last piece ends the operation.
//!
//! The thread avoids the processor of the caller that woke it last. If it may run on no other one,
//! it does not poll: it would take the processor from the caller for that time (a copy of 1 MiB
//! took twice as long with polls).

use std::cell::Cell;
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, compiler_fence};
use std::thread;
use std::time::{Duration, Instant};

use haul_peer::fork::Thread;

use crate::contract::{Engine, Facts, Kind};
use crate::cpu::{PIECE_MAX, Pieces};
use crate::crowd::{Crowd, LONG, Whereabouts};
use crate::operation::Verb;
use crate::outcome::{Error, Refusal};
use crate::place;
use crate::ring::{self, Entry, Ring};
use crate::slots::{Index, Slots};
use crate::sync::{Alone, AtomicU32, Relaxed, SeqCst, fence};
use crate::sys;

/// The longest operation in bytes: as many large pieces as the word of a slot can count.
const LENGTH_MAX: usize = PIECE_MAX * ring::PIECES_MAX as usize;

/// From this length on, the thread reads the clock after an operation: 25 ns beside 500 ns or more.
const TIMED: usize = 64 << 10;

/// How long the thread sleeps at a time if it may miss a submission. A stated default.
const NAP: Duration = Duration::from_millis(10);

/// How the helper thread waits and where it runs.
#[derive(Clone, Copy, Debug)]
pub struct WorkerSettings {
    /// How long the thread polls for the next operation before it sleeps. A sleeping thread uses
    /// no processor; the next submission then takes a system call, and the copy starts later.
    pub polls_for: Duration,
    /// The processor on which the thread runs. `None` lets the kernel choose among those of the
    /// opener's NUMA node; if the node has enough others, without those of the opener's core. The
    /// thread avoids the processor of the caller that woke it last, but not while another thread
    /// takes its own.
    pub cpu: Option<usize>,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        Self { polls_for: Duration::from_micros(50), cpu: None }
    }
}

/// A helper thread and its ring.
#[derive(Debug)]
pub(crate) struct Worker {
    facts: Facts,
    shared: Arc<Shared>,
    thread: Thread,
}

thread_local! {
    /// The state of the helper thread that this thread is; null in others. The thread's own name
    /// would do, but the standard library allocates it in a thread that it has not started, and a
    /// C program that ends does not free it.
    static OWN: Cell<*const Shared> = const { Cell::new(std::ptr::null()) };
}

/// The thread polls or works.
const AWAKE: u32 = 0;
/// The thread sleeps or is about to.
const ASLEEP: u32 = 1;
/// As ASLEEP, and another thread is about to wake it.
const WAKING: u32 = 2;

#[derive(Debug)]
struct Shared {
    slots: Arc<Slots>,
    ring: Ring,
    /// [`AWAKE`], [`ASLEEP`] or [`WAKING`]. Only the helper thread sets AWAKE, so that a refused
    /// attempt to wake it hides its sleep from no other submission.
    asleep: AtomicU32,
    /// Whether the thread is inside an operation. On a line of its own, which the thread writes
    /// often.
    works: Alone<AtomicBool>,
    is_over: AtomicBool,
    crowd: Crowd,
    polls_for: Duration,
    /// Whether the kernel orders the accesses of all threads before the thread sleeps, so that a
    /// submission needs no fence.
    has_barrier: bool,
}

impl Worker {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`Error::System`] if the thread cannot be started or placed.
    pub(crate) fn new(slots: Arc<Slots>, settings: WorkerSettings) -> Result<Self, Error> {
        if let Some(cpu) = settings.cpu {
            sys::check_cpu(cpu)
                .map_err(|reason| Error::System { attempt: "place the helper thread", reason })?;
        }
        let shared = Arc::new(Shared {
            ring: Ring::new(slots.count()),
            slots,
            asleep: AtomicU32::new(AWAKE),
            works: Alone(AtomicBool::new(false)),
            is_over: AtomicBool::new(false),
            crowd: Crowd::new(),
            polls_for: settings.polls_for,
            has_barrier: sys::register_barrier(),
        });
        let own = Arc::clone(&shared);
        let cpus = settings.cpu.map_or_else(place::near, |cpu| Some(sys::only(cpu)));
        let thread = thread::Builder::new().name("haul-engine".into()).spawn(move || {
            cpus.iter().for_each(sys::stay_on);
            sys::unblock_bus_faults();
            own.run();
        });
        let thread = thread
            .map_err(|reason| Error::System { attempt: "start the helper thread", reason })?;
        let facts = Facts {
            name: "worker".into(),
            kind: Kind::Software,
            verbs: Verb::ALL.iter().fold(0, |all, verb| all | verb.bit()),
            length_max: LENGTH_MAX,
            ends_unpolled: true,
            patience: None,
        };
        Ok(Self { facts, shared, thread: Thread::new(thread) })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.thread.is_here() {
            self.shared.is_over.store(true, SeqCst);
            if !self.shared.wake() {
                // The thread sleeps on, or is at its last pieces. It has the slots of its own.
                self.shared.finish();
                return;
            }
        }
        // The thread first does everything that is in the ring. A waker of the last operation may
        // drop the engine on the thread itself, which then ends without a join.
        if OWN.get() != Arc::as_ptr(&self.shared) {
            let _ = self.thread.join();
        }
    }
}

// SAFETY: `run` and `help` together complete every piece of an accepted operation once, and the
// one that completes the last piece ends it. Nothing of its memory is accessed afterwards. Drop
// joins the thread, which empties the ring first, or ends all operations itself.
unsafe impl Engine for Worker {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    unsafe fn start(&self, index: Index) -> Result<(), Refusal> {
        let slots = &self.shared.slots;
        // SAFETY: the slot holds a request that is being started.
        let (request, generation) = (unsafe { slots.request(index) }, slots.generation(index));
        self.shared.ring.put(Entry { index, generation, request });
        if !self.shared.wake() {
            // The thread sleeps on, and does not let go of the slot.
            while self.shared.help(index) {}
        }
        Ok(())
    }

    fn poll(&self, _: Index) {}

    fn is_ready(&self) -> bool {
        self.shared.asleep.load(Relaxed) == AWAKE
    }

    fn rouse(&self) -> bool {
        // If the kernel refuses, the thread sleeps on, and the CPU does the next operations too.
        self.shared.begin_wake() && sys::wake_all(&self.shared.asleep)
    }

    fn skips_one(&self, bytes: usize) -> bool {
        self.shared.crowd.skips_one(bytes)
    }

    fn help(&self, index: Index) -> bool {
        self.shared.help(index)
    }
}

impl Shared {
    /// Wakes the thread if it sleeps. The caller has changed something that the thread checks
    /// before it sleeps. Returns false if the kernel refuses.
    fn wake(&self) -> bool {
        // SYNC: asleep. Either this thread reads ASLEEP, or the other one sees the change.
        match self.has_barrier {
            true => compiler_fence(SeqCst),
            false => fence(SeqCst),
        }
        if self.asleep.load(Relaxed) == AWAKE {
            return true;
        }
        self.begin_wake();
        // Also if another thread is about to wake it: the kernel may refuse that thread.
        sys::wake_all(&self.asleep)
    }

    /// Whether the thread sleeps and no other thread is about to wake it. If so, this thread is.
    fn begin_wake(&self) -> bool {
        let is_asleep = self.asleep.compare_exchange(ASLEEP, WAKING, SeqCst, SeqCst).is_ok();
        if is_asleep {
            self.crowd.note_waker();
        }
        is_asleep
    }

    /// Ends every operation that the helper thread has not ended, without it.
    fn finish(&self) {
        for number in 0..self.slots.count() {
            let index = Index(number as u32);
            while !self.slots.is_ended(index) {
                if !self.help(index) {
                    thread::yield_now();
                }
            }
        }
    }

    /// The helper thread.
    fn run(&self) {
        OWN.set(self);
        let (mut polls_for, mut own) = (self.polls_for, Whereabouts::new());
        // When this thread read the clock last: while it polled, or after an operation.
        let mut read_at = Instant::now();
        while let Some(entry) = self.next(&mut polls_for, &mut own, &mut read_at) {
            self.works.0.store(true, Relaxed);
            let pieces = Pieces::of(entry.request);
            let bytes = pieces.bytes(pieces.count());
            self.work(entry, &pieces);
            self.works.0.store(false, Relaxed);
            if bytes < TIMED {
                continue;
            }
            let before = std::mem::replace(&mut read_at, Instant::now());
            let at_most = read_at - before;
            match bytes >= LONG {
                true => own.note_long(at_most, !self.ring.has_next(), &self.crowd),
                false => own.note_short(at_most, read_at, &self.crowd),
            }
        }
    }

    /// Waits for the next operation. `None` at the end.
    fn next(
        &self,
        polls_for: &mut Duration,
        own: &mut Whereabouts,
        read_at: &mut Instant,
    ) -> Option<Entry> {
        loop {
            if let Some(entry) = self.poll(*polls_for, read_at) {
                return Some(entry);
            }
            self.asleep.store(ASLEEP, SeqCst);
            let is_ordered = self.order();
            if let Some(entry) = self.ring.take() {
                self.asleep.store(AWAKE, Relaxed);
                return Some(entry);
            }
            if self.is_over.load(SeqCst) {
                return None;
            }
            sys::sleep(&self.asleep, ASLEEP, (!is_ordered).then_some(NAP));
            self.asleep.store(AWAKE, Relaxed);
            // Polls would take the processor from the caller, which waits for it.
            let is_apart = own.keep_off_waker(&self.crowd);
            *read_at = Instant::now();
            *polls_for = if is_apart { self.polls_for } else { Duration::ZERO };
        }
    }

    /// Orders this thread's accesses and those of every submission. Returns false if the kernel
    /// refuses, as a filter may that was installed later; then the thread may miss a submission.
    fn order(&self) -> bool {
        // SYNC: asleep
        if self.has_barrier {
            return sys::barrier();
        }
        fence(SeqCst);
        true
    }

    fn poll(&self, polls_for: Duration, read_at: &mut Instant) -> Option<Entry> {
        /// The polls between two reads of the clock.
        const BATCH: u32 = 64;
        // The first poll reads no clock.
        let next = self.ring.take();
        if next.is_some() || polls_for.is_zero() {
            return next;
        }
        let begun = Instant::now();
        *read_at = begun;
        loop {
            for _ in 0..BATCH {
                if let Some(entry) = self.ring.take() {
                    return Some(entry);
                }
                spin_loop();
            }
            *read_at = Instant::now();
            if *read_at - begun >= polls_for || self.is_over.load(Relaxed) {
                return None;
            }
        }
    }

    /// Copies pieces from the front.
    fn work(&self, entry: Entry, pieces: &Pieces) {
        let Entry { index, generation, .. } = entry;
        let (slots, count) = (&self.slots, pieces.count());
        if count == 1 {
            if !slots.claim(index, generation) {
                slots.let_go(index, generation);
                return;
            }
            // SAFETY: this thread has claimed the operation, whose memory is valid until its end.
            let outcome = unsafe { pieces.execute(0) };
            // SAFETY: it was claimed once. This thread does not access the slot afterwards.
            unsafe { slots.end_and_let_go(index, generation, outcome) };
            return;
        }
        let word = slots.word(index);
        // If the caller has done all pieces, the operation may have ended, and none is claimed.
        while let Some(piece) = ring::claim_front(word, count) {
            // SAFETY: this thread has claimed the piece, and the memory is valid until the
            // operation has ended, which needs this piece.
            let outcome = unsafe { pieces.execute(piece) };
            if piece + 1 < count {
                slots.report(index, pieces.bytes(piece + 1));
            }
            if ring::complete(word, count) {
                // SAFETY: all pieces are done, and only one thread completes the last one. This
                // thread does not access the slot afterwards.
                unsafe { slots.end_and_let_go(index, generation, outcome) };
                return;
            }
        }
        slots.let_go(index, generation);
    }

    /// Copies one piece from the back. Returns false if every piece is claimed.
    fn help(&self, index: Index) -> bool {
        // SAFETY: the caller waits for this slot, so it is not released.
        let request = unsafe { self.slots.request(index) };
        let (slots, pieces) = (&self.slots, Pieces::of(request));
        let count = pieces.count();
        if count == 1 {
            if slots.is_claimed(index) || !slots.claim(index, slots.generation(index)) {
                return false;
            }
            // SAFETY: this thread has claimed the operation.
            let outcome = unsafe { pieces.execute(0) };
            // SAFETY: it was claimed once.
            unsafe { slots.end_held(index, outcome) };
            return true;
        }
        let word = slots.word(index);
        let Some(piece) = ring::claim_back(word, count) else {
            return false;
        };
        // SAFETY: this thread has claimed the piece.
        let outcome = unsafe { pieces.execute(piece) };
        if ring::complete(word, count) {
            if piece == 0 && !self.works.0.load(Relaxed) {
                // The helper thread did not come to any piece, and not for another operation.
                self.crowd.note_absence(pieces.bytes(count));
            }
            // SAFETY: all pieces are done, and only one thread completes the last one.
            unsafe { slots.end_held(index, outcome) };
        }
        true
    }
}
