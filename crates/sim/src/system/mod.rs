//! The whole memory system: caches, bus, controller, memory and copy engines, driven by events.
//!
//! The path of a line that misses both caches: MSHR, bus (arbitration, request), chipset, the
//! controller's queue, its channel, chipset, the bus's data lines, the caches. The path of a copy:
//! control unit (translate, split), bus, chipset, an engine's queue, announcement, reads, writes,
//! completion on the bus.
//!
//! Known simplifications: an L1 miss that hits the L2 costs the L2's latency and nothing else;
//! bus slots are assigned in the order of requests, so that late data leaves a gap that stays
//! empty; memory is not refreshed.
//!
//! - `due`: the agenda of events;
//! - `caches`: hits, misses, fills and write-backs;
//! - `copies`: the control unit and the engines.

mod caches;
mod copies;
mod due;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::Range;

use crate::configuration::{Configuration, Cycle, EngineSettings, MemorySettings, cycles_of_ns};
use crate::engine::control::{Control, Piece};
use crate::engine::{self, Policy};
use crate::error::Error;
use crate::memory::dram::{Row, Timing};
use crate::memory::trace::{Span, Stage, Transaction, What};
use crate::memory::{
    Agent, Bus, Cache, Channel, Completion, Kind, Passing, Purpose, Queue, Registers, Request, Tag,
    Trace,
};
use crate::statistics::MemoryStatistics;

use copies::Engine;
use due::{Agenda, Event};

/// Caches, bus, memory and copy engines of one processor. [`crate::memory::port`] is its interface.
/// Time must not go backwards: the `now` of every call is at least that of the previous call.
pub struct MemorySystem {
    settings: MemorySettings,
    engine_settings: EngineSettings,
    delays: Delays,
    line_shift: u32,
    instruction_cache: Cache,
    data_cache: Cache,
    second_cache: Cache,
    registers: Registers,
    waited: Vec<(Tag, Kind)>,
    bus: Bus,
    queue: Queue,
    /// Lines on their way from a cache to the queue, each with the cycle of its arrival.
    write_backs: Vec<(u64, Cycle)>,
    timing: Timing,
    channels: Vec<Channel>,
    choice_is_due: Vec<bool>,
    policy: Box<dyn Policy>,
    control: Control,
    unsent: VecDeque<Piece>,
    /// The copy whose piece was sent last, and its engine.
    last_sent: Option<(u32, usize)>,
    sending: bool,
    engines: Vec<Engine>,
    agenda: Agenda,
    transactions: u32,
    statistics: MemoryStatistics,
    trace: Option<Box<Trace>>,
}

/// Fixed delays in cycles.
struct Delays {
    fetch: Cycle,
    data: Cycle,
    second: Cycle,
    /// Between bus and hub, in each direction.
    crossing: Cycle,
    /// From memory to the processor's side of the bus, for the processor's reads.
    chipset_back: Cycle,
    walk: Cycle,
}

impl MemorySystem {
    /// An idle memory system with empty caches.
    ///
    /// # Errors
    /// [`Configuration::validate`] refuses the configuration, or no policy has the name in the
    /// configuration.
    pub fn new(configuration: &Configuration) -> Result<Self, Error> {
        configuration.validate()?;
        let settings = configuration.memory.clone();
        let line_bytes = settings.line_bytes;
        let timing = Timing::new(&settings.dram, line_bytes);
        let channels = settings.dram.independent_channels() as usize;
        let chipset = settings.chipset_cycles().unwrap_or(0);
        // If the chipset's delay is shorter than two crossings, each crossing takes half of the
        // delay.
        let crossing = cycles_of_ns(settings.crossing_ns).min(chipset / 2);
        Ok(Self {
            delays: Delays {
                fetch: settings.instruction_cache.hit_cycles.into(),
                data: settings.data_cache.hit_cycles.into(),
                second: settings.second_cache.hit_cycles.into(),
                crossing,
                chipset_back: chipset - crossing + settings.answer_cycles(),
                walk: configuration.core.tlb.walk_cycles.into(),
            },
            line_shift: line_bytes.trailing_zeros(),
            instruction_cache: Cache::new(&settings.instruction_cache, line_bytes),
            data_cache: Cache::new(&settings.data_cache, line_bytes),
            second_cache: Cache::new(&settings.second_cache, line_bytes),
            registers: Registers::new(settings.mshrs),
            waited: Vec::new(),
            bus: Bus::new(&settings.bus),
            queue: Queue::new(channels, settings.queue_entries as usize),
            write_backs: Vec::new(),
            channels: (0..channels).map(|_| Channel::new(&timing)).collect(),
            choice_is_due: vec![false; channels],
            timing,
            policy: engine::policy(&configuration.engine)?,
            control: Control::new(configuration),
            unsent: VecDeque::new(),
            last_sent: None,
            sending: false,
            engines: (0..configuration.engine.engines).map(|_| Engine::default()).collect(),
            agenda: Agenda::default(),
            transactions: 0,
            statistics: MemoryStatistics::default(),
            trace: None,
            engine_settings: configuration.engine.clone(),
            settings,
        })
    }

