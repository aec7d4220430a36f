//! The number of a thread within its process, and for each heap a directory that maps the number
//! to the thread's cache. There are [`THREADS_MAX`] numbers. Threads that get no number use the
//! caches in [`common`].
//!
//! A number belongs to a thread until the thread ends. No code of the heap runs when a thread
//! ends, because a destructor would call malloc. So a new thread that registers searches for the
//! number of an ended thread. It then owns the caches of that number. A start time distinguishes
//! a thread from a later thread with the same TID. A thread does not record its own start time,
//! because the kernel needs 40 to 100 us to report it, and the thread's first allocation would
//! wait. [`reclaim_numbers`] records it later. Until then, a later thread with the same TID
//! counts as the earlier thread, and the number of the earlier thread stays in use.
//!
//! In a child of fork, the directories read as empty, and only the thread that forked exists.
//! This thread keeps its number and registers again at its next request. Until then, no other
//! thread may get that number. All other numbers of the parent's threads are free. The thread
//! that forked knows its number. If a new thread registers first, it finds this number by the
//! [`thread pointer`](process::pointer_of_first_thread) of the thread that forked. If the kernel
//! does not report that pointer, no number of the parent is used until the thread that forked has
//! registered.
//!
//! From the bottom up:
//!
//! - [`common`]: caches shared by the threads without a number;
//! - `directory`: a map from thread numbers to the threads' caches, for one heap.

pub(crate) mod common;
mod directory;

use core::cell::Cell;
use core::sync::atomic::AtomicUsize;

use crate::sync::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
};
use crate::sys::{
    self,
    process::{self, Identity, Life},
};

pub(crate) use directory::{Directory, Entry, FRONT_BYTES};

/// The most threads per process, plus one: the number 0 means that a thread has not registered.
pub(crate) const THREADS_MAX: usize = 4096;

/// How many numbers a thread that registers checks for an ended thread. Each check is a system
/// call.
const CHECKS: usize = 2;

/// How many numbers are checked for an ended thread before a new number above [`UPKEEP_NUMBERS`]
/// is given out. Each number has a cache, and the checks keep the numbers close to the number of
/// threads.
const MORE_CHECKS: usize = 8;

/// How many numbers are checked for an ended thread if no number is free.
const LAST_CHECKS: usize = 64;

/// Calls that a thread without a number or cache makes before it requests a number and a cache
/// again. Each request costs at most [`LAST_CHECKS`] system calls and a check of every number.
const CALLS_BETWEEN: u32 = 1024;

/// The least number of threads with caches that are not frugal. These are the threads with the
/// lowest numbers. Numbers are given out from the lowest on, so a higher number means that the
/// process has many threads.
const FULL_CACHES_MIN: usize = 64;

/// Threads per CPU with caches that are not frugal, if these are more than [`FULL_CACHES_MIN`] in
/// total. Even fewer threads run at once.
const FULL_CACHES_PER_CPU: usize = 4;

/// If upkeep checks for ended threads, a thread that registers does not check, as long as this
/// many numbers suffice. Its first allocation then needs 6 to 10 us less.
const UPKEEP_NUMBERS: usize = 64;

/// The table entry for a number that may belong to the thread that forked.
const RETIRED: u64 = u64::MAX;

std::thread_local! {
    /// This thread's number, 0 before it registered, times the size of an [`Entry`]: the offset of
    /// its entry in a row. It has no destructor, so that its use does not allocate.
    static ENTRY_OFFSET: Cell<u32> = const { Cell::new(0) };
    /// The process in which the thread registered.
    static PROCESS: Cell<u32> = const { Cell::new(0) };
    /// Calls before the thread requests a number or a cache again; 0 if no request was refused.
    static CALLS_LEFT: Cell<u32> = const { Cell::new(0) };
}

/// For each thread number, the packed TID and start time of the thread; 0 if no thread has the
/// number. The start time is 0 until it is known.
static THREADS: [AtomicU64; THREADS_MAX] = [const { AtomicU64::new(0) }; THREADS_MAX];

/// For each thread number, the thread pointer; 0 if it is not known.
static POINTERS: [AtomicUsize; THREADS_MAX] = [const { AtomicUsize::new(0) }; THREADS_MAX];

