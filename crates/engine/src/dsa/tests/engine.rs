//! The engine's rules over a fake.

use std::thread;
use std::time::Duration;

use rustix::mm::MprotectFlags;

use super::{PAGE_BYTES, Pages, Rig, WRITTEN, copy};
use crate::contract::{Engine as _, Kind};
use crate::crc::crc32c;
use crate::dsa::fake::{Event, QueueSettings, Settings, When};
use crate::dsa::{Dsa, Mechanism, Mode, Options, Status, Sysfs};
use crate::operation::{Operation, Pair, Region, Verb};
use crate::outcome::{Access, Error, Outcome, Refusal, Value};

#[test]
fn operations_end_with_their_values() {
    let rig = Rig::new(Settings::default());
    let (source, target) = (Pages::filled(3), Pages::new(3));
    let length = 2 * PAGE_BYTES + 5;
    assert_eq!(rig.run(copy(&source, &target, length)), WRITTEN);
    assert_eq!(target.bytes()[..length], source.bytes()[..length]);
    let (left, right) = (source.start.cast_const(), target.start.cast_const());
    let compare = |length| Operation::Compare { left, right, length };
    assert_eq!(rig.run(compare(length)), Outcome::Done(Value::Difference(None)));
    let whole = Outcome::Done(Value::Difference(Some(length)));
    assert_eq!(rig.run(compare(3 * PAGE_BYTES)), whole);
    let crc = crc32c(7, &source.bytes()[..length]);
    let sum = Operation::Crc32c { source: left, length, seed: 7 };
    assert_eq!(rig.run(sum), Outcome::Done(Value::Crc32c(crc)));
    let both = Operation::CopyCrc32c { target: target.start, source: left, length, seed: 7 };
    assert_eq!(rig.run(both), Outcome::Done(Value::Crc32c(crc)));
    assert_eq!(rig.run(Operation::Fill { target: target.start, byte: 9, length: 100 }), WRITTEN);
    assert!(target.bytes()[..100].iter().all(|byte| *byte == 9));
    assert_eq!(rig.engine.facts().kind, Kind::Fake);
    assert_eq!(&*rig.engine.facts().name, "dsa:wq0.0");
    assert_ne!(rig.engine.facts().verbs & Verb::Lists.bit(), 0);
    let without = Rig::new(Settings { batches: false, ..Settings::default() });
    assert_eq!(without.engine.facts().verbs & Verb::Lists.bit(), 0);
}

/// Lists of regions with different borders on both sides.
#[test]
fn lists_are_gathered_and_scattered_by_a_batch() {
    let rig = Rig::new(Settings::default());
    let (source, target) = (Pages::filled(8), Pages::new(8));
    let region = |pages: &Pages, start: usize, length| Region {
        start: pages.start.wrapping_add(start),
        length,
    };
    let lists = |sources: &[Region], targets: &[Region]| Operation::Lists {
        sources: sources.as_ptr(),
        source_count: sources.len(),
        targets: targets.as_ptr(),
        target_count: targets.len(),
    };
    let from =
        [(0, 100), (5000, 0), (7000, 5000), (20_000, 1)].map(|(at, n)| region(&source, at, n));
    let to = [(9000, 1), (100, 5100)].map(|(at, length)| region(&target, at, length));
    assert_eq!(rig.run(lists(&from, &to)), WRITTEN);
    let (bytes, copied) = (source.bytes(), target.bytes());
    let gathered = [&bytes[..100], &bytes[7000..12_000], &bytes[20_000..20_001]].concat();
    assert_eq!(copied[9000], gathered[0]);
    assert_eq!(copied[100..5200], gathered[1..]);
    assert!(copied[5200..9000].iter().all(|byte| *byte == 0));
    // One piece needs no batch; more pieces than a batch has are for the processor.
    assert_eq!(rig.run(lists(&from[..1], &[region(&target, 0, 100)])), WRITTEN);
    assert_eq!(target.bytes()[..100], bytes[..100]);
    let many: Vec<Region> = (0..33).map(|index| region(&source, index * 2, 1)).collect();
    let whole = region(&target, 0, 33);
    assert_eq!(rig.start(lists(&many, &[whole])), Err(Refusal::TooLong));
    assert_eq!(rig.start(lists(&many, &[region(&target, 0, 32)])), Err(Refusal::BadRange));
    assert_eq!(rig.start(lists(&from, &to[..1])), Err(Refusal::BadRange));
    // A piece that cannot be copied: the device says only that one failed.
    target.unmap_from(7);
    let last = region(&target, 7 * PAGE_BYTES, 50);
    let outcome = rig.run(lists(&from[..1], &[region(&target, 0, 50), last]));
    assert_eq!(outcome, Outcome::Refused(Refusal::Status(5)));
}

