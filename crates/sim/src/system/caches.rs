//! Hits, misses, fills and write-backs, and invalidations from outside.
//!
//! The second-level cache includes both first-level caches: a line that it evicts is removed from
//! them as well.

use super::MemorySystem;
use super::due::Event;
use crate::configuration::Cycle;
use crate::memory::trace::{Stage, What};
use crate::memory::{Access, Agent, Completion, Kind, Purpose, Request, Tag};

impl MemorySystem {
    /// Makes one access inside a line. A hit in either level returns [`Access::Hit`]; a completion
    /// follows an access that goes to memory.
    #[inline]
    pub fn access(&mut self, now: Cycle, kind: Kind, address: u64, tag: Tag) -> Access {
        let line = address >> self.line_shift;
        let first = match kind {
            Kind::Fetch => &mut self.instruction_cache,
            Kind::Load | Kind::Store => &mut self.data_cache,
        };
        let Some(ready) = first.touch(line, kind == Kind::Store) else {
            return self.miss(now, kind, line, tag);
        };
        let delay = if kind == Kind::Fetch { self.delays.fetch } else { self.delays.data };
        let hits = if kind == Kind::Fetch {
            &mut self.statistics.fetch_hits
        } else {
            &mut self.statistics.data_hits
        };
        *hits += 1;
        Access::Hit { ready: ready.max(now + delay) }
    }

    /// Handles a miss in the first-level cache.
    fn miss(&mut self, now: Cycle, kind: Kind, line: u64, tag: Tag) -> Access {
        if let Some(register) = self.registers.find(line) {
            if register.overtaken {
                // The line under way is older than the data in memory by now.
                self.statistics.mshr_retries += 1;
                return Access::Retry;
            }
            register.waiting.push((tag, kind));
            self.statistics.merged_misses += 1;
            self.count_miss(kind);
            return Access::Pending;
        }
        let first = if kind == Kind::Fetch { self.delays.fetch } else { self.delays.data };
        let looked_up = now + first + self.delays.second;
        if let Some(ready) = self.second_cache.touch(line, false) {
            self.count_miss(kind);
            self.statistics.second_hits += 1;
            let ready = ready.max(looked_up);
            self.fill_first(kind, line, ready);
            return Access::Hit { ready };
        }
        let Some((number, register)) = self.registers.take(line) else {
            self.statistics.mshr_retries += 1;
            return Access::Retry;
        };
        register.waiting.push((tag, kind));
        self.count_miss(kind);
        self.statistics.second_misses += 1;
        let what = match kind {
            Kind::Fetch => What::Fetch,
            Kind::Load => What::Load,
            Kind::Store => What::Store,
        };
        let transaction = self.begin(now, what, line << self.line_shift, self.settings.line_bytes);
        let phases = self.transact(looked_up, 1);
        let register = self.registers.find(line).expect("it was just taken");
        register.responded = phases.responded;
        register.transaction = transaction;
        let crossed = phases.requested + self.delays.crossing;
        let arrives = self.write_back_arrives(line).map_or(crossed, |at| at.max(crossed));
        self.span(transaction, Stage::Caches, now, looked_up, 0);
        self.span(transaction, Stage::Bus, looked_up, phases.requested, 0);
        self.span(transaction, Stage::Chipset, phases.requested, arrives, 0);
        let request = Request {
            line,
            write: false,
            agent: Agent::Processor,
            purpose: Purpose::Fill(number),
            arrived: arrives,
            transaction,
        };
        self.agenda.push(arrives, Event::Arrive(request));
        Access::Pending
    }

    fn count_miss(&mut self, kind: Kind) {
        match kind {
            Kind::Fetch => self.statistics.fetch_misses += 1,
            Kind::Load | Kind::Store => self.statistics.data_misses += 1,
        }
    }

    /// Puts a line from memory into the caches and completes all accesses that wait for it.
    pub(super) fn fill(&mut self, now: Cycle, number: u8, completions: &mut Vec<Completion>) {
        let register = self.registers.get(number);
        let line = register.line.expect("only a taken register is filled");
        let overtaken = register.overtaken;
        let mut waited = std::mem::take(&mut self.waited);
        self.registers.free(number, &mut waited);
        if !overtaken {
            self.insert_second(now, line, false);
            for (_, kind) in &waited {
                self.fill_first(*kind, line, now);
            }
        }
        completions.extend(waited.iter().map(|(tag, _)| Completion { tag: *tag, at: now }));
        self.waited = waited;
    }

