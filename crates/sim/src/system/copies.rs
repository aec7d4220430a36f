//! The path of a copy: control unit, bus, an engine's queue, announcement, lines, completion.
//!
//! An engine in the hub is beside the controller's queue: its lines do not use the bus, but its
//! snoops, notifications and broadcasts cross the chipset. For an engine on the die, the opposite
//! holds: its lines cross bus and chipset, but its messages to the processor cost nothing on the
//! bus.

use std::collections::VecDeque;

use super::MemorySystem;
use super::due::Event;
use crate::configuration::{Cycle, Placement, Source, Target};
use crate::engine::control::Piece;
use crate::engine::{Announcement, Retirement, Step, Stream};
use crate::memory::trace::{Stage, What};
use crate::memory::{Access, Agent, Completion, Copy, Kind, Purpose, Request};

/// One engine: its command queue and its current piece.
#[derive(Default)]
pub(super) struct Engine {
    queue: VecDeque<Command>,
    current: Option<Working>,
    /// The copy whose end the engine is broadcasting.
    broadcasting: Option<u32>,
    /// The number of pieces that were sent to the engine and are not complete.
    taken: u32,
}

/// A waiting piece.
struct Command {
    piece: Piece,
    arrived: Cycle,
    acknowledged: bool,
}

/// The current piece.
struct Working {
    copy: u32,
    stream: Stream,
    /// For each read, when its line's snoop is answered.
    snooped: Vec<Cycle>,
    /// When the snoop of the latest write's line is answered.
    write_snooped: Cycle,
}

impl MemorySystem {
    /// Accepts a copy that is no longer speculative. Its ranges must not overlap.
    pub fn copy(&mut self, now: Cycle, copy: Copy) -> Access {
        if copy.bytes == 0 {
            return Access::Hit { ready: now };
        }
        if !self.control.has_room() || !self.unsent.is_empty() || self.must_wait(&copy) {
            self.statistics.copy_retries += 1;
            return Access::Retry;
        }
        let number = self.begin(now, What::Copy, copy.target, copy.bytes);
        let walks = self.control.enter(number, now, copy, &mut self.unsent);
        self.statistics.engine_copies += 1;
        self.statistics.copied_bytes += copy.bytes;
        self.statistics.copy_pieces += self.unsent.len() as u64;
        self.statistics.copy_walks += u64::from(walks);
        let translated = now + u64::from(walks) * self.delays.walk;
        self.span(number, Stage::Control, now, translated, 0);
        self.sending = true;
        self.agenda.push(translated, Event::Send);
        Access::Pending
    }

    /// Whether an older operation must complete first: a store whose line is still under way, which
    /// no snoop would find; or a copy on another engine on which this one depends.
    fn must_wait(&self, copy: &Copy) -> bool {
        let lines = |first: u64| {
            first >> self.line_shift..((first + copy.bytes - 1) >> self.line_shift) + 1
        };
        self.registers.has_store(lines(copy.source))
            || self.registers.has_store(lines(copy.target))
            || (self.engines.len() > 1 && self.control.conflicts(copy))
    }

    /// Whether a load or store must stall and retry because a pending copy reads or writes its
    /// lines.
    #[inline]
    pub fn blocks(&mut self, kind: Kind, address: u64, bytes: u64) -> bool {
        if self.control.is_idle() {
            return false;
        }
        let blocked = self.control.blocks(kind, address, bytes);
        self.statistics.dependency_stalls += u64::from(blocked);
        blocked
    }

    /// Sends pieces from the control unit while an engine has room for one. All pieces of a copy
    /// go to one engine, which works on them one at a time, because two pieces may write parts of
    /// one line.
    pub(super) fn send(&mut self, now: Cycle) {
        self.sending = false;
        let room = self.engine_settings.queue_entries;
        while let Some(piece) = self.unsent.front().copied() {
            let least = (0..self.engines.len()).min_by_key(|each| self.engines[*each].taken);
            let engine = match self.last_sent {
                Some((copy, engine)) if copy == piece.copy => engine,
                _ => least.expect("there is an engine at least"),
            };
            if self.engines[engine].taken >= room {
                return;
            }
            self.unsent.pop_front();
            self.last_sent = Some((piece.copy, engine));
            self.engines[engine].taken += 1;
            let arrives = match self.engine_settings.placement {
                Placement::Hub => {
                    let requested = self.transact(now, 2).requested;
                    let arrives = requested + self.delays.crossing;
                    self.span(piece.copy, Stage::Bus, now, requested, 0);
                    self.span(piece.copy, Stage::Chipset, requested, arrives, 0);
                    arrives
                }
                Placement::Die => now,
            };
            self.agenda.push(arrives, Event::Piece(engine as u8, piece));
        }
    }

