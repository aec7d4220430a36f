//! Operations by address: overlaps keep their order on every engine, and wrong calls are refused.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::time::Duration;

use haul_engine::dsa::fake::{Fake, Settings as FakeSettings};
use haul_engine::dsa::{Dsa, Options};
use haul_engine::{
    Bell, Callbacks, Conflict, Error, Failed, Hint, Operation, Ordered, Outcome, Pair, Queue,
    Refusal, Region, Request, Settings, Ticket, Value, crc32c,
};

use crate::conformance::wait_until;
use crate::forks::holds_in_child;
use crate::support::{Fault, polled};

fn dsa() -> Queue {
    let fake = Arc::new(Fake::new(FakeSettings::default()).unwrap());
    let failed = |reason| Error::System { attempt: "open the fake", reason };
    let open = |slots| Dsa::of_fake(&fake, 0, Options::default(), slots).map_err(failed);
    Queue::open(Settings::default(), |slots| Ok(Box::new(open(slots)?))).unwrap()
}

fn queues() -> Vec<Queue> {
    let faulty = [Fault::None, Fault::Reverses, Fault::PageAt(100), Fault::Ends(Outcome::Gone)];
    let mut all = vec![Queue::inline(), Queue::worker().unwrap(), Queue::auto().unwrap(), dsa()];
    all.extend(faulty.map(|fault| polled(Settings::default(), fault)));
    all.push(polled(Settings { entries: 2, ..Settings::default() }, Fault::Reverses));
    all
}

fn request(operation: Operation) -> Request {
    Request { operation, hint: Hint::Unknown }
}

/// A copy inside of an array, between offsets.
fn copy(bytes: *mut u8, source: usize, target: usize, length: usize) -> Request {
    let (target, source) = (bytes.wrapping_add(target), bytes.wrapping_add(source));
    request(Operation::Copy { target, source: source.cast_const(), length })
}

/// Numbers from 0 to below a limit.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) as usize % limit
    }
}

/// Random copies and fills in a small array, whose bytes depend on the order.
#[test]
fn overlaps_end_as_if_done_one_after_the_other() {
    const BYTES: usize = 300_000;
    for queue in queues() {
        let mut random = Random(1);
        let mut bytes: Vec<u8> = (0..BYTES).map(|at| ((at * 7) >> 3) as u8).collect();
        let mut expected = bytes.clone();
        let ordered = Ordered::new(&queue);
        let start = bytes.as_mut_ptr();
        let mut tickets = Vec::new();
        for number in 0..400_usize {
            let length = random.below(if number % 8 == 0 { 140_000 } else { 3000 });
            let (source, target) = (random.below(BYTES - length), random.below(BYTES - length));
            let operation = if number % 3 == 0 {
                expected[target..target + length].fill(number as u8);
                let target = start.wrapping_add(target);
                request(Operation::Fill { target, byte: number as u8, length })
            } else {
                expected.copy_within(source..source + length, target);
                copy(start, source, target, length)
            };
            // SAFETY: the ranges are inside of `bytes`, which is not used before all have ended.
            let ticket = unsafe { ordered.submit(operation) }.unwrap();
            match random.below(4) {
                0 => assert_eq!(ordered.wait(ticket), Ok(Value::Written)),
                1 => ordered.forget(ticket).unwrap(),
                _ => tickets.push(ticket),
            }
        }
        for ticket in tickets.into_iter().rev() {
            assert_eq!(ordered.wait(ticket), Ok(Value::Written), "{:?}", queue.facts().name);
        }
        assert_eq!(ordered.drain(), Ok(()));
        assert!(bytes == expected, "the order is lost on {}", queue.facts().name);
        let nothing = Conflict::default();
        assert_eq!(ordered.conflicts(bytes.as_ptr(), BYTES), nothing);
    }
}

#[test]
fn pending_operations_are_found_by_their_addresses() {
    let ordered = Ordered::new(&polled(Settings::default(), Fault::Hangs));
    let mut bytes = vec![1_u8; 10_000];
    let start = bytes.as_mut_ptr();
    // SAFETY: the ranges are inside of `bytes`, which is not used before all have ended.
    let ticket = unsafe { ordered.submit(copy(start, 1000, 5000, 100)) }.unwrap();
    let at = |offset: usize, length| {
        let found = ordered.conflicts(start.wrapping_add(offset), length);
        (found.reads, found.writes)
    };
    assert_eq!(
        (at(999, 1), at(999, 2), at(1099, 1)),
        ((false, false), (true, false), (true, false))
    );
    assert_eq!((at(1100, 3900), at(1100, 3901)), ((false, false), (false, true)));
    assert_eq!(
        (at(0, 10_000), at(5050, 0), at(0, usize::MAX)),
        ((true, true), (false, false), (true, true))
    );
    assert_eq!(ordered.bytes_done(ticket), Ok(0));
    assert_eq!(ordered.wait_for(ticket, Duration::from_millis(1)), None);
    assert_eq!((ordered.wait(ticket), at(0, 10_000)), (Ok(Value::Written), (false, false)));
}

struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// Nothing polls the operations: the engine's thread starts the next one.
#[test]
fn operations_that_wait_start_without_a_call() {
    for queue in queues() {
        let ordered = Ordered::new(&queue);
        let mut bytes: Vec<u8> = vec![0; 1_000_000];
        bytes[..100_000].fill(9);
        let start = bytes.as_mut_ptr();
        let mut last = None;
        for step in 0..9 {
            let next = copy(start, step * 100_000, (step + 1) * 100_000, 100_000);
            // SAFETY: the ranges are inside of `bytes`, which is not used before all have ended.
            last = Some(unsafe { ordered.submit(next) }.unwrap());
        }
        let counter = Arc::new(Counter(AtomicUsize::new(0)));
        ordered.notify(last.unwrap(), Waker::from(Arc::clone(&counter))).unwrap();
        wait_until(&|| counter.0.load(Relaxed) == 1);
        assert_eq!(ordered.wait(last.unwrap()), Ok(Value::Written));
        ordered.drain().unwrap();
        assert!(bytes.iter().all(|byte| *byte == 9), "{}", queue.facts().name);
    }
}

#[test]
fn bells_and_callbacks_report_the_end() {
    for queue in queues() {
        let (ordered, callbacks) = (Ordered::new(&queue), Callbacks::new());
        let bell = Bell::new().unwrap();
        let bytes = vec![3_u8; 100_000];
        let (source, length) = (bytes.as_ptr(), bytes.len());
        let sum = request(Operation::Crc32c { source, length, seed: 0 });
        // SAFETY: `bytes` lives until all have ended, and is not changed.
        let ticket = unsafe { ordered.submit(sum) }.unwrap();
        ordered.ring(ticket, &bell).unwrap();
        wait_until(&|| bell.clear() == 1);
        let (expected, results) = (crc32c(0, &bytes), Arc::new(Mutex::new(Vec::new())));
        let own = Arc::clone(&results);
        ordered.call(ticket, &callbacks, move |result| own.lock().unwrap().push(result)).unwrap();
        wait_until(&|| callbacks.run(16) == 1);
        assert_eq!(*results.lock().unwrap(), [Ok(Value::Crc32c(expected))]);
        let taken = ordered.ring(ticket, &bell).unwrap_err();
        assert_eq!(taken.outcome, Outcome::Refused(Refusal::NoTicket));
    }
}

/// A callback whose destructor uses the queue.
#[test]
fn replaced_callback_is_dropped_without_the_lock() {
    struct Asks(Arc<Ordered>, Ticket);
    impl Drop for Asks {
        fn drop(&mut self) {
            let _ = self.0.is_done(self.1);
        }
    }
    for queue in queues() {
        let (ordered, callbacks) = (Arc::new(Ordered::new(&queue)), Callbacks::new());
        let mut bytes = vec![0_u8; 4 << 20];
        let (target, length) = (bytes.as_mut_ptr(), bytes.len());
        // SAFETY: `bytes` lives, and is not used, until the operation has ended.
        let fill = unsafe { ordered.submit(request(Operation::Fill { target, byte: 1, length })) };
        let (ticket, runs) = (fill.unwrap(), Arc::new(AtomicUsize::new(0)));
        for _ in 0..3 {
            let (asks, own) = (Asks(Arc::clone(&ordered), ticket), Arc::clone(&runs));
            let callback = move |result: Result<Value, Failed>| {
                // The others have no result to take if several are ready.
                own.fetch_add(usize::from(result.is_ok()), Relaxed);
                drop(asks);
            };
            ordered.call(ticket, &callbacks, callback).unwrap();
        }
        wait_until(&|| callbacks.run(16) > 0 && runs.load(Relaxed) == 1);
        ordered.drain().unwrap();
        assert_eq!(bytes[length - 1], 1);
    }
}

