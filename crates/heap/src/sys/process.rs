//! Who runs, and whether it still does.
//!
//! A process number is used again after a death, so a process is its number and its start time
//! together. Both are seen from the pid namespace of the caller: processes that share a heap must
//! share that namespace too.

use rustix::process::Pid;

use super::{Errno, file, raw};

/// Bytes read of `/proc/PID/stat`: its longest form has 52 fields of at most 20 digits, and a name
/// of at most 64 bytes (proc_pid_stat(5)).
const STAT_BYTES: usize = 1280;

/// Bytes of a path below `/proc`: "/proc/4294967295/task/4294967295/stat" and its end.
const PATH_BYTES: usize = 40;

/// A process or a thread that cannot be mistaken for a later one of the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Its number; 0 is nobody.
    pub(crate) number: u32,
    /// When it started, in clock ticks since boot; 0 where the kernel would not say.
    pub(crate) start: u64,
}

/// What is known of a process or thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// It runs, or it is unknown whether it does.
    Alive,
    /// It ended: no such number, or the number belongs to a later one.
    Dead,
}

/// This process.
pub(crate) fn own() -> Identity {
    let number = rustix::process::getpid().as_raw_pid() as u32;
    Identity { number, start: start_of(number, None).unwrap_or(0) }
}

/// This process's number: one system call, so not for a fast path.
pub(crate) fn own_number() -> u32 {
    rustix::process::getpid().as_raw_pid() as u32
}

/// This thread's number: one system call.
pub(crate) fn own_thread_number() -> u32 {
    rustix::thread::gettid().as_raw_pid() as u32
}

/// When a thread of process `process` started; 0 where the kernel would not say. Three system calls, of
/// which the first for a thread takes 40 to 100 us: the kernel builds its directory.
pub(crate) fn start_of_thread(process: u32, number: u32) -> u64 {
    start_of(process, Some(number)).unwrap_or(0)
}

/// This thread's pointer to its own memory, which no other thread has that is there.
pub(crate) fn own_pointer() -> usize {
    raw::thread_pointer()
}

/// That pointer of this process's first thread, as another thread finds it: by the list of robust mutexes
/// that each thread registers with the kernel, and that glibc has at one distance from the pointer in all of
/// them, also in the one that forked. `None` where threads have none (musl registers it when it is needed;
/// after a fork by the system call itself nobody did). Two system calls.
pub(crate) fn pointer_of_first_thread(process: u32) -> Option<usize> {
    let list = |thread| raw::robust_list(thread).ok().filter(|list| *list != 0);
    let (own, first) = (list(0)?, list(process)?);
    Some(first.wrapping_sub(own).wrapping_add(own_pointer()))
}

/// This process's effective user.
pub(crate) fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether this very process still runs. One to four system calls.
///
/// A process all of whose threads ended but that was not waited for (a zombie) is dead: it executes nothing
/// more. One whose first thread ended before the others is alive.
pub(crate) fn life_of(process: Identity) -> Life {
    let Some(pid) = i32::try_from(process.number).ok().and_then(Pid::from_raw) else {
        return Life::Dead;
    };
    match rustix::process::test_kill_process(pid) {
        Err(Errno::SRCH) => Life::Dead,
        _ => life_by_record(process, process.number, None),
    }
}

/// Whether no thread of process `process` has this number: one system call. The number of one that ended
/// may be another's by now, which only [`life_of_thread`] sees.
pub(crate) fn is_no_thread(process: u32, number: u32) -> bool {
    number == 0 || matches!(raw::probe_thread(process, number), Err(Errno::SRCH))
}

/// Whether this very thread of process `process` still runs.
pub(crate) fn life_of_thread(process: u32, thread: Identity) -> Life {
    match is_no_thread(process, thread.number) {
        true => Life::Dead,
        false => life_by_record(thread, process, Some(thread.number)),
    }
}