    /// What may execute while an older `ecpy` has not completed. It does not change during a run.
    #[must_use]
    pub fn passing(&self) -> Passing {
        if self.engine_settings.overlap { self.policy.passing() } else { Passing::Nothing }
    }

    /// The cycle of the next event, if anything is under way.
    #[inline]
    #[must_use]
    pub fn next_event(&self) -> Option<Cycle> {
        self.agenda.next()
    }

    /// Whether no event is pending.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.agenda.next().is_none()
    }

    /// The counters so far.
    #[must_use]
    pub fn statistics(&self) -> &MemoryStatistics {
        &self.statistics
    }

    /// Traces transactions in a window of cycles, from now on.
    pub fn record(&mut self, window: Range<Cycle>) {
        self.trace = Some(Box::new(Trace::new(window)));
    }

    /// The trace, if [`MemorySystem::record`] was called.
    #[must_use]
    pub fn trace(&self) -> Option<&Trace> {
        self.trace.as_deref()
    }

    /// Processes all events that are due up to `now`, and appends completions to `completions` in
    /// the order of time.
    #[inline]
    pub fn advance(&mut self, now: Cycle, completions: &mut Vec<Completion>) {
        while let Some((at, event)) = self.agenda.take(now) {
            self.happen(at, event, completions);
        }
    }

    fn happen(&mut self, at: Cycle, event: Event, completions: &mut Vec<Completion>) {
        match event {
            Event::Arrive(request) => self.arrive(at, request),
            Event::Choose(channel) => self.choose(at, channel.into()),
            Event::Moved(request, begins) => self.moved(at, &request, begins),
            Event::Fill(register) => self.fill(at, register, completions),
            Event::Send => self.send(at),
            Event::Piece(engine, piece) => self.piece_arrives(at, engine.into(), piece),
            Event::Acknowledged(engine, copy) => self.acknowledged(at, engine.into(), copy),
            Event::Notified(copy) => self.notified(at, copy, completions),
            Event::Read(engine, index) => self.read_arrives(at, engine.into(), index),
            Event::Written(engine) => self.written(at, engine.into()),
            Event::Complete(engine, copy) => {
                self.piece_complete(at, engine.into(), copy, completions);
            }
        }
    }

    /// A request enters the controller's queue.
    fn arrive(&mut self, now: Cycle, request: Request) {
        if request.purpose == Purpose::Store && request.agent == Agent::Processor {
            let arrived = (request.line, now);
            if let Some(place) = self.write_backs.iter().position(|each| *each == arrived) {
                self.write_backs.swap_remove(place);
            }
        }
        let channel = self.timing.channel(request.line);
        self.queue.push(channel, Request { arrived: now, ..request });
        self.expect_choice(now, channel);
    }

    /// When the last write-back of a line reaches the queue, if one is on its way. A later access
    /// to that line must not arrive earlier: the access would read old data, or old data would
    /// replace the data of the access.
    fn write_back_arrives(&self, line: u64) -> Option<Cycle> {
        self.write_backs.iter().filter(|each| each.0 == line).map(|each| each.1).max()
    }

    fn expect_choice(&mut self, now: Cycle, channel: usize) {
        if !self.choice_is_due[channel] {
            self.choice_is_due[channel] = true;
            let at = now.max(self.channels[channel].next_choice());
            self.agenda.push(at, Event::Choose(channel as u8));
        }
    }

    /// Chooses the request that a channel serves next, as the policy decides.
    fn choose(&mut self, now: Cycle, channel: usize) {
        self.choice_is_due[channel] = false;
        let waiting = self.queue.waiting(channel);
        if waiting.is_empty() {
            return;
        }
        let is_awaited = |request: &Request| !request.is_of_engine() && !request.write;
        let contended = waiting.iter().any(Request::is_of_engine) && waiting.iter().any(is_awaited);
        let place = self.policy.choose(channel, waiting);
        let chosen = waiting.get(place).unwrap_or(&waiting[0]).line;
        // Requests for one line keep their order, whatever a policy prefers.
        let place = waiting.iter().position(|request| request.line == chosen).unwrap_or(0);
        let request = self.queue.take(channel, place);
        let waited = now - request.arrived;
        let counted = &mut self.statistics;
        match request.agent {
            Agent::Processor => counted.processor_queue_cycles += waited,
            Agent::Device => counted.device_queue_cycles += waited,
            Agent::Engine(_) => {
                counted.engine_queue_cycles += waited;
                counted.engine_choices += u64::from(contended);
            }
        }
        self.statistics.contended_choices += u64::from(contended);
        self.begin_burst(now, channel, request);
        if !self.queue.waiting(channel).is_empty() {
            self.expect_choice(now, channel);
        }
        // The queue has room again.
        for engine in 0..self.engines.len() {
            self.work(now, engine);
        }
    }

    fn begin_burst(&mut self, now: Cycle, channel: usize, request: Request) {
        let burst = self.channels[channel].access(now, request.line, request.write);
        let counted = &mut self.statistics;
        match burst.row {
            Row::Hit => counted.row_hits += 1,
            Row::Open => counted.row_opens += 1,
            Row::Conflict => counted.row_conflicts += 1,
        }
        counted.memory_writes += u64::from(request.write);
        counted.memory_reads += u64::from(!request.write);
        counted.channel_cycles += burst.ends - burst.begins;
        let on_channel = channel as u8;
        self.span(request.transaction, Stage::Queue, request.arrived, now, on_channel);
        self.span(request.transaction, Stage::Memory, now, burst.ends, on_channel);
        if !matches!(request.purpose, Purpose::Fill(_)) {
            self.end(request.transaction);
        }
        self.agenda.push(burst.ends, Event::Moved(request, burst.begins));
    }

    /// Handles a line that a channel has moved: forwards it to its requester.
    fn moved(&mut self, now: Cycle, request: &Request, begins: Cycle) {
        match request.purpose {
            Purpose::Store => {}
            Purpose::Fill(register) => {
                let back = self.delays.chipset_back;
                let transfer = self.carry(begins + back, now + back);
                let at = transfer.max(self.registers.get(register).responded);
                self.span(request.transaction, Stage::Chipset, now, now + back, 0);
                self.span(request.transaction, Stage::Data, now + back, at, 0);
                self.end(request.transaction);
                self.agenda.push(at, Event::Fill(register));
            }
            Purpose::EngineRead { engine, index } => {
                self.engine_read_moved(now, engine, index, begins);
            }
            Purpose::EngineWrite { engine } => self.agenda.push(now, Event::Written(engine)),
        }
    }

    /// Transfers a line on the bus's data lines. Returns the cycle of its end.
    fn carry(&mut self, first: Cycle, last: Cycle) -> Cycle {
        let bytes = self.settings.line_bytes;
        let transfer = self.bus.transfer(first, last, bytes);
        self.statistics.bus_data_cycles += transfer.ends - transfer.begins;
        self.statistics.bus_data_wait_cycles += transfer.waited;
        transfer.ends
    }

    /// Sends a transaction over the bus.
    fn transact(&mut self, now: Cycle, addresses: u32) -> crate::memory::bus::Phases {
        let phases = self.bus.transact(now, addresses);
        self.statistics.bus_transactions += 1;
        let arbitration = u64::from(self.settings.bus.arbitration_clocks);
        let at_once = self.settings.bus.after(self.settings.bus.clock_at(now) + arbitration);
        self.statistics.bus_address_wait_cycles += phases.granted - at_once.min(phases.granted);
        phases
    }

    /// Begins a transaction, in the trace if there is one. Returns its number.
    fn begin(&mut self, now: Cycle, what: What, address: u64, bytes: u64) -> u32 {
        self.begin_for(now, what, (address, bytes), None)
    }

    /// Begins a transaction of an engine for a copy.
    fn begin_for(
        &mut self,
        now: Cycle,
        what: What,
        (address, bytes): (u64, u64),
        copy: Option<u32>,
    ) -> u32 {
        let number = self.transactions;
        self.transactions = number.wrapping_add(1);
        if let Some(trace) = &mut self.trace {
            trace.begin(now, Transaction { number, what, address, bytes, copy });
        }
        number
    }

    /// Ends a transaction in the trace: the transaction has no further span.
    #[inline]
    fn end(&mut self, transaction: u32) {
        if let Some(trace) = &mut self.trace {
            trace.end(transaction);
        }
    }

    #[inline]
    fn span(&mut self, transaction: u32, stage: Stage, from: Cycle, to: Cycle, channel: u8) {
        if let Some(trace) = &mut self.trace {
            trace.span(Span { transaction, stage, from, to, channel });
        }
    }
}
