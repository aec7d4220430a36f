//! Every form of a submission with every kind of buffer, with few bytes: Miri runs these tests too.

use std::fmt::Debug;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use haul_engine::{
    Batch, Copy, CopyCrc32c, Crc32c, Engine, Facts, Fill, Index, Kind, Lists, Pending, Queue,
    Refusal, Settings, Task, Verb,
};

const ENTRIES: usize = 4;

/// A queue that does everything in `submit`, and one whose helper thread does it.
fn queues() -> [Queue; 2] {
    let settings = Settings { entries: ENTRIES, ..Settings::default() };
    [Queue::inline(), Queue::by_name_with("worker", settings).unwrap()]
}

const BYTES: &[u8] = b"123456789";
const CRC: u32 = 0xe306_9283;

fn zeros() -> Vec<u8> {
    vec![0; BYTES.len()]
}

/// The ways to wait for an operation.
fn wait<W: Task>(pending: Pending<W>, way: usize) -> (W, W::Output)
where
    W::Output: Debug,
{
    let (task, result) = match way {
        0 => pending.wait(),
        1 => {
            while !pending.is_done() {
                std::thread::yield_now();
            }
            pending.try_wait().unwrap_or_else(|_| panic!("it is done"))
        }
        2 => pending.wait_for(Duration::from_secs(60)).unwrap_or_else(|_| panic!("a minute")),
        _ => {
            let (mut pending, mut context) = (pin!(pending), Context::from_waker(Waker::noop()));
            loop {
                if let Poll::Ready(finished) = pending.as_mut().poll(&mut context) {
                    break finished;
                }
                std::thread::yield_now();
            }
        }
    };
    (task, result.unwrap())
}

#[test]
fn owned_buffers_come_back() {
    for queue in queues() {
        for way in 0..4 {
            let (copy, ()) = wait(queue.submit(Copy::new(zeros(), BYTES)), way);
            assert_eq!(copy.target, BYTES);
            let shared: Arc<[u8]> = BYTES.into();
            let (copy, ()) =
                wait(queue.submit(Copy::new(zeros().into_boxed_slice(), Arc::clone(&shared))), way);
            assert_eq!((&copy.target[..], Arc::strong_count(&shared)), (BYTES, 2));
            let target: &'static mut [u8] = zeros().leak();
            let (fill, ()) = wait(queue.submit(Fill::new(target, 7)), way);
            assert_eq!(fill.target, [7; BYTES.len()]);
            // SAFETY: the allocation was leaked above, and this is its only reference.
            drop(unsafe { Box::from_raw(fill.target) });
            assert_eq!(wait(queue.submit(Crc32c::new(BYTES)), way).1, CRC);
            let (copy, crc) = wait(queue.submit(CopyCrc32c::new(zeros(), shared)), way);
            assert_eq!((&copy.target[..], crc), (BYTES, CRC));
        }
    }
}

#[test]
fn lists_of_buffers_come_back() {
    for queue in queues() {
        for way in 0..4 {
            let lists = Lists::new(vec![vec![0; 4], vec![0; 5]], vec![&BYTES[..2], &BYTES[2..]]);
            let (lists, ()) = wait(queue.submit(lists), way);
            assert_eq!(lists.targets.concat(), BYTES);
            let batch = Batch::new(vec![(zeros(), BYTES), (vec![0; 2], &BYTES[7..])]);
            let (batch, ()) = wait(queue.submit(batch), way);
            assert_eq!((&batch.copies[0].0[..], &batch.copies[1].0[..]), (BYTES, &b"89"[..]));
        }
    }
}

#[test]
fn borrowed_buffers_are_there_after_the_scope() {
    for queue in queues() {
        let (mut first, mut second, mut third) = (zeros(), zeros(), zeros());
        queue
            .scope(|scope| {
                let one = scope.submit(Copy::new(&mut first[..], BYTES));
                std::mem::forget(scope.submit(Copy::new(&mut second[..], BYTES)));
                let (left, right) = third.split_at_mut(4);
                let lists = Lists::new(vec![left, right], vec![BYTES]);
                drop(scope.submit(lists));
                assert!(BYTES.starts_with(one.ready()));
                let (one, result) = one.wait();
                assert_eq!((&*one.target, result), (BYTES, Ok(())));
            })
            .unwrap();
        assert_eq!([first, second, third], [BYTES; 3]);
    }
}

