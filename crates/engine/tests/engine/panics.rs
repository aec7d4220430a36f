//! Callbacks, wakers and destructors that panic: the program's code, which runs on threads of an
//! engine too.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Wake, Waker};

use haul_engine::{
    Callbacks, Copy, Hint, Operation, Pending, Queue, Request, Settings, Task, Value,
};

use crate::conformance::wait_until;
use crate::support::{Fault, polled};

const SIZE: usize = 5000;

fn submit(queue: &Queue) -> Pending<Copy<Vec<u8>, Vec<u8>>> {
    queue.submit(Copy::new(vec![0; SIZE], vec![1; SIZE]))
}

#[test]
fn callback_that_panics_loses_no_other() {
    for queue in
        [Queue::inline(), Queue::worker().unwrap(), polled(Settings::default(), Fault::None)]
    {
        let (callbacks, ran) = (Callbacks::new(), Arc::new(AtomicUsize::new(0)));
        for number in 0..3 {
            let ran = Arc::clone(&ran);
            callbacks.add(submit(&queue), move |_, _| {
                assert!(number != 0, "a callback panics, as the test wants it");
                ran.fetch_add(1, Relaxed);
            });
        }
        let panics = AtomicUsize::new(0);
        wait_until(&|| {
            if catch_unwind(AssertUnwindSafe(|| callbacks.run(16))).is_err() {
                panics.fetch_add(1, Relaxed);
            }
            ran.load(Relaxed) + panics.load(Relaxed) == 3
        });
        assert_eq!((ran.load(Relaxed), panics.load(Relaxed)), (2, 1));
    }
}

/// Counts the calls, and panics in each.
struct Panics(AtomicUsize);

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
        panic!("a waker panics, as the test wants it");
    }
}

#[test]
fn waker_that_panics_ends_no_thread_of_an_engine() {
    for queue in [Queue::worker().unwrap(), polled(Settings::default(), Fault::None)] {
        let panics = Arc::new(Panics(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&panics));
        // A copy may end before its waker is stored.
        while panics.0.load(Relaxed) == 0 {
            let mut copy = Box::pin(submit(&queue));
            if copy.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                wait_until(&|| copy.is_done());
            }
        }
        // The threads still work: the caller takes no part in these copies.
        let copies: Vec<_> = (0..3).map(|_| submit(&queue)).collect();
        wait_until(&|| copies.iter().all(Pending::is_done));
        assert!(copies.into_iter().all(|copy| copy.wait().0.target == [1; SIZE]));
    }
}

/// Panics when it is dropped.
struct Loads;

impl Drop for Loads {
    fn drop(&mut self) {
        panic!("the payload of a panic panics, as the test wants it");
    }
}

/// A waker that panics with such a payload.
struct Worse;

impl Wake for Worse {
    fn wake(self: Arc<Self>) {
        std::panic::panic_any(Loads);
    }
}

/// A wait for one operation ends another one, whose waker panics.
#[test]
fn wait_outlasts_any_panic_of_another_waker() {
    let queue = polled(Settings::default(), Fault::None);
    let (waker, source) = (Waker::from(Arc::new(Worse)), vec![1; SIZE]);
    for _ in 0..20 {
        let mut other = Box::pin(submit(&queue));
        let _ = other.as_mut().poll(&mut Context::from_waker(&waker));
        let mut target = vec![0; SIZE];
        queue.execute(Copy::new(&mut target[..], &source[..])).unwrap();
        assert!(target == source);
        wait_until(&|| other.is_done());
    }
}

/// Bytes to fill, whose destructor panics.
struct Loud(Vec<u8>);

impl Drop for Loud {
    fn drop(&mut self) {
        panic!("a destructor panics, as the test wants it");
    }
}

// SAFETY: the request names the vector's bytes, which any thread may drop.
unsafe impl Task for Loud {
    type Output = ();
    type Memory = ();

    fn request(&mut self) -> (Request, ()) {
        let (target, length) = (self.0.as_mut_ptr(), self.0.len());
        let operation = Operation::Fill { target, byte: 7, length };
        (Request { operation, hint: Hint::Unknown }, ())
    }

    fn output(_: Value) {}
}

/// The first task has ended when the second one's handle is dropped, and is dropped then. The
/// second one is pending.
#[test]
fn destructor_that_panics_frees_no_buffer_in_use() {
    let queue = polled(Settings::default(), Fault::None);
    let source: Arc<[u8]> = vec![1; SIZE].into();
    let first = queue.submit(Loud(vec![0; SIZE]));
    let second = queue.submit(Copy::new(vec![0; SIZE], Arc::clone(&source)));
    drop(first);
    assert!(catch_unwind(AssertUnwindSafe(|| drop(second))).is_err());
    assert_eq!(Arc::strong_count(&source), 2, "the buffers of a pending copy were dropped");
}
