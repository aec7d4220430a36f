//! System calls: sleeping on a word, events, and the processors of a thread.

use std::time::Duration;

use rustix::fd::OwnedFd;

use crate::sync::AtomicU32;

/// Sleeps while the word has this value, at most for this time. May return early.
#[cfg(not(any(all(test, loom), miri)))]
pub(crate) fn sleep(word: &AtomicU32, value: u32, at_most: Option<Duration>) {
    use rustix::thread::futex;
    let timeout = at_most.map(|time| rustix::fs::Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    });
    // Every reason to return, an error too, leads to another check of the word.
    let _ = futex::wait(word, futex::Flags::PRIVATE, value, timeout.as_ref());
}

/// Wakes all threads that sleep on the word. Returns false if the kernel refuses: a filter of
/// system calls may.
#[cfg(not(any(all(test, loom), miri)))]
pub(crate) fn wake_all(word: &AtomicU32) -> bool {
    use rustix::thread::futex;
    futex::wake(word, futex::Flags::PRIVATE, i32::MAX as u32).is_ok()
}

/// The commands of `membarrier` in linux/membarrier.h, from Linux 4.14 on.
#[cfg(not(any(all(test, loom), miri)))]
const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
#[cfg(not(any(all(test, loom), miri)))]
const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

/// Registers this process for [`barrier`]. Returns false if the kernel has no such call.
#[cfg(not(any(all(test, loom), miri)))]
pub(crate) fn register_barrier() -> bool {
    // SAFETY: the call takes numbers only.
    unsafe { libc::syscall(libc::SYS_membarrier, REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 }
}

/// Every thread of this process executes a memory barrier between the call and its return. Returns
/// false if the kernel refuses. Cost: one system call, and an interrupt of each processor on which
/// another thread of this process runs.
#[cfg(not(any(all(test, loom), miri)))]
pub(crate) fn barrier() -> bool {
    // SAFETY: the call takes numbers only.
    unsafe { libc::syscall(libc::SYS_membarrier, PRIVATE_EXPEDITED, 0, 0) == 0 }
}

/// Neither loom nor Miri has the call.
#[cfg(any(all(test, loom), miri))]
pub(crate) fn register_barrier() -> bool {
    false
}

#[cfg(any(all(test, loom), miri))]
pub(crate) fn barrier() -> bool {
    false
}

/// Threads of loom and of Miri do not sleep: they let another thread run.
#[cfg(any(all(test, loom), miri))]
pub(crate) fn sleep(_word: &AtomicU32, _value: u32, _at_most: Option<Duration>) {
    #[cfg(miri)]
    std::thread::yield_now();
    #[cfg(not(miri))]
    loom::thread::yield_now();
}

#[cfg(any(all(test, loom), miri))]
pub(crate) fn wake_all(_word: &AtomicU32) -> bool {
    true
}

/// Fails if this process may not run on the processor.
pub(crate) fn check_cpu(cpu: usize) -> std::io::Result<()> {
    let allowed = rustix::thread::sched_getaffinity(None)?;
    if cpu < rustix::thread::CpuSet::MAX_CPU && allowed.is_set(cpu) {
        return Ok(());
    }
    Err(std::io::Error::other(format!("processor {cpu} is not among those of this process")))
}

/// Lets this thread run on these processors only. Without the permission, it runs where it may.
pub(crate) fn stay_on(cpus: &rustix::thread::CpuSet) {
    let _ = rustix::thread::sched_setaffinity(None, cpus);
}

/// Lets this thread receive SIGBUS, whatever its creator has blocked: memory that another process
/// takes away is then a signal that a handler can repair. A blocked one kills the process.
pub(crate) fn unblock_bus_faults() {
    #[cfg(not(miri))]
    {
        // SAFETY: a set is an array of words, for which all bytes zero are a value.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set is this function's own.
        unsafe { libc::sigaddset(&raw mut set, libc::SIGBUS) };
        // SAFETY: the call reads the set alone.
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut()) };
    }
}

/// The set of one processor.
pub(crate) fn only(cpu: usize) -> rustix::thread::CpuSet {
    let mut one = rustix::thread::CpuSet::new();
    one.set(cpu);
    one
}

/// The processor on which this thread runs now, and its NUMA node; `None` if the kernel refuses.
pub(crate) fn cpu_and_node() -> Option<(u32, u32)> {
    #[cfg(miri)]
    return None;
    #[cfg(not(miri))]
    {
        let (mut cpu, mut node) = (0_u32, 0_u32);
        let nothing = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: the first two arguments are writable, and the kernel ignores the third.
        let done = unsafe { libc::syscall(libc::SYS_getcpu, &raw mut cpu, &raw mut node, nothing) };
        (done == 0).then_some((cpu, node))
    }
}

/// The processor on which this thread runs now. Cost: no system call on most processors.
pub(crate) fn cpu() -> usize {
    #[cfg(not(miri))]
    return rustix::thread::sched_getcpu();
    #[cfg(miri)]
    return 0;
}

/// An event of the kernel that a poll can wait for.
pub(crate) fn event() -> std::io::Result<OwnedFd> {
    use rustix::event::{EventfdFlags, eventfd};
    let made = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
    Ok(haul_peer::descriptor::kept(made)?)
}

/// Adds 1 to an event. A full event is set anyway.
pub(crate) fn set(event: &OwnedFd) {
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

/// Sets an event to 0, and returns its value before.
pub(crate) fn clear(event: &OwnedFd) -> u64 {
    let mut count = [0; 8];
    rustix::io::read(event, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
}

/// The time since the first call in this process.
pub(crate) fn clock() -> Duration {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    START.get_or_init(std::time::Instant::now).elapsed()
}
