//! The number of a thread within its process, and for each heap a directory from that number to the
//! thread's cache. There are [`THREADS_MAX`] numbers; live threads beyond them use the caches in
//! [`common`].
//!
//! A number belongs to a thread until the thread ends. No code runs at that time, because a
//! destructor would call malloc. So the numbers of ended threads are found when new threads
//! register, and the caches of a number go to its new thread. A thread does not record its own
//! start time, which would distinguish it from a later thread with the same TID: the kernel needs
//! 40 to 100 us to report it, and the thread's first allocation would wait. [`reclaim_numbers`]
//! records it. Until then a later thread with the same TID counts as the earlier one, whose
//! number stays in use while the later thread lives.
//!
//! In a child of fork the directories read as empty, and only the thread that forked exists. It
//! keeps its number and registers again at its next request. Until then no other thread may get
//! that number; all other numbers of the parent's threads are free. The thread that forked knows
//! its number. A new thread that registers earlier finds it by the [`thread
//! pointer`](process::pointer_of_first_thread) of the thread that forked. If the kernel does not
//! report that pointer, no number of the parent is used until the thread that forked has
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

/// The most threads of one process, plus one: number 0 is a thread that has not registered.
pub(crate) const THREADS_MAX: usize = 4096;

/// How many numbers are checked for an ended thread when a thread registers: a system call each.
const CHECKS: usize = 2;

/// How many numbers are checked before a new number above [`UPKEEP_NUMBERS`] is given out. This
/// keeps the numbers, each of which has a cache, close to the number of threads.
const MORE_CHECKS: usize = 8;

/// How many numbers are checked when none is free.
const LAST_CHECKS: usize = 64;

/// Calls that a thread without a number or cache makes before it requests one again. Each request
/// costs at most [`LAST_CHECKS`] system calls and a check of every number.
const CALLS_BETWEEN: u32 = 1024;

/// The fewest threads that have full caches, those with the lowest numbers. Numbers are given out
/// from the lowest on, so a higher number means that the process has many threads.
const FULL_CACHES_MIN: usize = 64;

/// Threads per CPU that have full caches, if these are more than [`FULL_CACHES_MIN`] in total.
/// More threads do not run at once.
const FULL_CACHES_PER_CPU: usize = 4;

/// If upkeep checks for ended threads, a thread that registers does not check, as long as this
/// many numbers suffice. This saves 6 to 10 us of its first allocation.
const UPKEEP_NUMBERS: usize = 64;

/// The table entry of a number that the thread that forked may still have.
const RETIRED: u64 = u64::MAX;

std::thread_local! {
    /// This thread's number, 0 before it registered, times the size of an [`Entry`]: the offset of
    /// its entry in a row. Without a destructor, so that nothing allocates.
    static ENTRY_OFFSET: Cell<u32> = const { Cell::new(0) };
    /// The process in which the thread registered.
    static PROCESS: Cell<u32> = const { Cell::new(0) };
    /// Calls before the thread requests a number or a cache again; 0 if none was refused.
    static CALLS_LEFT: Cell<u32> = const { Cell::new(0) };
}

/// By thread number: the thread's TID and start time, packed; 0 if no thread has the number. The
/// start time is 0 until it is known.
static THREADS: [AtomicU64; THREADS_MAX] = [const { AtomicU64::new(0) }; THREADS_MAX];

/// By thread number: the thread pointer; 0 if it is not known.
static POINTERS: [AtomicUsize; THREADS_MAX] = [const { AtomicUsize::new(0) }; THREADS_MAX];

/// The process whose threads the table holds, doubled, plus 1 while the table is being reset for
/// it.
static TABLE_OF: AtomicU64 = AtomicU64::new(0);

/// The number at which the next search for an ended thread begins.
static NEXT_CHECK: AtomicU64 = AtomicU64::new(1);

/// 1 if [`reclaim_numbers`] was called since a thread registered.
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

/// Whether this thread's caches should hold little, because the process has many threads.
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

