//! The timing core: a four-wide processor, in order or out of order, one file per stage.
//!
//! The stages of a cycle, the oldest instructions first, as in `Core::cycle`:
//!
//! 1. *commit*: the oldest instructions leave the window in order; stores and copies go to memory
//!    here;
//! 2. *writeback*: results wake the instructions that wait for them; a mispredicted branch squashes
//!    its wrong path;
//! 3. *issue*: an instruction with all its operands occupies a unit or a memory port;
//! 4. *dispatch*: instructions enter the window, and their values are computed;
//! 5. *fetch*: instructions enter along the predicted path.
//!
//! Values are computed at dispatch, in program order, by [`Interpreter::execute`]; everything
//! else here models timing. After a mispredicted branch, a `Shadow` computes the values instead.
//! SimpleScalar's sim-outorder works in this manner, and this core follows sim-outorder if the
//! paper is silent: loads and stores use an integer unit for their address; a load waits until
//! the addresses of all older stores are known, gets its value from a store that holds all of it,
//! and otherwise waits for that store; at commit, a store waits only for a port and an MSHR; the
//! predictor learns at commit; in order, nothing is dispatched while the youngest instruction
//! lacks an operand, or its own address if it is a load or store.
//!
//! Known simplifications: a load or store that crosses a line accesses only the first line; a page
//! walk takes time but no memory access; a store to a device does not use the bus.
//!
//! Cycles without any event are skipped, not simulated.
//!
//! From the bottom up:
//!
//! - `statistics`: the counters of a core;
//! - `predictor`: the branch predictor;
//! - `tlb`: a translation buffer;
//! - `wheel`: the events of the coming cycles;
//! - `window`: the instruction window;
//! - `touched`: the memory that an instruction reads or writes;
//! - `shadow`: the values of instructions after a mispredicted branch;
//! - `stores`: the store queue;
//! - `trace`: the cycles of each instruction's stages;
//! - `fetch`, `dispatch`, `issue`, `writeback`, `commit`: the stages.

mod commit;
mod dispatch;
mod fetch;
mod issue;
mod predictor;
mod shadow;
mod statistics;
mod stores;
mod tlb;
mod touched;
pub mod trace;
mod wheel;
mod window;
mod writeback;

use std::collections::VecDeque;

use crate::configuration::{Configuration, CoreSettings, Cycle, Issue};
use crate::error::{CYCLES_OF_INSTRUCTION_MAX, Error};
use crate::image::Image;
use crate::interpreter::Interpreter;
use crate::isa::{Class, Instruction};
use crate::memory::{Access, Completion, Copy, Kind, Passing, Tag};
use crate::nic::Dma;

pub use statistics::CoreStatistics;
use trace::PipelineTrace;

/// The interface through which a core uses the memory system; see [`crate::memory::port`].
pub trait MemoryPort {
    /// Makes one access inside a line.
    fn access(&mut self, now: Cycle, kind: Kind, address: u64, tag: Tag) -> Access;
    /// Hands over a copy that is no longer speculative.
    fn copy(&mut self, now: Cycle, copy: Copy) -> Access;
    /// Whether a copy under way forbids this load or store.
    fn blocks(&mut self, kind: Kind, address: u64, bytes: u64) -> bool;
    /// What may execute while an `ecpy` has not completed.
    fn passing(&self) -> Passing;
    /// Reports that a device wrote to memory.
    fn dma_write(&mut self, now: Cycle, address: u64, bytes: u32);
    /// Processes all events that are due up to `now`.
    fn advance(&mut self, now: Cycle, completions: &mut Vec<Completion>);
    /// The cycle of the next event.
    fn next_event(&self) -> Option<Cycle>;
}

