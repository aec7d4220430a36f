//! 1..N pinned threads that start together.
//!
//! The calling thread is the first of the crew, so that a crew of one starts no thread at all; the
//! others wait spinning, because a thread that sleeps starts late and cold. Where threads share a
//! CPU they yield to each other at once, and a crew that has had no command for a while sleeps, so
//! that it takes nothing from whoever works meanwhile.

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

/// How often a waiting thread looks before it yields its CPU: about a microsecond.
const SPINS_BEFORE_YIELD: u32 = 64;

/// How long a worker waits spinning for a command: longer than a run takes between two samples.
const SPINNING: Duration = Duration::from_millis(1);

/// A panic on one of the threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panic {
    /// The thread, from 0.
    pub thread: usize,
    /// The panic's message.
    pub message: String,
}

/// Where the threads of a crew meet within a command, once: [`Meeting::wait`] returns on all at
/// once. A thread that ends the command without it has met the others all the same.
pub struct Meeting<'a> {
    has_met: Cell<bool>,
    arrived: &'a AtomicUsize,
    broken: &'a AtomicBool,
    target: usize,
    crowded: bool,
}

impl Meeting<'_> {
    /// Waits until every thread of the crew waits, or one has panicked.
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

/// Threads that carry out commands together.
pub struct Crew<'a, C, T> {
    shared: &'a Shared<C, T>,
    work: &'a (dyn Fn(usize, &C, &Meeting<'_>) -> T + Sync),
}

/// What the threads of a crew share.
struct Shared<C, T> {
    threads: usize,
    crowded: bool,
    command: Mutex<Option<C>>,
    results: Mutex<Vec<Option<Result<T, String>>>>,
    /// How many commands were given; the workers wait for it to grow.
    given: AtomicUsize,
    /// Told with every command, for workers that have gone to sleep over `command`.
    wake: Condvar,
    /// How many threads have met, over all commands.
    arrived: AtomicUsize,
    /// How many workers have finished, over all commands.
    finished: AtomicUsize,
    broken: AtomicBool,
}

/// Starts `threads` threads, the calling one included, pins thread `i` to `cpus[i % cpus.len()]`
/// (an empty list pins nothing), and hands the crew to `body`. Every command given through
/// [`Crew::together`] is done by `work(thread, command, meeting)` on all threads. The calling
/// thread's own affinity is restored at the end.
///
/// # Errors
/// `threads` is 0, or the system starts no thread.
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
        // Dropped on every way out, also by a panic of `body`: the workers end, the scope closes.
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
        let mut told = Vec::new();
        if !pinned {
            told.push(Disturbance::Unpinned);
        }
        if shared.crowded {
            told.push(Disturbance::SharedCpu { threads, cpus: cpus.len() });
        }
        Ok(body(&Crew { shared: &shared, work }, told))
    })
}

impl<C: Clone, T> Crew<'_, C, T> {
    /// Has every thread do `command`; one result for each thread, in their order.
    ///
    /// # Errors
    /// One of them panicked. The crew is then of no more use: every further command fails too.
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

    /// Waits until more than `done` commands were given: spinning at first, asleep later.
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

    /// A worker's life: wait for a command, do it, until there is none.
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
        // The work is only read after a panic: nothing broken is seen again.
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
    /// Gives a command, the `number`th; `None` ends the workers.
    fn give(&self, command: Option<C>, number: usize) {
        let mut place = lock(&self.command);
        *place = command;
        // SYNC: command given
        self.given.store(number, Ordering::Release);
        drop(place);
        self.wake.notify_all();
    }
}

/// Ends the workers: a command that is none.
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

/// Pins the calling thread as thread `thread` of a crew; false where that is not possible.
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

/// A lock that a panic elsewhere does not take away: what it guards is replaced as a whole.
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
    fn all_threads_do_every_command() {
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
    fn a_crew_that_fell_asleep_wakes() {
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

    /// Nobody leaves the meeting before everybody has come.
    #[test]
    fn meetings_are_joint() {
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

    /// Commands that do not meet leave the next that do to meet among themselves.
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
    fn one_cpu_is_shared_and_said() {
        let cpus: Vec<usize> = sys::affinity().into_iter().take(1).collect();
        let work = |thread: usize, _: &(), meeting: &Meeting<'_>| {
            meeting.wait();
            (thread, sys::affinity())
        };
        let told = with_crew(2, &cpus, &work, |crew, told| {
            let seen = crew.together(&()).unwrap();
            assert!(seen.iter().all(|(_, affinity)| *affinity == cpus), "{seen:?}");
            told
        });
        assert_eq!(told.unwrap(), [Disturbance::SharedCpu { threads: 2, cpus: 1 }]);
    }

    #[test]
    fn affinity_comes_back() {
        let before = sys::affinity();
        with_crew(1, &before[..1], &|_, (): &(), _| (), |crew, _| crew.together(&()).unwrap())
            .unwrap();
        assert_eq!(sys::affinity(), before);
    }

    #[test]
    fn panics_are_told_and_nobody_hangs() {
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
    fn no_threads_is_an_error() {
        let error = with_crew(0, &[], &|_, (): &(), _| (), |_, _| ()).unwrap_err();
        assert!(error.to_string().contains("threads = 0"), "{error}");
    }
}
