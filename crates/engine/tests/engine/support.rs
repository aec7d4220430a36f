//! An engine that ends operations only when it is polled, as a device without interrupts does.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use haul_engine::{
    Access, Engine, Error, Facts, Index, Kind, Operation, Outcome, Queue, Refusal, Settings, Slots,
    Value, Verb,
};

/// Whether this process runs only one test, as its threads and processors need it. If it runs
/// others, this function runs the test in a process of its own.
pub(crate) fn is_alone(test: &str) -> bool {
    const ALONE: &str = "HAUL_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let own = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    eprint!("{}", String::from_utf8_lossy(&own.stderr));
    let printed = String::from_utf8_lossy(&own.stdout);
    assert!(own.status.success() && printed.contains("1 passed"), "{own:?}");
    false
}

/// What goes wrong in a [`Polled`] engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Each copy stops after this many bytes.
    PageAt(usize),
    /// Each operation ends with this outcome, and nothing is done.
    Ends(Outcome),
    /// Each start is refused.
    Refuses(Refusal),
    /// Nothing ends before it is revoked.
    Hangs,
    /// The last one ends first.
    Reverses,
}

/// Copies at the second poll after the start.
#[derive(Debug)]
pub(crate) struct Polled {
    facts: Facts,
    slots: Arc<Slots>,
    pending: Mutex<VecDeque<Index>>,
    fault: Fault,
    pub(crate) polls: Arc<AtomicUsize>,
}

/// A queue in front of a [`Polled`] engine.
pub(crate) fn polled(settings: Settings, fault: Fault) -> Queue {
    counted(settings, fault, &Arc::default())
}

/// Like [`polled`]. Counts the polls.
pub(crate) fn counted(settings: Settings, fault: Fault, polls: &Arc<AtomicUsize>) -> Queue {
    let polls = Arc::clone(polls);
    let make = |slots| -> Result<Box<dyn Engine>, Error> {
        let facts = Facts {
            name: "polled".into(),
            kind: Kind::Fake,
            verbs: Verb::Copy.bit() | Verb::Fill.bit(),
            length_max: 1 << 30,
            ends_unpolled: false,
            patience: Some(std::time::Duration::from_millis(20)),
        };
        Ok(Box::new(Polled { facts, slots, pending: Mutex::default(), fault, polls }))
    };
    Queue::open(settings, make).expect("the engine needs nothing")
}

impl Polled {
    fn run(&self, index: Index) {
        // SAFETY: the slot is pending.
        let operation = unsafe { self.slots.request(index) }.operation;
        let outcome = match (self.fault, operation) {
            (Fault::Ends(outcome), _) => outcome,
            (fault, Operation::Copy { target, source, length }) => {
                let count = if let Fault::PageAt(at) = fault { at.min(length) } else { length };
                // SAFETY: the operation is pending, so its memory is valid.
                unsafe { std::ptr::copy_nonoverlapping(source, target, count) };
                let (bytes_done, address) = (count, target.addr() + count);
                let fault = Outcome::Partial { bytes_done, address, access: Access::Write };
                if count < length { fault } else { Outcome::Done(Value::Written) }
            }
            (_, Operation::Fill { target, byte, length }) => {
                // SAFETY: the operation is pending, so its memory is valid.
                unsafe { std::ptr::write_bytes(target, byte, length) };
                Outcome::Done(Value::Written)
            }
            _ => Outcome::Refused(Refusal::Unsupported),
        };
        // SAFETY: the slot was taken from the list, so it ends once.
        unsafe { self.slots.end(index, outcome) };
    }
}

// SAFETY: every slot in the list is ended once, and the list is ended before the engine.
unsafe impl Engine for Polled {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    unsafe fn start(&self, index: Index) -> Result<(), Refusal> {
        if let Fault::Refuses(refusal) = self.fault {
            return Err(refusal);
        }
        self.pending.lock().unwrap().push_back(index);
        Ok(())
    }

    fn poll(&self, _: Index) {
        let count = self.polls.fetch_add(1, Relaxed);
        if self.fault != Fault::Hangs && count % 2 == 1 {
            let mut pending = self.pending.lock().unwrap();
            let reverses = self.fault == Fault::Reverses;
            let next = if reverses { pending.pop_back() } else { pending.pop_front() };
            drop(pending);
            next.into_iter().for_each(|index| self.run(index));
        }
    }

    fn reopen(&self) -> Result<(), Refusal> {
        // What was pending is the parent's.
        self.pending.lock().unwrap().clear();
        Ok(())
    }

    fn revoke(&self) {
        // The lock is free while a slot ends, because a waker may submit again.
        let pending = std::mem::take(&mut *self.pending.lock().unwrap());
        for index in pending {
            // SAFETY: the slot was taken from the list, so it ends once.
            unsafe { self.slots.end(index, Outcome::Gone) };
        }
    }
}