    /// Handles a piece that reaches its engine. Announces it if the policy requires that.
    pub(super) fn piece_arrives(&mut self, now: Cycle, engine: usize, piece: Piece) {
        let acknowledged = self.policy.announcement() == Announcement::EachLine;
        self.engines[engine].queue.push_back(Command { piece, arrived: now, acknowledged });
        if acknowledged {
            return self.begin_piece(now, engine);
        }
        let responded = self.broadcast(now, 2, |phases| phases.responded);
        let known = responded + self.engine_crossing();
        self.span(piece.copy, Stage::Announce, now, known, 0);
        self.agenda.push(known, Event::Acknowledged(engine as u8, piece.copy));
    }

    /// Handles the acknowledgement of all caches for a piece.
    pub(super) fn acknowledged(&mut self, now: Cycle, engine: usize, copy: u32) {
        let queue = &mut self.engines[engine].queue;
        let waiting = |command: &&mut Command| command.piece.copy == copy && !command.acknowledged;
        if let Some(command) = queue.iter_mut().find(waiting) {
            command.acknowledged = true;
        }
        if self.policy.retirement() == Retirement::Acknowledgement && self.engine_settings.overlap {
            let seen = self.broadcast(now, 1, |phases| phases.requested);
            self.span(copy, Stage::Notify, now, seen, 0);
            self.agenda.push(seen, Event::Notified(copy));
        }
        self.begin_piece(now, engine);
    }

    /// Handles an early notification at the processor. When a copy's last notification arrives,
    /// its `ecpy` retires.
    pub(super) fn notified(&mut self, now: Cycle, copy: u32, completions: &mut Vec<Completion>) {
        let entry = self.control.entry(copy);
        entry.acknowledged += 1;
        if entry.acknowledged == entry.pieces {
            self.retire(now, copy, completions);
        }
    }

    fn retire(&mut self, now: Cycle, copy: u32, completions: &mut Vec<Completion>) {
        let began = self.control.entry(copy).began;
        if let Some(tag) = self.control.retire(copy) {
            self.statistics.copy_retire_cycles += now - began;
            completions.push(Completion { tag, at: now });
        }
    }

    /// Lets an idle engine begin with the oldest piece in its queue, if that is acknowledged.
    fn begin_piece(&mut self, now: Cycle, engine: usize) {
        let line_bytes = self.settings.line_bytes;
        let lines_max = self.engine_settings.stream_lines;
        let this = &mut self.engines[engine];
        let is_busy = this.current.is_some() || this.broadcasting.is_some();
        if is_busy || !this.queue.front().is_some_and(|each| each.acknowledged) {
            return;
        }
        let Some(Command { piece, arrived, .. }) = this.queue.pop_front() else {
            return;
        };
        this.current = Some(Working {
            copy: piece.copy,
            stream: Stream::new(piece.source, piece.target, piece.bytes, line_bytes, lines_max),
            snooped: Vec::new(),
            write_snooped: 0,
        });
        self.span(piece.copy, Stage::Engine, arrived, now, 0);
        self.work(now, engine);
    }

    /// Enqueues what the policy requests next, while there is room.
    pub(super) fn work(&mut self, now: Cycle, engine: usize) {
        while self.queue.has_room() {
            let Some(working) = &mut self.engines[engine].current else {
                return;
            };
            match self.policy.step(&working.stream) {
                Step::Read if working.stream.may_read() => {
                    let (index, line) = working.stream.read();
                    self.read_line(now, engine, index, line);
                }
                Step::Write if working.stream.may_write() => {
                    let line = working.stream.write();
                    self.write_line(now, engine, line);
                }
                _ => return,
            }
        }
    }

