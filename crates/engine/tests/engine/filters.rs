//! Processes whose system calls a filter refuses, and processes that are killed: each failure is a
//! typed error, or the CPU does the work.

use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use haul_engine::{Bell, Copy, Error, Queue, Settings, WorkerSettings};

use crate::forks::holds_in_child;

/// Whose system calls a filter refuses.
#[derive(Clone, Copy)]
enum Of {
    ThisThread,
    AllThreads,
}

/// From now on, the kernel refuses these system calls with EPERM. Returns false if it has no such
/// filters.
fn refuse(calls: &[libc::c_long], of: Of) -> bool {
    let step = |code: u32, if_true: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt: if_true,
        jf: 0,
        k,
    };
    let (load, jump, end) = (
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        libc::BPF_RET | libc::BPF_K,
    );
    let mut steps = vec![step(load, 0, 0)];
    let count = calls.len();
    for (number, call) in calls.iter().enumerate() {
        steps.push(step(jump, (count - number) as u8, *call as u32));
    }
    steps.push(step(end, 0, libc::SECCOMP_RET_ALLOW));
    steps.push(step(end, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32));
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the call changes only a flag of this process.
    let may = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } == 0;
    let flags = match of {
        Of::ThisThread => 0,
        Of::AllThreads => libc::SECCOMP_FILTER_FLAG_TSYNC,
    };
    let (call, mode) = (libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER);
    // SAFETY: the program is valid, and its steps outlive the call, which copies them.
    may && unsafe { libc::syscall(call, mode, flags, &raw const program) } == 0
}

/// Whether this is the error of this attempt.
fn is_of<T>(result: Result<T, Error>, expected: &str) -> bool {
    matches!(result, Err(Error::System { attempt, .. }) if attempt == expected)
}

/// Whether a copy ends before the deadline, though its caller only asks for its end.
fn copy_ends(queue: &Queue, bytes: usize, byte: u8, deadline: Instant) -> bool {
    let copy = queue.submit(Copy::new(vec![0; bytes], vec![byte; bytes]));
    while !copy.is_done() && Instant::now() < deadline {
        std::hint::spin_loop();
    }
    copy.is_done() && copy.wait().0.target == vec![byte; bytes]
}

#[test]
fn refused_threads_descriptors_and_places_are_typed_errors() {
    assert!(holds_in_child(|| {
        let calls =
            [libc::SYS_clone, libc::SYS_clone3, libc::SYS_eventfd2, libc::SYS_sched_getaffinity];
        refuse(&calls, Of::ThisThread)
            && is_of(Queue::worker(), "start the helper thread")
            && is_of(Bell::new(), "create an eventfd")
            && is_of(
                Queue::worker_with(
                    Settings::default(),
                    WorkerSettings { cpu: Some(0), ..WorkerSettings::default() },
                ),
                "place the helper thread",
            )
            && Queue::inline().submit(Copy::new(vec![0; 9], vec![1; 9])).wait().1.is_ok()
    }));
}

/// The helper thread sleeps, and the kernel refuses to wake it. The copies end nevertheless, also
/// more of them than the queue has entries, and the queue can be dropped.
#[test]
fn copies_end_if_the_helper_thread_may_not_be_woken() {
    const BYTES: usize = 300_000;
    assert!(holds_in_child(|| {
        let settings = Settings { entries: 4, ..Settings::default() };
        let queue = Queue::worker_with(settings, WorkerSettings::default()).unwrap();
        queue.submit(Copy::new(vec![0; BYTES], vec![1; BYTES])).wait().1.unwrap();
        // The thread polls for 50 us.
        std::thread::sleep(Duration::from_millis(200));
        if !refuse(&[libc::SYS_futex], Of::ThisThread) {
            return false;
        }
        let deadline = Instant::now() + Duration::from_secs(30);
        (0..10).all(|byte| copy_ends(&queue, BYTES, byte, deadline))
    }));
}

/// The helper thread may neither read its processor time nor choose its processors.
#[test]
fn copies_end_if_clock_and_places_are_refused() {
    const BYTES: usize = 1 << 20;
    let calls = [libc::SYS_clock_gettime, libc::SYS_sched_getaffinity, libc::SYS_sched_setaffinity];
    for is_refused_before in [false, true] {
        assert!(holds_in_child(|| {
            if is_refused_before && !refuse(&calls, Of::ThisThread) {
                return false;
            }
            let queue = Queue::worker().unwrap();
            if !is_refused_before && !refuse(&calls, Of::AllThreads) {
                return false;
            }
            let deadline = Instant::now() + Duration::from_secs(30);
            (0..20).all(|byte| {
                // Sometimes, the thread sleeps before the next one.
                std::thread::sleep(Duration::from_micros(u64::from(byte % 3) * 100));
                copy_ends(&queue, BYTES, byte, deadline)
            })
        }));
    }
}

