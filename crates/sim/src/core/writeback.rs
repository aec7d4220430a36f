//! Writeback: results wake those who wait, and a branch that went elsewhere is put right.

use super::fetch::FETCH_TAG;
use super::wheel::Due;
use super::window::{TAGS, VALUE};
use super::{Core, MemoryPort};
use crate::isa::Class;
use crate::memory::Completion;

impl<M: MemoryPort> Core<'_, M> {
    /// Lets memory go on to this cycle, and hears what it has done.
    pub(super) fn hear(&mut self) {
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
            // What was squashed leaves its events behind.
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

    /// Memory has done what a fetch, a load or a copy asked for.
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

    /// An address is there: a load may ask, a store is one step nearer to its end.
    fn know_address(&mut self, sequence: u64) {
        self.window.entry_mut(sequence).is_known = true;
        let entry = self.window.entry(sequence);
        if entry.class == Class::Load {
            self.loads.insert(sequence);
            self.waiting += 1;
            return;
        }
        let (place, waits) = (entry.store_place, entry.waits);
        self.stores.at(place).is_known = true;
        if waits >> VALUE & 1 == 0 {
            self.finish(sequence);
        }
    }

    /// The result is there.
    fn finish(&mut self, sequence: u64) {
        let mut woken = std::mem::take(&mut self.woken);
        self.window.finish(sequence, &mut woken);
        for (consumer, operand) in woken.drain(..) {
            self.wake(consumer, operand);
        }
        self.woken = woken;
        let entry = self.window.entry(sequence);
        let (class, place, row) = (entry.class, entry.store_place, entry.row);
        let is_mispredicted = entry.is_mispredicted;
        if class == Class::Copy {
            self.stores.at(place).is_known = true;
        }
        if let Some(trace) = &mut self.trace {
            trace.done(row, self.now);
        }
        if is_mispredicted {
            self.recover(sequence);
        }
    }

    /// One operand more is there.
    fn wake(&mut self, sequence: u64, operand: u8) {
        let entry = self.window.entry(sequence);
        let (class, waits, is_issued) = (entry.class, entry.waits, entry.is_issued);
        if class == Class::Store && operand == VALUE {
            let store = self.stores.at(entry.store_place);
            store.has_value = true;
            if store.is_known {
                self.finish(sequence);
                return;
            }
        }
        // Of a store's two operands, the value is not what it began with.
        let is_new =
            !is_issued && (class != Class::Store || operand != VALUE || self.is_in_order());
        if is_new && self.may_issue(class, waits) {
            self.make_ready(sequence, class);
        }
    }

    /// Drops the wrong path of a branch and begins on the right one.
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
            self.waiting -= self.ready.take(sequence)
                + self.ready_multiply.take(sequence)
                + self.loads.take(sequence);
        }
        self.stores.squash(store_end);
        while self.copies.back().is_some_and(|copy| *copy > branch) {
            self.copies.pop_back();
        }
        self.window.squash(branch);
        self.window.entry_mut(branch).is_mispredicted = false;
        self.wrong_path_of = None;
        self.predictor.restore(entry.return_top);
        self.front.redirect(entry.next, self.now + u64::from(self.settings.mispredict_cycles));
    }
}
