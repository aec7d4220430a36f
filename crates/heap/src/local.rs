//! Which thread this is: a number within the process, and for each heap a directory from that
//! number to the thread's cache. There are [`THREADS_MAX`] numbers; threads that live beyond them
//! have caches in [`common`].
//!
//! A number belongs to a thread until that ends; nothing runs when it ends (a destructor would call
//! malloc), so numbers of threads that are gone are found when new ones come, and with a number its
//! caches go to the new thread. When a thread started, which tells it from a later one of its
//! kernel number, it does not say itself: the kernel takes 40 to 100 us to tell, and the thread's
//! first allocation waits. [`bury`] notes it; until then a later thread of that kernel number is
//! taken for it, and its number is not given to another as long as that one lives.
//!
//! In a child after fork the directories read as empty, and one thread is there: the one that
//! forked. It still holds its number, registers anew when it asks for something, and until then
//! nobody else may have that number. All other numbers of the parent's threads are free. Which is
//! the forker's it knows itself; a new thread that registers before it finds that out by the
//! forker's [`thread pointer`](process::pointer_of_first_thread), and where the kernel does not
//! tell, no number of the parent's is used until the forker has registered.
//!
//! From the bottom up:
//!
//! - [`common`]: caches that threads without a number have in common;
//! - `directory`: from the numbers of threads to their caches, for one heap.

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

/// Threads of one process at once, and one: number 0 is a thread that has not registered.
pub(crate) const THREADS_MAX: usize = 4096;

/// How many numbers are checked for a thread that is gone when one registers: a system call each.
const LOOKS: usize = 2;

/// How many are before a number above [`TENDED_MAX`] is given that nobody had: so there are not
/// many more numbers than threads, of which each keeps a cache.
const MORE_LOOKS: usize = 8;

/// How many are when no number is free.
const LAST_LOOKS: usize = 64;

/// Calls that a thread for which there was no number or cache makes before it asks again: each time
/// is [`LAST_LOOKS`] system calls at most, and a look at every number.
const CALLS_BETWEEN: u32 = 1024;

/// Threads with the lowest numbers, at least, that keep as much to themselves as makes them fast.
/// The numbers are given from the lowest on, so a higher one is that of a thread among many.
const ROOMY_MIN: usize = 64;

/// And so many for each CPU: more do not run at once.
const ROOMY_PER_CPU: usize = 4;

/// Where upkeep looks for threads that are gone, a thread that registers does not, as long as so
/// many numbers suffice: it saves 6 to 10 us of its first allocation.
const TENDED_MAX: usize = 64;

/// An entry of the table of threads whose number the thread that forked may still hold.
const RETIRED: u64 = u64::MAX;

std::thread_local! {
    /// This thread's number, 0 before it registered, times the size of an [`Entry`]: from a row's
    /// start to its entry. Without a destructor, so that nothing allocates.
    static PLACE: Cell<u32> = const { Cell::new(0) };
    /// The process in which it registered.
    static PROCESS: Cell<u32> = const { Cell::new(0) };
    /// Calls before it asks for a number or a cache again; 0 where none was refused.
    static CALLS_LEFT: Cell<u32> = const { Cell::new(0) };
}

/// By thread number: the thread's kernel number and start time, folded; 0 for nobody. The start
/// time is 0 until it is known.
static THREADS: [AtomicU64; THREADS_MAX] = [const { AtomicU64::new(0) }; THREADS_MAX];

/// By thread number: the thread's pointer to its own memory; 0 where it is not known.
static POINTERS: [AtomicUsize; THREADS_MAX] = [const { AtomicUsize::new(0) }; THREADS_MAX];

/// The process that the table speaks of, doubled, plus 1 while it is being made so.
static TABLE_OF: AtomicU64 = AtomicU64::new(0);

/// Where the next look for a thread that is gone begins.
static LOOK: AtomicU64 = AtomicU64::new(1);

/// 1 if [`bury`] was called since a thread registered.
static IS_TENDED: AtomicU32 = AtomicU32::new(0);

/// This thread's number in this process; 0 where it has none yet.
pub(crate) fn number() -> usize {
    place() / size_of::<Entry>()
}

/// Bytes from the start of a directory's row to this thread's entry.
#[inline(always)]
fn place() -> usize {
    PLACE.with(Cell::get) as usize
}

/// Whether this thread's number is that of one among many.
pub(crate) fn is_of_many() -> bool {
    static ROOMY: AtomicUsize = AtomicUsize::new(0);
    if number() <= ROOMY_MIN {
        return false;
    }
    let roomy = match ROOMY.load(Relaxed) {
        0 => {
            let roomy = (ROOMY_PER_CPU * sys::machine::cpus()).max(ROOMY_MIN);
            ROOMY.store(roomy, Relaxed);
            roomy
        }
        known => known,
    };
    number() > roomy
}

