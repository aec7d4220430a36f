//! The cache with which a thread serves a request: its own, or a common one.

use core::ops::Deref;

use super::Heap;
use crate::cache::{self, Keeper};
use crate::fault::AllocError;
use crate::local::common::{COMMONS, Common, Turn};
use crate::local::{self, Entry};
use crate::request::Node;
use crate::sync::Ordering::Relaxed;
use crate::sys::{self, machine, process};

/// An odd number without a pattern (the golden ratio) that spreads threads over the common
/// caches: the upper bits of a product with this number depend on all bits below them.
const MIX: usize = 0x9E37_79B9_7F4A_7C15;

/// The right shift that turns the product into the index of a common cache.
const COMMON_SHIFT: u32 = usize::BITS - COMMONS.trailing_zeros();

/// How many searches for an unused common cache a thread makes: before it claims one more common
/// cache, and in total.
const TURNS: usize = 1000;
const TURNS_MAX: usize = 1_000_000;

/// The number of address bits for an offset in the smallest page.
const PAGE_SHIFT: u32 = 12;

/// A thread's cache for one request: the thread's own, or a common cache that no other thread can
/// use meanwhile.
pub(crate) struct Held<'a> {
    keeper: Keeper<'a>,
    _turn: Option<Turn<'a>>,
}

impl<'a> Deref for Held<'a> {
    type Target = Keeper<'a>;

    fn deref(&self) -> &Keeper<'a> {
        &self.keeper
    }
}

impl Heap {
    /// Runs `request` with this thread's cache on `node`; for [`Node::ANY`], tries one node after
    /// the other until a node has memory.
    pub(super) fn on_nodes<T>(
        &self,
        node: Node,
        mut request: impl FnMut(Keeper<'_>) -> Result<T, AllocError>,
    ) -> Result<T, AllocError> {
        self.memory.search_held(|| self.on_nodes_once(node, &mut request))
    }

    /// Like [`Heap::on_nodes`], but waits for no thread that holds free slices for a moment.
    pub(super) fn on_nodes_once<T>(
        &self,
        node: Node,
        request: &mut impl FnMut(Keeper<'_>) -> Result<T, AllocError>,
    ) -> Result<T, AllocError> {
        let first = request(*self.keeper(node.0 as usize)?);
        if node != Node::ANY || !matches!(first, Err(AllocError::Exhausted)) {
            return first;
        }
        let mut anywhere = || {
            (1..=self.nodes as usize)
                .find_map(|row| self.keeper(row).and_then(|held| request(*held)).ok())
        };
        anywhere()
            // Only if all nodes are full, reclaims the memory of dead processes.
            .or_else(|| (self.reap().processes > 0).then(anywhere).flatten())
            .ok_or(AllocError::Exhausted)
    }

    /// This thread's cache in a row of the directory. A thread without a cache claims one, if
    /// necessary after reaping dead processes. If none is free, the thread gets a common cache.
    /// Most calls read only the entry: if it is not empty, this thread wrote it in this process.
    #[inline]
    pub(crate) fn keeper(&self, row: usize) -> Result<Held<'_>, AllocError> {
        let entry = self.entry(row);
        if entry.is_empty() {
            return self.first_keeper(row);
        }
        Ok(Held { keeper: self.keeper_at(entry)?, _turn: None })
    }

    #[cold]
    #[inline(never)]
    fn first_keeper(&self, row: usize) -> Result<Held<'_>, AllocError> {
        if local::is_refused() {
            return self.common_keeper(row);
        }
        let own = match self.keeper_of_living(row) {
            Err(AllocError::TooManyThreads) if self.reap().caches > 0 => self.keeper_of_living(row),
            result => result,
        };
        match own {
            Ok(keeper) => Ok(Held { keeper, _turn: None }),
            Err(AllocError::TooManyThreads) => {
                local::note_refused();
                self.common_keeper(row)
            }
            Err(error) => Err(error),
        }
    }

