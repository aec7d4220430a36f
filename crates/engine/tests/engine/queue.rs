//! What a queue does where its engine cannot: reports, forks, bad settings.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use haul_engine::{
    Access, Copy, Engine, Error, Facts, Failed, Fill, Hint, Index, Kind, Operation, Outcome, Queue,
    Refusal, Request, Settings, Slots, Task, Value, Verb, WorkerSettings,
};

use crate::support::{Fault, is_alone, polled};

fn reporting(fault: Fault) -> Queue {
    polled(Settings { finishes_on_cpu: false, ..Settings::default() }, fault)
}

fn failure(fault: Fault) -> Failed {
    let copy = reporting(fault).submit(Copy::new(vec![0; 100], vec![1; 100]));
    copy.wait().1.expect_err("the engine fails")
}

#[test]
fn queue_reports_how_far_an_engine_came() {
    let failed = failure(Fault::PageAt(40));
    assert!(matches!(
        failed.outcome,
        Outcome::Partial { bytes_done: 40, access: Access::Write, .. }
    ));
    assert!(failed.to_string().contains("polled") && failed.to_string().contains("40 bytes"));
    assert_eq!(failure(Fault::Ends(Outcome::Gone)).outcome, Outcome::Gone);
    assert_eq!(failure(Fault::Hangs).outcome, Outcome::Gone);
    let status = Outcome::Refused(Refusal::Status(0x1f));
    assert!(failure(Fault::Ends(status)).to_string().contains("0x1f"));
}

#[test]
fn execute_reports_what_an_engine_did_not_do() {
    for outcome in [Outcome::Gone, Outcome::Refused(Refusal::Status(0x1f))] {
        let queue = reporting(Fault::Ends(outcome));
        let failed = queue.execute(Copy::new(vec![0; 100], vec![1; 100])).unwrap_err();
        assert_eq!(failed.outcome, outcome);
    }
    // A device without a limit for its silence.
    let facts = Facts { patience: Some(Duration::MAX), ..queue_facts() };
    let first = |_| std::thread::sleep(Duration::from_millis(1));
    let make = |slots| -> Result<Box<dyn Engine>, Error> {
        Ok(Box::new(EndsAfter { facts, slots, first }))
    };
    let queue = Queue::open(Settings::default(), make);
    queue.unwrap().execute(Fill::new(&mut [0; 100][..], 7)).unwrap();
}

/// Bytes at an impossible address.
struct Nowhere;

// SAFETY: nothing accesses a range that ends behind the address space.
unsafe impl Task for Nowhere {
    type Output = ();
    type Memory = ();

    fn request(&mut self) -> (Request, ()) {
        let target = std::ptr::without_provenance_mut(usize::MAX);
        let operation = Operation::Fill { target, byte: 1, length: 100 };
        (Request { operation, hint: Hint::Unknown }, ())
    }

    fn output(_: Value) {}
}

#[test]
fn impossible_range_is_refused_in_every_form() {
    let refused = |failed: Failed| failed.outcome == Outcome::Refused(Refusal::BadRange);
    for queue in [Queue::inline(), Queue::worker().unwrap(), Queue::auto().unwrap()] {
        assert!(refused(queue.execute(Nowhere).unwrap_err()));
        let pending = queue.submit(Nowhere);
        assert!(pending.is_done() && pending.bytes_done() == 0);
        assert!(refused(pending.wait().1.unwrap_err()));
        assert!(refused(queue.scope(|scope| drop(scope.submit(Nowhere))).unwrap_err()));
    }
}

#[test]
fn execute_and_scope_report_failures_without_handles() {
    let (source, mut target) = (vec![1; 100], vec![0; 100]);
    let queue = reporting(Fault::PageAt(40));
    let failed = queue.execute(Copy::new(&mut target[..], &source[..])).unwrap_err();
    assert!(matches!(failed.outcome, Outcome::Partial { bytes_done: 40, .. }));
    for leaks in [false, true] {
        let result = queue.scope(|scope| {
            let copy = scope.submit(Copy::new(&mut target[..], &source[..]));
            if leaks { std::mem::forget(copy) } else { drop(copy) }
        });
        assert!(matches!(result.unwrap_err().outcome, Outcome::Partial { bytes_done: 40, .. }));
    }
}

#[test]
fn wait_with_a_limit_hands_the_handle_back() {
    let queue = polled(Settings::default(), Fault::Hangs);
    let copy = queue.submit(Copy::new(vec![0; 100], vec![1; 100]));
    let copy = copy.wait_for(Duration::from_millis(1)).expect_err("the engine hangs");
    assert!(!copy.is_done() && copy.bytes_done() == 0);
    assert_eq!(copy.wait().0.target, [1; 100]);
}

#[test]
fn settings_outside_of_their_limits_are_refused() {
    for entries in [0, haul_engine::SLOTS_MAX + 1] {
        let settings = Settings { entries, ..Settings::default() };
        let opened = Queue::worker_with(settings, WorkerSettings::default());
        assert!(matches!(opened, Err(Error::Setting { name: "entries", .. })));
    }
    let settings = WorkerSettings { cpu: Some(usize::MAX), ..WorkerSettings::default() };
    let opened = Queue::worker_with(Settings::default(), settings);
    assert!(matches!(opened, Err(Error::System { .. })));
}

#[test]
#[should_panic(expected = "the lengths must be equal")]
fn lengths_that_differ_panic() {
    drop(Queue::inline().submit(Copy::new(vec![0; 2], vec![0; 3])));
}

