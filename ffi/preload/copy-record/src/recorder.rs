//! The path of a call to the recording.

use core::sync::atomic::Ordering;

use haul_model::stream::recording::layout::{head, process};
use haul_model::stream::recording::{Event, Kind, Sample};

use crate::recording::Recording;
use crate::sample::{self, Checked, Refusal};
use crate::state::State;
use crate::sys;
use crate::thread::Thread;

/// The reference of a thread for which the recording has no room.
const NO_ROOM: u32 = u32::MAX;

/// The number of calls after which the times of both clocks are noted again.
const CALLS_PER_NOTE: u64 = 256;

/// The values of [`process::SAMPLING`].
const BY_BREAKPOINTS: u32 = 1;
const REFUSED: u32 = 2;

/// A call that has ended.
#[derive(Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) kind: Kind,
    pub(crate) target: *const u8,
    /// Null for memset.
    pub(crate) source: *const u8,
    pub(crate) size: usize,
    /// The return address.
    pub(crate) site: *const u8,
    /// The counter at its start, from [`start`].
    pub(crate) started: u64,
}

/// The counter at the start of a call; 0 if nothing is recorded.
#[inline(always)]
pub(crate) fn start() -> u64 {
    if Recording::current().is_some() { sys::ticks() } else { 0 }
}

/// Records a call.
#[inline(always)]
pub(crate) fn record(ended: Ended) {
    if let Some(recording) = Recording::current() {
        record_into(recording, ended);
    }
}

/// The destination of a thread's calls.
#[derive(Clone, Copy)]
struct Recorder {
    recording: Recording,
    state: &'static State,
    thread: &'static Thread,
    process: u32,
    reference: u32,
}

#[inline(never)]
fn record_into(recording: Recording, ended: Ended) {
    let Some(recorder) = Recorder::of(recording) else { return };
    // A call by the recorder itself, which the compiler made, is within its own code.
    if recorder.thread.enter(!is_own(ended.site)) {
        recorder.put(ended);
        recorder.thread.last_ticks.store(sys::ticks(), Ordering::Relaxed);
        recorder.thread.leave();
    }
}

/// Whether an address lies in this library.
fn is_own(address: *const u8) -> bool {
    unsafe extern "C" {
        // The first byte of this library's file, and the end of its code, from the linker.
        static __ehdr_start: u8;
        static etext: u8;
    }
    let (first, end) = (&raw const __ehdr_start, &raw const etext);
    (first.addr()..end.addr()).contains(&address.addr())
}

impl Recorder {
    #[inline(always)]
    fn of(recording: Recording) -> Option<Self> {
        let state = State::current()?;
        let process = state.process(recording)?;
        let word = sys::thread_word();
        // SAFETY: the word belongs to this thread. A signal handler writes the same value or none.
        let value = unsafe { word.read() };
        let mut reference = value as u32;
        // A forked child has its parent's word, but an entry of its own is not claimed yet.
        if value >> 32 != u64::from(process) {
            reference = claim(recording, process);
            // SAFETY: as above.
            unsafe { word.write(u64::from(process) << 32 | u64::from(reference)) };
        }
        (reference != NO_ROOM).then(|| {
            let thread = Thread::of(recording, reference);
            Self { recording, state, thread, process, reference }
        })
    }

    #[inline(always)]
    fn put(self, ended: Ended) {
        let thread = self.thread;
        let call = thread.count(ended.kind.number(), ended.size);
        let skip = self.recording.setting(head::SKIP);
        if call.wrapping_sub(skip) < self.recording.setting(head::CALLS) {
            let last = thread.last_ticks.load(Ordering::Relaxed);
            let event = Event {
                kind: ended.kind,
                site: ended.site.addr() as u64,
                target: ended.target.addr() as u64,
                source: ended.source.addr() as u64,
                size: u32::try_from(ended.size).unwrap_or(u32::MAX),
                since_ticks: if last == 0 { 0 } else { ended.started.saturating_sub(last) },
            };
            thread.keep(self.recording, event.to_words());
        }
        if call % CALLS_PER_NOTE == CALLS_PER_NOTE - 1 {
            self.recording.note_time(self.process);
        }
        let armed = thread.armed.load(Ordering::Relaxed);
        if armed != 0 {
            self.check(armed);
            return;
        }
        let countdown = thread.countdown.load(Ordering::Relaxed);
        if countdown > 1 {
            thread.countdown.store(countdown - 1, Ordering::Relaxed);
        } else if countdown == 1 && ended.size > 0 {
            self.arm(call, ended);
        }
    }

    /// Ends the thread's sample if its target was used, or not used for long.
    #[cold]
    fn check(self, armed: u32) {
        match self.state.samples.check(self.reference, armed) {
            Checked::Pending => return,
            Checked::Lost => {}
            Checked::Done { call, site, read_ns } => {
                self.thread.keep_sample(self.recording, Sample { call, site, read_ns }.to_words());
            }
        }
        self.thread.armed.store(0, Ordering::Relaxed);
    }

    #[cold]
    fn arm(self, call: u64, ended: Ended) {
        let mean = self.recording.setting(head::SAMPLE);
        let random = next_random(self.thread);
        // A random distance, so that no regular pattern of the program is missed.
        self.thread.countdown.store(1 + mean / 2 + random % mean.max(1), Ordering::Relaxed);
        let sampling = self.recording.process_number(self.process, process::SAMPLING);
        if sampling.load(Ordering::Relaxed) == REFUSED || !sample::is_allowed() {
            return;
        }
        let of = (call, ended.site.addr() as u64);
        // SAFETY: the call has just written `size` bytes at the target.
        match unsafe { self.state.samples.arm(self.reference, of, ended.target, ended.size) } {
            Ok(armed) => {
                sampling.store(BY_BREAKPOINTS, Ordering::Relaxed);
                self.thread.armed.store(armed, Ordering::Relaxed);
            }
            Err(Refusal::Always) => sampling.store(REFUSED, Ordering::Relaxed),
            Err(Refusal::Now) => {}
        }
    }
}

/// Claims an entry for the calling thread.
#[cold]
fn claim(recording: Recording, process: u32) -> u32 {
    let Some(reference) = recording.claim_thread() else { return NO_ROOM };
    let thread = Thread::of(recording, reference);
    thread.random.store(sys::ticks() | 1, Ordering::Relaxed);
    let mean = recording.setting(head::SAMPLE);
    if mean > 0 {
        thread.countdown.store(1 + next_random(thread) % mean, Ordering::Relaxed);
    }
    thread.process.store(process, Ordering::Release);
    reference
}

/// Xorshift (Marsaglia, "Xorshift RNGs", 2003), 64 bits.
fn next_random(thread: &Thread) -> u64 {
    let mut random = thread.random.load(Ordering::Relaxed);
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    thread.random.store(random, Ordering::Relaxed);
    random
}
