//! Processes that join, die and are reaped, and threads that claim caches.

use loom::sync::Arc;
use loom::thread;

use super::model;
use crate::protocol::record::{self, Guard};
use crate::protocol::word::{Cache, CacheWord, Process, ProcessWord};
use crate::sync::{
    AtomicU64,
    Ordering::{Acquire, Relaxed},
};

/// Where all of them are at home.
const HOME: u8 = 1;

/// The process that is dead.
const DEAD: u32 = 7;

/// A process's record: its word, and what is written beside it.
struct Seat {
    state: AtomicU64,
    start: AtomicU64,
}

impl Seat {
    fn new(word: ProcessWord) -> Arc<Self> {
        Arc::new(Self { state: AtomicU64::new(word.0), start: AtomicU64::new(0) })
    }

    fn word(&self) -> ProcessWord {
        ProcessWord(self.state.load(Acquire))
    }

    /// What `member::take` does: process `pid` sits down where nobody is.
    fn take(&self, pid: u32) -> bool {
        let old = self.word();
        let is_free = old.decode() == Process::Free;
        is_free
            && record::join(&self.state, old, (pid, HOME), || self.start.store(pid.into(), Relaxed))
    }

    /// What a reaper does with the record of the dead one, or of one that died at it: whether it
    /// did.
    fn reap(&self, me: u8) -> bool {
        let seen = self.word();
        let is_dead = match seen.decode() {
            Process::Joining { pid, .. } | Process::Active { pid, .. } => pid == DEAD,
            Process::Free | Process::Reaping { .. } => false,
        };
        let is_mine = is_dead && record::seize(&self.state, seen, DEAD, me);
        if is_mine {
            assert_eq!(self.word().decode(), Process::Reaping { pid: DEAD, by: me });
            record::free(&self.state);
        }
        is_mine
    }
}

#[test]
fn of_two_that_join_in_one_place_one_has_it_with_all_that_it_wrote() {
    model(|| {
        let seat = Seat::new(ProcessWord::free(3));
        let other = seat.clone();
        let thread = thread::spawn(move || other.take(2));
        let first = seat.take(1);
        let second = thread.join().unwrap();
        assert!(first != second);
        let pid = if first { 1 } else { 2 };
        assert_eq!(seat.word(), ProcessWord::active(4, pid, HOME));
        assert_eq!(seat.start.load(Relaxed), pid.into());
    });
}

#[test]
fn of_two_that_reap_one_dead_process_one_does_and_who_comes_after_stays() {
    model(|| {
        let seat = Seat::new(ProcessWord::active(3, DEAD, HOME));
        let (reaper, comer) = (seat.clone(), seat.clone());
        let reaper = thread::spawn(move || reaper.reap(2));
        let comer = thread::spawn(move || comer.take(9));
        let first = seat.reap(1);
        let second = reaper.join().unwrap();
        assert!(first != second);
        // Seized once and freed once, whoever read the word before.
        let expected = match comer.join().unwrap() {
            true => ProcessWord::active(6, 9, HOME),
            false => ProcessWord::free(5),
        };
        assert_eq!(seat.word(), expected);
    });
}

#[test]
fn who_is_taken_for_dead_while_it_joins_does_not_believe_that_it_has() {
    model(|| {
        let seat = Seat::new(ProcessWord::free(3));
        let other = seat.clone();
        let thread = thread::spawn(move || other.reap(2));
        let has_joined = seat.take(DEAD);
        let is_reaped = thread.join().unwrap();
        assert!(has_joined || is_reaped);
        let expected = match is_reaped {
            true => Process::Free,
            false => Process::Active { pid: DEAD, home: HOME },
        };
        assert_eq!(seat.word().decode(), expected);
    });
}

