//! This process's slot in the heap. The process takes a slot when it builds the heap or attaches
//! to it, takes another slot after a fork, and gives its slot back when the heap is dropped.
//!
//! After a fork, the directory of caches is empty in the child, and the mark that the process has
//! joined is cleared. The first request that reads the directory or the mark detects the fork. If
//! the heap is shared, the child joins as a separate process, and the parent keeps its blocks. If
//! the heap is private, the child has a copy of the whole heap, and gives back the slots and
//! slices that other threads of the parent held.

use rustix::fd::AsRawFd;

use super::Heap;
use crate::cache::Keeper;
use crate::error::Error;
use crate::fault::AllocError;
use crate::layout::NODES_MAX;
use crate::local::common::Common;
use crate::local::{Entry, THREADS_MAX};
use crate::member;
use crate::protocol::record;
use crate::protocol::step::step;
use crate::protocol::word::{CacheId, PROCESSES_MAX, SlotWord};
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::sys;

/// How often a process without a slot retries while another process frees the slots of dead
/// processes. Each try reads `/proc` for this process and for the process that reaps. Reaping
/// takes some milliseconds.
const VISITS: u32 = 1000;

/// The mark in the directory: this process has not joined since it started or was forked.
const OUTSIDE: u32 = 0;
/// A thread of this process is joining.
const JOINING: u32 = 1;
/// This process has joined.
const JOINED: u32 = 2;

impl Heap {
    /// Ensures that this process has a slot in the heap. One load, unless the process was just
    /// forked.
    #[inline]
    pub(crate) fn ensure_joined(&self) -> Result<(), AllocError> {
        match self.directory.mark().load(Acquire) {
            JOINED => Ok(()),
            _ => self.ensure_joined_slow(),
        }
    }

    #[cold]
    fn ensure_joined_slow(&self) -> Result<(), AllocError> {
        let mark = self.directory.mark();
        loop {
            match mark.load(Acquire) {
                JOINED => return Ok(()),
                OUTSIDE if mark.compare_exchange(OUTSIDE, JOINING, AcqRel, Relaxed).is_ok() => {
                    let result = self.join_after_fork();
                    mark.store(if result.is_ok() { JOINED } else { OUTSIDE }, Release);
                    return result;
                }
                // A thread of this process is joining, which takes a few system calls.
                _ => sys::yield_now(),
            }
        }
    }

    /// Joins in a child of fork.
    fn join_after_fork(&self) -> Result<(), AllocError> {
        if let Some(debug) = &self.debug {
            debug.forget();
        }
        self.memory.crowd.forget();
        self.memory.holders.forget();
        if !self.memory.region.is_shared() {
            member::replace(&self.memory.tables, self.process());
            self.reap_after_fork();
            return Ok(());
        }
        let slot = self.claim_process_slot().ok_or(AllocError::TooManyProcesses)?;
        step!("heap.join.after_slot");
        self.enter_slot(slot);
        Ok(())
    }

    /// Stores the number of this process's slot, and publishes in the slot the data that other
    /// processes need.
    fn enter_slot(&self, slot: u8) {
        self.live.store(SlotWord::live(slot, 0).0, Relaxed);
        self.show_pool_file(slot);
    }

    /// Publishes in this process's slot the descriptor of its second file, unless another
    /// attachment of the process has done so.
    fn show_pool_file(&self, slot: u8) {
        let region = &self.memory.region;
        if let Some(file) = region.pool_file() {
            let is_shown = |number| region.is_pool_file_here(number);
            let number = file.as_raw_fd() as u32;
            member::show_pool_file(&self.memory.tables, slot, number, is_shown);
        }
    }

    /// Like [`Self::show_pool_file`]. Publishes the descriptor again if the attachment that
    /// published its own has ended. One load, or three system calls.
    pub(crate) fn show_pool_file_again(&self) {
        if self.directory.mark().load(Acquire) == JOINED {
            self.show_pool_file(self.process());
        }
    }

    /// Takes this process's slot in a heap that was just built or attached to.
    pub(super) fn join(&self) -> Result<(), Error> {
        let slot =
            self.claim_process_slot().ok_or(Error::TooManyProcesses { most: PROCESSES_MAX })?;
        self.enter_slot(slot);
        self.directory.mark().store(JOINED, Release);
        Ok(())
    }

    /// Takes a slot for this process. If all slots are in use, frees the slots of dead processes
    /// first.
    fn claim_process_slot(&self) -> Option<u8> {
        let tables = &self.memory.tables;
        let mut tries = VISITS;
        let visitor = loop {
            if let Some(slot) = member::join(tables) {
                return Some(slot);
            }
            if let Some(visitor) = member::visit(tables) {
                break visitor;
            }
            // Another process reaps dead processes to free a slot, or reaps a process that died
            // while it reaped.
            tries -= 1;
            if tries == 0 {
                return None;
            }
            sys::yield_now();
        };
        self.live.store(SlotWord::live(visitor, 0).0, Relaxed);
        self.reap_as(visitor);
        let slot = member::join(tables);
        step!("heap.claim_slot.before_leave");
        member::leave(tables);
        slot
    }
}

impl Drop for Heap {
    /// Gives back what this process's caches hold. Live blocks stay, because other processes may
    /// use them. Another process reclaims them when this process dies.
    fn drop(&mut self) {
        if !self.memory.region.is_shared() || self.directory.mark().load(Acquire) != JOINED {
            return;
        }
        if let Some(file) = self.memory.region.pool_file() {
            // The descriptor is withdrawn before the file is closed, because its number may soon
            // belong to another file.
            let number = file.as_raw_fd() as u32;
            member::hide_pool_file(&self.memory.tables, self.process(), number);
        }
        self.empty_quarantine();
        let nodes = (self.nodes as usize).min(NODES_MAX);
        for row in 1..=nodes {
            let entries = (1..THREADS_MAX).map(|number| self.directory.entry(row, number));
            let own = entries.filter(|entry| !entry.is_empty()).map(Entry::id);
            let commons = self.directory.commons(row - 1).iter().filter_map(Common::id);
            own.chain(commons).for_each(|id| self.leave_cache(id, row - 1));
        }
    }
}

impl Heap {
    /// Gives back all slots and slices of one of this process's caches on a node, and the cache's
    /// record.
    fn leave_cache(&self, id: CacheId, node: usize) {
        let Some(record) = self.memory.tables.cache(id) else { return };
        Keeper { memory: &self.memory, record, id, node, is_frugal: false }.flush_all();
        step!("heap.drop.before_free");
        record::free_cache(&record.state);
    }
}
