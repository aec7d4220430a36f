//! Issue: an instruction with all its operands occupies a unit; a load with a known address
//! occupies a memory port.

use super::stores::Order;
use super::wheel::{Due, Event};
use super::{Core, MemoryPort};
use crate::configuration::Cycle;
use crate::isa::Class;
use crate::memory::{Access, Kind, Passing};

/// Issue slots and integer units that are still free in a cycle.
struct Left {
    slots: u32,
    integer: u32,
}

impl<M: MemoryPort> Core<'_, M> {
    pub(super) fn issue(&mut self) {
        let mut left = Left { slots: self.settings.width, integer: self.settings.integer_units };
        if !self.loads.is_empty() {
            self.issue_loads(&mut left);
        }
        if !self.ready.is_empty() {
            self.issue_ready(&mut left);
        }
        if !self.ready_multiply.is_empty() {
            self.issue_multiply(&mut left);
        }
    }

    /// Issues ready instructions, oldest first, while units are free.
    fn issue_ready(&mut self, left: &mut Left) {
        let end = self.issue_end();
        let mut from = self.window.head;
        while left.slots > 0 && left.integer > 0 {
            let Some(sequence) = self.ready.next(from, end) else { break };
            from = sequence + 1;
            left.integer -= 1;
            self.ready.remove(sequence);
            self.issue_one(sequence, left);
        }
    }

    /// Issues multiplications and divisions, which have separate units.
    fn issue_multiply(&mut self, left: &mut Left) {
        let end = self.issue_end();
        let mut from = self.window.head;
        while left.slots > 0 {
            let Some(sequence) = self.ready_multiply.next(from, end) else { break };
            let free = self.multiply_free_at.iter_mut().find(|at| **at <= self.now);
            let Some(free) = free else { break };
            from = sequence + 1;
            // A division keeps its unit until it is done, a multiplication only for one cycle.
            let is_division = self.window.entry(sequence).class == Class::Divide;
            let cycles = if is_division { self.settings.latencies.divide } else { 1 };
            *free = self.now + u64::from(cycles);
            self.ready_multiply.remove(sequence);
            self.issue_one(sequence, left);
        }
    }

    /// The first instruction that must not issue: the instruction after a copy that forbids all
    /// overlap.
    fn issue_end(&self) -> u64 {
        match self.copies.front() {
            Some(copy) if self.passing == Passing::Nothing => copy.sequence + 1,
            _ => self.window.tail,
        }
    }

    /// Begins an instruction on its unit.
    #[inline]
    fn issue_one(&mut self, sequence: u64, left: &mut Left) {
        let entry = self.window.entry(sequence);
        let latencies = &self.settings.latencies;
        let latency: Cycle = match entry.class {
            Class::Multiply => latencies.multiply.into(),
            Class::Divide => latencies.divide.into(),
            _ => latencies.integer.into(),
        };
        left.slots -= 1;
        let mut at = self.now + latency;
        let mut due = Due::Result;
        if entry.is_memory() {
            due = Due::Address;
            if !entry.is_uncached {
                at += self.data_tlb.translate(entry.address);
            }
        }
        self.wheel.add(self.now, Event { at, sequence, stamp: entry.stamp, due });
        self.progress = true;
        if let Some(trace) = &mut self.trace {
            trace.issued(entry.row, self.now);
        }
    }

    /// Lets loads request their values, oldest first, as far as ports and older stores allow.
    fn issue_loads(&mut self, left: &mut Left) {
        let end = match self.copies.front() {
            Some(copy) if self.passing != Passing::Memory => copy.sequence,
            _ => self.window.tail,
        };
        let mut from = self.window.head;
        while left.slots > 0 && self.ports_used < self.settings.memory_ports {
            let Some(sequence) = self.loads.next(from, end) else { break };
            from = sequence + 1;
            let Some(ready) = self.ask(sequence) else { continue };
            self.ports_used += 1;
            left.slots -= 1;
            self.loads.remove(sequence);
            self.progress = true;
            if let Some(at) = ready {
                let stamp = self.window.entry(sequence).stamp;
                self.wheel.add(self.now, Event { at, sequence, stamp, due: Due::Result });
            }
            if let Some(trace) = &mut self.trace {
                trace.asked(self.window.entry(sequence).row, self.now);
            }
        }
    }

    /// Requests a load's value. Returns the cycle in which the value is available, `Some(None)` if
    /// memory will report it, and `None` if the load must retry.
    fn ask(&mut self, sequence: u64) -> Option<Option<Cycle>> {
        let entry = self.window.entry(sequence);
        let (address, bytes) = (entry.address, u64::from(entry.bytes));
        if entry.is_uncached {
            return Some(Some(self.now + 1));
        }
        match self.stores.order(entry.store_place, address, bytes) {
            Order::Wait => return None,
            Order::Forward => {
                self.statistics.forwarded_loads += 1;
                return Some(Some(self.now + 1));
            }
            Order::Free => {}
        }
        if self.memory.blocks(Kind::Load, address, bytes) {
            return None;
        }
        let tag = self.window.tag(sequence);
        match self.memory.access(self.now, Kind::Load, address, tag) {
            Access::Hit { ready } => Some(Some(ready)),
            Access::Pending => Some(None),
            Access::Retry => None,
        }
    }
}
