//! This process's place in the heap: taken when it is built or attached to, again after a fork, and
//! left when the heap is dropped.
//!
//! After a fork the directory of caches reads as empty in the child, and so does the mark that says
//! that the process has joined. The first request that needs either finds that out. A child of a
//! shared heap joins as a process of its own; its parent's blocks stay its parent's. A child of a
//! private heap has a copy of everything, and takes back what threads that did not come along held.

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

/// How often a process for which there is no place looks, while another one frees those of the
/// dead. Each look reads `/proc` for itself and for who is at it, and a reaping is done within some
/// milliseconds.
const VISITS: u32 = 1000;

/// The mark in the directory: this process has not joined since it began or was forked.
const OUTSIDE: u32 = 0;
/// One of its threads is at it.
const JOINING: u32 = 1;
/// It has.
const JOINED: u32 = 2;

impl Heap {
    /// Sees to it that this process has a place in the heap. One load, unless it was just forked.
    #[inline]
    pub(crate) fn settle(&self) -> Result<(), AllocError> {
        match self.directory.mark().load(Acquire) {
            JOINED => Ok(()),
            _ => self.settle_slow(),
        }
    }

    #[cold]
    fn settle_slow(&self) -> Result<(), AllocError> {
        let mark = self.directory.mark();
        loop {
            match mark.load(Acquire) {
                JOINED => return Ok(()),
                OUTSIDE if mark.compare_exchange(OUTSIDE, JOINING, AcqRel, Relaxed).is_ok() => {
                    let result = self.join_again();
                    mark.store(if result.is_ok() { JOINED } else { OUTSIDE }, Release);
                    return result;
                }
                // A thread of this very process is at it: it takes a few system calls.
                _ => sys::give_way(),
            }
        }
    }

    /// Joins in a child of fork.
    fn join_again(&self) -> Result<(), AllocError> {
        if let Some(debug) = &self.debug {
            debug.forget();
        }
        self.memory.crowd.forget();
        if !self.memory.region.is_shared() {
            member::replace(&self.memory.tables, self.process());
            self.reap_after_fork();
            return Ok(());
        }
        let slot = self.place().ok_or(AllocError::TooManyProcesses)?;
        step!("heap.join.after_slot");
        self.sit_down(slot);
        Ok(())
    }

    /// Notes which slot is this process's, and tells there what others look for.
    fn sit_down(&self, slot: u8) {
        self.live.store(SlotWord::live(slot, 0).0, Relaxed);
        self.show_pool_file(slot);
    }

    /// Tells in this process's place under which number it has the second file open, unless that
    /// says so already: of several attachments of one process, one does.
    fn show_pool_file(&self, slot: u8) {
        let region = &self.memory.region;
        if let Some(file) = region.pool_file() {
            let is_shown = |number| region.is_pool_file_here(number);
            let number = file.as_raw_fd() as u32;
            member::show_pool_file(&self.memory.tables, slot, number, is_shown);
        }
    }

    /// The same again, for when the attachment that was shown has gone. A load, or three system
    /// calls.
    pub(crate) fn show_pool_file_again(&self) {
        if self.directory.mark().load(Acquire) == JOINED {
            self.show_pool_file(self.process());
        }
    }

    /// Takes this process's place in a heap that was just built or attached to.
    pub(super) fn join(&self) -> Result<(), Error> {
        let slot = self.place().ok_or(Error::TooManyProcesses { most: PROCESSES_MAX })?;
        self.sit_down(slot);
        self.directory.mark().store(JOINED, Release);
        Ok(())
    }

    /// A slot for this process. Where all are taken, those of dead processes are freed first.
    fn place(&self) -> Option<u8> {
        let tables = &self.memory.tables;
        let mut turns = VISITS;
        let visitor = loop {
            if let Some(slot) = member::join(tables) {
                return Some(slot);
            }
            if let Some(visitor) = member::visit(tables) {
                break visitor;
            }
            // Another one reaps for a place, or reaps the one that died of that.
            turns -= 1;
            if turns == 0 {
                return None;
            }
            sys::give_way();
        };
        self.live.store(SlotWord::live(visitor, 0).0, Relaxed);
        self.reap_as(visitor);
        let slot = member::join(tables);
        step!("heap.place.before_leave");
        member::leave(tables);
        slot
    }
}

impl Drop for Heap {
    /// Gives what this process's caches hold back. Blocks that live stay: others may use them; they
    /// are reclaimed when this process dies.
    fn drop(&mut self) {
        if !self.memory.region.is_shared() || self.directory.mark().load(Acquire) != JOINED {
            return;
        }
        if let Some(file) = self.memory.region.pool_file() {
            // Before it is closed, for the number may soon be another file's.
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
    /// Gives back what a cache of this process on a node holds, and its record.
    fn leave_cache(&self, id: CacheId, node: usize) {
        let Some(record) = self.memory.tables.cache(id) else { return };
        Keeper { memory: &self.memory, record, id, node, is_frugal: false }.flush_all();
        step!("heap.drop.before_free");
        record::free_cache(&record.state);
    }
}
