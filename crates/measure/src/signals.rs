//! Passes the signals that ask a program to end on to a thread. Unlike a signal handler, the
//! thread may call any function.

use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::IntoRawFd;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;

use rustix::fs::OFlags;

/// The signals that ask a program to end: the signals of Ctrl-C, `kill`, `timeout`, a closed
/// terminal, and Ctrl-\.
pub const ENDING: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// Stack of the thread, which formats a line and removes files. The stack is small, so that it
/// fits if the address space is limited.
const STACK_BYTES: usize = 256 << 10;

/// The pipe to which the handler writes a signal's number; -1 if there is none.
static INPUT: AtomicI32 = AtomicI32::new(-1);

/// Calls `notify` with the number of each of [`ENDING`] that arrives from now on, on a thread
/// that lasts as long as the process. A process may call this function only once. If SIGHUP is
/// ignored at the call, it stays ignored, as `nohup` requires. A child process has the kernel's
/// default handling.
///
/// # Errors
/// The system cannot provide a pipe, a thread or a handler.
pub fn watch(mut notify: impl FnMut(i32) + Send + 'static) -> io::Result<()> {
    let (mut output, input) = io::pipe()?;
    // A handler that blocked would stop the code that it interrupted.
    rustix::fs::fcntl_setfl(&input, OFlags::NONBLOCK)?;
    let listen = move || {
        let mut number = [0];
        while output.read_exact(&mut number).is_ok() {
            notify(number[0].into());
        }
    };
    thread::Builder::new().name("signals".into()).stack_size(STACK_BYTES).spawn(listen)?;
    INPUT.store(input.into_raw_fd(), Ordering::Release);
    ENDING.into_iter().filter(|signal| !is_ignored_hangup(*signal)).try_for_each(handle)
}

/// Whether the signal is SIGHUP and the parent process has set it to be ignored.
fn is_ignored_hangup(signal: i32) -> bool {
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action the call only writes the present one, for which there is room.
    let status = unsafe { libc::sigaction(signal, ptr::null(), now.as_mut_ptr()) };
    // SAFETY: all zeros are a value of this structure, and it may have been written since.
    let now = unsafe { now.assume_init() };
    status == 0 && signal == libc::SIGHUP && now.sa_sigaction == libc::SIG_IGN
}

fn handle(signal: i32) -> io::Result<()> {
    // SAFETY: all zeros are a value of this structure: no flags, an empty mask.
    let mut action = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
    action.sa_sigaction = on_signal as *const () as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the action is whole, and its function does only what is allowed in a handler.
    match unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Passes the number on. Async-signal-safe: one `write`, which leaves `errno` unchanged.
extern "C" fn on_signal(signal: i32) {
    // SAFETY: it has no conditions.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: errno is this thread's own, as long as it lives.
    let before = unsafe { errno.read() };
    let number = signal as u8;
    // SAFETY: one byte of this frame. A full pipe refuses the byte, but in this case the thread
    // already has enough numbers to read.
    let _ = unsafe { libc::write(INPUT.load(Ordering::Acquire), (&raw const number).cast(), 1) };
    // SAFETY: as above.
    unsafe { errno.write(before) };
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use rustix::process::{Signal, getpid, kill_process};

    use super::*;

    #[test]
    fn each_signal_is_delivered_by_its_number() {
        let (sender, receiver) = mpsc::channel();
        watch(move |signal| sender.send(signal).unwrap()).unwrap();
        for signal in [Signal::INT, Signal::TERM, Signal::QUIT, Signal::INT] {
            kill_process(getpid(), signal).unwrap();
            let number = receiver.recv_timeout(Duration::from_secs(60)).unwrap();
            assert_eq!(number, signal.as_raw());
        }
    }
}