#[test]
fn parent_and_child_go_on_after_a_fork_with_copies_pending() {
    let queue = Queue::worker().unwrap();
    let source: Vec<u8> = (0..4 << 20).map(|at: u32| (at >> 3) as u8).collect();
    let submit = || queue.submit(Copy::new(vec![0; source.len()], source.clone()));
    let pending: Vec<_> = (0..4).map(|_| submit()).collect();
    let check = |pending: Vec<haul_engine::Pending<Copy<Vec<u8>, Vec<u8>>>>| {
        pending.into_iter().all(|copy| copy.wait().0.target == source)
    };
    let executes = || {
        let mut target = vec![0; source.len()];
        queue.execute(Copy::new(&mut target[..], &source[..])).is_ok() && target == source
    };
    // SAFETY: the child copies, allocates and ends. The C library keeps its allocator usable.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: the signal ends a child that hangs.
            unsafe { libc::alarm(60) };
            let is_right = check(pending) && check(vec![submit(), submit()]) && executes();
            drop(queue);
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!is_right)) }
        }
        child => {
            assert!(check(pending) && check(vec![submit(), submit()]) && executes());
            let mut status = 0;
            // SAFETY: waits for a child of this process.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "the child's copies are wrong, or it was killed");
        }
    }
}

fn queue_facts() -> Facts {
    polled(Settings::default(), Fault::None).facts().clone()
}

/// Signals that this process has handled.
static HANDLED: AtomicUsize = AtomicUsize::new(0);

/// Signals that arrive in one wait.
const SIGNALS: usize = 20;

/// An engine whose operations end in a thread, after a function that gets their waiter.
#[derive(Debug)]
struct EndsAfter {
    facts: Facts,
    slots: Arc<Slots>,
    first: fn(libc::pthread_t),
}

// SAFETY: a thread ends each slot once, and accesses no memory of its operation.
unsafe impl Engine for EndsAfter {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    unsafe fn start(&self, index: Index) -> Result<(), Refusal> {
        let (slots, first) = (Arc::clone(&self.slots), self.first);
        // SAFETY: the call has no conditions.
        let waiter = unsafe { libc::pthread_self() };
        std::thread::spawn(move || {
            first(waiter);
            // SAFETY: the slot was accepted, and ends once.
            unsafe { slots.end(index, Outcome::Done(Value::Written)) };
        });
        Ok(())
    }

    fn poll(&self, _: Index) {}
}

/// Returns when the waiter has handled [`SIGNALS`] signals.
fn send_signals(waiter: libc::pthread_t) {
    for sent in 1..=SIGNALS {
        // SAFETY: the thread lives until the operation has ended.
        unsafe { libc::pthread_kill(waiter, libc::SIGUSR1) };
        while HANDLED.load(Relaxed) < sent {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

#[test]
fn signals_do_not_end_a_wait() {
    extern "C" fn handle(_: libc::c_int) {
        HANDLED.fetch_add(1, Relaxed);
    }
    // SAFETY: the handler only adds to an atomic.
    unsafe { libc::signal(libc::SIGUSR1, handle as *const () as libc::sighandler_t) };
    let queue = Queue::open(Settings::default(), |slots| {
        let facts = Facts {
            name: "signals".into(),
            kind: Kind::Fake,
            verbs: Verb::Fill.bit(),
            length_max: 1 << 20,
            ends_unpolled: true,
            patience: None,
        };
        Ok(Box::new(EndsAfter { facts, slots, first: send_signals }))
    });
    let (_, result) = queue.unwrap().submit(Fill::new(vec![0; 100], 1)).wait();
    assert_eq!((result, HANDLED.load(Relaxed)), (Ok(()), SIGNALS));
}

/// The caller does a short copy while the helper thread is at a long one. `auto` does not conclude
/// from it that the helper thread has no processor.
#[test]
fn short_copy_beside_long_one_sends_no_copy_to_the_cpu() {
    let is_beside = || {
        let queue = Queue::auto().unwrap();
        let copy = |bytes: usize| queue.submit(Copy::new(vec![0; bytes], vec![1; bytes]));
        let long = copy(64 << 20);
        let is_long = !long.is_done();
        let _ = copy(1 << 20).wait();
        let is_long = is_long && !long.is_done();
        let next = copy(16 << 20);
        is_long && !next.is_done()
    };
    // On a busy machine, the helper thread may have no processor. With one, all is done at once.
    let processors = std::thread::available_parallelism().unwrap().get();
    assert!(processors == 1 || (0..100).any(|_| is_beside()));
}

/// A guest's memory may disappear while the helper thread copies. The signal of that can be handled
/// only if it is not blocked.
#[test]
fn helper_thread_receives_bus_faults_whatever_its_creator_blocks() {
    // A helper thread of another test blocks all signals while it ends.
    if !is_alone("queue::helper_thread_receives_bus_faults_whatever_its_creator_blocks") {
        return;
    }
    let opener = std::thread::spawn(|| {
        // SAFETY: a set is an array of words, for which all bytes zero are a value.
        let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set is this function's own.
        unsafe { libc::sigfillset(&raw mut all) };
        // SAFETY: the call reads the set alone.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut()) };
        let queue = Queue::worker().unwrap();
        let copy = queue.submit(Copy::new(vec![0; 100], vec![1; 100]));
        while !copy.is_done() {
            std::hint::spin_loop();
        }
        queue
    });
    let _queue = opener.join().unwrap();
    let mut helpers = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        // A thread of another test may end meanwhile.
        let Ok(status) = std::fs::read_to_string(task.unwrap().path().join("status")) else {
            continue;
        };
        let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        if value("Name:\t") == Some("haul-engine") {
            let blocked = u64::from_str_radix(value("SigBlk:\t").unwrap(), 16).unwrap();
            assert_eq!(blocked & 1 << (libc::SIGBUS - 1), 0, "{blocked:#x}");
            helpers += 1;
        }
    }
    assert!(helpers > 0, "no helper thread");
}
