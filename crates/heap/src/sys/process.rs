//! The identities of processes and threads, and whether these live.
//!
//! A PID is reused after a death, so a process is identified by its PID and its start time. A PID
//! is valid in one PID namespace only, and a start time in one time namespace: see
//! [`own_namespace`].
//!
//! `kill` reports to every process whether a PID is in use. An entry in `/proc` is valid if it
//! exists and `/proc` belongs to this process's namespace. A missing entry does not mean that the
//! process is dead, because `hidepid=` and `ProtectProc=` hide the processes of other users, and
//! processes with more rights than their user.

use core::ffi::CStr;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::AsFd;
use rustix::process::{Pid, PidfdFlags};

use super::{Errno, file, raw};

/// Bytes read from `/proc/PID/stat`: its longest form has 52 fields of at most 20 digits, and a
/// name of at most 64 bytes (proc_pid_stat(5)).
const STAT_BYTES: usize = 1280;

/// Bytes read from `/proc/self/status`: some 1,500 if the process is in a few groups. The groups
/// come before the fields that are read.
const STATUS_BYTES: usize = 4096;

/// Bytes of a path below `/proc`: "/proc/4294967295/task/4294967295/stat" and its end.
const PATH_BYTES: usize = 40;

/// A process or a thread, distinguished from a later process or thread with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Its PID or TID; 0 means none.
    pub(crate) number: u32,
    /// The start time in clock ticks since boot; 0 if the kernel did not report it.
    pub(crate) start: u64,
}

/// Whether a process or thread lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// It runs, or its state is unknown.
    Alive,
    /// It has ended. Its number is free, or belongs to a later process or thread.
    Dead,
}

/// This process.
pub(crate) fn own() -> Identity {
    // This path is also valid in the /proc of another namespace.
    let start = stat_at(c"/proc/self/stat").map_or(0, |stat| stat.start);
    Identity { number: own_pid(), start }
}

/// The identity of this process's PID namespace and time namespace; `None` if `/proc` does not
/// report it. Two namespaces that exist at the same time have different identities. A namespace
/// that no longer exists has no live process. Four system calls.
pub(crate) fn own_namespace() -> Option<u64> {
    if cfg!(miri) {
        return None;
    }
    let processes = file::number_of(c"/proc/self/ns/pid").ok()?;
    // Linux before 5.6 has no time namespaces.
    let times = file::number_of(c"/proc/self/ns/time").unwrap_or(0);
    // The kernel's namespace numbers have 32 bits. 0 means unknown.
    Some((processes ^ times.rotate_left(u32::BITS)).max(1))
}

/// This process's PID. One system call, so a fast path should not call this.
pub(crate) fn own_pid() -> u32 {
    rustix::process::getpid().as_raw_pid() as u32
}

/// This thread's TID. One system call.
pub(crate) fn own_tid() -> u32 {
    rustix::thread::gettid().as_raw_pid() as u32
}

/// The start time of a thread of process `process`; 0 if the kernel does not report it. Three
/// system calls. The first call for a thread takes 40 to 100 us, because the kernel then creates
/// the thread's directory in `/proc`.
pub(crate) fn start_of_thread(process: u32, number: u32) -> u64 {
    start_of(process, Some(number)).unwrap_or(0)
}

/// This thread's thread pointer. Each live thread of a process has a different one.
pub(crate) fn own_pointer() -> usize {
    raw::thread_pointer()
}

/// The thread pointer of this process's first thread. Another thread computes it from the lists
/// of robust mutexes. Each thread registers its list with the kernel. In glibc, the distance of
/// the list from the thread pointer is the same for every thread, including the thread that
/// forked. `None` if threads have registered no list: musl registers it on demand, and a fork by
/// a direct system call does not register it. Two system calls.
pub(crate) fn pointer_of_first_thread(process: u32) -> Option<usize> {
    let list = |thread| raw::robust_list(thread).ok().filter(|list| *list != 0);
    let (own, first) = (list(0)?, list(process)?);
    Some(first.wrapping_sub(own).wrapping_add(own_pointer()))
}

