//! A crew of pinned threads that start together.
//!
//! The calling thread is the first of the crew, so that a crew of one starts no thread. The other
//! threads spin while they wait, because a sleeping thread starts late and with cold caches.
//! Threads that share a CPU yield to each other at once. After some time without a command the
//! crew sleeps, so that it does not use CPU time that other work needs.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::disturbance::Disturbance;
use crate::error::Error;
use crate::sys;

/// The number of polls before a waiting thread yields its CPU: about a microsecond.
const SPINS_BEFORE_YIELD: u32 = 64;

/// The time for which a worker spins before it sleeps: longer than the pause of a run between two
/// samples.
const SPINNING: Duration = Duration::from_millis(1);

/// A panic on one of the threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panic {
    /// The thread, from 0.
    pub thread: usize,
    /// The panic's message.
    pub message: String,
}

/// A barrier within a command, to be used once: [`Meeting::wait`] returns on all threads at the
/// same time. A thread that ends the command without a call of `wait` counts as arrived.
pub struct Meeting<'a> {
    has_met: Cell<bool>,
    arrived: &'a AtomicUsize,
    broken: &'a AtomicBool,
    target: usize,
    crowded: bool,
}

impl Meeting<'_> {
    /// Waits until every thread of the crew waits, or a thread has panicked.
    pub fn wait(&self) {
        self.has_met.set(true);
        // SYNC: crew meets
        self.arrived.fetch_add(1, Ordering::AcqRel);
        spin_until(self.crowded, || {
            self.arrived.load(Ordering::Acquire) >= self.target
                || self.broken.load(Ordering::Acquire)
        });
    }
}

/// Threads that execute commands together.
pub struct Crew<'a, C, T> {
    shared: &'a Shared<C, T>,
    work: &'a (dyn Fn(usize, &C, &Meeting<'_>) -> T + Sync),
}

/// The state that the threads of a crew share.
struct Shared<C, T> {
    threads: usize,
    crowded: bool,
    command: Mutex<Option<C>>,
    results: Mutex<Vec<Option<Result<T, String>>>>,
    /// The number of commands that were given; the workers wait until this number grows.
    given: AtomicUsize,
    /// The condition on which workers sleep; every new command notifies it.
    wake: Condvar,
    /// The number of arrivals at the barrier, over all commands.
    arrived: AtomicUsize,
    /// The number of workers that have finished, over all commands.
    finished: AtomicUsize,
    broken: AtomicBool,
}

