//! Fetch: instructions enter along the predicted path, one line at a time.

use super::tlb::Tlb;
use super::window::{self, PLACES};
use super::{Core, MemoryPort};
use crate::configuration::{CoreSettings, Cycle};
use crate::isa::{Class, Operation, WORD};
use crate::memory::{Access, Kind, Tag};

/// Tags of fetches have this bit set; tags of loads and copies do not.
pub(super) const FETCH_TAG: u32 = 1 << 31;

/// No line: it contains no instruction.
const NOWHERE: (u32, u32) = (0, 0);

/// An instruction that was fetched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fetched {
    pub(super) index: u32,
    /// The index at which fetch continued.
    pub(super) predicted_next: u32,
    /// The return stack's top after this instruction.
    pub(super) return_top: u32,
    /// The cycle of the fetch.
    pub(super) at: Cycle,
}

/// Fetched instructions that are not dispatched yet, oldest first, in a ring.
pub(super) struct FetchQueue {
    ring: Box<[Fetched; PLACES]>,
    mask: u32,
    limit: u32,
    first: u32,
    end: u32,
}

impl FetchQueue {
    fn new(limit: u32) -> Self {
        let none = Fetched { index: 0, predicted_next: 0, return_top: 0, at: 0 };
        let mask = limit.next_power_of_two() - 1;
        Self { ring: window::places(none), mask, limit, first: 0, end: 0 }
    }

    #[inline(always)]
    fn place(&self, number: u32) -> usize {
        (number & self.mask) as usize % PLACES
    }

    /// The oldest instruction.
    #[inline(always)]
    pub(super) fn first(&self) -> Option<Fetched> {
        (self.first != self.end).then(|| self.ring[self.place(self.first)])
    }

    /// Removes the oldest instruction.
    #[inline(always)]
    pub(super) fn pop(&mut self) {
        self.first = self.first.wrapping_add(1);
    }

    #[inline(always)]
    fn is_full(&self) -> bool {
        self.end.wrapping_sub(self.first) == self.limit
    }

    #[inline(always)]
    fn push(&mut self, fetched: Fetched) {
        let place = self.place(self.end);
        self.ring[place] = fetched;
        self.end = self.end.wrapping_add(1);
    }

    fn clear(&mut self) {
        self.first = self.end;
    }
}

/// The front end's state.
pub(super) struct Front {
    pub(super) queue: FetchQueue,
    /// The index of the instruction that is fetched next.
    next: u32,
    line_bytes: u64,
    /// The current line: the index of its first instruction, and the number of its instructions.
    /// The line of the program's start may begin before the program.
    line: (u32, u32),
    /// The page that was translated last.
    page: Option<u64>,
    page_shift: u32,
    /// Fetch does nothing before this cycle.
    resume_at: Cycle,
    /// The line that fetch waits for.
    pending: Option<(u32, u32)>,
    /// Number of the latest line request. It distinguishes a late line of an abandoned path from
    /// one of this path.
    request: u32,
    /// Whether the path has left the program, so that no instruction follows.
    is_at_end: bool,
    pub(super) tlb: Tlb,
}

impl Front {
    pub(super) fn new(settings: &CoreSettings, line_bytes: u64, next: u32) -> Self {
        Self {
            queue: FetchQueue::new(settings.fetch_entries),
            next,
            line_bytes,
            line: NOWHERE,
            page: None,
            page_shift: settings.tlb.page_bytes.trailing_zeros(),
            resume_at: 0,
            pending: None,
            request: 0,
            is_at_end: false,
            tlb: Tlb::new(&settings.tlb),
        }
    }

    /// The cycle in which fetch resumes by itself, if it will.
    pub(super) fn resumes_after(&self, now: Cycle) -> Option<Cycle> {
        (self.resume_at > now && self.pending.is_none()).then_some(self.resume_at)
    }

    /// Accepts a line that memory delivers.
    pub(super) fn line_arrived(&mut self, tag: u32) {
        if tag == self.request | FETCH_TAG {
            self.line = self.pending.take().unwrap_or(self.line);
        }
    }

    /// Abandons the path and continues at `next`, in cycle `at`.
    pub(super) fn redirect(&mut self, next: u32, at: Cycle) {
        self.queue.clear();
        self.next = next;
        self.line = NOWHERE;
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
            if self.front.queue.is_full() || !self.has_line(index) {
                return;
            }
            let instruction = self.instruction(index);
            let after = index.wrapping_add(1);
            let next = match instruction.operation.class() {
                Class::Branch => self.predictor.next(index, &instruction),
                _ => after,
            };
            self.front.queue.push(Fetched {
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

    /// Whether the instruction's line is available. Requests the line if it is not.
    #[inline]
    fn has_line(&mut self, index: u32) -> bool {
        let (first, instructions) = self.front.line;
        index.wrapping_sub(first) < instructions
            || index as usize >= self.image.code().len()
            || self.request_line(index)
    }

    fn request_line(&mut self, index: u32) -> bool {
        let address = self.image.address_of(index);
        let before = (address % self.front.line_bytes / WORD) as u32;
        let line = (index.wrapping_sub(before), (self.front.line_bytes / WORD) as u32);
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
                self.front.line = line;
                // The pipeline's length includes a first-level hit; only a longer delay stalls
                // fetch.
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