/// This process's effective user.
pub(crate) fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether the process with this PID and start time still runs, in this process's namespace. One
/// to nine system calls.
///
/// A zombie is dead: all its threads have ended, but its parent has not waited for it. A process
/// is alive if its first thread has ended and another thread has not.
pub(crate) fn life_of(process: Identity) -> Life {
    let Some(pid) = i32::try_from(process.number).ok().and_then(Pid::from_raw) else {
        return Life::Dead;
    };
    let is_unused = || rustix::process::test_kill_process(pid) == Err(Errno::SRCH);
    if is_unused() {
        return Life::Dead;
    }
    match life_by_record(process, process.number, None) {
        Some(life) => life,
        // The process ended between the two calls, or is hidden from this process.
        None if is_unused() || has_ended(pid) => Life::Dead,
        None => Life::Alive,
    }
}

/// Whether all threads of a process have ended, for a process that `/proc` does not show. Returns
/// false if the kernel does not report this, because the death must be certain. Three system
/// calls.
fn has_ended(process: Pid) -> bool {
    let Ok(watch) = rustix::process::pidfd_open(process, PidfdFlags::empty()) else { return false };
    let mut ends = [PollFd::from_borrowed_fd(watch.as_fd(), PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut ends, Some(&now)) == Ok(1)
}

/// Whether no thread of process `process` has this TID. One system call. Does not detect that the
/// TID belongs to a later thread; [`life_of_thread`] does.
pub(crate) fn is_unused_tid(process: u32, number: u32) -> bool {
    number == 0 || matches!(raw::probe_thread(process, number), Err(Errno::SRCH))
}

/// Whether the thread of process `process` with this TID and start time still runs.
pub(crate) fn life_of_thread(process: u32, thread: Identity) -> Life {
    let is_unused = || is_unused_tid(process, thread.number);
    if is_unused() {
        return Life::Dead;
    }
    match life_by_record(thread, process, Some(thread.number)) {
        Some(life) => life,
        None if is_unused() => Life::Dead,
        None => Life::Alive,
    }
}

/// Whether `/proc` shows that a process or thread lives. Its number must be in use. `None` if
/// `/proc` does not show it.
fn life_by_record(identity: Identity, process: u32, thread: Option<u32>) -> Option<Life> {
    let stat = stat_of(process, thread).ok()?;
    let is_other = identity.start != 0 && stat.start != identity.start;
    // Z: it has ended, and its parent has not waited for it. X: the kernel is removing it. See
    // proc_pid_stat(5). A process has such a state as soon as its first thread has ended, even if
    // other threads continue. The first thread stays in the count of threads until the parent has
    // waited for the process.
    let is_last = thread.is_some() || stat.threads <= 1;
    let has_ended = is_last && matches!(stat.state, b'Z' | b'X' | b'x');
    match is_other || has_ended {
        true => is_proc_ours().then_some(Life::Dead),
        false => Some(Life::Alive),
    }
}

/// Whether the PIDs in `/proc` belong to this process's PID namespace. A process that entered a
/// new namespace sees the `/proc` of the old namespace until it mounts a new `/proc`.
fn is_proc_ours() -> bool {
    let mut buffer = [0; STATUS_BYTES];
    file::read_small(c"/proc/self/status", &mut buffer)
        .is_ok_and(|text| is_status_ours(text, own_pid()))
}

fn is_status_ours(text: &[u8], own: u32) -> bool {
    let field = |name: &[u8]| {
        let rest = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name))?;
        Some(rest.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()))
    };
    // The line contains this process's PIDs, from the namespace of /proc to its own. Linux before
    // 4.1 reports only the first PID.
    match field(b"NSpid:") {
        Some(numbers) => numbers.count() == 1,
        None => field(b"Tgid:").is_some_and(|mut numbers| {
            numbers.next().and_then(file::parse_number) == Some(own.into())
        }),
    }
}

fn start_of(process: u32, thread: Option<u32>) -> Result<u64, Errno> {
    stat_of(process, thread).map(|stat| stat.start)
}

/// The fields that `/proc` shows for a process or one of its threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    /// Field 3.
    state: u8,
    /// The number of threads in the process, field 20.
    threads: u64,
    /// The start time, field 22.
    start: u64,
}

fn stat_of(process: u32, thread: Option<u32>) -> Result<Stat, Errno> {
    let mut path = file::Path::<PATH_BYTES>::new();
    path.push(b"/proc/");
    path.push_number(process.into());
    if let Some(thread) = thread {
        path.push(b"/task/");
        path.push_number(thread.into());
    }
    path.push(b"/stat");
    stat_at(path.as_c_str()?)
}