/// The PID of the process whose threads are in the table, doubled, plus 1 while the table is
/// being reset for the process.
static TABLE_OF: AtomicU64 = AtomicU64::new(0);

/// The number at which the next search for an ended thread begins.
static NEXT_CHECK: AtomicU64 = AtomicU64::new(1);

/// 1 if [`reclaim_numbers`] was called since the last thread registered.
static HAS_UPKEEP_RUN: AtomicU32 = AtomicU32::new(0);

/// This thread's number in this process; 0 if it has none yet.
pub(crate) fn number() -> usize {
    entry_offset() / size_of::<Entry>()
}

/// Bytes from the start of a directory's row to this thread's entry.
#[inline(always)]
fn entry_offset() -> usize {
    ENTRY_OFFSET.with(Cell::get) as usize
}

/// Whether this thread's caches should be frugal, because the process has many threads.
pub(crate) fn is_one_of_many() -> bool {
    static FULL_CACHES: AtomicUsize = AtomicUsize::new(0);
    if number() <= FULL_CACHES_MIN {
        return false;
    }
    let full_caches = match FULL_CACHES.load(Relaxed) {
        0 => {
            let full_caches = (FULL_CACHES_PER_CPU * sys::machine::cpus()).max(FULL_CACHES_MIN);
            FULL_CACHES.store(full_caches, Relaxed);
            full_caches
        }
        known => known,
    };
    number() > full_caches
}

/// Whether this thread was refused a number or a cache a short time ago. Each call counts down.
pub(crate) fn is_refused() -> bool {
    CALLS_LEFT.with(|calls| {
        let left = calls.get();
        calls.set(left.saturating_sub(1));
        left > 0
    })
}

/// Records that this thread was refused a number or a cache.
pub(crate) fn note_refused() {
    CALLS_LEFT.with(|calls| calls.set(CALLS_BETWEEN));
}

/// This thread's number. Registers the thread if it is not registered, and again after a fork. At
/// most five system calls, seven after a fork, unless all numbers are taken. `None` if all
/// numbers are taken and no ended thread is found.
#[cold]
pub(crate) fn register() -> Option<usize> {
    let process = process::own_pid();
    if number() != 0 && PROCESS.with(Cell::get) == process {
        return Some(number());
    }
    let thread = process::own_tid();
    reset_table(process, thread);
    if thread == process {
        // This is the first thread. In a child of fork it is the thread that forked, which knows
        // its number.
        release(|number| number == self::number());
    }
    let me = pack(Identity { number: thread, start: 0 });
    let number = match number() {
        0 => fresh(process, me)?,
        // This is the thread that forked. Its number was retired, and no other thread takes a
        // retired number.
        old => {
            THREADS[old].store(me, SeqCst);
            old
        }
    };
    POINTERS[number].store(process::own_pointer(), Relaxed);
    ENTRY_OFFSET.with(|cell| cell.set((number * size_of::<Entry>()) as u32));
    PROCESS.with(|cell| cell.set(process));
    Some(number)
}

/// Resets the table after a fork: the parent's threads do not exist in this process, except the
/// thread that forked, which is the first thread of this process. `thread` is the calling thread.
fn reset_table(process: u32, thread: u32) {
    let done = u64::from(process) << 1;
    loop {
        let old = TABLE_OF.load(SeqCst);
        if old == done {
            return;
        }
        // Another thread of this process is resetting the table.
        if old == done + 1 {
            sys::yield_now();
            continue;
        }
        if TABLE_OF.compare_exchange(old, done + 1, AcqRel, Relaxed).is_ok() {
            let used = THREADS.iter().filter(|entry| entry.load(SeqCst) != 0);
            let retired = used.map(|entry| entry.store(RETIRED, SeqCst)).count();
            if retired > 0
                && thread != process
                && let Some(pointer) = process::pointer_of_first_thread(process)
            {
                release(|number| [0, pointer].contains(&POINTERS[number].load(Relaxed)));
            }
            TABLE_OF.store(done, SeqCst);
            return;
        }
    }
}