/// A processor in the middle of a run.
pub struct Core<'a, M> {
    settings: CoreSettings,
    image: &'a Image,
    /// The functional state: registers, memory and device.
    pub interpreter: Interpreter,
    memory: M,
    passing: Passing,
    now: Cycle,
    window: window::Window,
    /// Instructions ready for an integer unit, and those ready for a multiply unit.
    ready: window::ReadySet,
    ready_multiply: window::ReadySet,
    /// Loads with a known address whose value has not been requested.
    loads: window::ReadySet,
    stores: stores::StoreQueue,
    /// The number of loads and stores in the window.
    memory_entries: u32,
    /// Copies in the window, oldest first.
    copies: VecDeque<touched::WaitingCopy>,
    copy_state: commit::CopyState,
    front: fetch::Front,
    /// Cycles of a fetch that hits the first-level cache.
    fetch_hit_cycles: Cycle,
    predictor: predictor::Predictor,
    data_tlb: tlb::Tlb,
    shadow: shadow::Shadow,
    /// The mispredicted branch whose wrong path is being followed.
    wrong_path_of: Option<u64>,
    wheel: wheel::Wheel,
    /// For each multiply unit, the cycle from which it is free.
    multiply_free_at: Vec<Cycle>,
    ports_used: u32,
    /// Writes of devices, each with the sequence number of the instruction that caused it.
    device_writes: VecDeque<(u64, Dma)>,
    /// The number of packets after which the run is in its steady state, and the cycle in which the
    /// program reached it.
    warm_packets: u64,
    warm_cycle: Option<Cycle>,
    is_finished: bool,
    /// Whether anything happened in this cycle.
    progress: bool,
    statistics: CoreStatistics,
    trace: Option<Box<PipelineTrace>>,
    // Scratch lists: these lists are empty between uses and keep their allocation.
    completions: Vec<Completion>,
    events: Vec<wheel::Event>,
}

impl<'a, M: MemoryPort> Core<'a, M> {
    /// A processor about to run `interpreter`, whose program is `image`, on `memory`.
    pub fn new(
        configuration: &Configuration,
        image: &'a Image,
        interpreter: Interpreter,
        memory: M,
    ) -> Self {
        let settings = &configuration.core;
        let line_bytes = configuration.memory.line_bytes;
        let places = settings.window_entries;
        Self {
            image,
            passing: memory.passing(),
            memory,
            now: 0,
            window: window::Window::new(places),
            ready: window::ReadySet::new(places),
            ready_multiply: window::ReadySet::new(places),
            loads: window::ReadySet::new(places),
            stores: stores::StoreQueue::new(places),
            memory_entries: 0,
            copies: VecDeque::new(),
            copy_state: commit::CopyState::default(),
            front: fetch::Front::new(settings, line_bytes, interpreter.next),
            fetch_hit_cycles: configuration.memory.instruction_cache.hit_cycles.into(),
            predictor: predictor::Predictor::new(&settings.predictor),
            data_tlb: tlb::Tlb::new(&settings.tlb),
            shadow: shadow::Shadow::new(),
            wrong_path_of: None,
            wheel: wheel::Wheel::new(),
            multiply_free_at: vec![0; settings.multiply_units as usize],
            ports_used: 0,
            device_writes: VecDeque::new(),
            warm_packets: 0,
            warm_cycle: None,
            is_finished: false,
            progress: false,
            statistics: CoreStatistics::default(),
            trace: None,
            completions: Vec::new(),
            events: Vec::new(),
            interpreter,
            settings: settings.clone(),
        }
    }

    /// Records the instructions that are dispatched in these cycles.
    pub fn trace_cycles(&mut self, cycles: std::ops::Range<Cycle>) {
        self.trace = Some(Box::new(PipelineTrace::new(cycles)));
    }

    /// Sets the number of packets after which the run counts as warm.
    pub fn warm_packets(&mut self, packets: u64) {
        self.warm_packets = packets;
    }

    /// The cycle in which the run became warm, once it has.
    pub fn warm_cycle(&self) -> Option<Cycle> {
        self.warm_cycle
    }