/// A reaper that died left the record as its own; the next one takes it over with that one's.
#[test]
fn what_a_dead_reaper_was_at_is_taken_over_by_one() {
    model(|| {
        let seat = Seat::new(ProcessWord::reaping(3, DEAD, 5));
        let take_over = |seat: &Seat, me| {
            let seen = seat.word();
            let is_due = seen.decode() == Process::Reaping { pid: DEAD, by: 5 };
            is_due && record::seize(&seat.state, seen, DEAD, me)
        };
        let other = seat.clone();
        let thread = thread::spawn(move || take_over(&other, 2));
        let first = take_over(&seat, 1);
        let second = thread.join().unwrap();
        assert!(first != second);
        let by = if first { 1 } else { 2 };
        assert_eq!(seat.word(), ProcessWord::reaping(4, DEAD, by));
    });
}

/// Threads of one process that find the same dead one: what each does to the record it could do
/// twice, were two of them at it, for "by me" is due to whoever reaps in that name.
#[test]
fn of_three_threads_of_one_process_one_reaps_at_a_time() {
    model(|| {
        let mark = Arc::new(AtomicU64::new(0));
        let inside = Arc::new(AtomicU64::new(0));
        let reap = |mark: &AtomicU64, inside: &AtomicU64| {
            let Some(_guard) = Guard::take(mark) else { return false };
            assert_eq!(inside.fetch_add(1, Relaxed), 0, "two reap in one name");
            inside.fetch_sub(1, Relaxed);
            true
        };
        let threads = [(); 2].map(|()| {
            let (mark, inside) = (mark.clone(), inside.clone());
            thread::spawn(move || reap(&mark, &inside))
        });
        let first = reap(&mark, &inside);
        let others = threads.map(|thread| thread.join().unwrap());
        assert!(first || others.contains(&true));
        assert_eq!(mark.load(Acquire), 0);
    });
}

/// A thread of the living claims a record that a reaper frees: never one that the reaper still has.
#[test]
fn a_cache_of_the_dead_is_claimed_when_it_was_freed() {
    model(|| {
        let cache = Arc::new(AtomicU64::new(CacheWord::active(3, 1, 4).0));
        let data = Arc::new(loom::cell::UnsafeCell::new(0));
        let (other, theirs) = (cache.clone(), data.clone());
        let thread = thread::spawn(move || {
            let is_mine = record::seize_cache(&other, 2, |process| process == 1);
            if is_mine {
                // SAFETY: the record is the reaper's, and what it holds with it, until it is free.
                theirs.with_mut(|content| unsafe { *content = 7 });
                record::free_cache(&other);
            }
            is_mine
        });
        let claimed = record::claim_cache(&cache, 3, 5);
        if claimed.is_some() {
            // SAFETY: the record is this thread's now.
            data.with(|content| assert_eq!(unsafe { *content }, 7));
        }
        assert!(thread.join().unwrap());
        let expected = match claimed {
            Some(_) => Cache::Active { process: 3, thread: 5 },
            None => Cache::Free,
        };
        assert_eq!(CacheWord(cache.load(Acquire)).decode(), expected);
    });
}

#[test]
fn of_two_that_claim_a_cache_one_has_it() {
    model(|| {
        let cache = Arc::new(AtomicU64::new(CacheWord::UNUSED.0));
        let other = cache.clone();
        let thread = thread::spawn(move || record::claim_cache(&other, 2, 2).is_some());
        let first = record::claim_cache(&cache, 1, 1).is_some();
        let second = thread.join().unwrap();
        assert!(first != second);
        let process = if first { 1 } else { 2 };
        let expected = CacheWord::active(1, process, process.into());
        assert_eq!(CacheWord(cache.load(Acquire)), expected);
    });
}

/// Two processes of different namespaces that enter theirs at once, and two of one.
#[test]
fn of_two_that_enter_their_homes_each_stands_where_nobody_else_does() {
    for other in [10, 20] {
        model(move || {
            let homes = Arc::new([0; 3].map(AtomicU64::new));
            let theirs = homes.clone();
            let thread = thread::spawn(move || record::find_home(&*theirs, other));
            let first = record::find_home(&*homes, 10);
            let second = thread.join().unwrap();
            assert!(first != 0 && second != 0);
            assert_eq!(first == second, other == 10);
            assert_eq!(homes[usize::from(first)].load(Relaxed), 10);
            assert_eq!(homes[usize::from(second)].load(Relaxed), other);
        });
    }
}