fn life_by_record(who: Identity, process: u32, thread: Option<u32>) -> Life {
    match stat_of(process, thread) {
        Ok(stat) => {
            let is_other = who.start != 0 && stat.start != who.start;
            // Z: ended, not waited for. X: being taken down. proc_pid_stat(5). A process reads so as soon
            // as its first thread ended, which counts among its threads until it is waited for: the
            // others go on.
            let is_last = thread.is_some() || stat.threads <= 1;
            let has_ended = is_last && matches!(stat.state, b'Z' | b'X' | b'x');
            if is_other || has_ended { Life::Dead } else { Life::Alive }
        }
        // It went between the two calls.
        Err(Errno::NOENT | Errno::SRCH) if who.start != 0 => Life::Dead,
        // No /proc, or it is hidden from us: when in doubt nothing is taken from anyone.
        Err(_) => Life::Alive,
    }
}

fn start_of(process: u32, thread: Option<u32>) -> Result<u64, Errno> {
    stat_of(process, thread).map(|stat| stat.start)
}

/// What `/proc` tells of a process or of one thread of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    /// Field 3.
    state: u8,
    /// Threads of the process, field 20.
    threads: u64,
    /// When it started, field 22.
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
    let mut buffer = [0; STAT_BYTES];
    let text = file::read_small(path.as_c_str()?, &mut buffer)?;
    parse_stat(text).ok_or(Errno::INVAL)
}

/// The name stands in parentheses and may hold anything, so the fields are counted from the last
/// closing one.
fn parse_stat(text: &[u8]) -> Option<Stat> {
    let end = text.iter().rposition(|byte| *byte == b')')?;
    let mut fields = text[end + 1..].split(|byte| *byte == b' ').filter(|field| !field.is_empty());
    let state = *fields.next()?.first()?;
    // Field 3 was the state; 20 is the 17th from there, and 22 the second behind that.
    let threads = file::parse_number(fields.nth(16)?)?;
    let start = file::parse_number(fields.nth(1)?)?;
    Some(Stat { state, threads, start })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::prelude::v1::*;

    #[test]
    fn a_stat_with_a_hostile_name_is_read() {
        let text = b"42 (a) S 1 (b) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20 21\n";
        assert_eq!(parse_stat(text), Some(Stat { state: b'R', threads: 17, start: 777 }));
        for broken in [&b""[..], b"42 (a", b"42 (a) R", b"42 (a) R 1 2 3", b")"] {
            assert_eq!(parse_stat(broken), None);
        }
    }

    fn own_thread() -> Identity {
        let number = own_thread_number();
        Identity { number, start: start_of_thread(own_number(), number) }
    }

    #[test]
    fn this_process_and_thread_are_alive() {
        let me = own();
        assert_ne!(me.start, 0);
        assert_eq!(life_of(me), Life::Alive);
        let thread = own_thread();
        assert_ne!(thread.start, 0);
        assert!(!is_no_thread(me.number, thread.number));
        assert_eq!(life_of_thread(me.number, thread), Life::Alive);
        let later = Identity { start: thread.start + 1, ..thread };
        assert_eq!(life_of_thread(me.number, later), Life::Dead);
    }

    #[test]
    fn another_start_time_is_another_process() {
        let me = own();
        assert_eq!(life_of(Identity { start: me.start + 1, ..me }), Life::Dead);
        assert_eq!(life_of(Identity { number: 0, start: 0 }), Life::Dead);
        assert_eq!(life_of(Identity { number: u32::MAX, start: 1 }), Life::Dead);
    }

    #[test]
    fn a_child_that_ended_is_dead_before_it_is_waited_for() {
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
    fn a_thread_that_ended_is_dead() {
        let process = own_number();
        let thread = std::thread::spawn(own_thread).join().unwrap();
        let start = std::time::Instant::now();
        while life_of_thread(process, thread) == Life::Alive {
            assert!(start.elapsed().as_secs() < 60, "a joined thread still counts as alive");
            std::thread::yield_now();
        }
    }
}