/// The copies of a batch, one of which is longer than a descriptor's limit.
#[test]
fn batch_is_one_submission() {
    let queue = QueueSettings { transfer_bytes_max: 4096, ..QueueSettings::default() };
    let rig = Rig::new(Settings::default().queues([queue]));
    let (source, target) = (Pages::filled(4), Pages::new(4));
    let pair = |target_at: usize, source_at: usize, length| Pair {
        target: target.start.wrapping_add(target_at),
        source: source.start.wrapping_add(source_at),
        length,
    };
    let batch = |pairs: &[Pair]| Operation::Batch { pairs: pairs.as_ptr(), count: pairs.len() };
    let pairs = [pair(0, 5000, 9000), pair(10_000, 3, 0), pair(16_000, 0, 100)];
    let before = rig.fake.counts().submitted;
    assert_eq!(rig.run(batch(&pairs)), WRITTEN);
    // The batch, and the descriptors in it: three for the first copy, one for the last.
    assert_eq!(rig.fake.counts().submitted - before, 1 + 4);
    let (bytes, copied) = (source.bytes(), target.bytes());
    assert_eq!(copied[..9000], bytes[5000..14_000]);
    assert_eq!(copied[16_000..16_100], bytes[..100]);
    assert!(copied[9000..16_000].iter().all(|byte| *byte == 0));
    let many = [pair(0, 0, 1); 33];
    assert_eq!(rig.start(batch(&many)), Err(Refusal::TooLong));
}

#[test]
fn mechanism_is_the_one_that_the_device_allows() {
    let mechanism = |settings: Settings, queue, only_write| {
        let options = Options { only_write, ..Options::default() };
        Rig::with(settings, queue, options, 4).engine.mechanism()
    };
    let unsafe_device = Settings { portal: false, ..Settings::default() };
    assert_eq!(mechanism(Settings::default(), 0, false), Some(Mechanism::Enqueue));
    assert_eq!(mechanism(Settings::default(), 1, false), Some(Mechanism::DirectStore));
    assert_eq!(mechanism(Settings::default(), 1, true), Some(Mechanism::Write));
    assert_eq!(mechanism(unsafe_device, 0, false), Some(Mechanism::Write));
}

/// A dedicated queue loses what does not fit, so that the engine must not submit it.
#[test]
fn dedicated_queue_never_loses_a_descriptor() {
    let queue = QueueSettings { mode: Mode::Dedicated, size: 8, ..QueueSettings::default() };
    for only_write in [false, true] {
        let settings = Settings::default().queues([queue.clone()]);
        let options = Options { only_write, ..Options::default() };
        let rig = Rig::with(settings, 0, options, 128);
        rig.fake.wedge();
        let (source, target) = (Pages::filled(1), Pages::new(1));
        let started: Vec<_> = (0..20).map(|_| rig.start(copy(&source, &target, 64))).collect();
        let accepted: Vec<_> = started.into_iter().flatten().collect();
        assert_eq!(accepted.len(), 8);
        assert_eq!(rig.fake.counts().full, 0);
        rig.fake.reset();
        accepted.into_iter().for_each(|index| assert_eq!(rig.wait(index), WRITTEN));
        assert_eq!(rig.run(copy(&source, &target, 64)), WRITTEN);
    }
}

/// A device that reports a fault behind the end of the target.
#[test]
fn fault_outside_of_the_operation_touches_nothing_there() {
    let fault = Event::Status { byte: 0x83, bytes: 2 * PAGE_BYTES as u32 };
    let (source, target) = (Pages::filled(2), Pages::new(2));
    // Nothing lies behind the target: an access there fails.
    target.unmap_from(1);
    let rig = Rig::new(Settings::default().inject(When::At(1), fault));
    assert_eq!(rig.run(copy(&source, &target, PAGE_BYTES)), WRITTEN);
    assert_eq!(rig.fake.counts().submitted, 2, "the rest was submitted once more");
}

