//! A queue wakes its engine for operations that follow each other soon.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use haul_engine::{
    Copy, Engine, Error, Facts, Index, Queue, Refusal, Settings, Slots, WAKE_MIN, WorkerSettings,
};

use crate::support::{Fault, polled};

/// What a [`Sleeper`] was asked for.
#[derive(Debug, Default)]
struct Asked {
    is_awake: AtomicBool,
    wakes: AtomicUsize,
    starts: AtomicUsize,
}

/// An engine that sleeps until it is roused, and refuses every operation.
#[derive(Debug)]
struct Sleeper {
    facts: Facts,
    asked: Arc<Asked>,
}

// SAFETY: it starts nothing.
unsafe impl Engine for Sleeper {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    unsafe fn start(&self, _: Index) -> Result<(), Refusal> {
        self.asked.starts.fetch_add(1, Relaxed);
        Err(Refusal::Full)
    }

    fn poll(&self, _: Index) {}

    fn is_ready(&self) -> bool {
        self.asked.is_awake.load(Relaxed)
    }

    fn rouse(&self) -> bool {
        self.asked.wakes.fetch_add(1, Relaxed);
        !self.asked.is_awake.swap(true, Relaxed)
    }
}

/// A queue that wakes its engine as `auto` does.
fn queue() -> (Queue, Arc<Asked>) {
    let asked = Arc::new(Asked::default());
    let facts = polled(Settings::default(), Fault::None).facts().clone();
    let own = Arc::clone(&asked);
    let make = |_: Arc<Slots>| -> Result<Box<dyn Engine>, Error> {
        Ok(Box::new(Sleeper { facts, asked: own }))
    };
    let settings = Settings { wake_min: WAKE_MIN, crowded_min: 0, ..Settings::default() };
    (Queue::open(settings, make).unwrap(), asked)
}

#[test]
fn copies_in_succession_wake_the_engine_for_the_next_ones() {
    let (queue, asked) = queue();
    let source = vec![7; 64 << 10];
    let mut target = vec![0; source.len()];
    let mut copy = || queue.execute(Copy::new(&mut target[..], &source[..])).unwrap();
    // Another process may interrupt a series.
    let deadline = Instant::now() + Duration::from_secs(60);
    while asked.wakes.load(Relaxed) == 0 {
        assert!(Instant::now() < deadline, "no series of copies has woken the engine");
        copy();
    }
    assert_eq!(asked.starts.load(Relaxed), 0, "the CPU does what wakes the engine");
    copy();
    assert_eq!((asked.wakes.load(Relaxed), asked.starts.load(Relaxed)), (1, 1));
    assert_eq!(target, source);
}

#[test]
fn copies_with_pauses_do_not_wake_the_engine() {
    let (queue, asked) = queue();
    for _ in 0..2 * WAKE_MIN / (256 << 10) {
        let (copy, _) = queue.submit(Copy::new(vec![0; 256 << 10], vec![7; 256 << 10])).wait();
        assert_eq!(copy.target[0], 7);
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!((asked.wakes.load(Relaxed), asked.starts.load(Relaxed)), (0, 0));
}

/// The helper thread itself, which polls for longer than the copies of a series are apart.
#[test]
fn sleeping_helper_thread_gets_later_copies_of_a_series() {
    if std::thread::available_parallelism().unwrap().get() < 2 {
        eprintln!("SKIPPED: a helper thread on two processors: only one CPU: give it two");
        return;
    }
    let polls_for = Duration::from_millis(20);
    let worker = WorkerSettings { polls_for, ..WorkerSettings::default() };
    let settings = Settings { wake_min: WAKE_MIN, crowded_min: 0, ..Settings::default() };
    let queue = Queue::worker_with(settings, worker).unwrap();
    let is_beside = || {
        let copy = queue.submit(Copy::new(vec![0; 64 << 10], vec![7; 64 << 10]));
        let is_beside = !copy.is_done();
        assert_eq!(copy.wait().0.target[0], 7);
        is_beside
    };
    let deadline = Instant::now() + Duration::from_secs(120);
    while is_beside() {
        assert!(Instant::now() < deadline, "the thread never sleeps");
        std::thread::sleep(10 * polls_for);
    }
    while !is_beside() {
        assert!(Instant::now() < deadline, "no series of copies has woken the thread");
    }
}
