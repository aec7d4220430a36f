//! What a fork leaves in the child: memory as it was, and of all threads the one that forked.
//!
//! A lock that another thread held stays locked there for ever, a thread cannot be joined, and what
//! belongs to the process, such as a permission, is not the child's. So a [`Lock`] is taken by the
//! thread that forks, and given back in both processes; a [`Thread`] is forgotten in the child; and
//! what has to know whether it is still in the process that it was made in keeps a [`Here`].
//!
//! Handlers of pthread_atfork(3) see to it: a process that is made by the system call itself, past
//! the C library, is not noticed.

use std::cell::UnsafeCell;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread::{self, JoinHandle};

/// How many forks lead from the first process of this program to this one.
static DEPTH: AtomicU64 = AtomicU64::new(0);
/// Counts forks in both processes: the same number says that there was none in between.
static FORKS: AtomicU64 = AtomicU64::new(0);
/// Locks that are taken around a fork.
static LOCKS: Mutex<Vec<&'static dyn Across>> = Mutex::new(Vec::new());
/// [`LOCKS`] while there is a fork.
static HELD: Held<Vec<&'static dyn Across>> = Held::new();

/// A process of this program, as against those that it forks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Here(u64);

impl Here {
    /// This one. From the first call on, forks are noticed.
    pub fn now() -> Self {
        notice();
        Self(DEPTH.load(Relaxed))
    }

    /// As it is kept where only numbers are.
    pub fn number(self) -> u64 {
        self.0
    }

    /// The one of this number.
    pub fn of(number: u64) -> Self {
        Self(number)
    }

    /// Whether it is the calling process.
    pub fn is_here(self) -> bool {
        DEPTH.load(Relaxed) == self.0
    }
}

/// How many forks were noticed in this process, and in those that it came from.
#[inline]
pub fn forks() -> u64 {
    FORKS.load(Relaxed)
}

/// A thread, joined by the process that has it.
#[derive(Debug)]
pub struct Thread<T = ()> {
    thread: Option<JoinHandle<T>>,
    here: Here,
}

impl<T> Thread<T> {
    /// Takes a thread of the calling process.
    #[must_use]
    pub fn new(thread: JoinHandle<T>) -> Self {
        Self { thread: Some(thread), here: Here::now() }
    }

    /// Whether the calling process has it: a child of fork does not.
    pub fn is_here(&self) -> bool {
        self.here.is_here()
    }

    /// Whether it has ended, or is none of this process's.
    pub fn is_finished(&self) -> bool {
        !self.is_here() || self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for its end, and says what it ended with; `None` where it was waited for before. In a
    /// child of fork there is none to wait for.
    pub fn join(&mut self) -> Option<thread::Result<T>> {
        let thread = self.thread.take()?;
        if self.is_here() {
            return Some(thread.join());
        }
        // Dropped, it would detach a thread that is not there.
        std::mem::forget(thread);
        None
    }
}

impl<T> Drop for Thread<T> {
    fn drop(&mut self) {
        if !self.is_here() {
            let _ = self.join();
        }
    }
}

/// A lock of the whole process: free in a child of fork, whatever other threads did.
pub struct Lock<T: 'static> {
    state: Mutex<T>,
    held: Held<T>,
    is_listed: AtomicBool,
    /// Makes of what the parent has what the child has.
    renew: fn(&mut T),
}

impl<T: Send> Lock<T> {
    /// Around this, of which `renew` makes a child's.
    pub const fn new(state: T, renew: fn(&mut T)) -> Self {
        let is_listed = AtomicBool::new(false);
        Self { state: Mutex::new(state), held: Held::new(), is_listed, renew }
    }

