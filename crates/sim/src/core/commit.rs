//! Commit: the oldest instructions leave the window in order. Stores and copies reach memory in
//! this stage, in which they are no longer speculative.

use super::touched::WaitingCopy;
use super::window::TAGS;
use super::{Core, MemoryPort};
use crate::configuration::Cycle;
use crate::isa::Class;
use crate::memory::{Access, Copy, Kind, Tag};

/// The tag of stores. No instruction waits for a store's completion, so no instruction has this
/// tag.
const STORE_TAG: Tag = Tag(TAGS);

/// The state of the copy at the window's head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum CopyState {
    /// Not yet handed to the memory system.
    #[default]
    Here,
    /// Handed over; its completion is pending.
    Handed,
    /// Complete: it may retire from this cycle on.
    Complete(Cycle),
}

impl CopyState {
    pub(super) fn complete(&mut self, now: Cycle) {
        *self = Self::Complete(now);
    }

    pub(super) fn ready_after(&self, now: Cycle) -> Option<Cycle> {
        match self {
            Self::Complete(at) if *at > now => Some(*at),
            _ => None,
        }
    }
}

impl<M: MemoryPort> Core<'_, M> {
    pub(super) fn commit(&mut self) {
        for _ in 0..self.settings.width {
            if self.window.is_empty() || !self.commit_oldest() {
                break;
            }
            self.progress = true;
        }
    }

    /// Commits the oldest instruction if it is ready. Returns whether it did.
    fn commit_oldest(&mut self) -> bool {
        let sequence = self.window.head;
        let entry = self.window.entry(sequence);
        if !entry.is_done {
            return false;
        }
        let row = entry.row;
        match entry.class {
            Class::Store => {
                if !self.store(entry.address, entry.bytes.into(), entry.is_uncached) {
                    return false;
                }
                self.stores.pop();
                self.memory_entries -= 1;
            }
            Class::Copy => {
                if !self.copy(sequence) {
                    return false;
                }
                self.stores.pop();
            }
            Class::Branch => {
                let (index, next) = (entry.index, entry.next);
                let instruction = self.instruction(index);
                self.predictor.learn(index, &instruction, next);
                self.statistics.branches += 1;
            }
            Class::Load => {
                self.statistics.loads += 1;
                self.memory_entries -= 1;
            }
            _ => {}
        }
        while self.device_writes.front().is_some_and(|(writer, _)| *writer == sequence) {
            if let Some((_, write)) = self.device_writes.pop_front() {
                self.memory.dma_write(self.now, write.address, write.bytes);
            }
        }
        if let Some(trace) = &mut self.trace {
            trace.committed(row, self.now);
        }
        self.window.head += 1;
        true
    }

    /// Hands a store to memory. The store needs a port; no instruction waits for its completion.
    fn store(&mut self, address: u64, bytes: u64, is_uncached: bool) -> bool {
        if is_uncached {
            self.statistics.stores += 1;
            return true;
        }
        if self.ports_used == self.settings.memory_ports
            || self.memory.blocks(Kind::Store, address, bytes)
            || self.memory.access(self.now, Kind::Store, address, STORE_TAG) == Access::Retry
        {
            return false;
        }
        self.ports_used += 1;
        self.statistics.stores += 1;
        true
    }

    /// Hands a copy over, or retires it once it is complete.
    fn copy(&mut self, sequence: u64) -> bool {
        if self.copy_state == CopyState::Here {
            let Some(WaitingCopy { touched, .. }) = self.copies.front() else { return false };
            let copy = Copy {
                source: touched.source,
                target: touched.address,
                bytes: touched.bytes,
                tag: self.window.tag(sequence),
            };
            self.copy_state = match self.memory.copy(self.now, copy) {
                Access::Hit { ready } => CopyState::Complete(ready),
                Access::Pending => CopyState::Handed,
                Access::Retry => return false,
            };
            self.progress = true;
            if let Some(trace) = &mut self.trace {
                trace.asked(self.window.entry(sequence).row, self.now);
            }
        }
        match self.copy_state {
            CopyState::Complete(at) if at <= self.now => {
                self.copy_state = CopyState::Here;
                self.copies.pop_front();
                self.statistics.copies += 1;
                true
            }
            _ => false,
        }
    }
}