#[test]
fn many_overlaps_of_one_range_all_end() {
    for queue in queues() {
        let ordered = Ordered::new(&queue);
        let mut bytes = vec![0_u8; 4096];
        let target = bytes.as_mut_ptr();
        for number in 0..1000_u32 {
            let byte = number as u8;
            let fill = request(Operation::Fill { target, byte, length: 4096 });
            // SAFETY: `bytes` is not used before all have ended.
            unsafe { ordered.submit_unasked(fill) }.unwrap();
        }
        ordered.drain().unwrap();
        assert!(bytes.iter().all(|byte| *byte == 999_u32 as u8), "{}", queue.facts().name);
    }
}

#[test]
fn threads_share_one_queue() {
    for queue in queues() {
        let ordered = Ordered::new(&queue);
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                let ordered = &ordered;
                scope.spawn(move || {
                    let mut bytes = vec![0_u8; 20_000];
                    bytes[..10_000].fill(thread + 1);
                    let start = bytes.as_mut_ptr();
                    for round in 0..100 {
                        let forward = copy(start, 0, 10_000, 10_000);
                        // SAFETY: the ranges are inside of `bytes`, which lives until both ended.
                        unsafe { ordered.submit_unasked(forward) }.unwrap();
                        let back = copy(start, 9999, 1, 10_000);
                        // SAFETY: as above.
                        let ticket = unsafe { ordered.submit(back) }.unwrap();
                        assert_eq!(ordered.wait(ticket), Ok(Value::Written), "{round}");
                    }
                    assert!(bytes.iter().all(|byte| *byte == thread + 1));
                });
            }
        });
    }
}

fn refusal(failed: Result<Ticket, Failed>) -> Option<Refusal> {
    match failed {
        Err(Failed { outcome: Outcome::Refused(refusal), .. }) => Some(refusal),
        _ => None,
    }
}

#[test]
fn wrong_operations_and_tickets_are_refused() {
    let ordered = Ordered::new(&Queue::worker().unwrap());
    let mut bytes = vec![0_u8; 100];
    let start = bytes.as_mut_ptr();
    let source = start.cast_const();
    let region = |offset: usize, length| Region { start: start.wrapping_add(offset), length };
    let lists = |targets: &[Region], sources: &[Region]| Operation::Lists {
        targets: targets.as_ptr(),
        target_count: targets.len(),
        sources: sources.as_ptr(),
        source_count: sources.len(),
    };
    let batch = |pairs: &[Pair]| Operation::Batch { pairs: pairs.as_ptr(), count: pairs.len() };
    let pair = |target: usize, source: usize, length| Pair {
        target: start.wrapping_add(target),
        source: start.wrapping_add(source),
        length,
    };
    let (same_target, chained) =
        ([pair(0, 50, 10), pair(9, 70, 5)], [pair(0, 50, 10), pair(60, 5, 1)]);
    let (whole, twice) = ([region(0, 20)], [region(30, 10), region(35, 10)]);
    let (inside, apart) = ([region(10, 20)], [region(30, 20)]);
    for operation in [
        Operation::Copy { target: std::ptr::null_mut(), source, length: 1 },
        Operation::Copy { target: start, source, length: usize::MAX },
        Operation::Fill { target: start.wrapping_add(50), byte: 0, length: usize::MAX - 10 },
        Operation::CopyCrc32c { target: start.wrapping_add(5), source, length: 10, seed: 0 },
        lists(&twice, &whole),
        lists(&whole, &inside),
        lists(&whole, &twice[..1]),
        batch(&same_target),
        batch(&chained),
        batch(&[pair(0, 5, 10)]),
        batch(&[pair(0, 50, usize::MAX)]),
    ] {
        // SAFETY: the operation is refused.
        let submitted = unsafe { ordered.submit(request(operation)) };
        assert_eq!(refusal(submitted), Some(Refusal::BadRange), "{operation:?}");
    }
    // SAFETY: `bytes` and the lists are not changed before the operation has ended.
    let ticket = unsafe { ordered.submit(request(lists(&whole, &apart))) }.unwrap();
    assert_eq!(Ticket::of(ticket.number()), ticket);
    assert_eq!(ordered.wait(ticket), Ok(Value::Written));
    let pairs = [pair(0, 50, 10), pair(20, 50, 10), pair(99, 98, 0)];
    // SAFETY: as above.
    let ticket = unsafe { ordered.submit(request(batch(&pairs))) }.unwrap();
    assert_eq!(ordered.wait(ticket), Ok(Value::Written));
    let no_ticket = Outcome::Refused(Refusal::NoTicket);
    for wrong in [ticket, Ticket::of(0), Ticket::of(u64::MAX)] {
        assert_eq!(ordered.wait(wrong).unwrap_err().outcome, no_ticket);
        assert_eq!(ordered.is_done(wrong).unwrap_err().outcome, no_ticket);
        assert_eq!(ordered.bytes_done(wrong).unwrap_err().outcome, no_ticket);
        assert_eq!(ordered.forget(wrong).unwrap_err().outcome, no_ticket);
        assert_eq!(ordered.notify(wrong, Waker::noop().clone()).unwrap_err().outcome, no_ticket);
    }
}

