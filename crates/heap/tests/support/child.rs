//! Children of fork without exec. They may not call malloc, because another thread may have held
//! malloc's lock at the fork.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// The exit status of a child whose work panicked, as in Rust programs.
const PANICKED: i32 = 101;

/// After this time, a child counts as hanging. It is long enough for a loaded machine. SIGALRM
/// then ends it.
const PATIENCE_S: u32 = 300;

/// The exit status of a child.
pub(crate) trait Status {
    fn code(self) -> i32;
}

impl Status for i32 {
    fn code(self) -> i32 {
        self
    }
}

/// True means success.
impl Status for bool {
    fn code(self) -> i32 {
        i32::from(!self)
    }
}

/// Runs `work` in a forked child. Returns the child's exit status, or the negated number of the
/// signal that ended it.
pub(crate) fn in_child<S: Status>(work: impl FnOnce() -> S) -> i32 {
    wait(start(work))
}

/// Forks a child that runs `work`. The caller must wait for the child.
pub(crate) fn start<S: Status>(work: impl FnOnce() -> S) -> libc::pid_t {
    // SAFETY: the child only calls the heap, which takes no lock and does not call malloc, makes
    // system calls, and ends with _exit.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork failed");
    if child == 0 {
        // SAFETY: the call has no pointers, and no code here handles the signal.
        unsafe { libc::alarm(PATIENCE_S) };
        // The panic is caught, because otherwise it would end the child's only thread, and the
        // child would exit with success.
        exit(catch_unwind(AssertUnwindSafe(|| work().code())).unwrap_or(PANICKED));
    }
    child
}

/// Ends this child without running the parent's exit handlers.
pub(crate) fn exit(status: i32) -> ! {
    // SAFETY: the child has no more work, and the parent's exit handlers do not run.
    unsafe { libc::_exit(status) }
}

/// Waits for a child. Returns its exit status, or the negated number of the signal that ended it.
pub(crate) fn wait(child: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: `status` is a local int.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child);
    if libc::WIFSIGNALED(status) { -libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) }
}

/// A field in `/proc/self/statm`, converted to bytes: field 0 is the size of this process's
/// address space, field 1 its resident memory. 0 if the kernel does not report it.
pub(crate) fn statm_bytes(field: usize) -> u64 {
    let mut text = [0_u8; 128];
    // SAFETY: the path is a C string.
    let file =
        unsafe { libc::open(c"/proc/self/statm".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    // SAFETY: the call writes at most as many bytes to the buffer as it has.
    let read = unsafe { libc::read(file, text.as_mut_ptr().cast(), text.len()) };
    // SAFETY: opened above, and not used again.
    unsafe { libc::close(file) };
    let text = &text[..usize::try_from(read).unwrap_or(0)];
    let digits = text.split(|byte| *byte == b' ').nth(field).unwrap_or_default();
    let pages = digits.iter().fold(0, |pages, digit| pages * 10 + u64::from(digit - b'0'));
    // SAFETY: the call only returns a number.
    pages * unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64
}
