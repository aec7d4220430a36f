//! Writeback: results wake the instructions that wait for them, and a mispredicted branch recovers.

use super::fetch::FETCH_TAG;
use super::wheel::Due;
use super::window::{TAGS, VALUE};
use super::{Core, MemoryPort};
use crate::isa::Class;
use crate::memory::Completion;

impl<M: MemoryPort> Core<'_, M> {
    /// Advances memory to this cycle and collects its completions.
    pub(super) fn receive_completions(&mut self) {
        if self.memory.next_event().is_some_and(|at| at <= self.now) {
            self.memory.advance(self.now, &mut self.completions);
        }
    }

    pub(super) fn writeback(&mut self) {
        if !self.completions.is_empty() {
            let mut completions = std::mem::take(&mut self.completions);
            self.progress = true;
            for completion in completions.drain(..) {
                self.complete(completion);
            }
            self.completions = completions;
        }
        let mut events = std::mem::take(&mut self.events);
        self.wheel.take(self.now, &mut events);
        self.progress |= !events.is_empty();
        for event in events.drain(..) {
            // The events of a squashed instruction stay in the wheel.
            let is_its_own = self.window.holds(event.sequence)
                && self.window.entry(event.sequence).stamp == event.stamp;
            if !is_its_own {
                continue;
            }
            match event.due {
                Due::Result => self.finish(event.sequence),
                Due::Address => self.know_address(event.sequence),
            }
        }
        self.events = events;
    }

    /// Handles the completion of a fetch, a load or a copy.
    fn complete(&mut self, completion: Completion) {
        let tag = completion.tag.0;
        if tag & FETCH_TAG != 0 {
            self.front.line_arrived(tag);
            return;
        }
        if tag >= TAGS {
            return;
        }
        let Some(sequence) = self.window.tagged(completion.tag) else { return };
        match self.window.entry(sequence).class {
            Class::Copy => self.copy_state.complete(self.now),
            Class::Load => self.finish(sequence),
            _ => {}
        }
    }

    /// Handles a computed address: a load may now request its value; a store is done if its value
    /// is available.
    fn know_address(&mut self, sequence: u64) {
        self.window.entry_mut(sequence).is_known = true;
        let entry = self.window.entry(sequence);
        if entry.class == Class::Load {
            self.loads.insert(sequence);
            return;
        }
        let (place, waits) = (entry.store_place, entry.waits);
        self.stores.know(place);
        if waits >> VALUE & 1 == 0 {
            self.finish(sequence);
        }
    }

    /// Handles a result that is available.
    fn finish(&mut self, sequence: u64) {
        let mut consumers = self.window.finish(sequence);
        while let Some((operand, consumer)) = self.window.supply(&mut consumers) {
            let (name, class, place) = (consumer.sequence, consumer.class, consumer.store_place);
            let begins = consumer.needs >> operand & 1 == 1 && consumer.may_begin();
            if class == Class::Store && operand == VALUE {
                self.store_value_arrives(name, place);
            }
            if begins {
                self.make_ready(name, class);
            }
        }
        let entry = self.window.entry(sequence);
        if entry.class == Class::Copy {
            self.stores.know(entry.store_place);
        }
        if let Some(trace) = &mut self.trace {
            trace.done(entry.row, self.now);
        }
        if entry.is_mispredicted {
            self.recover(sequence);
        }
    }

    /// Handles the value of a store. The store is done if its address is known; no instruction
    /// waits for a store's result.
    fn store_value_arrives(&mut self, sequence: u64, place: u64) {
        let store = self.stores.at(place);
        store.has_value = true;
        if store.is_known {
            self.finish(sequence);
        }
    }

    /// Squashes the wrong path of a branch and redirects fetch to the right one.
    fn recover(&mut self, branch: u64) {
        let entry = *self.window.entry(branch);
        self.statistics.mispredicted_branches += 1;
        let mut store_end = self.stores.end;
        for sequence in (branch + 1..self.window.tail).rev() {
            let squashed = self.window.entry(sequence);
            if squashed.is_memory() {
                self.memory_entries -= 1;
            }
            if matches!(squashed.class, Class::Store | Class::Copy) {
                store_end = squashed.store_place;
            }
            if let Some(trace) = &mut self.trace {
                trace.squashed(squashed.row, self.now);
            }
        }
        for waiting in [&mut self.ready, &mut self.ready_multiply, &mut self.loads] {
            waiting.squash(branch + 1, self.window.tail);
        }
        self.stores.squash(store_end);
        while self.copies.back().is_some_and(|copy| copy.sequence > branch) {
            self.copies.pop_back();
        }
        self.window.squash(branch);
        self.window.entry_mut(branch).is_mispredicted = false;
        self.wrong_path_of = None;
        self.predictor.restore(entry.return_top);
        self.front.redirect(entry.next, self.now + u64::from(self.settings.mispredict_cycles));
    }
}
