//! Keeps locks and threads valid in a child of fork. The child has a copy of the memory, and only
//! the thread that forked.
//!
//! In the child, an ordinary lock that another thread held would stay locked forever, no thread
//! of the parent can be joined, and resources of the process, such as a permission, are missing.
//! So the thread that forks takes every [`Lock`] before the fork, and releases it in both
//! processes afterwards. In the child, a [`Thread`] is not joined. A value that must know whether
//! it is still in the process that created it contains a [`Here`].
//!
//! Handlers of pthread_atfork(3) do this. They do not run if a program calls the system call
//! directly, without the C library.

use std::cell::UnsafeCell;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread::{self, JoinHandle};

/// The number of forks from the first process of this program to this process.
static DEPTH: AtomicU64 = AtomicU64::new(0);
/// The number of forks. Each fork increases it in the parent and in the child. If it has not
/// changed, there was no fork in between.
static FORKS: AtomicU64 = AtomicU64::new(0);
/// The locks that the thread that forks holds during the fork.
static LOCKS: Mutex<Vec<&'static dyn Across>> = Mutex::new(Vec::new());
/// The guard of [`LOCKS`] during a fork.
static HELD: Held<Vec<&'static dyn Across>> = Held::new();

/// Identifies a process of this program, and distinguishes it from its children of fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Here(u64);

impl Here {
    /// The calling process. The first call installs the handlers that count forks.
    #[inline]
    pub fn now() -> Self {
        notice();
        Self(DEPTH.load(Relaxed))
    }

    /// The process as a number.
    #[inline]
    pub fn number(self) -> u64 {
        self.0
    }

    /// The process with this number.
    #[inline]
    pub fn of(number: u64) -> Self {
        Self(number)
    }

    /// Whether this is the calling process.
    #[inline]
    pub fn is_here(self) -> bool {
        DEPTH.load(Relaxed) == self.0
    }
}

/// The number of forks that were counted in this process and its ancestors.
#[inline]
pub fn forks() -> u64 {
    FORKS.load(Relaxed)
}

/// A thread that only the process that started it can join.
#[derive(Debug)]
pub struct Thread<T = ()> {
    thread: Option<JoinHandle<T>>,
    here: Here,
}

impl<T> Thread<T> {
    /// Wraps a thread of the calling process.
    #[must_use]
    pub fn new(thread: JoinHandle<T>) -> Self {
        Self { thread: Some(thread), here: Here::now() }
    }

    /// Whether the thread belongs to the calling process; false in a child of fork.
    #[inline]
    pub fn is_here(&self) -> bool {
        self.here.is_here()
    }