/// Whether this thread was refused a number or a cache a short time ago; each call counts.
pub(crate) fn is_refused() -> bool {
    CALLS_LEFT.with(|calls| {
        let left = calls.get();
        calls.set(left.saturating_sub(1));
        left > 0
    })
}

/// Notes that this thread was refused a number or a cache.
pub(crate) fn note_refused() {
    CALLS_LEFT.with(|calls| calls.set(CALLS_BETWEEN));
}

/// This thread's number, registering it if need be, and again after a fork. Five system calls at
/// most, seven after a fork, unless all numbers are taken. `None` where no thread that has one of
/// the [`THREADS_MAX`] numbers is seen to be gone.
#[cold]
pub(crate) fn register() -> Option<usize> {
    let process = process::own_number();
    if number() != 0 && PROCESS.with(Cell::get) == process {
        return Some(number());
    }
    let thread = process::own_thread_number();
    settle(process, thread);
    if thread == process {
        // The first thread, which is the one that forked, if any: it knows which number it had.
        release(|number| number == self::number());
    }
    let me = fold(Identity { number: thread, start: 0 });
    let number = match number() {
        0 => fresh(process, me)?,
        // The thread that forked: its number was retired, and nobody else takes it.
        old => {
            THREADS[old].store(me, SeqCst);
            old
        }
    };
    POINTERS[number].store(process::own_pointer(), Relaxed);
    PLACE.with(|cell| cell.set((number * size_of::<Entry>()) as u32));
    PROCESS.with(|cell| cell.set(process));
    Some(number)
}

