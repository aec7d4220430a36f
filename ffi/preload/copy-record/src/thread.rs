//! The part of the recording that one thread writes.

use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use haul_model::stream::recording::layout::{self, BLOCK_EVENTS, thread};

use crate::recording::Recording;

/// The entry of a thread in the recording. Only the thread itself writes it, so that no access
/// needs to exclude another; its signal handlers find `busy` set.
#[repr(C, align(256))]
pub(crate) struct Thread {
    pub(crate) process: AtomicU32,
    _unused: u32,
    pub(crate) calls: AtomicU64,
    bytes: AtomicU64,
    functions: [AtomicU64; 4],
    nested: AtomicU64,
    no_room: AtomicU64,
    first_block: AtomicU32,
    first_samples: AtomicU32,
    _unused_too: [u64; 6],
    /// Whether the thread is recording a call.
    busy: AtomicU32,
    /// References to the blocks that the thread fills, and the numbers of their events.
    block: AtomicU32,
    used: AtomicU32,
    samples: AtomicU32,
    samples_used: AtomicU32,
    /// A reference to the thread's armed sample.
    pub(crate) armed: AtomicU32,
    /// The counter at the end of the last call.
    pub(crate) last_ticks: AtomicU64,
    /// The number of calls until the next sample.
    pub(crate) countdown: AtomicU64,
    /// The state of the random distances.
    pub(crate) random: AtomicU64,
}

const _: () = assert!(size_of::<Thread>() == layout::THREAD_BYTES);
const _: () = assert!(offset_of!(Thread, process) == thread::PROCESS);
const _: () = assert!(offset_of!(Thread, calls) == thread::CALLS);
const _: () = assert!(offset_of!(Thread, bytes) == thread::BYTES);
const _: () = assert!(offset_of!(Thread, functions) == thread::FUNCTIONS);
const _: () = assert!(offset_of!(Thread, nested) == thread::NESTED);
const _: () = assert!(offset_of!(Thread, no_room) == thread::NO_ROOM);
const _: () = assert!(offset_of!(Thread, first_block) == thread::FIRST_BLOCK);
const _: () = assert!(offset_of!(Thread, first_samples) == thread::FIRST_SAMPLES);
const _: () = assert!(offset_of!(Thread, busy) == thread::STATE);

impl Thread {
    /// The entry of a claimed thread.
    #[inline(always)]
    pub(crate) fn of(recording: Recording, reference: u32) -> &'static Self {
        let entry = recording.thread(reference).cast::<Self>();
        // SAFETY: the entry is mapped as long as the process, and aligned to its size; zeros are a
        // valid thread, and all its fields are atomic.
        unsafe { &*entry }
    }

    /// Marks the thread as recording. Returns `false`, and counts the call, if it is marked
    /// already: the call comes from a signal handler, or from the recorder itself.
    #[inline(always)]
    pub(crate) fn enter(&self, is_program: bool) -> bool {
        if self.busy.load(Ordering::Relaxed) != 0 {
            if is_program {
                add(&self.nested, 1);
            }
            return false;
        }
        self.busy.store(1, Ordering::Relaxed);
        core::sync::atomic::compiler_fence(Ordering::Acquire);
        true
    }

    /// Ends [`enter`](Self::enter).
    #[inline(always)]
    pub(crate) fn leave(&self) {
        self.busy.store(0, Ordering::Release);
    }

    /// Counts a call, and returns its number.
    #[inline(always)]
    pub(crate) fn count(&self, kind: u8, size: usize) -> u64 {
        add(&self.bytes, size as u64);
        if let Some(function) = self.functions.get(usize::from(kind)) {
            add(function, 1);
        }
        add(&self.calls, 1)
    }

    /// Keeps a call.
    #[inline(always)]
    pub(crate) fn keep(&self, recording: Recording, words: [u64; 3]) {
        let list = List { first: &self.first_block, last: &self.block, used: &self.used };
        if !list.put(recording, words, self.process.load(Ordering::Relaxed)) {
            add(&self.no_room, 1);
        }
    }

    /// Keeps a sample; without room, it is lost.
    pub(crate) fn keep_sample(&self, recording: Recording, words: [u64; 3]) {
        let (first, last) = (&self.first_samples, &self.samples);
        let list = List { first, last, used: &self.samples_used };
        list.put(recording, words, self.process.load(Ordering::Relaxed));
    }
}

/// A list of blocks.
struct List<'a> {
    first: &'a AtomicU32,
    last: &'a AtomicU32,
    used: &'a AtomicU32,
}

impl List<'_> {
    #[inline(always)]
    fn put(&self, recording: Recording, words: [u64; 3], process: u32) -> bool {
        let used = self.used.load(Ordering::Relaxed);
        let block = self.last.load(Ordering::Relaxed);
        if block != 0 && used < BLOCK_EVENTS as u32 {
            recording.put(block, used, words);
            self.used.store(used + 1, Ordering::Relaxed);
            return true;
        }
        self.put_into_next(recording, words, process)
    }

    #[cold]
    fn put_into_next(&self, recording: Recording, words: [u64; 3], process: u32) -> bool {
        let Some(block) = recording.claim_blocks(1) else { return false };
        recording.put(block, 0, words);
        match self.last.swap(block, Ordering::Relaxed) {
            0 => self.first.store(block, Ordering::Release),
            last => recording.link(last, block),
        }
        self.used.store(1, Ordering::Relaxed);
        recording.note_time(process);
        true
    }
}

/// Adds to a number that only this thread writes, and returns the number before.
#[inline(always)]
fn add(number: &AtomicU64, more: u64) -> u64 {
    let before = number.load(Ordering::Relaxed);
    number.store(before.wrapping_add(more), Ordering::Relaxed);
    before
}
