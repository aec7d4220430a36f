//! What holds for every engine: a suite over a function that opens a queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use haul_engine::{
    Access, Batch, Bell, Callbacks, Compare, Copy, CopyCrc32c, Crc32c, Fill, Hint, Lists, Outcome,
    Queue, Refusal, Settings, WorkerSettings, crc32c,
};

use crate::support::{Fault, polled};

/// Sizes around those at which engines and pieces change.
const SIZES: [usize; 12] =
    [0, 1, 63, 64, 4095, 4096, 4097, 32 << 10, (32 << 10) + 1, 100_000, 1 << 20, (5 << 20) + 13];

#[test]
fn inline_conforms() {
    suite(&Queue::inline);
}

#[test]
fn worker_conforms() {
    suite(&|| Queue::worker().unwrap());
}

#[test]
fn worker_that_sleeps_at_once_conforms() {
    let settings = WorkerSettings { polls_for: Duration::ZERO, cpu: None };
    suite(&|| Queue::worker_with(Settings::default(), settings).unwrap());
}

#[test]
fn worker_with_one_entry_conforms() {
    let settings = Settings { entries: 1, ..Settings::default() };
    suite(&|| Queue::worker_with(settings, WorkerSettings::default()).unwrap());
}

#[test]
fn auto_conforms() {
    suite(&|| Queue::auto().unwrap());
}

#[test]
fn polled_engine_conforms_under_every_fault() {
    for fault in [
        Fault::None,
        Fault::PageAt(0),
        Fault::PageAt(1),
        Fault::PageAt(4096),
        Fault::Ends(Outcome::Gone),
        Fault::Ends(Outcome::Refused(Refusal::Status(0x1f))),
        Fault::Ends(Outcome::Partial { bytes_done: 0, address: 0x1000, access: Access::Read }),
        Fault::Refuses(Refusal::Full),
        Fault::Refuses(Refusal::Permission),
    ] {
        suite(&|| polled(Settings::default(), fault));
    }
}

/// Each wait revokes the device after 20 ms, so the tests with thousands of waits are left out.
#[test]
fn engine_that_hangs_conforms() {
    let open = || polled(Settings::default(), Fault::Hangs);
    borrowed_buffers_are_complete_after_the_scope(&open());
    panic_in_a_scope_waits(&open());
    more_operations_than_entries_all_end(&open());
    dropped_and_leaked_handles_do_no_harm(&open());
    notifications_arrive(&open());
    dependent_operations_see_the_bytes(&open());
    executed_operations_have_ended(&open());
}

/// Every rule of the contract that a caller can see.
pub(crate) fn suite(open: &dyn Fn() -> Queue) {
    every_operation_computes_what_the_cpu_computes(&open());
    borrowed_buffers_are_complete_after_the_scope(&open());
    panic_in_a_scope_waits(&open());
    more_operations_than_entries_all_end(&open());
    dropped_and_leaked_handles_do_no_harm(&open());
    notifications_arrive(&open());
    operations_of_many_threads_end_once(&open());
    prefix_grows_and_is_right(&open());
    dependent_operations_see_the_bytes(&open());
    executed_operations_have_ended(&open());
}

fn pattern(size: usize, seed: usize) -> Vec<u8> {
    (0..size).map(|at| (((at + seed) * 2_654_435_761) >> 7) as u8).collect()
}

fn every_operation_computes_what_the_cpu_computes(queue: &Queue) {
    for size in SIZES {
        let source = pattern(size, size);
        for hint in [Hint::Unknown, Hint::Streamed, Hint::Handover] {
            let copy = queue.submit(Copy::new(vec![0; size], source.clone()).hint(hint));
            let (copy, result) = copy.wait();
            assert_eq!(result, Ok(()));
            assert!(copy.target == source, "{size}");
        }
        let (fill, result) = queue.submit(Fill::new(vec![0; size], 7)).wait();
        assert!(result.is_ok() && fill.target.iter().all(|byte| *byte == 7), "{size}");
        let (_, equal) = queue.submit(Compare::new(source.clone(), source.clone())).wait();
        assert_eq!(equal, Ok(None));
        if let Some(last) = size.checked_sub(1) {
            let mut other = source.clone();
            other[last] ^= 1;
            let (_, unequal) = queue.submit(Compare::new(source.clone(), other)).wait();
            assert_eq!(unequal, Ok(Some(last)));
        }
        let shared: Arc<[u8]> = source.clone().into();
        let (_, crc) = queue.submit(Crc32c::new(shared)).wait();
        assert_eq!(crc, Ok(crc32c(0, &source)));
        let target = vec![0; size].into_boxed_slice();
        let (copy, crc) = queue.submit(CopyCrc32c::new(target, source.clone())).wait();
        assert_eq!(crc, Ok(crc32c(0, &source)));
        assert!(*copy.target == *source, "{size}");
        let (first, second) = source.split_at(size / 3);
        let targets = vec![vec![0; size / 2], vec![0; size - size / 2]];
        let lists = Lists::new(targets, vec![first.to_vec(), second.to_vec()]);
        let (lists, result) = queue.submit(lists).wait();
        assert_eq!(result, Ok(()));
        assert!(lists.targets.concat() == source, "{size}");
        let parts = [first, second, &[]].map(|part| (vec![0; part.len()], part.to_vec()));
        let (batch, result) = queue.submit(Batch::new(parts.into())).wait();
        assert_eq!(result, Ok(()));
        assert!(batch.copies.iter().all(|(target, source)| target == source), "{size}");
    }
}