    /// Runs the program to its end, or until `stops` returns true. `stops` is called now and then
    /// with the number of instructions executed so far.
    ///
    /// # Errors
    /// The fault of the program; [`Error::InstructionLimit`] after `limit` instructions;
    /// [`Error::CycleLimit`] after more cycles than `limit` instructions take, unless most of
    /// them are copies; [`Error::Stopped`].
    pub fn run(&mut self, limit: u64, mut stops: impl FnMut(u64) -> bool) -> Result<(), Error> {
        /// The number of steps between two calls of `stops`: some ten calls a second.
        const STEPS_BETWEEN_CALLS: u64 = 1 << 18;
        let cycles_max = limit.saturating_mul(CYCLES_OF_INSTRUCTION_MAX);
        let mut steps = 0_u64;
        while !self.is_finished {
            if self.interpreter.executed >= limit || self.now >= cycles_max {
                return Err(self.over_limit(limit, cycles_max));
            }
            steps += 1;
            if steps.is_multiple_of(STEPS_BETWEEN_CALLS) && stops(self.interpreter.executed) {
                let (instructions, cycles) = (self.interpreter.executed, self.now);
                return Err(Error::Stopped { instructions, cycles });
            }
            self.cycle()?;
        }
        self.statistics.cycles = self.now;
        self.statistics.instructions = self.interpreter.executed;
        self.statistics.data_walks = self.data_tlb.misses;
        self.statistics.fetch_walks = self.front.tlb.misses;
        Ok(())
    }

    /// The error for the limit that the program has reached.
    fn over_limit(&self, limit: u64, cycles_max: Cycle) -> Error {
        let at = self.image.address_of(self.interpreter.next);
        let instructions = self.interpreter.executed;
        if instructions >= limit {
            return Error::InstructionLimit { instructions: limit, at };
        }
        Error::CycleLimit { cycles: cycles_max, instructions, at }
    }

    /// Simulates one cycle, then advances time to the next cycle with an event.
    fn cycle(&mut self) -> Result<(), Error> {
        self.progress = false;
        self.ports_used = 0;
        self.receive_completions();
        let oldest = self.window.head;
        self.commit();
        let is_flowing = self.window.head != oldest;
        self.writeback();
        self.issue();
        self.dispatch()?;
        self.fetch();
        let next = if self.progress { self.now + 1 } else { self.next_event()? };
        self.account(next - self.now, is_flowing);
        self.now = next;
        Ok(())
    }

    /// The first cycle in which anything can change, if nothing happened in this cycle.
    fn next_event(&self) -> Result<Cycle, Error> {
        let own = self.wheel.next_after(self.now);
        let memory = self.memory.next_event();
        let fetch = self.front.resumes_after(self.now);
        let copy = self.copy_state.ready_after(self.now);
        let unit = self.multiply_free_at.iter().copied().filter(|at| *at > self.now).min();
        let next = [own, memory, fetch, copy, unit].into_iter().flatten().min();
        next.map(|next| next.max(self.now + 1)).ok_or(Error::Stuck {
            at: self.image.address_of(self.window.entry(self.window.head).index),
            cycle: self.now,
        })
    }

    /// Charges the cycles that passed to the cause for which the oldest instruction waited.
    #[inline]
    fn account(&mut self, cycles: Cycle, is_flowing: bool) {
        let counters = &mut self.statistics;
        if is_flowing {
            counters.flow_cycles += cycles;
            return;
        }
        if self.window.is_empty() {
            counters.fetch_cycles += cycles;
            return;
        }
        let head = self.window.entry(self.window.head);
        match head.class {
            _ if head.is_done && head.class == Class::Copy => counters.copy_cycles += cycles,
            _ if head.is_done => counters.store_cycles += cycles,
            Class::Load => counters.load_cycles += cycles,
            _ => counters.execute_cycles += cycles,
        }
    }

    /// The counters; complete once the program has ended.
    pub fn statistics(&self) -> &CoreStatistics {
        &self.statistics
    }

    /// The current cycle of the run.
    pub fn now(&self) -> Cycle {
        self.now
    }

    /// The functional state, the memory system, and the pipeline's trace if one was requested.
    pub fn into_parts(self) -> (Interpreter, M, Option<PipelineTrace>) {
        (self.interpreter, self.memory, self.trace.map(|trace| *trace))
    }

    fn instruction(&self, index: u32) -> Instruction {
        self.image.code().get(index as usize).copied().unwrap_or(crate::image::UNMAPPED)
    }

    fn is_in_order(&self) -> bool {
        self.settings.issue == Issue::InOrder
    }
}
