//! The events of the coming cycles.

use crate::configuration::Cycle;

/// The number of cycles that the wheel covers. A later event stays in its slot for another turn
/// of the wheel.
const SPAN: u64 = 64;

/// The event that is due for an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// The instruction's result is available.
    Result,
    /// The instruction's address is known.
    Address,
}

/// One event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) at: Cycle,
    /// The sequence number of its instruction, and its stamp, because the number of a squashed
    /// instruction is used again.
    pub(super) sequence: u64,
    pub(super) stamp: u32,
    pub(super) due: Due,
}

/// One slot per coming cycle, with the events of that cycle modulo [`SPAN`]. Lists keep their
/// allocation, so that nothing is allocated once the wheel has turned a few times.
#[derive(Debug)]
pub(super) struct Wheel {
    slots: [Vec<Event>; SPAN as usize],
    /// A bit for each slot that is not empty.
    filled: u64,
    /// A bit for each slot that may hold an event of a later turn.
    late: u64,
}

impl Wheel {
    pub(super) fn new() -> Self {
        Self { slots: std::array::from_fn(|_| Vec::new()), filled: 0, late: 0 }
    }

    #[inline]
    pub(super) fn add(&mut self, now: Cycle, event: Event) {
        let slot = event.at % SPAN;
        self.slots[slot as usize].push(event);
        self.filled |= 1 << slot;
        self.late |= u64::from(event.at - now >= SPAN) << slot;
    }

    /// Moves the events due at `now` to `out`, which must be empty, in the order in which they were
    /// added.
    #[inline]
    pub(super) fn take(&mut self, now: Cycle, out: &mut Vec<Event>) {
        let slot = now % SPAN;
        if self.filled & 1 << slot == 0 {
            return;
        }
        let events = &mut self.slots[slot as usize];
        if self.late >> slot & 1 == 0 {
            std::mem::swap(out, events);
        } else {
            events.retain(|event| {
                if event.at == now {
                    out.push(*event);
                }
                event.at != now
            });
        }
        if events.is_empty() {
            self.filled &= !(1 << slot);
            self.late &= !(1 << slot);
        }
    }

    /// A cycle after `now` before which no event is due; `None` if the wheel is empty.
    pub(super) fn next_after(&self, now: Cycle) -> Option<Cycle> {
        let ahead = self.filled.rotate_right(((now + 1) % SPAN) as u32);
        (ahead != 0).then(|| now + 1 + u64::from(ahead.trailing_zeros()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_is_taken_in_its_cycle() {
        let mut wheel = Wheel::new();
        for (at, sequence) in [(3, 1), (3 + SPAN, 2), (3, 3), (5 + 2 * SPAN, 4)] {
            wheel.add(0, Event { at, sequence, stamp: 0, due: Due::Result });
        }
        let mut seen = Vec::new();
        let mut now = 0;
        while let Some(next) = wheel.next_after(now) {
            now = next;
            let mut events = Vec::new();
            wheel.take(now, &mut events);
            seen.extend(events.iter().map(|event| (now, event.sequence)));
        }
        assert_eq!(seen, [(3, 1), (3, 3), (3 + SPAN, 2), (5 + 2 * SPAN, 4)]);
    }
}