fn stat_at(path: &CStr) -> Result<Stat, Errno> {
    let mut buffer = [0; STAT_BYTES];
    let text = file::read_small(path, &mut buffer)?;
    parse_stat(text).ok_or(Errno::INVAL)
}

/// Parses a stat line. The name is in parentheses and may contain any character, so the fields
/// are counted from the last closing parenthesis.
fn parse_stat(text: &[u8]) -> Option<Stat> {
    let end = text.iter().rposition(|byte| *byte == b')')?;
    let mut fields = text[end + 1..].split(|byte| *byte == b' ').filter(|field| !field.is_empty());
    let state = *fields.next()?.first()?;
    // Field 3 was the state; field 20 is the 17th field after it, and field 22 is the second
    // field after field 20.
    let threads = file::parse_number(fields.nth(16)?)?;
    let start = file::parse_number(fields.nth(1)?)?;
    Some(Stat { state, threads, start })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::prelude::v1::*;

    #[test]
    fn stat_with_hostile_name_is_parsed() {
        let text = b"42 (a) S 1 (b) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20 21\n";
        assert_eq!(parse_stat(text), Some(Stat { state: b'R', threads: 17, start: 777 }));
        for broken in [&b""[..], b"42 (a", b"42 (a) R", b"42 (a) R 1 2 3", b")"] {
            assert_eq!(parse_stat(broken), None);
        }
    }

    #[test]
    fn proc_of_another_namespace_is_detected() {
        let own = b"Name:\tx\nTgid:\t42\nPid:\t42\nNSpid:\t42\nVmPeak:\t1 kB\n";
        assert!(is_status_ours(own, 42));
        // A process in a nested namespace, in which it has the same PID.
        let nested = b"Name:\tx\nTgid:\t42\nNSpid:\t42\t42\n";
        assert!(!is_status_ours(nested, 42));
        let old = b"Name:\tx\nTgid:\t42\n";
        assert!(is_status_ours(old, 42) && !is_status_ours(old, 1) && !is_status_ours(b"", 1));
        assert!(is_proc_ours());
        assert!(
            own_namespace()
                .is_some_and(|namespace| namespace != 0 && Some(namespace) == own_namespace())
        );
    }

    #[test]
    fn ended_process_is_detected_without_proc() {
        assert!(!has_ended(rustix::process::getpid()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid::from_raw(child.id() as i32).unwrap();
        let start = std::time::Instant::now();
        while !has_ended(pid) {
            assert!(start.elapsed().as_secs() < 60, "a zombie still counts as alive");
            std::thread::yield_now();
        }
        child.wait().unwrap();
    }

    fn own_thread() -> Identity {
        let number = own_tid();
        Identity { number, start: start_of_thread(own_pid(), number) }
    }

    #[test]
    fn own_process_and_thread_are_alive() {
        let me = own();
        assert_ne!(me.start, 0);
        assert_eq!(life_of(me), Life::Alive);
        let thread = own_thread();
        assert_ne!(thread.start, 0);
        assert!(!is_unused_tid(me.number, thread.number));
        assert_eq!(life_of_thread(me.number, thread), Life::Alive);
        let later = Identity { start: thread.start + 1, ..thread };
        assert_eq!(life_of_thread(me.number, later), Life::Dead);
    }

    #[test]
    fn other_start_time_means_another_process() {
        let me = own();
        assert_eq!(life_of(Identity { start: me.start + 1, ..me }), Life::Dead);
        assert_eq!(life_of(Identity { number: 0, start: 0 }), Life::Dead);
        assert_eq!(life_of(Identity { number: u32::MAX, start: 1 }), Life::Dead);
    }

    #[test]
    fn zombie_child_is_dead() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let identity = Identity { number: child.id(), start: 0 };
        let start = std::time::Instant::now();
        while life_of(identity) == Life::Alive {
            assert!(start.elapsed().as_secs() < 60, "a zombie still counts as alive");
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert_eq!(life_of(identity), Life::Dead);
    }

    #[test]
    fn joined_thread_is_dead() {
        let process = own_pid();
        let thread = std::thread::spawn(own_thread).join().unwrap();
        let start = std::time::Instant::now();
        while life_of_thread(process, thread) == Life::Alive {
            assert!(start.elapsed().as_secs() < 60, "a joined thread still counts as alive");
            std::thread::yield_now();
        }
    }
}