    fn read_line(&mut self, now: Cycle, engine: usize, index: u32, line: u64) {
        let address = line << self.line_shift;
        let copy = self.engines[engine].current.as_ref().map(|working| working.copy);
        let range = (address, self.settings.line_bytes);
        let number = self.begin_for(now, What::EngineRead, range, copy);
        let cached = self.is_dirty(line);
        let placement = self.engine_settings.placement;
        let snoops =
            placement == Placement::Hub && self.policy.announcement() == Announcement::EachLine;
        let mut snooped = now;
        if snoops {
            snooped = self.broadcast(now, 1, |phases| phases.snooped) + self.engine_crossing();
        }
        if let Some(working) = &mut self.engines[engine].current {
            working.snooped.push(snooped);
        }
        let from_cache = match placement {
            Placement::Hub => cached == Some(true),
            Placement::Die => cached.is_some(),
        };
        if from_cache {
            let at = self.supply(snooped, line, cached == Some(true), number);
            self.agenda.push(at, Event::Read(engine as u8, index));
        } else {
            let arrives = self.reaches_controller(now, number);
            let purpose = Purpose::EngineRead { engine: engine as u8, index };
            self.enqueue(arrives, now, line, false, engine, purpose, number);
        }
        let whole = self.engines[engine].current.as_ref();
        let whole = whole.is_some_and(|working| working.stream.is_whole_source(line));
        if self.engine_settings.source == Source::Drop && cached.is_some() && whole {
            if self.is_dirty(line) == Some(true) {
                self.write_back(now, line);
            }
            self.invalidate(line);
        }
    }

    /// Lets a cache supply a line to an engine: over the bus, where memory gets a dirty line as
    /// well, or on the die.
    fn supply(&mut self, now: Cycle, line: u64, dirty: bool, transaction: u32) -> Cycle {
        self.statistics.supplied_lines += 1;
        if self.engine_settings.placement == Placement::Die {
            let at = now + self.delays.second;
            self.span(transaction, Stage::Caches, now, at, 0);
            self.end(transaction);
            return at;
        }
        // After a multi-line snoop, the owner pushes the line; after a snoop of this line alone,
        // the owner answers the snoop.
        let carried = self.carry(now, now);
        let at = carried + self.engine_crossing();
        self.span(transaction, Stage::Data, now, carried, 0);
        self.span(transaction, Stage::Chipset, carried, at, 0);
        self.end(transaction);
        if dirty {
            self.clean(line);
            let number =
                self.begin(now, What::WriteBack, line << self.line_shift, self.settings.line_bytes);
            self.store(at, line, Agent::Processor, number);
        }
        at
    }

    fn write_line(&mut self, now: Cycle, engine: usize, line: u64) {
        let address = line << self.line_shift;
        let copy = self.engines[engine].current.as_ref().map(|working| working.copy);
        let range = (address, self.settings.line_bytes);
        let number = self.begin_for(now, What::EngineWrite, range, copy);
        if self.engine_settings.target == Target::Cache {
            let at = now + self.delays.second;
            self.invalidate(line);
            self.insert_second(now, line, true);
            self.span(number, Stage::Caches, now, at, 0);
            self.end(number);
            self.agenda.push(at, Event::Written(engine as u8));
            return;
        }
        let on_hub = self.engine_settings.placement == Placement::Hub;
        if on_hub && self.policy.announcement() == Announcement::EachLine {
            let snooped = self.broadcast(now, 1, |phases| phases.snooped) + self.engine_crossing();
            if let Some(working) = &mut self.engines[engine].current {
                working.write_snooped = snooped;
            }
        }
        if self.invalidate(line) {
            self.statistics.invalidated_lines += 1;
        }
        let mut arrives = self.reaches_controller(now, number);
        if !on_hub {
            arrives = self.carry(now, now).max(arrives);
        }
        let purpose = Purpose::EngineWrite { engine: engine as u8 };
        self.enqueue(arrives, now, line, true, engine, purpose, number);
    }

    /// When a request of an engine reaches the controller: at once from the hub, over bus and
    /// chipset from the die.
    fn reaches_controller(&mut self, now: Cycle, transaction: u32) -> Cycle {
        if self.engine_settings.placement == Placement::Hub {
            return now;
        }
        let requested = self.transact(now, 1).requested;
        let arrives = requested + self.delays.crossing;
        self.span(transaction, Stage::Bus, now, requested, 0);
        self.span(transaction, Stage::Chipset, requested, arrives, 0);
        arrives
    }

