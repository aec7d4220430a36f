//! How the records of processes and caches change hands. A process's: free -> joining -> active ->
//! reaping -> free; a cache's: free -> active -> reaping -> free. Each step is one exchange of the
//! word that was seen, whose epoch tells two lives of one record apart, or a store of the only
//! owner.

use super::step::step;
use super::word::{Cache, CacheWord, ProcessWord};
use crate::sync::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// Finds where `own` stands among the homes, or enters it where nobody is; 0 where all are taken.
/// The first of them is nobody's. None is ever given up: so one that a process was entered with
/// stays what it is.
pub(crate) fn find_home(homes: &[AtomicU64], own: u64) -> u8 {
    let found = homes.iter().enumerate().skip(1).find(|(_, home)| {
        let before = home.compare_exchange(0, own, AcqRel, Acquire);
        before == Ok(0) || before == Err(own)
    });
    found.map_or(0, |(index, _)| index as u8)
}

/// Takes a process's record that said `old` and is nobody's, has `fill` write what goes with it,
/// and writes who has it, `pid` of `home`; false where another was faster, or found `pid` dead
/// meanwhile.
pub(crate) fn join(
    state: &AtomicU64,
    old: ProcessWord,
    (pid, home): (u32, u8),
    fill: impl FnOnce(),
) -> bool {
    let epoch = old.epoch().wrapping_add(1);
    let joining = ProcessWord::joining(epoch, pid, home).0;
    if state.compare_exchange(old.0, joining, AcqRel, Relaxed).is_err() {
        return false;
    }
    step!("member.join.after_joining");
    fill();
    step!("member.join.before_active");
    let active = ProcessWord::active(epoch, pid, home).0;
    state.compare_exchange(joining, active, AcqRel, Relaxed).is_ok()
}

/// Makes the record that said `seen` that of `pid`, which process `me` reaps. The epoch tells this
/// from what another one makes of a word that both read: a visitor and the dead one before it have
/// one name.
pub(crate) fn seize(state: &AtomicU64, seen: ProcessWord, pid: u32, me: u8) -> bool {
    let mine = ProcessWord::reaping(seen.epoch().wrapping_add(1), pid, me).0;
    state.compare_exchange(seen.0, mine, AcqRel, Relaxed).is_ok()
}

/// Frees a process's record, by its only owner.
pub(crate) fn free(state: &AtomicU64) {
    let epoch = ProcessWord(state.load(Relaxed)).epoch().wrapping_add(1);
    state.store(ProcessWord::free(epoch).0, Release);
}

/// Claims a cache's record for a thread of a process, if it is free: what it said before.
pub(crate) fn claim_cache(state: &AtomicU64, process: u8, thread: u16) -> Option<CacheWord> {
    let old = CacheWord(state.load(Acquire));
    let new = CacheWord::active(old.epoch().wrapping_add(1), process, thread);
    let is_mine = old.decode() == Cache::Free
        && state.compare_exchange(old.0, new.0, AcqRel, Relaxed).is_ok();
    is_mine.then_some(old)
}

/// Makes a cache's record one that process `me` reaps, if it is a dead process's; whether it did.
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

/// Frees a cache's record, by its only owner.
pub(crate) fn free_cache(state: &AtomicU64) {
    let epoch = CacheWord(state.load(Relaxed)).epoch();
    state.store(CacheWord::free(epoch.wrapping_add(1)).0, Release);
}

/// Held by the one thread of this process that reaps the heap, so that "by me" names one thread: a
/// mark in the process's record, which all attachments of the process have in common, also those of
/// two libraries that each hold a copy of this code. It goes with the process: who takes a record
/// clears it.
pub(crate) struct Guard<'a>(&'a AtomicU64);

impl<'a> Guard<'a> {
    /// `None` while another thread has it.
    pub(crate) fn take(mark: &'a AtomicU64) -> Option<Self> {
        // Made only where it was taken: one that is dropped clears the mark, whoever set it.
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
    fn whoever_asks_in_vain_takes_nothing_away() {
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
