//! What the dead leave behind, and how it is taken back.
//!
//! A scan over the state words gives back what a dead process's caches held, frees its blocks (or
//! makes them its heir's), and makes every hint anew. Each step is one compare-and-swap or a store
//! to what the reaper owns by then, and a scan that was cut short by the reaper's own death is
//! simply done again by the next one: so reaping is idempotent, and safe to die in.
//!
//! 1. Each dead process's record goes from active to "reaping, by me"; of several reapers one gets
//!    it. What a dead reaper was at is taken over first.
//! 2. So do the records of its caches. From now on whatever names one of these caches is mine.
//! 3. `scan`: pages, slices, slots, hints; and the names of tags that they were writing.
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

/// What was taken back from dead processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Reaped {
    /// Processes that were found dead.
    pub processes: u32,
    /// Caches of theirs.
    pub caches: u32,
    /// Blocks that they held in caches or had half taken.
    pub cached: u64,
    /// Live blocks that were freed.
    pub blocks: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Live blocks that an heir got.
    pub inherited: u64,
    /// Words that say what no heap writes: somebody scribbled. They were left alone.
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
    /// Takes back what processes that died held: blocks in their caches, slices that they were
    /// building spans of, and their live blocks, unless they [named an heir](Heap::set_heir).
    /// Nobody is stopped meanwhile. O(processes) system calls; O(heap) reads of metadata if
    /// somebody died.
    ///
    /// A second call at the same time on one heap in one process returns at once with nothing done,
    /// also by another attachment. It may be called by any process, and is called by
    /// [`Heap::maintain`] and before a request fails. Who is at home in another PID namespace
    /// counts as alive: its death is seen from there alone.
    pub fn reap(&self) -> Reaped {
        if !self.memory.region.is_shared() || self.settle().is_err() {
            return Reaped::default();
        }
        // Where the dead had no cache, the work is done under this thread's, so that none is
        // claimed for it.
        let _ = self.keeper_of_living(1);
        self.reap_as(self.process())
    }

    /// Reaps in the name of the process in slot `me`, which is this one.
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

    /// Names the process that gets this one's live blocks when it dies, instead of their being
    /// freed; `None` for nobody. The heir must have joined the heap, and live, when the death is
    /// seen.
    pub fn set_heir(&self, pid: Option<u32>) {
        if self.settle().is_ok() {
            member::set_heir(&self.memory.tables, self.process(), pid.unwrap_or(0));
        }
    }

    /// Takes the caches of threads back that did not come along into this child of fork. Live
    /// blocks stay: the child has copies.
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
        // Nobody else came along who could be naming one.
        self.forget_names(|_| true);
        self.free_caches(&caches);
    }

    fn reap_processes(&self, me: u8, dead: Processes, reaped: &mut Reaped) {
        let mut caches = Caches::EMPTY;
        // Visitors have caches for as long as they reap: under that name, what is there is a dead
        // one's.
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
            // There is no cache to work under: all are the living's. The records stay as they are,
            // and the next one to reap finds them.
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
        let (mut dead, home) = (Processes(0), member::home(&self.memory.tables, me));
        loop {
            let before = dead.0;
            for slot in 0..PROCESSES_MAX as u8 {
                if !dead.has(slot) && self.take_process(slot, (me, home), dead) {
                    dead.0 |= 1 << slot;
                    step!("reap.processes.between");
                }
            }
            // Whom a process that was only now found dead had been reaping may stand before it.
            if dead.0 == before {
                return dead;
            }
        }
    }

    fn take_process(&self, slot: u8, (me, home): (u8, u8), dead: Processes) -> bool {
        let record = &self.memory.tables.processes()[usize::from(slot)];
        let word = ProcessWord(record.state.load(Acquire));
        let (pid, is_due) = match word.decode() {
            Process::Free => return false,
            Process::Joining { pid, .. } | Process::Active { pid, .. } => {
                (pid, slot != me && member::life(record, word, home) == Life::Dead)
            }
            // Under the guard nobody else of this process reaps: I took it in a scan that found no
            // cache to work under.
            Process::Reaping { pid, by } => {
                (pid, by == me || dead.has(by) || self.is_gone(by, home))
            }
        };
        is_due && record::seize(&record.state, word, pid, me)
    }

    /// Whether nobody lives in a slot, as far as that is to be seen from `home`.
    fn is_gone(&self, slot: u8, home: u8) -> bool {
        let record = &self.memory.tables.processes()[usize::from(slot)];
        let word = ProcessWord(record.state.load(Acquire));
        match word.decode() {
            Process::Free => true,
            // Its own reaper takes over what it was at.
            Process::Reaping { .. } => false,
            _ => member::life(record, word, home) == Life::Dead,
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

    /// A cache to work under that is claimed for it, and goes with those of the dead: where neither
    /// the dead nor this thread has one. Whoever was killed right after it joined had none, and
    /// owned nothing, or what it inherited.
    fn claim_keeper(&self, me: u8, caches: &mut Caches) -> Option<Keeper<'_>> {
        let id = cache::claim_common(&self.memory, me)
            .or_else(|_| cache::claim_spare(&self.memory, me))
            .ok()?;
        step!("reap.keeper.after_claim");
        let record = self.memory.tables.cache(id)?;
        caches.insert(id);
        Some(Keeper { memory: &self.memory, record, id, node: 0, is_frugal: false })
    }

    /// A cache to work under: one of the dead's, which is mine now; else this thread's, if it has
    /// one.
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
