//! Reaping: gives back the resources of dead processes.
//!
//! A scan over the state words gives back the content of a dead process's caches, frees its blocks
//! or transfers them to its heir, and computes every hint again. Each step is one
//! compare-and-swap, or a store to a word that the reaper owns at that time. If the reaper dies,
//! the next reaper repeats the scan, which is safe because reaping is idempotent.
//!
//! 1. Each dead process's record changes from "active" to "reaping, by me". If several reapers
//!    try, one of them gets the record. The reaper also takes over records that a dead reaper was
//!    reaping.
//! 2. The records of the dead processes' caches also change to "reaping". From now on, every word
//!    that names one of these caches belongs to the reaper.
//! 3. `scan`: pages, slices, slots, hints; and the tag names that the dead processes were
//!    writing.
//! 4. The reaper frees the records.

use crate::cache::{self, Keeper};
use crate::heap::Heap;
use crate::local;
use crate::member;
use crate::member::VISITOR;
use crate::protocol::record::{self, Guard};
use crate::protocol::step::step;
use crate::protocol::word::{
    CACHE_ID_MAX, Cache, CacheId, CacheWord, PROCESSES_MAX, Process, ProcessWord,
};
use crate::sync::Ordering::{Acquire, Relaxed};
use crate::sys::process::Life;

mod scan;

/// The resources that reaping gave back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Reaped {
    /// Processes that were found dead.
    pub processes: u32,
    /// Caches of the dead processes.
    pub caches: u32,
    /// Blocks that the dead processes held in caches or were allocating.
    pub cached: u64,
    /// Live blocks of the dead processes that were freed.
    pub blocks: u64,
    /// Bytes of the live blocks that were freed.
    pub bytes: u64,
    /// Live blocks that an heir inherited.
    pub inherited: u64,
    /// State words with a value that no heap writes. They were not changed.
    pub damaged: u64,
}

/// A set of process slots.
#[derive(Clone, Copy)]
struct Processes(u128);

/// A set of caches, by identity.
struct Caches([u64; CACHE_ID_MAX as usize / 64 + 1]);

impl Caches {
    const EMPTY: Self = Self([0; CACHE_ID_MAX as usize / 64 + 1]);

    fn insert(&mut self, id: CacheId) {
        if let Some(word) = self.0.get_mut(usize::from(id) / 64) {
            *word |= 1 << (id % 64);
        }
    }

    fn has(&self, id: CacheId) -> bool {
        self.0.get(usize::from(id) / 64).is_some_and(|word| word >> (id % 64) & 1 == 1)
    }

    fn first(&self) -> Option<CacheId> {
        let index = self.0.iter().position(|word| *word != 0)?;
        Some((index * 64) as CacheId + self.0[index].trailing_zeros() as CacheId)
    }
}

impl Processes {
    fn has(self, slot: u8) -> bool {
        self.0.checked_shr(slot.into()).is_some_and(|bits| bits & 1 == 1)
    }

    fn slots(self) -> impl Iterator<Item = u8> {
        (0..PROCESSES_MAX as u8).filter(move |slot| self.has(*slot))
    }
}