    /// Puts a line that the second level holds into a first-level cache.
    fn fill_first(&mut self, kind: Kind, line: u64, ready: Cycle) {
        let victim = match kind {
            Kind::Fetch => self.instruction_cache.insert(line, false, ready),
            Kind::Load => self.data_cache.insert(line, false, ready),
            Kind::Store => self.data_cache.insert(line, true, ready),
        };
        if let Some(victim) = victim.filter(|victim| victim.dirty) {
            // The second level includes the line, so that this is a hit.
            self.second_cache.touch(victim.line, true);
        }
    }

    /// Puts a line into the second-level cache. A dirty line that it evicts is written back.
    pub(super) fn insert_second(&mut self, now: Cycle, line: u64, dirty: bool) {
        let Some(victim) = self.second_cache.insert(line, dirty, now) else {
            return;
        };
        self.instruction_cache.remove(victim.line);
        let first_dirty = self.data_cache.remove(victim.line) == Some(true);
        if victim.dirty || first_dirty {
            self.statistics.write_backs += 1;
            self.write_back(now, victim.line);
        }
    }

    /// Sends a dirty line over the bus to memory.
    pub(super) fn write_back(&mut self, now: Cycle, line: u64) {
        let address = line << self.line_shift;
        let transaction = self.begin(now, What::WriteBack, address, self.settings.line_bytes);
        let phases = self.transact(now, 1);
        let carried = self.carry(phases.requested, phases.requested);
        let arrives = carried + self.delays.crossing;
        self.span(transaction, Stage::Bus, now, phases.requested, 0);
        self.span(transaction, Stage::Data, phases.requested, carried, 0);
        self.span(transaction, Stage::Chipset, carried, arrives, 0);
        self.store(arrives, line, Agent::Processor, transaction);
    }

    /// Sends a write to the controller, after older data of the line. No instruction waits for
    /// this write.
    pub(super) fn store(&mut self, at: Cycle, line: u64, agent: Agent, transaction: u32) {
        let at = self.write_back_arrives(line).map_or(at, |older| older.max(at));
        if agent == Agent::Processor {
            self.write_backs.push((line, at));
        }
        let purpose = Purpose::Store;
        let request = Request { line, write: true, agent, purpose, arrived: at, transaction };
        self.agenda.push(at, Event::Arrive(request));
    }

    /// Whether the line is dirty in a cache, or `None` if no cache holds it.
    pub(super) fn is_dirty(&self, line: u64) -> Option<bool> {
        let second = self.second_cache.peek(line)?;
        Some(second || self.data_cache.peek(line) == Some(true))
    }

    /// Marks a line as equal to memory in all caches.
    pub(super) fn clean(&mut self, line: u64) {
        self.second_cache.clean(line);
        self.data_cache.clean(line);
    }

    /// Removes a line from all caches, whatever its state. If the line is under way, it does not
    /// enter the caches. Returns whether a cache held it.
    pub(super) fn invalidate(&mut self, line: u64) -> bool {
        if let Some(register) = self.registers.find(line) {
            register.overtaken = true;
        }
        self.instruction_cache.remove(line);
        self.data_cache.remove(line);
        self.second_cache.remove(line).is_some()
    }

    /// Writes a NIC's payload to memory: the caches drop these lines, because their data is
    /// overwritten.
    pub fn dma_write(&mut self, now: Cycle, address: u64, bytes: u64) {
        if bytes == 0 {
            return;
        }
        for line in address >> self.line_shift..=(address + bytes - 1) >> self.line_shift {
            self.invalidate(line);
            self.statistics.device_lines += 1;
            if self.settings.payload_takes_bandwidth {
                let line_bytes = self.settings.line_bytes;
                let transaction =
                    self.begin(now, What::Device, line << self.line_shift, line_bytes);
                self.store(now, line, Agent::Device, transaction);
            }
        }
    }
}