    /// A common cache, which this thread holds until the returned value is dropped.
    #[cold]
    fn common_keeper(&self, row: usize) -> Result<Held<'_>, AllocError> {
        self.ensure_joined()?;
        let node = if row == 0 { self.local_node() } else { row - 1 };
        let commons = self.directory.commons(node);
        // The thread pointers of two threads differ by more than a page, like their stacks.
        let first = (process::own_pointer() >> PAGE_SHIFT).wrapping_mul(MIX) >> COMMON_SHIFT;
        let held = |turn, id| {
            let record = self.memory.tables.cache(id).ok_or(AllocError::TooManyThreads)?;
            let keeper = Keeper { memory: &self.memory, record, id, node, is_frugal: true };
            Ok(Held { keeper, _turn: Some(turn) })
        };
        for turns in 0..TURNS_MAX {
            for index in 0..commons.len() {
                let Some(turn) = commons[(first + index) % commons.len()].take() else { continue };
                let claim = || cache::claim_common(&self.memory, self.process());
                if let Some(id) = turn.cache(claim) {
                    return held(turn, id);
                }
            }
            // One more cache is claimed if no cache could be used in many turns: the threads that
            // hold the common caches may be descheduled, or may wait in a hook that calls the
            // heap.
            if turns >= TURNS || commons.iter().all(|common| common.id().is_none()) {
                let has_none = |turn: &Turn<'_>| turn.id().is_none();
                if let Some(turn) = commons.iter().filter_map(Common::take).find(has_none) {
                    let id = cache::claim_spare(&self.memory, self.process())?;
                    turn.set(id);
                    return held(turn, id);
                }
            }
            // Every common cache is in use by another thread.
            sys::yield_now();
        }
        Err(AllocError::TooManyThreads)
    }

    /// Like [`Heap::keeper`], but reaps no processes and uses no common cache.
    pub(crate) fn keeper_of_living(&self, row: usize) -> Result<Keeper<'_>, AllocError> {
        let entry = self.entry(row);
        self.keeper_at(if entry.is_empty() { self.enter(row)? } else { entry })
    }

    /// The cache of an entry that is not empty.
    #[inline]
    fn keeper_at(&self, entry: &Entry) -> Result<Keeper<'_>, AllocError> {
        let (id, node) = (entry.id(), entry.node());
        let record = self.memory.tables.cache(id).ok_or(AllocError::TooManyThreads)?;
        let is_frugal = local::is_one_of_many();
        Ok(Keeper { memory: &self.memory, record, id, node, is_frugal })
    }

    /// Claims a cache for this thread and enters it in `row`. Row 0 is for the node on which the
    /// thread runs. Its entry is the cache on the node on which the thread runs during this call.
    #[cold]
    fn enter(&self, row: usize) -> Result<&Entry, AllocError> {
        let number = local::register().ok_or(AllocError::TooManyThreads)?;
        self.ensure_joined()?;
        let node = if row == 0 { self.local_node() } else { row - 1 };
        let entry = self.directory.entry(node + 1, number);
        if entry.is_empty() {
            let id = cache::claim(&self.memory, self.process(), number)?;
            entry.set(&self.memory.tables.caches()[id as usize - 1].bins, id, node);
        }
        if row != 0 {
            return Ok(entry);
        }
        let id = entry.id();
        let record = self.memory.tables.cache(id).ok_or(AllocError::TooManyThreads)?;
        let home = self.directory.entry(0, number);
        home.set(&record.bins, id, node);
        Ok(home)
    }

    /// The slot of this process.
    pub(crate) fn process(&self) -> u8 {
        (self.live.load(Relaxed) >> 8 & 0x7F) as u8
    }

    /// The heap's number for the node on which this thread runs.
    fn local_node(&self) -> usize {
        match self.nodes {
            1 => 0,
            nodes => (machine::own_node() % nodes) as usize,
        }
    }
}