/// The kernel orders the helper thread's sleep no more, so the thread may miss a submission. It
/// looks again after a while: no copy waits for the next one.
#[test]
fn copies_end_if_the_kernel_orders_the_sleep_no_more() {
    const BYTES: usize = 1000;
    assert!(holds_in_child(|| {
        let polls_for = Duration::from_micros(1);
        let worker = WorkerSettings { polls_for, ..WorkerSettings::default() };
        let queue = Queue::worker_with(Settings::default(), worker).unwrap();
        queue.submit(Copy::new(vec![0; BYTES], vec![1; BYTES])).wait().1.unwrap();
        if !refuse(&[libc::SYS_membarrier], Of::AllThreads) {
            return false;
        }
        let start = Instant::now();
        // Where both threads share a processor, a copy takes a millisecond.
        let numbers = (0..60_000_u32).take_while(|_| start.elapsed() < Duration::from_secs(10));
        numbers.into_iter().all(|number| {
            let deadline = Instant::now() + Duration::from_secs(30);
            let copy = queue.submit(Copy::new(vec![0; BYTES], vec![number as u8; BYTES]));
            while !copy.is_done() && Instant::now() < deadline {
                std::hint::spin_loop();
            }
            // The thread goes to sleep at another time before each submission.
            (0..number % 97).for_each(|_| std::hint::spin_loop());
            copy.is_done() && copy.wait().0.target == [number as u8; BYTES]
        })
    }));
}

/// Memory that this process and its children share.
struct Shared(*mut u8);

impl Shared {
    const BYTES: usize = 16 << 20;

    fn new() -> Self {
        let (access, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: maps new memory.
        let start = unsafe { libc::mmap(ptr::null_mut(), Self::BYTES, access, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        Self(start.cast())
    }

    /// A word of the first page, which no copy writes.
    fn copies(&self) -> &AtomicU32 {
        // SAFETY: the mapping begins with an aligned word that is only used through this.
        unsafe { AtomicU32::from_ptr(self.0.cast()) }
    }

    /// The bytes behind the first page.
    #[expect(clippy::mut_from_ref, reason = "one process at a time uses them")]
    fn bytes(&self) -> &mut [u8] {
        let (start, count) = (self.0.wrapping_add(4096), Self::BYTES - 4096);
        // SAFETY: the mapping has these bytes, and one process at a time uses them.
        unsafe { std::slice::from_raw_parts_mut(start, count) }
    }
}

/// A child that shares a queue and memory with its parent is killed while its copies are pending.
/// The parent's copies of the same queue end, its next copies too, and no byte is other than one
/// that a copy of the child wrote.
#[test]
fn killed_process_harms_no_copy_of_another() {
    let (queue, shared) = (Queue::worker().unwrap(), Shared::new());
    let of_parent = queue.submit(Copy::new(vec![0; 8 << 20], vec![3; 8 << 20]));
    // SAFETY: the child copies, allocates, starts threads and ends by a signal.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: the signal ends a child that is not killed.
        unsafe { libc::alarm(60) };
        let (own, source) = (Queue::worker().unwrap(), vec![7; shared.bytes().len()]);
        loop {
            own.scope(|scope| {
                scope.submit(Copy::new(&mut shared.bytes()[..], &source[..]));
                shared.copies().fetch_add(1, SeqCst);
                drop(queue.submit(Copy::new(vec![0; 1 << 20], vec![9; 1 << 20])));
            })
            .unwrap();
        }
    }
    let mut status = 0;
    while shared.copies().load(SeqCst) == 0 {
        // SAFETY: asks for a child of this process, and does not wait.
        let ended = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
        assert_eq!(ended, 0, "the child ended before its first copy: {status:#x}");
        std::thread::yield_now();
    }
    // SAFETY: ends the child, which is this process's own.
    unsafe { libc::kill(child, libc::SIGKILL) };
    // SAFETY: waits for a child of this process.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL, "{status:#x}");
    assert!(shared.bytes().iter().all(|byte| [0, 7].contains(byte)));
    assert_eq!(of_parent.wait().0.target, vec![3; 8 << 20]);
    let next = queue.submit(Copy::new(vec![0; 1 << 20], vec![4; 1 << 20]));
    assert_eq!(next.wait().0.target, vec![4; 1 << 20]);
}