fn executed_operations_have_ended(queue: &Queue) {
    std::thread::scope(|scope| {
        for number in 0..3 {
            scope.spawn(move || {
                for size in SIZES {
                    execute_each(queue, &pattern(size, size + number));
                }
            });
        }
    });
}

/// Every operation over borrowed buffers.
fn execute_each(queue: &Queue, source: &[u8]) {
    let (size, crc) = (source.len(), crc32c(0, source));
    let (mut target, mut other) = (vec![0; size], vec![0; size]);
    queue.execute(Copy::new(&mut target[..], source)).unwrap();
    assert!(target == source, "{size}");
    queue.execute(Fill::new(&mut target[..], 7)).unwrap();
    assert!(target.iter().all(|byte| *byte == 7), "{size}");
    assert_eq!(queue.execute(CopyCrc32c::new(&mut target[..], source)), Ok(crc));
    assert_eq!(queue.execute(Crc32c::new(&target[..])), Ok(crc));
    assert_eq!(queue.execute(Compare::new(&target[..], source)), Ok(None));
    let (first, second) = source.split_at(size / 3);
    let parts = other.split_at_mut(size / 2);
    queue.execute(Lists::new(vec![parts.0, parts.1], vec![first, second])).unwrap();
    assert!(other == source, "{size}");
    target.fill(0);
    let parts = target.split_at_mut(size / 3);
    queue.execute(Batch::new(vec![(parts.0, first), (parts.1, second)])).unwrap();
    assert!(target == source, "{size}");
}

fn borrowed_buffers_are_complete_after_the_scope(queue: &Queue) {
    let source = pattern(300_000, 1);
    let mut targets = vec![vec![0; source.len()]; 5];
    let kept = queue.scope(|scope| {
        for (number, target) in targets.iter_mut().enumerate() {
            let copy = scope.submit(Copy::new(&mut target[..], &source[..]));
            match number {
                0 => drop(copy),
                1 => std::mem::forget(copy),
                2 => assert!(copy.wait().0.target == source),
                3 => assert!(source.starts_with(copy.ready())),
                _ => {
                    let (copy, _) = copy.wait();
                    copy.target[0] ^= 1; // the buffer is the caller's again
                }
            }
        }
        source.len()
    });
    assert_eq!(kept, Ok(source.len()));
    targets[4][0] ^= 1;
    assert!(targets.iter().all(|target| *target == source));
}

fn panic_in_a_scope_waits(queue: &Queue) {
    let source = pattern(1 << 20, 2);
    let mut target = vec![0; source.len()];
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        queue.scope(|scope| {
            scope.submit(Copy::new(&mut target[..], &source[..]));
            std::panic::resume_unwind(Box::new("on purpose"));
        })
    }));
    assert!(panicked.is_err());
    assert!(target == source);
}

fn more_operations_than_entries_all_end(queue: &Queue) {
    let source: Arc<[u8]> = pattern(5000, 3).into();
    let submit = |_| queue.submit(Copy::new(vec![0; source.len()], Arc::clone(&source)));
    let pending: Vec<_> = (0..10_000).map(submit).collect();
    for copy in pending {
        let (copy, result) = copy.wait();
        assert!(result.is_ok() && copy.target[..] == source[..]);
    }
    let mut targets = vec![0; 1000 * 64];
    let submitted = queue.scope(|scope| {
        for target in targets.chunks_mut(64) {
            scope.submit(Copy::new(target, &source[..64]));
        }
    });
    assert_eq!(submitted, Ok(()));
    assert!(targets.chunks(64).all(|target| *target == source[..64]));
}