    /// Takes it. What it guards is whole at every instant, so a panic elsewhere spoils nothing.
    pub fn lock(&'static self) -> MutexGuard<'static, T> {
        if !self.is_listed.load(Acquire) && !self.is_listed.swap(true, Release) {
            notice();
            LOCKS.lock().unwrap_or_else(PoisonError::into_inner).push(self);
        }
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is done with a lock around a fork.
trait Across: Sync {
    fn hold(&'static self);
    fn give_back(&self);
    fn renew(&self);
}

impl<T: Send> Across for Lock<T> {
    fn hold(&'static self) {
        self.held.put(self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn give_back(&self) {
        drop(self.held.take());
    }

    fn renew(&self) {
        if let Some(mut guard) = self.held.take() {
            (self.renew)(&mut guard);
        }
    }
}

/// A taken lock, between the handlers of one fork. Only who has the lock reaches it.
struct Held<T: 'static>(UnsafeCell<Option<MutexGuard<'static, T>>>);

// SAFETY: it is written and read by the thread that has taken the lock of which this is the guard,
// and by the one thread of a child, which is its copy.
unsafe impl<T: Send> Sync for Held<T> {}

impl<T> Held<T> {
    const fn new() -> Self {
        Self(UnsafeCell::new(None))
    }

    fn put(&self, guard: MutexGuard<'static, T>) {
        // SAFETY: the caller has the lock, so nobody else is here.
        let slot = unsafe { &mut *self.0.get() };
        *slot = Some(guard);
    }

    fn take(&self) -> Option<MutexGuard<'static, T>> {
        // SAFETY: the thread that took the lock before the fork, or its copy in the child.
        let slot = unsafe { &mut *self.0.get() };
        slot.take()
    }
}

/// From here on forks are noticed. Where there is no memory for the handlers, none is.
fn notice() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handlers take nothing, and do what may be done in a process that forks.
        let _ = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    });
}

extern "C" fn before() {
    let locks = LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    locks.iter().for_each(|lock| lock.hold());
    HELD.put(locks);
}

extern "C" fn in_parent() {
    FORKS.fetch_add(1, Relaxed);
    let Some(locks) = HELD.take() else { return };
    locks.iter().for_each(|lock| lock.give_back());
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Relaxed);
    DEPTH.fetch_add(1, Relaxed);
    let Some(locks) = HELD.take() else { return };
    locks.iter().for_each(|lock| lock.renew());
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    static COUNT: Lock<u64> = Lock::new(1, |count| *count += 10);

    /// Whether this process is one of its own for a test, which may fork: a child has a copy of
    /// every descriptor, and others would wait for theirs to be closed. Else the test runs in one.
    fn is_alone(test: &str) -> bool {
        const ROLE: &str = "HAUL_FORK_TEST";
        if std::env::var_os(ROLE).is_some() {
            return true;
        }
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args([&format!("fork::tests::{test}"), "--exact", "--test-threads=1"]);
        let ran = command.env(ROLE, "").output().unwrap();
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(ran.status.success() && said.contains("1 passed"), "{said}");
        false
    }

    /// What a child of fork ends with.
    fn in_a_child(act: impl FnOnce() -> i32) -> i32 {
        // SAFETY: the child does what a child of a program of several threads may: it takes locks
        // that are free in it, and ends.
        match unsafe { libc::fork() } {
            0 => {
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(result.unwrap_or(101)) }
            }
            child => {
                let mut status = 0;
                // SAFETY: waits for a child of this process alone.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                assert!(libc::WIFEXITED(status), "killed by {}", libc::WTERMSIG(status));
                libc::WEXITSTATUS(status)
            }
        }
    }

    #[test]
    fn a_lock_that_another_thread_holds_is_free_in_the_child() {
        if !is_alone("a_lock_that_another_thread_holds_is_free_in_the_child") {
            return;
        }
        drop(COUNT.lock());
        let (taken, is_taken) = channel();
        let holder = thread::spawn(move || {
            let mut count = COUNT.lock();
            taken.send(()).unwrap();
            thread::sleep(std::time::Duration::from_millis(200));
            *count = 2;
        });
        is_taken.recv().unwrap();
        let child = in_a_child(|| {
            // SAFETY: a child that hangs is ended by the signal.
            unsafe { libc::alarm(30) };
            *COUNT.lock() as i32
        });
        assert_eq!((child, *COUNT.lock()), (12, 2));
        holder.join().unwrap();
    }

    #[test]
    fn a_thread_of_the_parent_is_forgotten_in_the_child_and_a_process_knows_itself() {
        if !is_alone("a_thread_of_the_parent_is_forgotten_in_the_child_and_a_process_knows_itself")
        {
            return;
        }
        let here = Here::now();
        let forks = super::forks();
        let (end, until) = channel::<()>();
        let mut thread = Thread::new(thread::spawn(move || assert!(until.recv().is_err())));
        let child = in_a_child(|| {
            let is_there = thread.is_here() || thread.join().is_some();
            i32::from(is_there || here.is_here() || super::forks() == forks)
        });
        assert_eq!(child, 0);
        assert!(here.is_here() && super::forks() > forks);
        drop(end);
        assert!(thread.join().is_some_and(|result| result.is_ok()));
    }
}
