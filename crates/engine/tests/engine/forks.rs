//! Children of fork: the engine is opened again once, and its ends are noticed there too.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use haul_engine::dsa::fake::{Fake, Settings as FakeSettings};
use haul_engine::dsa::{Dsa, Options};
use haul_engine::{Bell, Callbacks, Copy, Engine, Error, Facts, Index, Queue, Refusal, Settings};

use crate::support::{Fault, polled};

/// Runs `act` in a child of fork, which ends after a minute at the latest. Returns whether `act`
/// returned true.
pub(crate) fn holds_in_child(act: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child copies, allocates, starts threads and ends. The C library keeps its
    // allocator usable.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: the signal ends a child that hangs.
            unsafe { libc::alarm(60) };
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!matches!(result, Ok(true)))) }
        }
        child => {
            let mut status = 0;
            // SAFETY: waits for a child of this process.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
        }
    }
}

/// A fake DSA that opens again slowly, and counts how often.
#[derive(Debug)]
struct Slow {
    dsa: Dsa,
    reopens: Arc<AtomicUsize>,
}

// SAFETY: everything is done by the engine inside.
unsafe impl Engine for Slow {
    fn facts(&self) -> &Facts {
        self.dsa.facts()
    }

    unsafe fn start(&self, index: Index) -> Result<(), Refusal> {
        // SAFETY: the caller's promise.
        unsafe { self.dsa.start(index) }
    }

    fn poll(&self, index: Index) {
        self.dsa.poll(index);
    }

    fn revoke(&self) {
        self.dsa.revoke();
    }

    fn reopen(&self) -> Result<(), Refusal> {
        self.reopens.fetch_add(1, Relaxed);
        std::thread::sleep(Duration::from_millis(100));
        self.dsa.reopen()
    }
}

/// A queue over a fake, and how often it was opened again in this process.
fn slow() -> (Queue, Arc<AtomicUsize>) {
    let fake = Arc::new(Fake::new(FakeSettings::default()).unwrap());
    let reopens = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&reopens);
    let failed = |reason| Error::System { attempt: "open the fake", reason };
    let queue = Queue::open(Settings::default(), move |slots| {
        let dsa = Dsa::of_fake(&fake, 0, Options::default(), slots).map_err(failed)?;
        Ok(Box::new(Slow { dsa, reopens: count }))
    });
    (queue.unwrap(), reopens)
}

fn copies(queue: &Queue) -> bool {
    let (copy, result) = queue.submit(Copy::new(vec![0; 4096], vec![1; 4096])).wait();
    result.is_ok() && copy.target == [1; 4096]
}

#[test]
fn threads_of_a_child_open_the_engine_again_once() {
    let (queue, reopens) = slow();
    assert!(copies(&queue));
    assert!(holds_in_child(|| {
        let barrier = Barrier::new(4);
        std::thread::scope(|scope| {
            let submit = || {
                barrier.wait();
                (0..50).all(|_| copies(&queue))
            };
            let threads = [0; 4].map(|_| scope.spawn(submit));
            threads.into_iter().all(|thread| thread.join().is_ok_and(|is_right| is_right))
        }) && reopens.load(Relaxed) == 1
    }));
    assert!(copies(&queue) && reopens.load(Relaxed) == 0);
}

/// Whether a bell rings for a copy that nothing polls.
fn rings(queue: &Queue) -> bool {
    let bell = Bell::new().unwrap();
    let copy = queue.submit(Copy::new(vec![0; 100_000], vec![1; 100_000]));
    copy.ring(&bell);
    let begun = Instant::now();
    while bell.clear() == 0 {
        if begun.elapsed() > Duration::from_secs(20) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    copy.is_done()
}

/// The parent's watching thread exists at the fork, and not in the child.
#[test]
fn bells_ring_in_a_child_whose_parent_used_one() {
    let (queue, _) = slow();
    assert!(rings(&queue));
    assert!(holds_in_child(|| rings(&queue)));
    assert!(rings(&queue));
}

/// Another thread of the parent uses the callbacks at the time of the fork.
#[test]
fn callbacks_run_in_a_child() {
    const FORKS: usize = 30;
    let (callbacks, is_over, runs) =
        (Callbacks::new(), AtomicBool::new(false), AtomicUsize::new(0));
    let queue = Queue::inline();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                callbacks.run(1);
                runs.fetch_add(1, Relaxed);
            }
        });
        let holds = (0..FORKS).all(|_| {
            let before = runs.load(Relaxed);
            while runs.load(Relaxed) == before {
                std::thread::yield_now();
            }
            holds_in_child(|| {
                let copy = queue.submit(Copy::new(vec![0; 10], vec![1; 10]));
                callbacks.add(copy, |copy, _| assert_eq!(copy.target, [1; 10]));
                callbacks.run(1) == 1
            })
        });
        is_over.store(true, Relaxed);
        assert!(holds);
    });
}

/// Memory that this process and its children share.
fn shared(length: usize) -> &'static mut [u8] {
    let (access, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: maps new memory where the kernel chooses.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), length, access, kind, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    // SAFETY: the memory was mapped just now, and is never unmapped.
    unsafe { std::slice::from_raw_parts_mut(start.cast(), length) }
}

/// The child has no interest in copies that are the parent's, into memory that both share: one
/// whose handle it drops, and one whose handle the parent has dropped.
#[test]
fn child_that_drops_a_handle_makes_no_copy() {
    const LENGTH: usize = 1000;
    let queue = polled(Settings::default(), Fault::Hangs);
    let target = shared(2 * LENGTH);
    let start = target.as_ptr();
    // SAFETY: the memory stays mapped, and no engine writes while the tests read.
    let read = || unsafe { std::slice::from_raw_parts(start, 2 * LENGTH) }.to_vec();
    let (first, second) = target.split_at_mut(LENGTH);
    drop(queue.submit(Copy::new(first, &[1; LENGTH][..])));
    let mut copy = Some(queue.submit(Copy::new(second, &[2; LENGTH][..])));
    assert!(holds_in_child(|| {
        drop(copy.take());
        // Polls the copies of dropped handles.
        drop(queue.submit(Copy::new(vec![0; 10], vec![1; 10])));
        read() == [0; 2 * LENGTH]
    }));
    let (_, result) = copy.take().unwrap().wait();
    assert_eq!((result, &read()[LENGTH..]), (Ok(()), &[2; LENGTH][..]));
    // A child that asks gets its own copy.
    let third = vec![0; LENGTH];
    let mut copy = Some(queue.submit(Copy::new(third, &[3; LENGTH][..])));
    assert!(holds_in_child(|| {
        let (copy, result) = copy.take().unwrap().wait();
        result.is_ok() && copy.target == [3; LENGTH]
    }));
    assert!(copy.take().unwrap().wait().1.is_ok());
}