/// This thread's number. Registers the thread if needed, and again after a fork. At most five
/// system calls, seven after a fork, unless all numbers are taken. `None` if all numbers are taken
/// and no ended thread is found.
#[cold]
pub(crate) fn register() -> Option<usize> {
    let process = process::own_pid();
    if number() != 0 && PROCESS.with(Cell::get) == process {
        return Some(number());
    }
    let thread = process::own_tid();
    reset_table(process, thread);
    if thread == process {
        // This is the first thread. In a child of fork it is the one that forked and knows its
        // number.
        release(|number| number == self::number());
    }
    let me = pack(Identity { number: thread, start: 0 });
    let number = match number() {
        0 => fresh(process, me)?,
        // This is the thread that forked: its number was retired, and no other thread takes it.
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

/// Resets the table after a fork: the parent's threads do not exist in this process, except the one
/// that forked, which is the first thread of this process. `thread` is the calling thread.
fn reset_table(process: u32, thread: u32) {
    let done = u64::from(process) << 1;
    loop {
        let old = TABLE_OF.load(SeqCst);
        if old == done {
            return;
        }
        // Another thread of this process resets it.
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

/// Makes retired numbers free, except those that the thread that forked may still have.
fn release(may_be_its: impl Fn(usize) -> bool) {
    for (number, entry) in THREADS.iter().enumerate().skip(1) {
        if entry.load(Relaxed) == RETIRED && !may_be_its(number) {
            // Only a thread that registers or resets the table changes a retired entry.
            let _ = entry.compare_exchange(RETIRED, 0, AcqRel, Relaxed);
        }
    }
}

/// A number that no thread has, or whose thread has ended.
fn fresh(process: u32, me: u64) -> Option<usize> {
    let has_upkeep = HAS_UPKEEP_RUN.swap(0, Relaxed) != 0;
    let low = || has_upkeep.then(|| unused(me, UPKEEP_NUMBERS)).flatten();
    // Only `reclaim_numbers`, which may be slow, detects a TID that another thread has by now.
    let is_gone = |thread: Identity| process::is_unused_tid(process, thread.number);
    low()
        .or_else(|| inherited(me, CHECKS, is_gone))
        .or_else(|| unused(me, UPKEEP_NUMBERS))
        .or_else(|| inherited(me, MORE_CHECKS, is_gone))
        .or_else(|| unused(me, THREADS_MAX))
        .or_else(|| inherited(me, LAST_CHECKS, is_gone))
}

/// The first number below `end` that no thread has.
fn unused(me: u64, end: usize) -> Option<usize> {
    (1..end).find(|&number| {
        let entry = &THREADS[number];
        entry.load(Relaxed) == 0 && entry.compare_exchange(0, me, AcqRel, Relaxed).is_ok()
    })
}

/// The number of an ended thread, among the next `checks` in the table.
fn inherited(me: u64, checks: usize, is_gone: impl Fn(Identity) -> bool) -> Option<usize> {
    (0..checks).find_map(|_| {
        let number = NEXT_CHECK.fetch_add(1, Relaxed) as usize % THREADS_MAX;
        let entry = &THREADS[number];
        let old = entry.load(Acquire);
        if old == 0 {
            // Numbers are given out from the lowest on, so the search begins again.
            NEXT_CHECK.store(1, Relaxed);
            return None;
        }
        let is_free = number != 0 && old != RETIRED && is_gone(unpack(old));
        (is_free && entry.compare_exchange(old, me, AcqRel, Relaxed).is_ok()).then_some(number)
    })
}

/// Records the start times that are not known yet. Calls `each` with every number for which
/// `has_left_something` holds and that no live thread has. No thread gets such a number during
/// that call. Returns the count of these numbers.
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
    // If the kernel does not report this thread's start time (no /proc), it reports none.
    let has_start_times = unpack(me).start != 0;
    let mut reclaimed = 0;
    for (number, entry) in THREADS.iter().enumerate().skip(1) {
        let old = if has_start_times { with_start(entry, process) } else { entry.load(Acquire) };
        if old == RETIRED || number == own || !has_left_something(number) {
            continue;
        }
        // 0: the thread ended, and another heap's upkeep has made its number free.
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

/// An entry of the table, after recording the thread's start time if it was not known.
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
    // If another thread recorded it too, or has the number by now, the next call retries.
    entry.compare_exchange(old, new, AcqRel, Acquire).map_or_else(|now| now, |_| new)
}

/// Bits of a start time in a packed word: what the 22 bits of a TID (`PID_MAX_LIMIT`) leave. They
/// hold a thousand years of ticks.
const START_BITS: u32 = 42;

/// The start time that is recorded for a thread that ended before it was checked. No thread has it,
/// so a later thread with the same TID does not count as this one.
const START_OF_ENDED: u64 = (1 << START_BITS) - 1;

/// TID and start time in one word.
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
        // Like the entry of an earlier thread with this TID that had ended when its time was
        // recorded.
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
        // SAFETY: libc's malloc can be used in the child, which leaves by _exit.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "fork failed");
        if child == 0 {
            let numbers = numbers_at_once(250);
            let is_right = !numbers.contains(&mine)
                && numbers.iter().any(|number| others.contains(number))
                && register() == Some(mine);
            // SAFETY: ends the child without running exit handlers of its parent.
            unsafe { libc::_exit(i32::from(!is_right)) };
        }
        let mut status = 0;
        // SAFETY: `status` is a local int.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }

    /// The numbers of `count` threads that live at the same time.
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

    /// The values of the numbers prove nothing, because other tests run threads at the same time.
    #[test]
    fn numbers_of_ended_threads_are_reused() {
        let numbers = (0..200).map(|_| thread::spawn(|| register().unwrap()).join().unwrap());
        let numbers: BTreeSet<usize> = numbers.collect();
        assert!(numbers.len() < 150, "{numbers:?}");
    }
}
