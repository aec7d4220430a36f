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

/// The namespace of all processes.
const NAMESPACE: u8 = 1;

/// The dead process.
const DEAD: u32 = 7;

/// A process's record: its word and a field.
struct Record {
    state: AtomicU64,
    start: AtomicU64,
}

impl Record {
    fn new(word: ProcessWord) -> Arc<Self> {
        Arc::new(Self { state: AtomicU64::new(word.0), start: AtomicU64::new(0) })
    }

    fn word(&self) -> ProcessWord {
        ProcessWord(self.state.load(Acquire))
    }

    /// Like `member::take`: process `pid` takes a free record.
    fn take(&self, pid: u32) -> bool {
        let old = self.word();
        let is_free = old.decode() == Process::Free;
        is_free
            && record::join(&self.state, old, (pid, NAMESPACE), || {
                self.start.store(pid.into(), Relaxed)
            })
    }

    /// Reaps the record of the dead process, or of a reaper that died, like a reaper.
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
fn one_of_two_joins_gets_the_record_with_its_fields() {
    model(|| {
        let record = Record::new(ProcessWord::free(3));
        let other = record.clone();
        let thread = thread::spawn(move || other.take(2));
        let first = record.take(1);
        let second = thread.join().unwrap();
        assert!(first != second);
        let pid = if first { 1 } else { 2 };
        assert_eq!(record.word(), ProcessWord::active(4, pid, NAMESPACE));
        assert_eq!(record.start.load(Relaxed), pid.into());
    });
}

#[test]
fn one_of_two_reapers_reaps_and_a_new_process_keeps_the_record() {
    model(|| {
        let record = Record::new(ProcessWord::active(3, DEAD, NAMESPACE));
        let (reaper, newcomer) = (record.clone(), record.clone());
        let reaper = thread::spawn(move || reaper.reap(2));
        let newcomer = thread::spawn(move || newcomer.take(9));
        let first = record.reap(1);
        let second = reaper.join().unwrap();
        assert!(first != second);
        // The record is seized once and freed once, no matter which thread read the word first.
        let expected = match newcomer.join().unwrap() {
            true => ProcessWord::active(6, 9, NAMESPACE),
            false => ProcessWord::free(5),
        };
        assert_eq!(record.word(), expected);
    });
}

#[test]
fn process_reaped_while_joining_does_not_count_as_joined() {
    model(|| {
        let record = Record::new(ProcessWord::free(3));
        let other = record.clone();
        let thread = thread::spawn(move || other.reap(2));
        let has_joined = record.take(DEAD);
        let is_reaped = thread.join().unwrap();
        assert!(has_joined || is_reaped);
        let expected = match is_reaped {
            true => Process::Free,
            false => Process::Active { pid: DEAD, namespace: NAMESPACE },
        };
        assert_eq!(record.word().decode(), expected);
    });
}

/// A reaper that died has left its mark in the record. The next reaper takes over this record
/// together with the dead reaper's own record.
#[test]
fn one_reaper_takes_over_from_a_dead_reaper() {
    model(|| {
        let record = Record::new(ProcessWord::reaping(3, DEAD, 5));
        let take_over = |record: &Record, me| {
            let seen = record.word();
            let is_due = seen.decode() == Process::Reaping { pid: DEAD, by: 5 };
            is_due && record::seize(&record.state, seen, DEAD, me)
        };
        let other = record.clone();
        let thread = thread::spawn(move || take_over(&other, 2));
        let first = take_over(&record, 1);
        let second = thread.join().unwrap();
        assert!(first != second);
        let by = if first { 1 } else { 2 };
        assert_eq!(record.word(), ProcessWord::reaping(4, DEAD, by));
    });
}

/// Two threads of one process find the same dead process. If both reaped at once, both could
/// process the record, because "reaping, by me" names only their process.
#[test]
fn one_thread_of_a_process_reaps_at_a_time() {
    model(|| {
        let mark = Arc::new(AtomicU64::new(0));
        let inside = Arc::new(AtomicU64::new(0));
        let reap = |mark: &AtomicU64, inside: &AtomicU64| {
            let Some(_guard) = Guard::take(mark) else { return false };
            assert_eq!(inside.fetch_add(1, Relaxed), 0, "two threads of one process reap");
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

/// A thread of a live process may claim a record that a reaper has freed, but not a record that
/// the reaper still holds.
#[test]
fn cache_of_a_dead_process_is_claimed_only_after_its_free() {
    model(|| {
        let cache = Arc::new(AtomicU64::new(CacheWord::active(3, 1, 4).0));
        let data = Arc::new(loom::cell::UnsafeCell::new(0));
        let (other, theirs) = (cache.clone(), data.clone());
        let thread = thread::spawn(move || {
            let is_mine = record::seize_cache(&other, 2, |process| process == 1);
            if is_mine {
                // SAFETY: the reaper owns the record and its content until it frees the record.
                theirs.with_mut(|content| unsafe { *content = 7 });
                record::free_cache(&other);
            }
            is_mine
        });
        let claimed = record::claim_cache(&cache, 3, 5);
        if claimed.is_some() {
            // SAFETY: this thread owns the record now.
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
fn one_of_two_claims_gets_the_cache() {
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

/// Two processes enter their namespaces at the same time: in one case the same namespace, in the
/// other case different namespaces.
#[test]
fn different_namespaces_get_different_indices() {
    for other in [10, 20] {
        model(move || {
            let namespaces = Arc::new([0; 3].map(AtomicU64::new));
            let theirs = namespaces.clone();
            let thread = thread::spawn(move || record::find_namespace(&*theirs, other));
            let first = record::find_namespace(&*namespaces, 10);
            let second = thread.join().unwrap();
            assert!(first != 0 && second != 0);
            assert_eq!(first == second, other == 10);
            assert_eq!(namespaces[usize::from(first)].load(Relaxed), 10);
            assert_eq!(namespaces[usize::from(second)].load(Relaxed), other);
        });
    }
}
