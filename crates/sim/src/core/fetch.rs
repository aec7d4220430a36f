//! Fetch: instructions come in along the predicted path, a line at a time.

use std::collections::VecDeque;

use super::tlb::Tlb;
use super::{Core, MemoryPort};
use crate::configuration::{CoreSettings, Cycle};
use crate::isa::{Class, Operation};
use crate::memory::{Access, Kind, Tag};

/// Tags of fetches have this bit; those of loads and copies do not.
pub(super) const FETCH_TAG: u32 = 1 << 31;

/// An instruction that was fetched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fetched {
    pub(super) index: u32,
    /// Where fetch went after it.
    pub(super) predicted_next: u32,
    /// The return stack's top after it.
    pub(super) return_top: u32,
    /// When.
    pub(super) at: Cycle,
}

/// The front end's state.
pub(super) struct Front {
    pub(super) queue: VecDeque<Fetched>,
    capacity: usize,
    /// The index of the instruction that is fetched next.
    next: u32,
    line_shift: u32,
    /// The line that instructions are taken from, if it is there.
    line: Option<u64>,
    /// The page that was translated last.
    page: Option<u64>,
    page_shift: u32,
    /// Nothing is fetched before this cycle.
    resume_at: Cycle,
    /// The line that is waited for.
    pending: Option<u64>,
    /// Counts lines that were asked for, so that a line of a path that was left is not taken for
    /// one of this path.
    request: u32,
    /// Nothing more comes along this path: it left the program.
    is_at_end: bool,
    pub(super) tlb: Tlb,
}

impl Front {
    pub(super) fn new(settings: &CoreSettings, line_bytes: u64, next: u32) -> Self {
        Self {
            queue: VecDeque::with_capacity(settings.fetch_entries as usize),
            capacity: settings.fetch_entries as usize,
            next,
            line_shift: line_bytes.trailing_zeros(),
            line: None,
            page: None,
            page_shift: settings.tlb.page_bytes.trailing_zeros(),
            resume_at: 0,
            pending: None,
            request: 0,
            is_at_end: false,
            tlb: Tlb::new(&settings.tlb),
        }
    }

    /// When fetch goes on by itself, if it will.
    pub(super) fn resumes_after(&self, now: Cycle) -> Option<Cycle> {
        (self.resume_at > now && self.pending.is_none()).then_some(self.resume_at)
    }

    /// A line that was asked for is there.
    pub(super) fn line_arrived(&mut self, tag: u32) {
        if tag == self.request | FETCH_TAG {
            self.line = self.pending.take().or(self.line);
        }
    }

    /// Leaves the path and begins at `next`, in cycle `at`.
    pub(super) fn redirect(&mut self, next: u32, at: Cycle) {
        self.queue.clear();
        self.next = next;
        self.line = None;
        self.pending = None;
        self.resume_at = at;
        self.is_at_end = false;
    }
}

impl<M: MemoryPort> Core<'_, M> {
    pub(super) fn fetch(&mut self) {
        let is_waiting = self.front.pending.is_some() || self.now < self.front.resume_at;
        if is_waiting || self.front.is_at_end {
            return;
        }
        for _ in 0..self.settings.width {
            let index = self.front.next;
            if self.front.queue.len() == self.front.capacity || !self.has_line(index) {
                return;
            }
            let instruction = self.instruction(index);
            let after = index.wrapping_add(1);
            let next = match instruction.operation.class() {
                Class::Branch => self.predictor.next(index, &instruction),
                _ => after,
            };
            self.front.queue.push_back(Fetched {
                index,
                predicted_next: next,
                return_top: self.predictor.top(),
                at: self.now,
            });
            self.front.next = next;
            self.front.is_at_end = instruction.operation == Operation::Unmapped;
            self.progress = true;
            if next != after || self.front.is_at_end {
                return;
            }
        }
    }

    /// Whether the instruction's line is there; asks for it where it is not.
    #[inline]
    fn has_line(&mut self, index: u32) -> bool {
        let address = self.image.address_of(index);
        let line = address >> self.front.line_shift;
        self.front.line == Some(line)
            || index as usize >= self.image.code().len()
            || self.ask_for_line(address, line)
    }

    fn ask_for_line(&mut self, address: u64, line: u64) -> bool {
        let page = address >> self.front.page_shift;
        if self.front.page != Some(page) {
            self.front.page = Some(page);
            let walk = self.front.tlb.translate(address);
            if walk > 0 {
                self.front.resume_at = self.now + walk;
                return false;
            }
        }
        self.front.request = (self.front.request + 1) % FETCH_TAG;
        let tag = Tag(self.front.request | FETCH_TAG);
        match self.memory.access(self.now, Kind::Fetch, address, tag) {
            Access::Hit { ready } => {
                self.front.line = Some(line);
                // A first-level hit is part of the pipeline's length; what comes later holds it up.
                let hidden = self.now + self.fetch_hit_cycles;
                if ready > hidden {
                    self.front.resume_at = self.now + (ready - hidden);
                    return false;
                }
                true
            }
            Access::Pending => {
                self.front.pending = Some(line);
                self.progress = true;
                false
            }
            Access::Retry => false,
        }
    }
}
