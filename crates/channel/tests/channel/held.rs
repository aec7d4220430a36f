//! An engine whose copies end when the test says so, and engines that fail.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, OnceLock};

use haul_engine::{
    Access, Engine, Facts, Index, Kind, Operation, Outcome, Queue, Refusal, Settings, Slots, Value,
    Verb,
};

/// What happens to each copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// It is pending until [`Held::release`].
    Holds,
    /// The engine does it at once.
    Copies,
    /// The engine stops in the middle.
    Stops,
    /// The engine disappears.
    Disappears,
    /// The engine does not accept it.
    Refuses,
}

/// The test's view of the engine.
#[derive(Debug)]
pub(crate) struct Held {
    way: Way,
    slots: OnceLock<Arc<Slots>>,
    pending: Mutex<Vec<Index>>,
    /// The number of copies that the engine has accepted or refused.
    pub(crate) starts: AtomicUsize,
}

impl Held {
    /// The engine, and a queue in front of it.
    pub(crate) fn queue(way: Way, finishes_on_cpu: bool) -> (Arc<Self>, Queue) {
        let held = Arc::new(Self {
            way,
            slots: OnceLock::new(),
            pending: Mutex::default(),
            starts: AtomicUsize::new(0),
        });
        let facts = Facts {
            name: "held".into(),
            kind: Kind::Fake,
            verbs: Verb::Copy.bit(),
            length_max: 1 << 30,
            ends_unpolled: true,
            patience: None,
        };
        let settings = Settings { finishes_on_cpu, ..Settings::default() };
        let queue = Queue::open(settings, |slots| {
            held.slots.set(slots).expect("a queue has one engine");
            Ok(Box::new(Front { held: Arc::clone(&held), facts }))
        });
        (held, queue.expect("the engine needs nothing"))
    }

    fn slots(&self) -> &Slots {
        self.slots.get().expect("the engine was opened")
    }

    /// Copies the first `bytes` of a pending operation, and reports them.
    fn copy(&self, index: Index, bytes: usize) -> Outcome {
        // SAFETY: the slot is pending.
        let request = unsafe { self.slots().request(index) };
        let Operation::Copy { target, source, length } = request.operation else {
            return Outcome::Refused(Refusal::Unsupported);
        };
        let count = bytes.min(length);
        // SAFETY: the operation is pending, so its memory is valid.
        unsafe { std::ptr::copy_nonoverlapping(source, target, count) };
        self.slots().report(index, count);
        let (address, access) = (target.addr() + count, Access::Write);
        let part = Outcome::Partial { bytes_done: count, address, access };
        if count < length { part } else { Outcome::Done(Value::Written) }
    }

    /// Copies the first `bytes` of each pending copy, which stays pending.
    pub(crate) fn advance(&self, bytes: usize) {
        for index in self.pending.lock().unwrap().iter() {
            self.copy(*index, bytes);
        }
    }

    /// Ends all pending copies, and returns their number.
    pub(crate) fn release(&self) -> usize {
        let pending = std::mem::take(&mut *self.pending.lock().unwrap());
        let count = pending.len();
        for index in pending {
            let outcome = self.copy(index, usize::MAX);
            // SAFETY: the slot was taken from the list, so it ends once.
            unsafe { self.slots().end(index, outcome) };
        }
        count
    }
}

/// The engine behind the queue.
#[derive(Debug)]
struct Front {
    held: Arc<Held>,
    facts: Facts,
}

// SAFETY: each accepted slot is ended once, by `start` or by `release`. The tests release every
// copy before they drop the queue.
unsafe impl Engine for Front {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    unsafe fn start(&self, index: Index) -> Result<(), Refusal> {
        let held = &self.held;
        held.starts.fetch_add(1, Relaxed);
        let outcome = match held.way {
            Way::Holds => {
                held.pending.lock().unwrap().push(index);
                return Ok(());
            }
            Way::Refuses => return Err(Refusal::Gone),
            Way::Copies => held.copy(index, usize::MAX),
            Way::Stops => held.copy(index, 70_000),
            Way::Disappears => Outcome::Gone,
        };
        // SAFETY: the slot was just started, and is not in the list, so it ends once.
        unsafe { held.slots().end(index, outcome) };
        Ok(())
    }

    fn poll(&self, _: Index) {}
}