impl Heap {
    /// Gives back the resources of dead processes: the blocks in their caches, the slices of
    /// spans that they were building, and the live blocks of processes that [named no
    /// heir](Heap::set_heir). Does not stop other threads. O(processes) system calls, and O(heap)
    /// reads of metadata if a process died.
    ///
    /// If another thread of this process is reaping the heap, even through another attachment,
    /// this call does nothing and returns at once. Any process may call it; [`Heap::maintain`]
    /// calls it, and so does a request that would fail otherwise. A process in another PID
    /// namespace counts as alive, because only a process in that namespace can detect its death.
    ///
    /// ```
    /// let heap = haul_heap::Heap::builder().limit(64 << 20).shared_fd()?;
    /// assert_eq!(heap.reap().processes, 0, "no process of the heap has died");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reap(&self) -> Reaped {
        if !self.memory.region.is_shared() || self.ensure_joined().is_err() {
            return Reaped::default();
        }
        // Claims a cache for this thread. If the dead processes had no cache, reaping uses this
        // cache and need not claim another.
        let _ = self.keeper_of_living(1);
        self.reap_as(self.process())
    }

    /// Reaps dead processes; this process is in slot `me`.
    pub(crate) fn reap_as(&self, me: u8) -> Reaped {
        let mut reaped = Reaped::default();
        if let Some(_guard) = Guard::take(member::reaping_mark(&self.memory.tables, me)) {
            let dead = self.take_processes(me);
            if dead.0 != 0 {
                self.reap_processes(me, dead, &mut reaped);
            }
        }
        reaped
    }

    /// Names the heir, the process that inherits this process's live blocks when this process
    /// dies. With `None`, a reaper frees the blocks. The heir must have joined the heap and be
    /// alive when the death is detected.
    ///
    /// ```
    /// let heap = haul_heap::Heap::builder().limit(64 << 20).shared_fd()?;
    /// // The parent process must attach to the heap too.
    /// heap.set_heir(Some(std::os::unix::process::parent_id()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_heir(&self, pid: Option<u32>) {
        if self.ensure_joined().is_ok() {
            member::set_heir(&self.memory.tables, self.process(), pid.unwrap_or(0));
        }
    }

    /// Gives back the caches of the parent's other threads in a child of fork. Live blocks stay:
    /// the child has copies.
    pub(crate) fn reap_after_fork(&self) {
        let mut caches = Caches::EMPTY;
        for (id, record) in self.memory.known_caches() {
            if CacheWord(record.state.load(Relaxed)).decode() != Cache::Free {
                caches.insert(id);
            }
        }
        if let Some(keeper) = self.reaping_keeper(&caches) {
            self.scan(keeper, Processes(0), &caches, &mut Reaped::default());
        }
        // No other thread that could be naming a tag exists in the child.
        self.forget_names(|_| true);
        self.free_caches(&caches);
    }

    fn reap_processes(&self, me: u8, dead: Processes, reaped: &mut Reaped) {
        let mut caches = Caches::EMPTY;
        // A visitor can have caches while it reaps. If this process is the visitor, caches with
        // the visitor's slot belong to a dead visitor.
        let visitor = if me == VISITOR { 1 << VISITOR } else { 0 };
        let owners = Processes(dead.0 | visitor);
        for (id, record) in self.memory.known_caches() {
            if record::seize_cache(&record.state, me, |process| owners.has(process)) {
                caches.insert(id);
                reaped.caches += 1;
                step!("reap.caches.between");
            }
        }
        reaped.processes = dead.0.count_ones();
        let own = self.reaping_keeper(&caches).or_else(|| self.claim_keeper(me, &mut caches));
        let Some(keeper) = own else {
            // No cache is available: live processes hold all. The records stay as they are, and
            // the next reaper finds them.
            return;
        };
        self.scan(keeper, dead, &caches, reaped);
        self.forget_names(|slot| dead.has(slot));
        step!("reap.before_caches_free");
        self.free_caches(&caches);
        step!("reap.before_processes_free");
        for slot in dead.slots() {
            record::free(&self.memory.tables.processes()[usize::from(slot)].state);
            step!("reap.processes_free.between");
        }
    }

    /// Takes the record of every dead process, including the records that a dead reaper had
    /// taken.
    fn take_processes(&self, me: u8) -> Processes {
        let (mut dead, namespace) = (Processes(0), member::namespace(&self.memory.tables, me));
        loop {
            let before = dead.0;
            for slot in 0..PROCESSES_MAX as u8 {
                if !dead.has(slot) && self.take_process(slot, (me, namespace), dead) {
                    dead.0 |= 1 << slot;
                    step!("reap.processes.between");
                }
            }
            // Repeat: a process that was just found dead may have been reaping a process in an
            // earlier slot.
            if dead.0 == before {
                return dead;
            }
        }
    }

    fn take_process(&self, slot: u8, (me, namespace): (u8, u8), dead: Processes) -> bool {
        let record = &self.memory.tables.processes()[usize::from(slot)];
        let word = ProcessWord(record.state.load(Acquire));
        let (pid, is_due) = match word.decode() {
            Process::Free => return false,
            Process::Joining { pid, .. } | Process::Active { pid, .. } => {
                (pid, slot != me && member::life(record, word, namespace) == Life::Dead)
            }
            // Only this thread of the process reaps. So if `by` is `me`, an earlier call took the
            // record, but found no cache for the scan.
            Process::Reaping { pid, by } => {
                (pid, by == me || dead.has(by) || self.is_gone(by, namespace))
            }
        };
        is_due && record::seize(&record.state, word, pid, me)
    }

    /// Whether no live process holds `slot`, as far as a process in `namespace` can detect.
    fn is_gone(&self, slot: u8, namespace: u8) -> bool {
        let record = &self.memory.tables.processes()[usize::from(slot)];
        let word = ProcessWord(record.state.load(Acquire));
        match word.decode() {
            Process::Free => true,
            // The process that reaps this slot's process takes over its work.
            Process::Reaping { .. } => false,
            _ => member::life(record, word, namespace) == Life::Dead,
        }
    }

    fn free_caches(&self, caches: &Caches) {
        for (id, record) in self.memory.known_caches() {
            if caches.has(id) {
                record::free_cache(&record.state);
                step!("reap.caches_free.between");
            }
        }
    }

    /// Claims a cache for reaping, because neither the dead processes nor this thread have one.
    /// The cache is freed together with the dead processes' caches. A process that was killed
    /// right after it joined had no cache; it could own only inherited blocks.
    fn claim_keeper(&self, me: u8, caches: &mut Caches) -> Option<Keeper<'_>> {
        let id = cache::claim_common(&self.memory, me)
            .or_else(|_| cache::claim_spare(&self.memory, me))
            .ok()?;
        step!("reap.keeper.after_claim");
        let record = self.memory.tables.cache(id)?;
        caches.insert(id);
        Some(Keeper { memory: &self.memory, record, id, node: 0, is_frugal: false })
    }

    /// A cache for reaping: a cache of the dead processes, which the reaper owns now; else this
    /// thread's cache, if it has one.
    fn reaping_keeper(&self, caches: &Caches) -> Option<Keeper<'_>> {
        let own = || {
            let entry = self.directory.entry(1, local::number());
            (!entry.is_empty()).then(|| entry.id())
        };
        let id = caches.first().or_else(own)?;
        let record = self.memory.tables.cache(id)?;
        Some(Keeper { memory: &self.memory, record, id, node: 0, is_frugal: false })
    }
}
