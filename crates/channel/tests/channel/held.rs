//! An engine whose copies end when a test says so, and engines that fail. The tests of the crate
//! forward share it.
#![allow(dead_code, reason = "every test binary uses its own part of it")]

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use haul_engine::{
    Access, Engine, Facts, Index, Kind, Operation, Outcome, Pair, Queue, Refusal, Settings, Slots,
    Value, Verb,
};

/// What happens to each copy and to each batch of copies.
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
    /// The number of operations that the engine has accepted or refused.
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
            verbs: Verb::Copy.bit() | Verb::Batch.bit(),
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

    /// Copies the first `bytes` of a pending copy, and reports them. Of a batch, makes the first
    /// copy only, unless `bytes` is `usize::MAX`.
    fn copy(&self, index: Index, bytes: usize) -> Outcome {
        // SAFETY: the slot is pending.
        let request = unsafe { self.slots().request(index) };
        let access = Access::Write;
        let (is_whole, part) = match request.operation {
            Operation::Copy { target, source, length } => {
                let count = bytes.min(length);
                // SAFETY: the operation is pending, so its memory is valid.
                unsafe { std::ptr::copy_nonoverlapping(source, target, count) };
                self.slots().report(index, count);
                let address = target.addr() + count;
                (count == length, Outcome::Partial { bytes_done: count, address, access })
            }
            Operation::Batch { pairs, count } => {
                let copies = if bytes == usize::MAX { count } else { 1 };
                // SAFETY: the operation is pending, so its list is in place.
                let pairs = unsafe { std::slice::from_raw_parts(pairs, count) };
                for Pair { target, source, length } in pairs.iter().take(copies) {
                    // SAFETY: the operation is pending, so its memory is valid.
                    unsafe { std::ptr::copy_nonoverlapping(*source, *target, *length) };
                }
                (copies >= count, Outcome::Partial { bytes_done: 0, address: 0, access })
            }
            _ => return Outcome::Refused(Refusal::Unsupported),
        };
        if is_whole { Outcome::Done(Value::Written) } else { part }
    }

    /// Copies the first `bytes` of each pending copy, which stays pending.
    pub(crate) fn advance(&self, bytes: usize) {
        for index in self.pending.lock().unwrap().iter() {
            self.copy(*index, bytes);
        }
    }

    /// Ends the first pending operations, leaves `left`, and returns the number of those that
    /// ended.
    pub(crate) fn release_but(&self, left: usize) -> usize {
        let pending: Vec<Index> = {
            let mut all = self.pending.lock().unwrap();
            let end = all.len() - left;
            all.drain(..end).collect()
        };
        self.end(pending)
    }

    /// Ends the last pending operation.
    pub(crate) fn release_last(&self) {
        let last = self.pending.lock().unwrap().pop();
        self.end(last);
    }

    /// Ends all pending operations, and returns their number.
    pub(crate) fn release(&self) -> usize {
        self.release_but(0)
    }

    /// Ends all pending operations a while later.
    pub(crate) fn release_later(self: &Arc<Self>) -> thread::JoinHandle<()> {
        let held = Arc::clone(self);
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            held.release();
        })
    }

    fn end(&self, pending: impl IntoIterator<Item = Index>) -> usize {
        let mut count = 0;
        for index in pending {
            let outcome = self.copy(index, usize::MAX);
            // SAFETY: the slot was taken from the list, so it ends once.
            unsafe { self.slots().end(index, outcome) };
            count += 1;
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

// SAFETY: each accepted slot is ended once, by `start` or by `Held::end`. The tests release every
// operation before they drop the queue.
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