fn dropped_and_leaked_handles_do_no_harm(queue: &Queue) {
    let source: Arc<[u8]> = pattern(200_000, 4).into();
    for number in 0..300 {
        let copy = queue.submit(Copy::new(vec![0; source.len()], Arc::clone(&source)));
        if number % 100 == 0 { std::mem::forget(copy) } else { drop(copy) }
    }
    let (copy, _) = queue.submit(Copy::new(vec![0; source.len()], Arc::clone(&source))).wait();
    assert!(copy.target[..] == source[..]);
}

struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

fn notifications_arrive(queue: &Queue) {
    let source = pattern(100_000, 5);
    let submit = || queue.submit(Copy::new(vec![0; source.len()], source.clone()));
    // A future, whose waker must be called.
    let counter = Arc::new(Counter(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&counter));
    let mut future = std::pin::pin!(submit());
    while future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
        wait_until(&|| counter.0.load(Relaxed) > 0);
    }
    // A future that is dropped after one poll.
    let mut early = Box::pin(submit());
    let _ = early.as_mut().poll(&mut Context::from_waker(&waker));
    drop(early);
    // A bell.
    let (bell, copy) = (Bell::new().unwrap(), submit());
    copy.ring(&bell);
    let mut event = [rustix::event::PollFd::new(&bell, rustix::event::PollFlags::IN)];
    let timeout = rustix::fs::Timespec { tv_sec: 30, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut event, Some(&timeout)), Ok(1));
    assert!(copy.is_done() && bell.clear() == 1 && copy.wait().0.target == source);
    callbacks_submit_again(queue);
}

/// Each callback submits again; a call of `run` stays bounded.
fn callbacks_submit_again(queue: &Queue) {
    fn submit(queue: &Queue, callbacks: &Callbacks, left: usize) {
        let (queue, again) = (queue.clone(), callbacks.clone());
        let copy = queue.submit(Copy::new(vec![0; 5000], vec![1; 5000]));
        callbacks.add(copy, move |copy, result| {
            assert_eq!((copy.target[4999], result), (1, Ok(())));
            if left > 0 {
                submit(&queue, &again, left - 1);
            }
        });
    }
    let callbacks = Callbacks::new();
    submit(queue, &callbacks, 20);
    submit(queue, &callbacks, 20);
    let ran = AtomicUsize::new(0);
    wait_until(&|| {
        let now = callbacks.run(16);
        assert!(now <= 2, "{now} callbacks ran in one call");
        ran.fetch_add(now, Relaxed) + now == 42
    });
}

pub(crate) fn wait_until(is_true: &dyn Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !is_true() {
        assert!(begun.elapsed() < Duration::from_secs(30), "nothing arrived");
        std::thread::yield_now();
    }
}

fn operations_of_many_threads_end_once(queue: &Queue) {
    let copies = if cfg!(debug_assertions) { 2000 } else { 100_000 };
    std::thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || {
                let source = pattern(4096, thread);
                let mut target = vec![0; 4096];
                for number in 0..copies {
                    let size = number % source.len() + 1;
                    target.resize(size, 0);
                    let part = source[..size].to_vec();
                    let (copy, result) = queue.submit(Copy::new(target, part)).wait();
                    assert!(result.is_ok() && copy.target == source[..size]);
                    target = copy.target;
                }
            });
        }
    });
    // Submitted by one thread, completed by another.
    let copy = queue.submit(Copy::new(vec![0; 70_000], vec![3; 70_000]));
    let other = std::thread::spawn(move || copy.wait());
    assert!(other.join().unwrap().0.target.iter().all(|byte| *byte == 3));
}

fn prefix_grows_and_is_right(queue: &Queue) {
    let source = pattern(8 << 20, 6);
    let copy = queue.submit(Copy::new(vec![0; source.len()], source.clone()));
    let (mut before, mut is_done) = (0, false);
    // A poll never revokes a device that hangs, because that could block.
    let begun = std::time::Instant::now();
    while !is_done && begun.elapsed() < Duration::from_secs(5) {
        is_done = copy.is_done();
        let ready = copy.ready();
        assert!(ready.len() >= before, "{before} -> {}", ready.len());
        assert!(ready[before..] == source[before..ready.len()]);
        before = ready.len();
    }
    let (copy, result) = copy.wait();
    assert!(result.is_ok() && copy.target == source);
}

fn dependent_operations_see_the_bytes(queue: &Queue) {
    let source = pattern(50_000, 7);
    let mut bytes = source.clone();
    for _ in 0..20 {
        let (copy, result) = queue.submit(Copy::new(vec![0; bytes.len()], bytes)).wait();
        assert_eq!(result, Ok(()));
        bytes = copy.target;
    }
    assert!(bytes == source);
}
