//! Transitions of the records of processes and caches. A process's record: free -> joining ->
//! active -> reaping -> free; a cache's record: free -> active -> reaping -> free. Each step is
//! one compare-and-swap, or a store by the only owner. The word contains an epoch, which
//! distinguishes two uses of one record.

use super::step::step;
use super::word::{Cache, CacheWord, ProcessWord};
use crate::sync::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// Finds the index of `own` in the table of namespaces, or enters it at a free index. Returns 0
/// if all indices are in use; index 0 itself is not used. No entry is ever removed, so the entry
/// of a process stays valid.
pub(crate) fn find_namespace(namespaces: &[AtomicU64], own: u64) -> u8 {
    let found = namespaces.iter().enumerate().skip(1).find(|(_, namespace)| {
        let before = namespace.compare_exchange(0, own, AcqRel, Acquire);
        before == Ok(0) || before == Err(own)
    });
    found.map_or(0, |(index, _)| index as u8)
}

/// Takes a process record that has the word `old` and no live owner. Calls `fill` to write the
/// other fields, and then stores a word that names the new owner, `pid` in `namespace`. Returns
/// false if another process was faster, or found `pid` dead meanwhile.
pub(crate) fn join(
    state: &AtomicU64,
    old: ProcessWord,
    (pid, namespace): (u32, u8),
    fill: impl FnOnce(),
) -> bool {
    let epoch = old.epoch().wrapping_add(1);
    let joining = ProcessWord::joining(epoch, pid, namespace).0;
    if state.compare_exchange(old.0, joining, AcqRel, Relaxed).is_err() {
        return false;
    }
    step!("member.join.after_joining");
    fill();
    step!("member.join.before_active");
    let active = ProcessWord::active(epoch, pid, namespace).0;
    state.compare_exchange(joining, active, AcqRel, Relaxed).is_ok()
}

/// Marks that process `me` is reaping the record of `pid`, if the record's word is still `seen`.
/// The new epoch distinguishes this change from the same change by another process: a visitor has
/// the same slot as a dead visitor before it.
pub(crate) fn seize(state: &AtomicU64, seen: ProcessWord, pid: u32, me: u8) -> bool {
    let mine = ProcessWord::reaping(seen.epoch().wrapping_add(1), pid, me).0;
    state.compare_exchange(seen.0, mine, AcqRel, Relaxed).is_ok()
}

/// Frees a process record. Only the record's owner may call this.
pub(crate) fn free(state: &AtomicU64) {
    let epoch = ProcessWord(state.load(Relaxed)).epoch().wrapping_add(1);
    state.store(ProcessWord::free(epoch).0, Release);
}

/// Claims a cache record for a thread of a process, if the record is free. Returns the record's
/// previous word.
pub(crate) fn claim_cache(state: &AtomicU64, process: u8, thread: u16) -> Option<CacheWord> {
    let old = CacheWord(state.load(Acquire));
    let new = CacheWord::active(old.epoch().wrapping_add(1), process, thread);
    let is_mine = old.decode() == Cache::Free
        && state.compare_exchange(old.0, new.0, AcqRel, Relaxed).is_ok();
    is_mine.then_some(old)
}

/// Marks that process `me` is reaping a cache record, if the record belongs to a dead process.
/// Returns whether it set the mark.
pub(crate) fn seize_cache(state: &AtomicU64, me: u8, is_dead: impl FnOnce(u8) -> bool) -> bool {
    let word = CacheWord(state.load(Acquire));
    let (process, thread) = match word.decode() {
        Cache::Active { process, thread } | Cache::Reaping { process, thread, .. } => {
            (process, thread)
        }
        Cache::Free => return false,
    };
    let mine = CacheWord::reaping(word.epoch(), process, thread, me).0;
    is_dead(process) && state.compare_exchange(word.0, mine, AcqRel, Relaxed).is_ok()
}

/// Frees a cache record. Only the record's owner may call this.
pub(crate) fn free_cache(state: &AtomicU64) {
    let epoch = CacheWord(state.load(Relaxed)).epoch();
    state.store(CacheWord::free(epoch.wrapping_add(1)).0, Release);
}

/// The right to reap the heap. Only one thread per process holds it, so that "reaped by this
/// process" names one thread. The guard sets a mark in the process's record. All attachments of
/// the process share the record, even if they belong to libraries with separate copies of this
/// code. If the process dies, the next owner of the record clears the mark.
pub(crate) struct Guard<'a>(&'a AtomicU64);

impl<'a> Guard<'a> {
    /// Sets the mark; `None` while another thread holds a guard.
    pub(crate) fn take(mark: &'a AtomicU64) -> Option<Self> {
        // Only a thread that set the mark gets a guard, because dropping the guard clears the
        // mark.
        mark.compare_exchange(0, 1, Acquire, Relaxed).is_ok().then(|| Self(mark))
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.store(0, Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn refused_guard_does_not_clear_the_mark() {
        let mark = AtomicU64::new(0);
        let first = Guard::take(&mark);
        assert!(first.is_some());
        for _ in 0..3 {
            assert!(Guard::take(&mark).is_none());
        }
        drop(first);
        assert!(Guard::take(&mark).is_some());
    }
}
