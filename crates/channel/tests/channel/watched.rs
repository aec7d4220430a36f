//! System calls of one thread, which a filter stops and reports to a watching thread. The
//! watching thread can record a call, answer it instead of the kernel, or act just before it.

use std::ffi::{c_int, c_long, c_ulong};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::mpsc;
use std::thread;

use rustix::io::Errno;

/// `struct seccomp_notif` of linux/seccomp.h: number, process, flags, then the call: its number,
/// architecture, instruction pointer and arguments.
#[repr(C)]
#[derive(Default)]
struct Notification {
    number: u64,
    process: u32,
    flags: u32,
    call: c_int,
    architecture: u32,
    instruction_pointer: u64,
    arguments: [u64; 6],
}

/// `struct seccomp_notif_resp`.
#[repr(C)]
#[derive(Default)]
struct Reply {
    number: u64,
    value: i64,
    error: i32,
    flags: u32,
}

/// SECCOMP_IOCTL_NOTIF_RECV and _SEND: _IOWR('!', 0 and 1, of the structures above).
const RECEIVE: c_ulong = 0xc050_2100;
const SEND: c_ulong = 0xc018_2101;
const _: () = assert!(size_of::<Notification>() == 0x50 && size_of::<Reply>() == 0x18);
/// SECCOMP_USER_NOTIF_FLAG_CONTINUE: the kernel makes the call. From Linux 5.5 on.
const CONTINUE: u32 = 1;

/// The answer to a call.
pub(crate) enum Answer {
    /// The kernel makes the call.
    Continue,
    /// The call returns success without the kernel.
    Succeed,
}

/// Whether calls can be watched here. Prints a line if calls cannot be watched.
pub(crate) fn can_watch(what: &str) -> bool {
    // The filter is in a thread that ends, because a filter lasts as long as its thread. No
    // program makes this call.
    let can = thread::spawn(|| listen(&[libc::SYS_lookup_dcookie]).is_some()).join().unwrap();
    if !can {
        // The line is printed in one write, because other tests print meanwhile.
        let line = format!(
            "SKIPPED: {what}: no seccomp listener: run it on Linux 5.5 or later, in a container whose \
             runtime does not listen itself\n"
        );
        eprint!("{line}");
    }
    can
}

/// From now on each of these calls of this thread, and of threads that it starts, first goes to
/// `watch` with its arguments. `watch` runs in a separate thread. Only for machines on which
/// [`can_watch`] returns true.
pub(crate) fn watch(
    calls: &[c_long],
    mut watch: impl FnMut(c_long, [u64; 6]) -> Answer + Send + 'static,
) {
    let (give, take) = mpsc::channel::<OwnedFd>();
    // The watching thread starts before the filter exists, so that the filter does not stop the
    // thread's own calls.
    thread::spawn(move || {
        let Ok(listener) = take.recv() else { return };
        while answer_one(&listener, &mut watch).is_some() {}
    });
    give.send(listen(calls).expect("`can_watch` returned true")).unwrap();
}

fn answer_one(
    listener: &OwnedFd,
    watch: &mut impl FnMut(c_long, [u64; 6]) -> Answer,
) -> Option<()> {
    let mut notification = Notification::default();
    // SAFETY: a structure of the size that the number of the call says, zeroed as the call
    // requires.
    let result = unsafe { libc::ioctl(listener.as_raw_fd(), RECEIVE, &raw mut notification) };
    if result < 0 {
        return None;
    }
    let flags = match watch(notification.call.into(), notification.arguments) {
        Answer::Continue => CONTINUE,
        Answer::Succeed => 0,
    };
    let reply = Reply { number: notification.number, flags, ..Reply::default() };
    // SAFETY: as above; it is only read.
    let result = unsafe { libc::ioctl(listener.as_raw_fd(), SEND, &raw const reply) };
    (result == 0).then_some(())
}

/// Installs the filter. Returns `None` if the kernel has no such filters (before 5.0), or cannot
/// continue a call (before 5.5), or if another listener exists already.
fn listen(calls: &[c_long]) -> Option<OwnedFd> {
    let step = |code, jt, k| libc::sock_filter { code, jt, jf: 0, k };
    // Loads the call's number, and jumps behind all comparisons if it is one of `calls`.
    let mut filter = vec![step(0x20, 0, 0)];
    for (index, call) in calls.iter().enumerate() {
        filter.push(step(0x15, (calls.len() - index) as u8, *call as u32));
    }
    filter.push(step(0x06, 0, libc::SECCOMP_RET_ALLOW));
    filter.push(step(0x06, 0, libc::SECCOMP_RET_USER_NOTIF));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: takes only numbers.
    let result = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(result, 0);
    let (mode, flags) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER);
    // SAFETY: a program of that many instructions that lives until the call returns.
    let file = unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program) };
    if file < 0 {
        let reason = Errno::from_io_error(&std::io::Error::last_os_error());
        let is_known = matches!(reason, Some(Errno::BUSY | Errno::INVAL | Errno::NOSYS));
        assert!(is_known, "no filter: {reason:?}");
        return None;
    }
    // SAFETY: the call has just opened it, and no other code knows it.
    let listener = unsafe { OwnedFd::from_raw_fd(file as c_int) };
    can_continue(&listener).then_some(listener)
}

/// Answers a call that does not exist. A kernel that can continue calls reports that the call
/// does not exist.
fn can_continue(listener: &OwnedFd) -> bool {
    let reply = Reply { flags: CONTINUE, ..Reply::default() };
    // SAFETY: a structure of the size that the number of the call says, which is only read.
    let result = unsafe { libc::ioctl(listener.as_raw_fd(), SEND, &raw const reply) };
    let reason = Errno::from_io_error(&std::io::Error::last_os_error());
    result < 0 && reason == Some(Errno::NOENT)
}