    /// Whether the thread has ended, or belongs to another process.
    pub fn is_finished(&self) -> bool {
        !self.is_here() || self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the end of the thread and returns its result. Returns `None` if the thread was
    /// joined before, and in a child of fork.
    pub fn join(&mut self) -> Option<thread::Result<T>> {
        let thread = self.thread.take()?;
        if self.is_here() {
            return Some(thread.join());
        }
        // The handle is forgotten, because dropping it would detach a thread that does not exist
        // in this process.
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

/// A lock for the whole process. It is free in a child of fork, even if another thread held it.
pub struct Lock<T: 'static> {
    state: Mutex<T>,
    held: Held<T>,
    is_listed: AtomicBool,
    /// Turns the parent's state into the child's.
    renew: fn(&mut T),
}

impl<T: Send> Lock<T> {
    /// A lock around `state`. In a child of fork, `renew` turns the state into the child's.
    pub const fn new(state: T, renew: fn(&mut T)) -> Self {
        let is_listed = AtomicBool::new(false);
        Self { state: Mutex::new(state), held: Held::new(), is_listed, renew }
    }

    /// Takes the lock. Ignores a panic of another thread that held the lock, because the state is
    /// valid at every instant.
    pub fn lock(&'static self) -> MutexGuard<'static, T> {
        if !self.is_listed.load(Acquire) && !self.is_listed.swap(true, Release) {
            notice();
            LOCKS.lock().unwrap_or_else(PoisonError::into_inner).push(self);
        }
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The actions on a lock around a fork.
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

/// The place for the guard of a lock during a fork. Only the thread that holds the lock accesses
/// it.
struct Held<T: 'static>(UnsafeCell<Option<MutexGuard<'static, T>>>);

// SAFETY: only the thread that has taken the lock, or its copy in a child (which has no other
// thread), writes and reads the guard.
unsafe impl<T: Send> Sync for Held<T> {}

impl<T> Held<T> {
    const fn new() -> Self {
        Self(UnsafeCell::new(None))
    }

    fn put(&self, guard: MutexGuard<'static, T>) {
        // SAFETY: the caller holds the lock, so no other thread accesses the guard.
        let slot = unsafe { &mut *self.0.get() };
        *slot = Some(guard);
    }

    fn take(&self) -> Option<MutexGuard<'static, T>> {
        // SAFETY: the caller is the thread that took the lock before the fork, or its copy in the
        // child.
        let slot = unsafe { &mut *self.0.get() };
        slot.take()
    }
}

/// Installs the handlers. If there is no memory for them, forks are not counted.
fn notice() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handlers take no arguments, and make only calls that are allowed during a
        // fork.
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
pub(crate) mod tests {
    use std::process::Stdio;
    use std::sync::mpsc::channel;
    use std::sync::{PoisonError, RwLock, RwLockReadGuard};

    use super::*;

    /// Held while a process is started: until its program runs, it has copies of all descriptors.
    static STARTS: RwLock<()> = RwLock::new(());

    /// While the result lives, no other test starts a process: a descriptor is closed when it is
    /// dropped.
    pub(crate) fn without_starts() -> RwLockReadGuard<'static, ()> {
        STARTS.read().unwrap_or_else(PoisonError::into_inner)
    }

    static COUNT: Lock<u64> = Lock::new(1, |count| *count += 10);

    /// Whether this process runs only one test. Only then may the test fork: a child has a copy
    /// of every descriptor, so other tests would wait until the child has closed its copies of
    /// their descriptors. If the process runs several tests, this function runs the test in a
    /// separate process.
    fn is_alone(test: &str) -> bool {
        const ROLE: &str = "HAUL_FORK_TEST";
        if std::env::var_os(ROLE).is_some() {
            return true;
        }
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args([&format!("fork::tests::{test}"), "--exact", "--test-threads=1"]);
        command.env(ROLE, "").stdout(Stdio::piped()).stderr(Stdio::null());
        let starts = STARTS.write().unwrap_or_else(PoisonError::into_inner);
        let started = command.spawn().unwrap();
        drop(starts);
        let ran = started.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(ran.status.success() && said.contains("1 passed"), "{said}");
        false
    }

    /// Runs `act` in a child of fork, and returns the child's exit status.
    fn in_a_child(act: impl FnOnce() -> i32) -> i32 {
        // SAFETY: the child makes only calls that are allowed after a fork of a process with
        // several threads: it takes locks that are free in the child, and ends.
        match unsafe { libc::fork() } {
            0 => {
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(result.unwrap_or(101)) }
            }
            child => {
                let mut status = 0;
                // SAFETY: the call only waits for a child of this process.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                assert!(libc::WIFEXITED(status), "killed by {}", libc::WTERMSIG(status));
                libc::WEXITSTATUS(status)
            }
        }
    }

    #[test]
    fn lock_of_another_thread_is_free_in_child() {
        if !is_alone("lock_of_another_thread_is_free_in_child") {
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
            // SAFETY: the signal ends a child that hangs.
            unsafe { libc::alarm(30) };
            *COUNT.lock() as i32
        });
        assert_eq!((child, *COUNT.lock()), (12, 2));
        holder.join().unwrap();
    }

    #[test]
    fn child_forgets_thread_of_parent_and_knows_that_it_is_another_process() {
        if !is_alone("child_forgets_thread_of_parent_and_knows_that_it_is_another_process") {
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
