//! What a close of the queue does with pending operations.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use super::{CLAIMED, Dsa, STATE, SUBMITTED};
use crate::outcome::Outcome;
use crate::slots::Index;

/// The pause between two looks for a record after the queue was closed.
const PAUSE: Duration = Duration::from_millis(1);

impl Dsa {
    /// Closes the queue, and waits until everything that is pending has ended: with its record, or
    /// as gone once the device has stopped. While another process has a copy of the file, the
    /// device may still execute what was submitted. `has_stopped`: the device is known to execute
    /// nothing.
    pub(super) fn close(&self, mut has_stopped: bool) {
        let lane = self.lane();
        lane.is_gone.store(true, Ordering::Relaxed);
        let Some(portal) = lane.take() else { return };
        drop(portal);
        for number in 0..self.slots.count() {
            let index = self.index(number);
            while !self.resolve(index, has_stopped) {
                has_stopped = has_stopped || self.source.has_stopped();
                if !has_stopped {
                    thread::sleep(PAUSE);
                }
            }
        }
    }

    /// Ends a slot of a closed queue, if it can. Returns whether it is idle.
    fn resolve(&self, index: Index, has_stopped: bool) -> bool {
        // What the device has completed before counts.
        self.check(index);
        let word = self.slots.word(index);
        let now = word.load(Ordering::Acquire);
        match now & STATE {
            SUBMITTED if has_stopped => {
                let claimed = now & !STATE | CLAIMED;
                let order = (Ordering::AcqRel, Ordering::Relaxed);
                if word.compare_exchange(now, claimed, order.0, order.1).is_ok() {
                    self.end(index, Outcome::Gone);
                }
                false
            }
            SUBMITTED => false,
            CLAIMED => {
                // Another thread ends the slot, or gives it back in a moment.
                thread::yield_now();
                false
            }
            _ => true,
        }
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use haul_copy::Hint;

    use super::*;
    use crate::contract::Engine as _;
    use crate::dsa::completion::Completion;
    use crate::dsa::descriptor::Descriptor;
    use crate::dsa::engine::lane::Source;
    use crate::dsa::portal::{Mechanism, Portal, Unsubmitted};
    use crate::dsa::status::Status;
    use crate::dsa::{Options, memory, sysfs};
    use crate::operation::{Operation, Request};
    use crate::outcome::Value;
    use crate::slots::Slots;

    /// A queue whose file has a copy in another process: its close waits for nothing.
    #[derive(Debug)]
    struct Shared;

    impl Portal for Shared {
        fn mechanism(&self) -> Mechanism {
            Mechanism::Write
        }

        unsafe fn submit(&self, _: &Descriptor) -> Result<(), Unsubmitted> {
            Ok(())
        }

        fn is_alive(&self) -> bool {
            true
        }
    }

    /// Closes a queue with one operation pending, and does `act` while the close waits. Returns
    /// how the operation ended.
    fn closed(act: impl FnOnce(&std::path::Path, &Dsa, Index)) -> Option<Outcome> {
        let at = |name: &str| format!("sys/bus/dsa/devices/{name}");
        let (device, queue, mode) = (at("dsa0/state"), at("wq0.0/state"), at("wq0.0/mode"));
        let files = [(&*device, "enabled"), (&*queue, "enabled"), (&*mode, "shared")];
        let (folder, sysfs) = sysfs::tests::root_with(&files);
        let (facts, slots) = (sysfs.queues().remove(0), Slots::new(4));
        let source = Source::Device(sysfs, facts.clone());
        let own = Arc::clone(&slots);
        let dsa = Dsa::over(source, Box::new(Shared), &facts, Options::default(), own);
        let (mut target, index) = ([0; 8], slots.take().unwrap());
        let operation = Operation::Fill { target: target.as_mut_ptr(), byte: 1, length: 8 };
        // SAFETY: the slot was just taken.
        unsafe { slots.put(index, Request { operation, hint: Hint::Unknown }) };
        // SAFETY: the slot holds a request, whose target outlives it.
        unsafe { dsa.start(index) }.unwrap();
        thread::scope(|scope| {
            let close = scope.spawn(|| dsa.revoke());
            thread::sleep(Duration::from_millis(50));
            let is_early = close.is_finished() || slots.outcome(index).is_some();
            act(folder.path(), &dsa, index);
            close.join().unwrap();
            assert!(!is_early, "the device may still write, and has not stopped");
        });
        slots.outcome(index)
    }

    #[test]
    fn operation_ends_with_its_record_after_a_close_that_has_not_drained() {
        let outcome = closed(|_, dsa, index| {
            let (bytes, address) =
                (Completion::of(Status::Success, 0).to_bytes(), dsa.record(index).address());
            // SAFETY: the record is in memory, and is read by atomics.
            unsafe { memory::write(address + 1, &bytes[1..]) }.unwrap();
            // SAFETY: as above.
            unsafe { memory::write(address, &bytes[..1]) }.unwrap();
        });
        assert_eq!(outcome, Some(Outcome::Done(Value::Written)));
    }

    #[test]
    fn operation_is_gone_once_the_device_is_disabled() {
        let outcome = closed(|root, _, _| {
            fs::write(root.join("sys/bus/dsa/devices/dsa0/state"), "disabled").unwrap();
        });
        assert_eq!(outcome, Some(Outcome::Gone));
    }
}