/// Starts a crew of `threads` threads, the calling one included, pins thread `i` to `cpus[i %
/// cpus.len()]` (an empty list pins nothing), and passes the crew to `body`. Every command given
/// through [`Crew::together`] runs `work(thread, command, meeting)` on all threads. The calling
/// thread's own affinity is restored at the end.
///
/// # Errors
/// `threads` is 0, or the system cannot start a thread.
pub fn with_crew<C, T, R>(
    threads: usize,
    cpus: &[usize],
    work: &(dyn Fn(usize, &C, &Meeting<'_>) -> T + Sync),
    body: impl FnOnce(&Crew<'_, C, T>, Vec<Disturbance>) -> R,
) -> Result<R, Error>
where
    C: Clone + Send,
    T: Send,
{
    if threads == 0 {
        return Err(Error::Sampling { what: "threads", value: 0, limit: 1 });
    }
    let shared = Shared::new(threads, !cpus.is_empty() && threads > cpus.len());
    let _restore = RestoreAffinity(sys::affinity());
    let pinned = pin(0, cpus);
    thread::scope(|scope| {
        // Dropped on every exit, a panic of `body` included: the workers end, and the scope closes.
        let _dismiss = Dismiss(&shared);
        for thread in 1..threads {
            let shared = &shared;
            let start = move || {
                let _ = pin(thread, cpus);
                shared.serve(thread, work);
            };
            let spawned =
                thread::Builder::new().name(format!("haul-{thread}")).spawn_scoped(scope, start);
            spawned.map_err(|reason| Error::Thread { thread, threads, reason })?;
        }
        let mut disturbances = Vec::new();
        if !pinned {
            disturbances.push(Disturbance::Unpinned);
        }
        if shared.crowded {
            disturbances.push(Disturbance::SharedCpu { threads, cpus: cpus.len() });
        }
        Ok(body(&Crew { shared: &shared, work }, disturbances))
    })
}

impl<C: Clone, T> Crew<'_, C, T> {
    /// Runs `command` on every thread. Returns one result per thread, in order.
    ///
    /// # Errors
    /// A thread panicked. After a panic, the crew is unusable: every further command fails too.
    pub fn together(&self, command: &C) -> Result<Vec<T>, Panic> {
        let shared = self.shared;
        let number = shared.given.load(Ordering::Relaxed) + 1;
        shared.give(Some(command.clone()), number);
        shared.carry_out(0, command, number, self.work);
        let workers = shared.threads - 1;
        // SYNC: command finished
        spin_until(shared.crowded, || shared.finished.load(Ordering::Acquire) >= workers * number);
        self.collect()
    }

    fn collect(&self) -> Result<Vec<T>, Panic> {
        let results: Vec<_> = lock(&self.shared.results).iter_mut().map(Option::take).collect();
        let mut done = Vec::with_capacity(results.len());
        for (thread, result) in results.into_iter().enumerate() {
            match result {
                Some(Ok(value)) => done.push(value),
                Some(Err(message)) => return Err(Panic { thread, message }),
                None => {
                    return Err(Panic { thread, message: "the thread ended early".into() });
                }
            }
        }
        Ok(done)
    }
}

impl<C: Clone, T> Shared<C, T> {
    fn new(threads: usize, crowded: bool) -> Self {
        Self {
            threads,
            crowded,
            command: Mutex::new(None),
            results: Mutex::new((0..threads).map(|_| None).collect()),
            given: AtomicUsize::new(0),
            wake: Condvar::new(),
            arrived: AtomicUsize::new(0),
            finished: AtomicUsize::new(0),
            broken: AtomicBool::new(false),
        }
    }

    /// Waits until more than `done` commands have been given, spinning first and sleeping later.
    fn wait_for_more_than(&self, done: usize) {
        // SYNC: command given
        let is_given = || self.given.load(Ordering::Acquire) > done;
        let start = Instant::now();
        spin_until(self.crowded, || is_given() || start.elapsed() > SPINNING);
        let mut place = lock(&self.command);
        while !is_given() {
            place = self.wake.wait(place).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The loop of a worker: waits for a command and executes it, until the crew is dismissed.
    fn serve(&self, thread: usize, work: &(dyn Fn(usize, &C, &Meeting<'_>) -> T + Sync)) {
        let mut done = 0;
        loop {
            self.wait_for_more_than(done);
            done += 1;
            let Some(command) = lock(&self.command).clone() else {
                return;
            };
            self.carry_out(thread, &command, done, work);
            // SYNC: command finished
            self.finished.fetch_add(1, Ordering::Release);
        }
    }

    fn carry_out(
        &self,
        thread: usize,
        command: &C,
        number: usize,
        work: &(dyn Fn(usize, &C, &Meeting<'_>) -> T + Sync),
    ) {
        let meeting = Meeting {
            has_met: Cell::new(false),
            arrived: &self.arrived,
            broken: &self.broken,
            target: self.threads * number,
            crowded: self.crowded,
        };
        // After a panic, no state of `work` is used again except to read the panic.
        let result = catch_unwind(AssertUnwindSafe(|| work(thread, command, &meeting)));
        if !meeting.has_met.get() {
            // SYNC: crew meets
            self.arrived.fetch_add(1, Ordering::AcqRel);
        }
        if result.is_err() {
            // SYNC: crew meets
            self.broken.store(true, Ordering::Release);
        }
        lock(&self.results)[thread] = Some(result.map_err(|panic| message_of(&*panic)));
    }
}

impl<C, T> Shared<C, T> {
    /// Gives the workers the command with this number; `None` ends them.
    fn give(&self, command: Option<C>, number: usize) {
        let mut place = lock(&self.command);
        *place = command;
        // SYNC: command given
        self.given.store(number, Ordering::Release);
        drop(place);
        self.wake.notify_all();
    }
}

/// Ends the workers when dropped.
struct Dismiss<'a, C, T>(&'a Shared<C, T>);

impl<C, T> Drop for Dismiss<'_, C, T> {
    fn drop(&mut self) {
        self.0.broken.store(true, Ordering::Release);
        self.0.give(None, self.0.given.load(Ordering::Relaxed) + 1);
    }
}

struct RestoreAffinity(Vec<usize>);

impl Drop for RestoreAffinity {
    fn drop(&mut self) {
        let _ = sys::set_affinity(&self.0);
    }
}

/// Pins the calling thread as thread `thread` of a crew. Returns false if pinning is not
/// possible.
fn pin(thread: usize, cpus: &[usize]) -> bool {
    !cpus.is_empty() && sys::set_affinity(&[cpus[thread % cpus.len()]])
}

fn spin_until(crowded: bool, mut reached: impl FnMut() -> bool) {
    let mut spins = 0;
    while !reached() {
        spins += 1;
        if crowded || spins % SPINS_BEFORE_YIELD == 0 {
            sys::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}

/// Locks a mutex even if a thread panicked while it held the lock: the guarded value is always
/// replaced as a whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_threads_execute_every_command() {
        for threads in [1, 2, 3, 5] {
            let work = |thread: usize, command: &usize, meeting: &Meeting<'_>| {
                meeting.wait();
                thread * 100 + command
            };
            with_crew(threads, &sys::affinity(), &work, |crew, _| {
                for command in 0..20 {
                    let expected: Vec<usize> =
                        (0..threads).map(|thread| thread * 100 + command).collect();
                    assert_eq!(crew.together(&command).unwrap(), expected);
                }
            })
            .unwrap();
        }
    }

    #[test]
    fn sleeping_crew_wakes_for_a_command() {
        let work = |thread: usize, command: &usize, _: &Meeting<'_>| thread + command;
        with_crew(3, &sys::affinity(), &work, |crew, _| {
            for command in 0..3 {
                thread::sleep(3 * SPINNING);
                assert_eq!(crew.together(&command).unwrap(), [command, command + 1, command + 2]);
            }
            thread::sleep(3 * SPINNING);
        })
        .unwrap();
    }

    /// No thread may leave the barrier before all have arrived.
    #[test]
    fn barrier_releases_threads_together() {
        let before = AtomicUsize::new(0);
        let work = |_: usize, _: &(), meeting: &Meeting<'_>| {
            before.fetch_add(1, Ordering::SeqCst);
            meeting.wait();
            before.load(Ordering::SeqCst)
        };
        with_crew(3, &sys::affinity(), &work, |crew, _| {
            for round in 1..=50 {
                assert!(crew.together(&()).unwrap().iter().all(|&seen| seen >= 3 * round));
            }
        })
        .unwrap();
    }

    /// A command without the barrier must not disturb the barrier of the next command.
    #[test]
    fn commands_with_and_without_a_meeting_alternate() {
        let work = |thread: usize, command: &usize, meeting: &Meeting<'_>| {
            if !command.is_multiple_of(3) {
                meeting.wait();
            }
            thread + command
        };
        for threads in [1, 3] {
            with_crew(threads, &sys::affinity(), &work, |crew, _| {
                for command in 0..12 {
                    assert_eq!(crew.together(&command).unwrap().len(), threads);
                }
            })
            .unwrap();
        }
    }

    #[test]
    fn shared_cpu_is_detected() {
        let cpus: Vec<usize> = sys::affinity().into_iter().take(1).collect();
        let work = |thread: usize, _: &(), meeting: &Meeting<'_>| {
            meeting.wait();
            (thread, sys::affinity())
        };
        let disturbances = with_crew(2, &cpus, &work, |crew, disturbances| {
            let seen = crew.together(&()).unwrap();
            assert!(seen.iter().all(|(_, affinity)| *affinity == cpus), "{seen:?}");
            disturbances
        });
        assert_eq!(disturbances.unwrap(), [Disturbance::SharedCpu { threads: 2, cpus: 1 }]);
    }

    #[test]
    fn affinity_is_restored() {
        let before = sys::affinity();
        with_crew(1, &before[..1], &|_, (): &(), _| (), |crew, _| crew.together(&()).unwrap())
            .unwrap();
        assert_eq!(sys::affinity(), before);
    }

    #[test]
    fn panic_is_reported_and_no_thread_hangs() {
        for victim in 0..3 {
            let work = |thread: usize, (): &(), meeting: &Meeting<'_>| {
                assert!(thread != victim, "thread {thread} gives up");
                meeting.wait();
            };
            let panic =
                with_crew(3, &[], &work, |crew, _| crew.together(&()).unwrap_err()).unwrap();
            assert_eq!(
                panic,
                Panic { thread: victim, message: format!("thread {victim} gives up") }
            );
        }
    }

    #[test]
    fn zero_threads_is_an_error() {
        let error = with_crew(0, &[], &|_, (): &(), _| (), |_, _| ()).unwrap_err();
        assert!(error.to_string().contains("threads = 0"), "{error}");
    }
}
