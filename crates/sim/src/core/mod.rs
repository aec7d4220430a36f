//! The timing core: a four-wide processor, in order or out of order, one stage a file.
//!
//! A cycle, oldest instructions first, as `Core::cycle` has it:
//!
//! 1. *commit*: the oldest leave the window in order; stores and copies go to memory here;
//! 2. *writeback*: results that are there wake those who wait; a mispredicted branch drops what it
//!    should not have brought in;
//! 3. *issue*: what has its operands takes a unit or a memory port;
//! 4. *dispatch*: instructions enter the window, and are executed as far as values go;
//! 5. *fetch*: instructions come in along the predicted path.
//!
//! Values are computed at dispatch, in the program's order, by the interpreter's own
//! [`Interpreter::execute`]; all else here is about when. Behind a mispredicted branch a `Shadow`
//! computes instead. SimpleScalar's sim-outorder works so, and where the paper says nothing this
//! core does what it does: loads and stores use an integer unit for their address; a load waits
//! until the addresses of all older stores are known, takes its value from a store if that holds
//! all of it, and else waits for that store; stores wait for nothing at commit but a port and an
//! MSHR; the predictor learns at commit; in order, nothing is dispatched while the youngest
//! instruction lacks an operand, or the address that it loads from or stores to.
//!
//! Known simplifications: a load or store that lies in two lines asks for the first; a page walk
//! takes its time and no memory access; a store to a device takes no bus.
//!
//! Cycles in which nothing can happen are skipped, not simulated.
//!
//! From the bottom up:
//!
//! - `statistics`: what a core counts;
//! - `predictor`: the branch predictor;
//! - `tlb`: a translation buffer;
//! - `wheel`: what is due in which of the coming cycles;
//! - `window`: the instruction window;
//! - `touched`: which memory an instruction reads or writes;
//! - `shadow`: what instructions behind a mispredicted branch compute;
//! - `stores`: the store queue;
//! - `trace`: what instructions did when;
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

/// What a core asks of its memory system; see [`crate::memory::port`].
pub trait MemoryPort {
    /// One access inside a line.
    fn access(&mut self, now: Cycle, kind: Kind, address: u64, tag: Tag) -> Access;
    /// A copy, handed over when it is no longer speculative.
    fn copy(&mut self, now: Cycle, copy: Copy) -> Access;
    /// Whether a copy that is under way forbids this load or store.
    fn blocks(&mut self, kind: Kind, address: u64, bytes: u64) -> bool;
    /// What may execute while an `ecpy` has not completed.
    fn passing(&self) -> Passing;
    /// A device wrote to memory.
    fn dma_write(&mut self, now: Cycle, address: u64, bytes: u32);
    /// Does everything that is due up to `now`.
    fn advance(&mut self, now: Cycle, completions: &mut Vec<Completion>);
    /// The cycle of the next event.
    fn next_event(&self) -> Option<Cycle>;
}

/// A processor in the middle of a run.
pub struct Core<'a, M> {
    settings: CoreSettings,
    image: &'a Image,
    /// The values.
    pub interpreter: Interpreter,
    memory: M,
    passing: Passing,
    now: Cycle,
    window: window::Window,
    /// What may take an integer unit, and what may take a multiply unit.
    ready: window::ReadySet,
    ready_multiply: window::ReadySet,
    /// Loads whose address is known and whose value has not been asked for.
    loads: window::ReadySet,
    stores: stores::StoreQueue,
    /// Loads and stores in the window.
    memory_entries: u32,
    /// Copies in the window, oldest first.
    copies: VecDeque<touched::WaitingCopy>,
    copy_state: commit::CopyState,
    front: fetch::Front,
    /// Cycles of a fetch that the first-level cache holds.
    fetch_hit_cycles: Cycle,
    predictor: predictor::Predictor,
    data_tlb: tlb::Tlb,
    shadow: shadow::Shadow,
    /// The mispredicted branch whose wrong path is followed.
    wrong_path_of: Option<u64>,
    wheel: wheel::Wheel,
    /// For each multiply unit, when it can begin something.
    multiply_free_at: Vec<Cycle>,
    ports_used: u32,
    /// What devices wrote when the instruction of that number was executed.
    device_writes: VecDeque<(u64, Dma)>,
    /// Packets after which the run is in its steady state, and the cycle in which it was.
    warm_packets: u64,
    warm_cycle: Option<Cycle>,
    is_finished: bool,
    /// Whether anything happened in this cycle.
    progress: bool,
    statistics: CoreStatistics,
    trace: Option<Box<PipelineTrace>>,
    // Lists that are empty between their uses and keep their memory.
    completions: Vec<Completion>,
    events: Vec<wheel::Event>,
}

impl<'a, M: MemoryPort> Core<'a, M> {
    /// A processor about to run `machine`, whose program is `image`, on `memory`.
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

    /// Notes what instructions do that are dispatched in these cycles.
    pub fn trace_cycles(&mut self, cycles: std::ops::Range<Cycle>) {
        self.trace = Some(Box::new(PipelineTrace::new(cycles)));
    }

    /// Notes the cycle in which the program has taken so many packets.
    pub fn warm_packets(&mut self, packets: u64) {
        self.warm_packets = packets;
    }

    /// That cycle, once it was reached.
    pub fn warm_cycle(&self) -> Option<Cycle> {
        self.warm_cycle
    }

    /// Runs the program to its end, or until `stops` says so: it is asked now and then, and told
    /// the instructions executed so far.
    ///
    /// # Errors
    /// What the program did wrong; [`Error::InstructionLimit`] after `limit` instructions, and
    /// [`Error::CycleLimit`] after so many cycles that no instructions but copies take them;
    /// [`Error::Stopped`].
    pub fn run(&mut self, limit: u64, mut stops: impl FnMut(u64) -> bool) -> Result<(), Error> {
        /// How often `stops` is asked: some ten times a second.
        const STEPS_BETWEEN_LOOKS: u64 = 1 << 18;
        let cycles_max = limit.saturating_mul(CYCLES_OF_INSTRUCTION_MAX);
        let mut steps = 0_u64;
        while !self.is_finished {
            if self.interpreter.executed >= limit || self.now >= cycles_max {
                return Err(self.over_limit(limit, cycles_max));
            }
            steps += 1;
            if steps.is_multiple_of(STEPS_BETWEEN_LOOKS) && stops(self.interpreter.executed) {
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

    /// Which of its limits the program has reached.
    fn over_limit(&self, limit: u64, cycles_max: Cycle) -> Error {
        let at = self.image.address_of(self.interpreter.next);
        let instructions = self.interpreter.executed;
        if instructions >= limit {
            return Error::InstructionLimit { instructions: limit, at };
        }
        Error::CycleLimit { cycles: cycles_max, instructions, at }
    }

    /// One cycle; then time goes on to the next in which something can happen.
    fn cycle(&mut self) -> Result<(), Error> {
        self.progress = false;
        self.ports_used = 0;
        self.hear();
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

    /// The first cycle in which anything can be different, where nothing happened in this one.
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

    /// Says whom the oldest instruction waited for in the cycles that passed.
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

    /// What was counted; complete once the program has ended.
    pub fn statistics(&self) -> &CoreStatistics {
        &self.statistics
    }

    /// The cycle that the run has come to.
    pub fn now(&self) -> Cycle {
        self.now
    }

    /// The memory system, and what the pipeline did in the window that was asked for.
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