#[test]
fn results_are_those_of_the_operations() {
    for queue in queues() {
        let ordered = Ordered::new(&queue);
        let bytes: Vec<u8> = (0..50_000_u32).map(|at| (at >> 2) as u8).collect();
        let mut target = vec![0_u8; bytes.len()];
        let (source, length) = (bytes.as_ptr(), bytes.len());
        let to = target.as_mut_ptr();
        let copy = request(Operation::CopyCrc32c { target: to, source, length, seed: 0 });
        // SAFETY: both vectors live until all have ended, and are not changed.
        let sum = unsafe { ordered.submit(copy) }.unwrap();
        let compare = request(Operation::Compare { left: to, right: source, length });
        // SAFETY: as above.
        let equal = unsafe { ordered.submit(compare) }.unwrap();
        let last = to.wrapping_add(length - 1);
        let fill = request(Operation::Fill { target: last, byte: !bytes[length - 1], length: 1 });
        // SAFETY: as above.
        unsafe { ordered.submit_unasked(fill) }.unwrap();
        // SAFETY: as above.
        let different = unsafe { ordered.submit(compare) }.unwrap();
        assert_eq!(ordered.wait(different), Ok(Value::Difference(Some(length - 1))));
        assert_eq!(ordered.wait(equal), Ok(Value::Difference(None)));
        assert_eq!(ordered.wait(sum), Ok(Value::Crc32c(crc32c(0, &bytes))));
    }
}

/// What the engine could not do is reported to the one that asks, or by `drain`.
#[test]
fn failures_are_reported_once() {
    let settings = Settings { finishes_on_cpu: false, ..Settings::default() };
    let ordered = Ordered::new(&polled(settings, Fault::PageAt(40)));
    let mut bytes = vec![0_u8; 200];
    let half = copy(bytes.as_mut_ptr(), 0, 100, 100);
    // SAFETY: the ranges are inside of `bytes`, which is not used before all have ended.
    let ticket = unsafe { ordered.submit(half) }.unwrap();
    ordered.drain().unwrap();
    assert_eq!(ordered.bytes_done(ticket), Ok(40));
    let is_partial =
        |failed: Failed| matches!(failed.outcome, Outcome::Partial { bytes_done: 40, .. });
    assert!(is_partial(ordered.wait(ticket).unwrap_err()));
    // SAFETY: as above.
    unsafe { ordered.submit_unasked(half) }.unwrap();
    assert!(is_partial(ordered.drain().unwrap_err()));
    assert_eq!(ordered.drain(), Ok(()));
}

#[test]
fn parent_and_child_finish_a_chain_that_was_pending_at_the_fork() {
    for queue in [Queue::worker().unwrap(), dsa(), polled(Settings::default(), Fault::Hangs)] {
        let ordered = Ordered::new(&queue);
        let mut bytes: Vec<u8> = vec![0; 5_000_000];
        bytes[..1_000_000].fill(3);
        let start = bytes.as_mut_ptr();
        for step in 0..4 {
            let next = copy(start, step * 1_000_000, (step + 1) * 1_000_000, 1_000_000);
            // SAFETY: the ranges are inside of `bytes`, which is not used before all have ended.
            unsafe { ordered.submit_unasked(next) }.unwrap();
        }
        assert!(holds_in_child(|| {
            ordered.drain().unwrap();
            // SAFETY: all have ended, and the child has its own copy of the bytes.
            let all = unsafe { std::slice::from_raw_parts_mut(start, 5_000_000) };
            let is_right = all.iter().all(|byte| *byte == 3);
            all[0] = 4;
            // SAFETY: as above.
            let ticket = unsafe { ordered.submit(copy(start, 0, 4_000_000, 1_000_000)) }.unwrap();
            is_right && ordered.wait(ticket) == Ok(Value::Written) && all[4_000_000] == 4
        }));
        ordered.drain().unwrap();
        assert!(bytes.iter().all(|byte| *byte == 3));
    }
}