/// Frees the retired numbers, except those that may belong to the thread that forked.
fn release(may_be_its: impl Fn(usize) -> bool) {
    for (number, entry) in THREADS.iter().enumerate().skip(1) {
        if entry.load(Relaxed) == RETIRED && !may_be_its(number) {
            // Only a thread that registers or resets the table changes a retired entry.
            let _ = entry.compare_exchange(RETIRED, 0, AcqRel, Relaxed);
        }
    }
}

/// Takes a number that no thread has, or the number of an ended thread.
fn fresh(process: u32, me: u64) -> Option<usize> {
    let has_upkeep = HAS_UPKEEP_RUN.swap(0, Relaxed) != 0;
    let low = || has_upkeep.then(|| unused(me, UPKEEP_NUMBERS)).flatten();
    // This check does not detect that a later thread has the same TID. `reclaim_numbers` does,
    // which may be slow.
    let is_gone = |thread: Identity| process::is_unused_tid(process, thread.number);
    low()
        .or_else(|| inherited(me, CHECKS, is_gone))
        .or_else(|| unused(me, UPKEEP_NUMBERS))
        .or_else(|| inherited(me, MORE_CHECKS, is_gone))
        .or_else(|| unused(me, THREADS_MAX))
        .or_else(|| inherited(me, LAST_CHECKS, is_gone))
}

/// Takes the first number below `end` that no thread has.
fn unused(me: u64, end: usize) -> Option<usize> {
    (1..end).find(|&number| {
        let entry = &THREADS[number];
        entry.load(Relaxed) == 0 && entry.compare_exchange(0, me, AcqRel, Relaxed).is_ok()
    })
}

/// Takes the number of an ended thread, if there is one among the next `checks` entries of the
/// table.
fn inherited(me: u64, checks: usize, is_gone: impl Fn(Identity) -> bool) -> Option<usize> {
    (0..checks).find_map(|_| {
        let number = NEXT_CHECK.fetch_add(1, Relaxed) as usize % THREADS_MAX;
        let entry = &THREADS[number];
        let old = entry.load(Acquire);
        if old == 0 {
            // Numbers are given out from the lowest on, so no later entry is in use. The search
            // begins again.
            NEXT_CHECK.store(1, Relaxed);
            return None;
        }
        let is_free = number != 0 && old != RETIRED && is_gone(unpack(old));
        (is_free && entry.compare_exchange(old, me, AcqRel, Relaxed).is_ok()).then_some(number)
    })
}

/// Records the start times that are not known yet. Calls `each` with every number that no live
/// thread has and for which `has_left_something` returns true. No thread gets the number during
/// the call of `each`. Returns the count of these numbers.
pub(crate) fn reclaim_numbers(
    has_left_something: impl Fn(usize) -> bool,
    mut each: impl FnMut(usize),
) -> u32 {
    // 0 if this thread has no number.
    let own = register().unwrap_or(0);
    let process = process::own_pid();
    let me = match own {
        0 => {
            let number = process::own_tid();
            pack(Identity { number, start: process::start_of_thread(process, number) })
        }
        own => with_start(&THREADS[own], process),
    };
    // If the kernel does not report this thread's start time (no /proc), it reports no start
    // times.
    let has_start_times = unpack(me).start != 0;
    let mut reclaimed = 0;
    for (number, entry) in THREADS.iter().enumerate().skip(1) {
        let old = if has_start_times { with_start(entry, process) } else { entry.load(Acquire) };
        if old == RETIRED || number == own || !has_left_something(number) {
            continue;
        }
        // 0: the thread ended, and another heap's upkeep has freed its number.
        let is_gone = old == 0 || process::life_of_thread(process, unpack(old)) == Life::Dead;
        if is_gone && entry.compare_exchange(old, me, AcqRel, Relaxed).is_ok() {
            each(number);
            entry.store(0, Release);
            reclaimed += 1;
        }
    }
    HAS_UPKEEP_RUN.store(1, Relaxed);
    reclaimed
}