#[test]
fn executed_operations_have_ended() {
    for queue in queues() {
        let (mut target, mut other) = (zeros(), zeros());
        queue.execute(Copy::new(&mut target[..], BYTES)).unwrap();
        assert_eq!(target, BYTES);
        queue.execute(Fill::new(&mut target[..], 7)).unwrap();
        assert_eq!(target, [7; BYTES.len()]);
        assert_eq!(queue.execute(CopyCrc32c::new(&mut target[..], BYTES)), Ok(CRC));
        let (left, right) = target.split_at(4);
        let lists = Lists::new(vec![&mut other[..]], vec![left, right]);
        queue.execute(lists).unwrap();
        assert_eq!(other, BYTES);
        // Owned buffers are dropped at the end.
        let shared: Arc<[u8]> = BYTES.into();
        assert_eq!(queue.execute(CopyCrc32c::new(zeros(), Arc::clone(&shared))), Ok(CRC));
        let batch = Batch::new(vec![(zeros(), Arc::clone(&shared)), (zeros(), shared.clone())]);
        queue.execute(batch).unwrap();
        let copy = Copy::new(vec![0; 2], Arc::clone(&shared));
        assert!(catch_unwind(AssertUnwindSafe(|| queue.execute(copy))).is_err());
        assert_eq!(Arc::strong_count(&shared), 1);
    }
}

/// Refuses every operation, after its slot was taken.
#[derive(Debug)]
struct Refusing(Facts);

// SAFETY: nothing is accepted.
unsafe impl Engine for Refusing {
    fn facts(&self) -> &Facts {
        &self.0
    }

    unsafe fn start(&self, _: Index) -> Result<(), Refusal> {
        Err(Refusal::Full)
    }

    fn poll(&self, _: Index) {}
}

#[test]
fn cpu_does_what_an_engine_refuses() {
    let facts = Facts {
        name: "refusing".into(),
        kind: Kind::Fake,
        verbs: Verb::ALL.iter().fold(0, |all, verb| all | verb.bit()),
        length_max: 1 << 20,
        ends_unpolled: true,
        patience: None,
    };
    let settings = Settings { entries: 1, ..Settings::default() };
    let queue = Queue::open(settings, |_| Ok(Box::new(Refusing(facts)))).unwrap();
    let mut target = zeros();
    for way in 0..4 {
        let batch = Batch::new(vec![(zeros(), BYTES), (vec![0; 2], &BYTES[7..])]);
        let (batch, ()) = wait(queue.submit(batch), way);
        assert_eq!((&batch.copies[0].0[..], &batch.copies[1].0[..]), (BYTES, &b"89"[..]));
        target.fill(0);
        queue.execute(Copy::new(&mut target[..], BYTES)).unwrap();
        assert_eq!(target, BYTES);
        target.fill(0);
        let copied = queue.scope(|scope| {
            drop(scope.submit(Copy::new(&mut target[..], BYTES)));
            scope.submit(Crc32c::new(BYTES)).wait().1.unwrap()
        });
        assert_eq!((copied, &target[..]), (Ok(CRC), BYTES));
    }
}

#[test]
fn lengths_that_differ_leak_nothing() {
    for queue in queues() {
        let source: Arc<[u8]> = BYTES.into();
        let copy = Copy::new(vec![0; 2], Arc::clone(&source));
        let batch = Batch::new(vec![(vec![0; 3], Arc::clone(&source))]);
        let submitted = catch_unwind(AssertUnwindSafe(|| drop(queue.submit(copy))));
        assert!(submitted.is_err() && Arc::strong_count(&source) == 2);
        let submitted = catch_unwind(AssertUnwindSafe(|| drop(queue.submit(batch))));
        assert!(submitted.is_err() && Arc::strong_count(&source) == 1);
    }
}

#[test]
fn future_may_be_dropped_after_a_poll() {
    for queue in queues() {
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..2 * ENTRIES {
            let batch = Batch::new(vec![(zeros(), BYTES); 2]);
            let mut pending = Box::pin(queue.submit(batch));
            let polled = pending.as_mut().poll(&mut context);
            let is_over = polled.is_ready();
            drop(polled);
            let again = catch_unwind(AssertUnwindSafe(|| pending.as_mut().poll(&mut context)));
            assert_eq!(again.is_err(), is_over, "a future is not polled after its end");
        }
    }
}

/// More handles than slots: dropped at once, leaked, moved about, or kept.
#[test]
fn handles_may_be_dropped_leaked_and_moved() {
    for queue in queues() {
        let source: Arc<[u8]> = BYTES.into();
        let submit = || queue.submit(Copy::new(zeros(), Arc::clone(&source)));
        let mut kept: Vec<_> = (0..2 * ENTRIES).map(|_| submit()).collect();
        kept.reverse();
        for _ in 0..3 * ENTRIES {
            drop(submit());
            drop(queue.submit(Batch::new(vec![(zeros(), Arc::clone(&source)); 2])));
        }
        for pending in kept {
            assert!(BYTES.starts_with(pending.ready()) && pending.bytes_done() <= BYTES.len());
            let pending = Box::new(pending);
            assert_eq!(pending.wait().0.target, BYTES);
        }
        // A handle may outlive its queue.
        let last = submit();
        drop(queue);
        assert_eq!(last.wait().0.target, BYTES);
        assert_eq!(Arc::strong_count(&source), 1);
    }
}
