//! Children that are forked, and not started again. They may not call malloc: another thread may
//! have held its lock when the child came.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a child exits with whose work ended in a panic: as Rust's programs do.
const PANICKED: i32 = 101;

/// How long a child may take before it counts as hanging, on a loaded machine: it is ended by
/// SIGALRM then.
const PATIENCE_S: u32 = 300;

/// What a child exits with.
pub(crate) trait Status {
    fn code(self) -> i32;
}

impl Status for i32 {
    fn code(self) -> i32 {
        self
    }
}

/// Whether all is well.
impl Status for bool {
    fn code(self) -> i32 {
        i32::from(!self)
    }
}

/// Does `work` in a forked child: what the child exited with, or the signal that ended it, below
/// zero.
pub(crate) fn in_child<S: Status>(work: impl FnOnce() -> S) -> i32 {
    wait(start(work))
}

/// Forks a child that does `work`, to be waited for.
pub(crate) fn start<S: Status>(work: impl FnOnce() -> S) -> libc::pid_t {
    // SAFETY: the child runs the heap, which takes no lock and calls no malloc, and system calls,
    // and leaves by _exit.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork failed");
    if child == 0 {
        // SAFETY: no pointers are involved, and nothing here handles the signal.
        unsafe { libc::alarm(PATIENCE_S) };
        // A panic that left this function would end the child's only thread, and with it the child
        // as if all were well.
        exit(catch_unwind(AssertUnwindSafe(|| work().code())).unwrap_or(PANICKED));
    }
    child
}

/// Ends this child without running what belongs to its parent.
pub(crate) fn exit(status: i32) -> ! {
    // SAFETY: nothing is left to do here, and what belongs to the parent is not run.
    unsafe { libc::_exit(status) }
}

/// Waits for a child: what it exited with, or the signal that ended it, below zero.
pub(crate) fn wait(child: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: `status` is an int of ours.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child);
    if libc::WIFSIGNALED(status) { -libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) }
}

/// A number of `/proc/self/statm`, in bytes: 0 is what this process has of addresses, 1 what is
/// resident. 0 where the kernel does not tell.
pub(crate) fn statm_bytes(place: usize) -> u64 {
    let mut text = [0_u8; 128];
    // SAFETY: the path is ended.
    let file =
        unsafe { libc::open(c"/proc/self/statm".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    // SAFETY: no more is read than there is room for.
    let read = unsafe { libc::read(file, text.as_mut_ptr().cast(), text.len()) };
    // SAFETY: opened above, and not used again.
    unsafe { libc::close(file) };
    let text = &text[..usize::try_from(read).unwrap_or(0)];
    let digits = text.split(|byte| *byte == b' ').nth(place).unwrap_or_default();
    let pages = digits.iter().fold(0, |pages, digit| pages * 10 + u64::from(digit - b'0'));
    // SAFETY: asks for a number.
    pages * unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64
}