    #[expect(clippy::too_many_arguments, reason = "a request's fields, and when it comes")]
    fn enqueue(
        &mut self,
        arrives: Cycle,
        now: Cycle,
        line: u64,
        write: bool,
        engine: usize,
        purpose: Purpose,
        transaction: u32,
    ) {
        let agent = Agent::Engine(engine as u8);
        let write_back = self.write_back_arrives(line);
        let arrives = write_back.map_or(arrives, |older| older.max(arrives));
        let request = Request { line, write, agent, purpose, arrived: arrives, transaction };
        if arrives == now && write_back.is_none() {
            // Enqueued at once, so that the next step sees the queue's room.
            let channel = self.timing.channel(line);
            self.queue.push(channel, request);
            self.expect_choice(now, channel);
        } else {
            self.agenda.push(arrives, Event::Arrive(request));
        }
    }

    /// Handles a line that memory has read for an engine.
    pub(super) fn engine_read_moved(&mut self, now: Cycle, engine: u8, index: u32, begins: Cycle) {
        let arrived = match self.engine_settings.placement {
            Placement::Hub => now,
            Placement::Die => {
                let back = self.delays.chipset_back;
                self.carry(begins + back, now + back)
            }
        };
        let working = self.engines[usize::from(engine)].current.as_ref();
        let snooped = working.and_then(|each| each.snooped.get(index as usize).copied());
        self.agenda.push(arrived.max(snooped.unwrap_or(0)), Event::Read(engine, index));
    }

    /// Handles a read's data that reaches the stream buffer.
    pub(super) fn read_arrives(&mut self, now: Cycle, engine: usize, index: u32) {
        if let Some(working) = &mut self.engines[engine].current {
            working.stream.arrive(index);
        }
        self.work(now, engine);
    }

    /// Handles a completed write. After the last write, the piece is complete.
    pub(super) fn written(&mut self, now: Cycle, engine: usize) {
        let Some(working) = &mut self.engines[engine].current else {
            return;
        };
        working.stream.written();
        if !working.stream.is_complete() {
            return self.work(now, engine);
        }
        let (copy, known) = (working.copy, now.max(working.write_snooped));
        let this = &mut self.engines[engine];
        this.current = None;
        this.taken -= 1;
        // The engine stays busy until the broadcast that ends the copy. At this broadcast, the
        // table drops the copy's entry and moves the next copy's entry to the front.
        let is_last = this.queue.front().is_none_or(|next| next.piece.copy != copy);
        this.broadcasting = is_last.then_some(copy);
        let seen = self.broadcast(known, 1, |phases| phases.requested);
        self.span(copy, Stage::Notify, known, seen, 0);
        self.agenda.push(seen, Event::Complete(engine as u8, copy));
        if !self.unsent.is_empty() && !self.sending {
            self.sending = true;
            self.agenda.push(now, Event::Send);
        }
        self.begin_piece(now, engine);
    }

    /// Handles the completion of a piece at the processor. After the last piece, the copy leaves
    /// the table.
    pub(super) fn piece_complete(
        &mut self,
        now: Cycle,
        engine: usize,
        copy: u32,
        completions: &mut Vec<Completion>,
    ) {
        if self.engines[engine].broadcasting.take_if(|ended| *ended == copy).is_some() {
            self.begin_piece(now, engine);
        }
        let entry = self.control.entry(copy);
        entry.complete += 1;
        if entry.complete < entry.pieces {
            return;
        }
        self.retire(now, copy, completions);
        let entry = self.control.release(copy);
        self.end(copy);
        self.statistics.engine_copy_cycles += now - entry.began;
    }

    /// Sends a message of an engine to all caches. Returns when the given phase of its transaction
    /// ends. From the hub the message crosses the chipset first.
    fn broadcast(
        &mut self,
        now: Cycle,
        addresses: u32,
        phase: fn(&crate::memory::bus::Phases) -> Cycle,
    ) -> Cycle {
        match self.engine_settings.placement {
            Placement::Hub => phase(&self.transact(now + self.delays.crossing, addresses)),
            // The processor on the die needs no message; other processors are snooped over the bus.
            Placement::Die => phase(&self.transact(now, addresses)),
        }
    }

    /// Cycles from the bus to an engine.
    fn engine_crossing(&self) -> Cycle {
        match self.engine_settings.placement {
            Placement::Hub => self.delays.crossing,
            Placement::Die => 0,
        }
    }
}
