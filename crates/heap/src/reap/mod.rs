//! Reaping: gives back the resources of dead processes.
//!
//! A scan over the state words gives back the content of a dead process's caches, frees its blocks
//! or transfers them to its heir, and computes every hint again. Each step is one compare-and-swap,
//! or a store to a word that the reaper owns by then. If the reaper dies, the next one repeats the
//! scan: reaping is idempotent and safe to die in.
//!
//! 1. Each dead process's record goes from active to "reaping, by me"; of several reapers, one gets
//!    it. The records of a dead reaper are taken over first.
//! 2. The records of its caches go to "reaping" too. From now on every word that names one of
//!    these caches belongs to the reaper.
//! 3. `scan`: pages, slices, slots, hints; and the tag names that the dead processes were
//!    writing.
//! 4. The records become free.

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

/// What reaping gave back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Reaped {
    /// Processes that were found dead.
    pub processes: u32,
    /// Caches of these processes.
    pub caches: u32,
    /// Blocks that they held in caches or were allocating.
    pub cached: u64,
    /// Live blocks that were freed.
    pub blocks: u64,
    /// Bytes of the live blocks that were freed.
    pub bytes: u64,
    /// Live blocks that an heir inherited.
    pub inherited: u64,
    /// Words with a value that no heap writes. They were not changed.
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
    /// Gives back the resources of dead processes: blocks in their caches, slices of spans that
    /// they were building, and their live blocks, unless they [named an heir](Heap::set_heir). No
    /// other thread is stopped. O(processes) system calls, and O(heap) reads of metadata if a
    /// process died.
    ///
    /// If another such call on the heap runs in the same process, even from another attachment,
    /// this call returns at once and does nothing. Any process may call it; [`Heap::maintain`]
    /// calls it, and so does a request that would fail otherwise. A process in another PID
    /// namespace counts as alive, because its death can be seen only from there.
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
        // If the dead process had no cache, this thread's cache is used, so that none is claimed
        // for it.
        let _ = self.keeper_of_living(1);
        self.reap_as(self.process())
    }

    /// Reaps as the process in slot `me`, which is this process.
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

    /// Names the process that inherits this process's live blocks when it dies; with `None` they
    /// are freed. The heir must have joined the heap and be alive when the death is detected.
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
        // A visitor has caches while it reaps, so caches under that slot belong to a dead visitor.
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
            // No cache is available: live processes hold all. The records stay, and the next
            // reaper finds them.
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

    /// Takes every dead process's record, and those that a dead reaper had taken.
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
            // A process that was just found dead may have been reaping a process in an earlier
            // slot.
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
            // Only this thread of the process reaps, so if `by` is `me`, an earlier scan took the
            // record, but found no cache.
            Process::Reaping { pid, by } => {
                (pid, by == me || dead.has(by) || self.is_gone(by, namespace))
            }
        };
        is_due && record::seize(&record.state, word, pid, me)
    }

    /// Whether no live process holds `slot`, as far as a process in `namespace` can see.
    fn is_gone(&self, slot: u8, namespace: u8) -> bool {
        let record = &self.memory.tables.processes()[usize::from(slot)];
        let word = ProcessWord(record.state.load(Acquire));
        match word.decode() {
            Process::Free => true,
            // Its own reaper takes over its work.
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

    /// Claims a cache for reaping if neither the dead process nor this thread has one. It is
    /// freed with the dead process's caches. A process that was killed right after it joined had
    /// no cache and owned only inherited blocks.
    fn claim_keeper(&self, me: u8, caches: &mut Caches) -> Option<Keeper<'_>> {
        let id = cache::claim_common(&self.memory, me)
            .or_else(|_| cache::claim_spare(&self.memory, me))
            .ok()?;
        step!("reap.keeper.after_claim");
        let record = self.memory.tables.cache(id)?;
        caches.insert(id);
        Some(Keeper { memory: &self.memory, record, id, node: 0, is_frugal: false })
    }

    /// A cache for reaping: one of the dead process's, which the reaper owns now; else this
    /// thread's, if it has one.
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
