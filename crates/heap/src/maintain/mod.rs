//! Periodic work, done outside of requests. A housekeeping thread calls [`Heap::maintain`]
//! periodically; the call makes memory ready before it is needed, gives idle memory back, and
//! reaps dead processes.

mod upkeep;

use crate::cache::{self, Keeper};
use crate::error::Error;
use crate::heap::Heap;
use crate::layout::{PAGE, SHIFT_MIN};
use crate::local;
use crate::protocol::step::step;
use crate::reap::Reaped;
use crate::sys;
use upkeep::Upkeep;

/// The unit of a page's idle time, in milliseconds. 16 bits of this unit suffice for four hours.
const TICK_MS: u64 = 250;

/// The shifts of the slot words that the kernel maps together with pages that are ready from the
/// start. These are the shifts for blocks of 1 KiB and more, with 8 KiB of slot words per 2 MiB.
/// The slot words for blocks of 64 B alone would be 64 KiB.
const FIRST_SHIFTS: u32 = !0 << (10 - SHIFT_MIN);

/// The result of one call of [`Heap::maintain`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Maintenance {
    /// The resources of dead processes that were given back.
    pub reaped: Reaped,
    /// The number of ended threads of this process whose caches were emptied.
    pub threads: u32,
    /// The number of pages of 2 MiB that were made ready.
    pub grown: u32,
    /// The number of pages of 2 MiB whose memory was given back.
    pub released: u32,
    /// Whether the system refused memory that should have been made ready.
    pub is_refused: bool,
}

impl Heap {
    /// Performs the heap's periodic work: [reaps](Heap::reap), empties the caches of ended
    /// threads, gives back pages that were free for longer than [`decay`](crate::Builder::decay),
    /// and makes pages ready up to [`grow_ahead`](crate::Builder::grow_ahead). Meanwhile only a
    /// request waits for which no other memory is free. Several threads and processes may call
    /// this concurrently.
    ///
    /// O(threads + processes) system calls, and one or two for each page that is made ready or
    /// given back. Reads a word for each page that was ever used and for each slice of the free
    /// pages. Once per decay time, it also reads a word for each slice and the first slot words
    /// of each span.
    ///
    /// ```
    /// use haul_heap::{Heap, Node};
    ///
    /// let heap = Heap::builder().limit(64 << 20).nodes(1).grow_ahead(4 << 20).build()?;
    /// assert_eq!(heap.maintain().grown, 2, "pages of 2 MiB");
    /// assert_eq!(heap.stats(Node::ANY).ready_bytes, 4 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn maintain(&self) -> Maintenance {
        if self.upkeep.ahead_bytes > 0 {
            // This comes first, because this thread may need a cache record itself.
            cache::bring_next(&self.memory);
        }
        let mut done = Maintenance { reaped: self.reap(), ..Maintenance::default() };
        done.threads = self.empty_caches_of_ended_threads();
        let now = (sys::now_ns() / 1_000_000 / TICK_MS) as u16;
        self.show_pool_file_again();
        for node in 0..self.node_count() {
            let Ok(keeper) = self.keeper(node + 1) else { break };
            let upkeep = Upkeep { heap: self, keeper: *keeper, now };
            upkeep.drop_empty_spans();
            upkeep.note_refused();
            let wanted = self.pages_of_each(self.upkeep.ahead_bytes);
            let from_start = match self.upkeep.ready_bytes {
                0 => 0,
                bytes => {
                    let free = upkeep.ready_and_free().count();
                    let used = upkeep.ready_pages().saturating_sub(free);
                    self.pages_of_each(bytes).saturating_sub(used)
                }
            };
            let (ready, released) = upkeep.release_idle(wanted.max(from_start));
            done.released += released;
            if wanted > 0 {
                upkeep.touch_new_shifts();
            }
            let (grown, is_refused) = upkeep.grow(wanted.saturating_sub(ready), 0);
            done.grown += grown;
            done.is_refused |= is_refused;
        }
        done
    }

    /// Makes the memory ready that [`Builder::ready`](crate::Builder::ready) requests.
    ///
    /// # Errors
    /// [`Error::NotReady`] if there is not enough memory.
    pub(crate) fn make_ready_at_start(&self) -> Result<(), Error> {
        let asked = self.upkeep.ready_bytes;
        if asked == 0 {
            return Ok(());
        }
        let wanted = self.pages_of_each(asked);
        let mut ready = 0;
        for node in 0..self.node_count() {
            // A request for more pages than the node has fails before any page is made ready.
            if wanted > self.memory.pages_of(node).len() {
                return Err(Error::NotReady { asked, ready });
            }
            let Ok(keeper) = self.keeper(node + 1) else {
                return Err(Error::NotReady { asked, ready });
            };
            let upkeep = Upkeep { heap: self, keeper: *keeper, now: 0 };
            upkeep.grow(wanted.saturating_sub(upkeep.ready_pages()), FIRST_SHIFTS);
            let there = upkeep.ready_pages();
            ready += (there * PAGE) as u64;
            if there < wanted {
                return Err(Error::NotReady { asked, ready });
            }
        }
        Ok(())
    }

    /// The number of pages per node if `bytes` are divided among the nodes.
    fn pages_of_each(&self, bytes: u64) -> usize {
        let each = bytes.div_ceil(self.node_count() as u64);
        usize::try_from(each.div_ceil(PAGE as u64)).unwrap_or(usize::MAX)
    }

    /// Gives the memory of every free page back to the system. The caches of other threads are
    /// not changed. Returns how many pages were given back.
    ///
    /// Costs as much as [`Heap::maintain`], except its work for dead processes and for pages
    /// ahead.
    ///
    /// ```
    /// use haul_heap::{Heap, Node, Request};
    ///
    /// let heap = Heap::builder().limit(64 << 20).build()?;
    /// let block = heap.alloc(Request::new(10 << 20))?;
    /// // SAFETY: allocated here, and not used again.
    /// unsafe { heap.free(block) }?;
    /// heap.trim();
    /// assert_eq!(heap.stats(Node::ANY).ready_bytes, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn trim(&self) -> u32 {
        (0..self.node_count())
            .filter_map(|node| self.keeper(node + 1).ok())
            .map(|keeper| {
                keeper.flush_all();
                keeper.drop_empty_spans();
                Upkeep { heap: self, keeper: *keeper, now: 0 }.release_free()
            })
            .sum()
    }

    fn empty_caches_of_ended_threads(&self) -> u32 {
        let holds_something = |keeper: Keeper<'_>| keeper.holds_something();
        local::reclaim_numbers(
            |number| self.keepers_of(number).any(holds_something),
            |number| {
                for keeper in self.keepers_of(number) {
                    keeper.flush_all();
                    step!("maintain.thread.after_flush");
                }
            },
        )
    }

    /// The caches of the live or ended thread with this number.
    fn keepers_of(&self, number: usize) -> impl Iterator<Item = Keeper<'_>> {
        (1..=self.node_count()).filter_map(move |row| {
            let entry = self.directory.entry(row, number);
            if entry.is_empty() {
                return None;
            }
            let id = entry.id();
            let record = self.memory.tables.cache(id)?;
            Some(Keeper { memory: &self.memory, record, id, node: row - 1, is_frugal: false })
        })
    }
}