/// Records the thread's start time in a table entry if it was not known, and returns the entry.
fn with_start(entry: &AtomicU64, process: u32) -> u64 {
    let old = entry.load(Acquire);
    let thread = unpack(old);
    if old == 0 || old == RETIRED || thread.start != 0 {
        return old;
    }
    let start = match process::is_unused_tid(process, thread.number) {
        true => START_OF_ENDED,
        false => process::start_of_thread(process, thread.number),
    };
    let new = pack(Identity { start, ..thread });
    // If another thread recorded the start time meanwhile, or has the number by now, the next
    // call retries.
    entry.compare_exchange(old, new, AcqRel, Acquire).map_or_else(|now| now, |_| new)
}

/// Bits of a start time in a packed word: the bits beside the 22 bits of a TID (`PID_MAX_LIMIT`).
/// They suffice for a thousand years of ticks.
const START_BITS: u32 = 42;

/// The start time that is recorded for a thread that had ended when its start time was read. No
/// thread has this start time, so a later thread with the same TID does not count as the ended
/// thread.
const START_OF_ENDED: u64 = (1 << START_BITS) - 1;

/// Packs TID and start time into one word.
fn pack(thread: Identity) -> u64 {
    u64::from(thread.number) << START_BITS | thread.start & ((1 << START_BITS) - 1)
}

fn unpack(word: u64) -> Identity {
    Identity { number: (word >> START_BITS) as u32, start: word & ((1 << START_BITS) - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeSet, sync::Barrier, thread, vec::Vec};

    #[test]
    fn live_threads_have_different_numbers() {
        let barrier = Barrier::new(8);
        let numbers: BTreeSet<usize> = thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        let number = register().unwrap();
                        assert_eq!(register(), Some(number));
                        barrier.wait();
                        number
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(numbers.len(), 8);
        assert!(!numbers.contains(&0));
    }

    #[test]
    fn start_time_of_a_thread_is_recorded_later() {
        let process = process::own_pid();
        let own = process::own_tid();
        let entry = AtomicU64::new(pack(Identity { number: own, start: 0 }));
        let me = unpack(with_start(&entry, process));
        assert_eq!(me.number, own);
        assert!(me.start != 0 && me.start != START_OF_ENDED, "{me:?}");
        assert_eq!(process::life_of_thread(process, me), Life::Alive);
        // This is like the entry of an earlier thread with this TID that had ended when its start
        // time was read.
        let earlier = Identity { start: START_OF_ENDED, ..me };
        assert_eq!(process::life_of_thread(process, earlier), Life::Dead);
        // The largest TID, which the kernel gives to no thread (PID_MAX_LIMIT - 1).
        let unused = AtomicU64::new(pack(Identity { number: (1 << 22) - 2, start: 0 }));
        assert_eq!(unpack(with_start(&unused, process)).start, START_OF_ENDED);
    }

    /// No other thread gets the number of the thread that forked, even if that thread makes no
    /// request. All other numbers can be given out again.
    #[test]
    #[cfg(not(miri))]
    fn thread_that_forked_keeps_its_number() {
        let mine = register().unwrap();
        let others = numbers_at_once(100);
        // SAFETY: the child may use libc's malloc, and ends with _exit.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "fork failed");
        if child == 0 {
            let numbers = numbers_at_once(250);
            let is_right = !numbers.contains(&mine)
                && numbers.iter().any(|number| others.contains(number))
                && register() == Some(mine);
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(i32::from(!is_right)) };
        }
        let mut status = 0;
        // SAFETY: `status` is a local int.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }

    /// The thread numbers of `count` threads that live at the same time.
    #[cfg(not(miri))]
    fn numbers_at_once(count: usize) -> BTreeSet<usize> {
        let barrier = Barrier::new(count);
        thread::scope(|scope| {
            let threads: Vec<_> = (0..count)
                .map(|_| {
                    scope.spawn(|| {
                        let number = register().unwrap();
                        barrier.wait();
                        number
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    /// The test cannot check the values of the numbers, because other tests run threads at the
    /// same time.
    #[test]
    fn numbers_of_ended_threads_are_reused() {
        let numbers = (0..200).map(|_| thread::spawn(|| register().unwrap()).join().unwrap());
        let numbers: BTreeSet<usize> = numbers.collect();
        assert!(numbers.len() < 150, "{numbers:?}");
    }
}