/// Sees to it that the table speaks of this process: after a fork, the threads in it are not here,
/// but for the one that forked, which is the first of this process. `thread` is the one that calls.
fn settle(process: u32, thread: u32) {
    let done = u64::from(process) << 1;
    loop {
        let old = TABLE_OF.load(SeqCst);
        if old == done {
            return;
        }
        // Another thread of this process is at it.
        if old == done + 1 {
            sys::give_way();
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

/// Makes retired numbers free, except those that the thread that forked may still hold.
fn release(may_be_its: impl Fn(usize) -> bool) {
    for (number, entry) in THREADS.iter().enumerate().skip(1) {
        if entry.load(Relaxed) == RETIRED && !may_be_its(number) {
            // Nobody but a thread that registers or settles changes one that is retired.
            let _ = entry.compare_exchange(RETIRED, 0, AcqRel, Relaxed);
        }
    }
}

/// A number that nobody has, or whose thread is gone.
fn fresh(process: u32, me: u64) -> Option<usize> {
    let is_tended = IS_TENDED.swap(0, Relaxed) != 0;
    let low = || is_tended.then(|| unused(me, TENDED_MAX)).flatten();
    // A kernel number that another thread has by now is seen by `bury` alone, which may take
    // longer.
    let is_gone = |thread: Identity| process::is_no_thread(process, thread.number);
    low()
        .or_else(|| inherited(me, LOOKS, is_gone))
        .or_else(|| unused(me, TENDED_MAX))
        .or_else(|| inherited(me, MORE_LOOKS, is_gone))
        .or_else(|| unused(me, THREADS_MAX))
        .or_else(|| inherited(me, LAST_LOOKS, is_gone))
}

/// The first number below `end` that nobody has.
fn unused(me: u64, end: usize) -> Option<usize> {
    (1..end).find(|&number| {
        let entry = &THREADS[number];
        entry.load(Relaxed) == 0 && entry.compare_exchange(0, me, AcqRel, Relaxed).is_ok()
    })
}

/// The number of a thread that is gone, of the next `looks` in the table.
fn inherited(me: u64, looks: usize, is_gone: impl Fn(Identity) -> bool) -> Option<usize> {
    (0..looks).find_map(|_| {
        let number = LOOK.fetch_add(1, Relaxed) as usize % THREADS_MAX;
        let entry = &THREADS[number];
        let old = entry.load(Acquire);
        if old == 0 {
            // Numbers are given out from the lowest on: begin again.
            LOOK.store(1, Relaxed);
            return None;
        }
        let is_free = number != 0 && old != RETIRED && is_gone(unfold(old));
        (is_free && entry.compare_exchange(old, me, AcqRel, Relaxed).is_ok()).then_some(number)
    })
}

/// Notes when the threads started of which it is not known yet, and hands every number that
/// `has_left_something` and that no thread has to `each`, during which nobody has it; how many.
pub(crate) fn bury(has_left_something: impl Fn(usize) -> bool, mut each: impl FnMut(usize)) -> u32 {
    // 0 where this thread has no number: what it does here, it does in the name of none.
    let own = register().unwrap_or(0);
    let process = process::own_number();
    let me = match own {
        0 => {
            let number = process::own_thread_number();
            fold(Identity { number, start: process::start_of_thread(process, number) })
        }
        own => with_start(&THREADS[own], process),
    };
    // Where the kernel does not tell when this thread started (no /proc), it tells it of none.
    let tells = unfold(me).start != 0;
    let mut buried = 0;
    for (number, entry) in THREADS.iter().enumerate().skip(1) {
        let old = if tells { with_start(entry, process) } else { entry.load(Acquire) };
        if old == RETIRED || number == own || !has_left_something(number) {
            continue;
        }
        // 0: the thread ended, and another heap's upkeep has buried it.
        let is_gone = old == 0 || process::life_of_thread(process, unfold(old)) == Life::Dead;
        if is_gone && entry.compare_exchange(old, me, AcqRel, Relaxed).is_ok() {
            each(number);
            entry.store(0, Release);
            buried += 1;
        }
    }
    IS_TENDED.store(1, Relaxed);
    buried
}

/// An entry of the table, with the thread's start time noted where it was not.
fn with_start(entry: &AtomicU64, process: u32) -> u64 {
    let old = entry.load(Acquire);
    let thread = unfold(old);
    if old == 0 || old == RETIRED || thread.start != 0 {
        return old;
    }
    let start = match process::is_no_thread(process, thread.number) {
        true => START_OF_NOBODY,
        false => process::start_of_thread(process, thread.number),
    };
    let new = fold(Identity { start, ..thread });
    // Where another noted it too, or has the number by now, the next call looks again.
    entry.compare_exchange(old, new, AcqRel, Acquire).map_or_else(|now| now, |_| new)
}

/// Bits of a start time in a folded word: what 22 bits for a number (`PID_MAX_LIMIT`) leave, which
/// is a thousand years of ticks.
const START_BITS: u32 = 42;

/// The start time that is noted of a thread that ended before anybody asked: no thread has it, so a
/// later one of its kernel number is not taken for it.
const START_OF_NOBODY: u64 = (1 << START_BITS) - 1;

/// Thread number and start time in one word.
fn fold(thread: Identity) -> u64 {
    u64::from(thread.number) << START_BITS | thread.start & ((1 << START_BITS) - 1)
}

fn unfold(word: u64) -> Identity {
    Identity { number: (word >> START_BITS) as u32, start: word & ((1 << START_BITS) - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeSet, sync::Barrier, thread, vec::Vec};

    #[test]
    fn threads_that_live_have_different_numbers() {
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
    fn when_a_thread_started_is_noted_later() {
        let process = process::own_number();
        let own = process::own_thread_number();
        let entry = AtomicU64::new(fold(Identity { number: own, start: 0 }));
        let me = unfold(with_start(&entry, process));
        assert_eq!(me.number, own);
        assert!(me.start != 0 && me.start != START_OF_NOBODY, "{me:?}");
        assert_eq!(process::life_of_thread(process, me), Life::Alive);
        // As the entry of an earlier thread of this number, which had ended when its time was
        // noted.
        let earlier = Identity { start: START_OF_NOBODY, ..me };
        assert_eq!(process::life_of_thread(process, earlier), Life::Dead);
        // The largest number there can be, which the kernel gives to nobody (PID_MAX_LIMIT - 1).
        let nobody = AtomicU64::new(fold(Identity { number: (1 << 22) - 2, start: 0 }));
        assert_eq!(unfold(with_start(&nobody, process)).start, START_OF_NOBODY);
    }

    /// The number of the thread that forked is nobody else's, even where it asks for nothing
    /// itself, and all other numbers can be had again.
    #[test]
    #[cfg(not(miri))]
    fn the_number_of_the_thread_that_forked_stays_its_own() {
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
            // SAFETY: ends the child without running what belongs to its parent.
            unsafe { libc::_exit(i32::from(!is_right)) };
        }
        let mut status = 0;
        // SAFETY: `status` is an int of ours.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }

    /// The numbers of so many threads that live at once.
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

    /// Which ones they are says nothing: other tests have threads beside these.
    #[test]
    fn numbers_of_threads_that_ended_are_used_again() {
        let numbers = (0..200).map(|_| thread::spawn(|| register().unwrap()).join().unwrap());
        let numbers: BTreeSet<usize> = numbers.collect();
        assert!(numbers.len() < 150, "{numbers:?}");
    }
}