#[test]
fn ten_thousand_submissions_against_a_small_queue_lose_nothing() {
    let queue = QueueSettings { size: 128, ..QueueSettings::default() };
    let rig = Rig::with(Settings::default().queues([queue]), 0, Options::default(), 10_000);
    let (source, target) = (Pages::filled(40), Pages::new(40));
    let mut started = Vec::new();
    let mut refused = Vec::new();
    for number in 0..10_000 {
        let operation = Operation::Copy {
            source: source.start.wrapping_add(number * 16).cast_const(),
            target: target.start.wrapping_add(number * 16),
            length: 16,
        };
        match rig.start(operation) {
            Ok(index) => started.push(index),
            Err(Refusal::Full) => refused.push(number),
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(started.len() + refused.len(), 10_000);
    started.into_iter().for_each(|index| assert_eq!(rig.wait(index), WRITTEN));
    let (source, target) = (source.bytes(), target.bytes());
    for number in 0..10_000 {
        let range = number * 16..number * 16 + 16;
        let is_copied = target[range.clone()] == source[range];
        assert_eq!(is_copied, !refused.contains(&number), "{number}");
    }
}

#[test]
fn memory_that_cannot_be_accessed_is_a_partial_result() {
    let rig = Rig::new(Settings::default());
    let (source, target) = (Pages::filled(4), Pages::new(4));
    target.protect_from(3, MprotectFlags::READ);
    let write = Outcome::Partial {
        bytes_done: 3 * PAGE_BYTES,
        address: target.start.addr() + 3 * PAGE_BYTES,
        access: Access::Write,
    };
    assert_eq!(rig.run(copy(&source, &target, 4 * PAGE_BYTES)), write);
    assert_eq!(target.bytes()[..3 * PAGE_BYTES], source.bytes()[..3 * PAGE_BYTES]);
    source.unmap_from(2);
    let read = Outcome::Partial {
        bytes_done: 2 * PAGE_BYTES,
        address: source.start.addr() + 2 * PAGE_BYTES,
        access: Access::Read,
    };
    assert_eq!(rig.run(copy(&source, &target, 4 * PAGE_BYTES)), read);
    let null = Operation::Copy { target: std::ptr::null_mut(), source: source.start, length: 9 };
    let at_null = Outcome::Partial { bytes_done: 0, address: 0, access: Access::Write };
    assert_eq!(rig.run(null), at_null);
    let top = std::ptr::without_provenance_mut(usize::MAX - 20);
    let outcome = rig.run(Operation::Fill { target: top, byte: 1, length: 10 });
    assert!(matches!(outcome, Outcome::Partial { bytes_done: 0, .. }), "{outcome:?}");
}

/// Every status that is neither success nor fault: the engine did not finish, and says so.
#[test]
fn statuses_become_results_with_cause_and_remedy() {
    for number in 1..0x80 {
        let event = Event::Status { byte: number, bytes: 0 };
        let rig = Rig::new(Settings::default().inject(When::At(1), event));
        let (source, target) = (Pages::filled(1), Pages::new(1));
        let outcome = rig.run(copy(&source, &target, 100));
        let status = Status::of(number).0;
        if status.is_success() {
            assert_eq!(outcome, WRITTEN);
        } else if status.is_fault() {
            // The fault names no address that is mapped: nothing can be touched.
            assert_eq!(
                outcome,
                Outcome::Partial { bytes_done: 0, address: 0, access: Access::Read }
            );
        } else {
            assert_eq!(outcome, Outcome::Refused(Refusal::Status(number)));
            let text = rig.engine.troubles()[0].to_string();
            for part in ["dsa:wq0.0", status.cause(), status.remedy()] {
                assert!(text.contains(part), "{text}");
            }
        }
        assert_eq!(rig.run(copy(&source, &target, 100)), WRITTEN);
    }
}

#[test]
fn removed_device_refuses_new_operations() {
    let rig = Rig::new(Settings::default());
    let (source, target) = (Pages::filled(1), Pages::new(1));
    rig.fake.remove();
    for only_write in [false, true] {
        let options = Options { only_write, ..Options::default() };
        let rig = Rig::with(Settings::default(), 0, options, 8);
        rig.fake.remove();
        let refused = rig.start(copy(&source, &target, 8)).unwrap_err();
        assert_eq!(refused, if only_write { Refusal::Gone } else { Refusal::Full });
    }
}

#[test]
fn revoke_ends_what_is_pending_and_later_starts() {
    let rig = Rig::new(Settings::default());
    let (source, target) = (Pages::filled(1), Pages::new(1));
    assert_eq!(rig.run(copy(&source, &target, 8)), WRITTEN);
    rig.fake.halt();
    let pending = rig.start(copy(&source, &target, 8)).unwrap();
    assert_eq!(rig.slots.outcome(pending), None);
    rig.engine.revoke();
    assert_eq!(rig.wait(pending), Outcome::Gone);
    assert_eq!(rig.start(copy(&source, &target, 8)), Err(Refusal::Gone));
    assert_eq!(rig.engine.mechanism(), None);
    rig.engine.revoke();
}

/// Threads start and poll while another closes the queue: every operation ends once.
#[test]
fn revoke_races_with_starts() {
    for round in 0..20 {
        let delay = Event::Delay(Duration::from_micros(20));
        let rig = Rig::new(Settings::default().inject(When::Every(3), delay));
        let (source, target) = (Pages::filled(4), Pages::new(4));
        thread::scope(|scope| {
            for lane in 0..3 {
                let (rig, source, target) = (&rig, &source, &target);
                scope.spawn(move || {
                    for number in 0..50 {
                        let offset = lane * PAGE_BYTES + number * 64;
                        let operation = Operation::Copy {
                            source: source.start.wrapping_add(offset).cast_const(),
                            target: target.start.wrapping_add(offset),
                            length: 64,
                        };
                        let Ok(index) = rig.start(operation) else { continue };
                        let outcome = rig.wait(index);
                        assert!(matches!(outcome, Outcome::Gone | WRITTEN), "{outcome:?}");
                    }
                });
            }
            thread::sleep(Duration::from_micros(50 * round));
            rig.engine.revoke();
        });
    }
}

#[test]
fn missing_queue_names_the_broken_link() {
    let sysfs = Sysfs::at("/nonexistent");
    let slots = crate::slots::Slots::new(1);
    let error = Dsa::open(&sysfs, None, Options::default(), slots).unwrap_err();
    assert!(matches!(error, Error::Missing { .. }));
    let text = error.to_string();
    assert!(text.contains("DSA: device: none") && text.contains("haul engine fake"), "{text}");
}
