//! The processes below a process, and their end.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpid};

/// The time in which processes that are killed must be gone. A process in an uninterruptible
/// system call may need longer.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// The time between two checks whether processes are gone.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// A process, as `/proc` shows it.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) pid: Pid,
    /// 0 if it is in another PID namespace.
    parent: i32,
    /// The number of the session's leader, or 0 if the leader is in another PID namespace: of a
    /// container's first process, for example, or of what `docker exec` starts.
    session: i32,
    /// Its name, which the process itself can set.
    name: String,
    /// Whether it has ended, and only waits to be reaped.
    is_zombie: bool,
}

/// The processes below `root` that have not ended, in no order.
pub(super) fn below(root: Pid) -> Vec<Process> {
    let all = all();
    let is_below = |process: &&Process| {
        // A process can only be below as many others as there are: a cycle cannot occur, but
        // the table is read while processes end and numbers are used again.
        let mut at = process.parent;
        for _ in 0..all.len() {
            match all.get(&at) {
                _ if at == root.as_raw_nonzero().get() => return true,
                Some(parent) => at = parent.parent,
                None => return false,
            }
        }
        false
    };
    all.values().filter(|it| !it.is_zombie).filter(is_below).cloned().collect()
}

/// Kills all processes below this one except `kept`, which the caller waits for, and reaps them.
/// Processes that start others meanwhile are killed as well. Returns the names of those that are
/// not gone in time: they belong to another user, or hang in a system call.
pub(super) fn end_below(kept: Option<Pid>) -> Vec<String> {
    let started = Instant::now();
    let mut was_empty = false;
    loop {
        let left: Vec<Process> =
            below(getpid()).into_iter().filter(|it| Some(it.pid) != kept).collect();
        for process in &left {
            // It may have ended meanwhile.
            let _ = kill_process(process.pid, Signal::KILL);
        }
        reap(kept);
        // One check proves nothing: a process that ends while `/proc` is read can have started
        // another whose number was already passed.
        if left.is_empty() && was_empty || started.elapsed() > KILL_TIMEOUT {
            return names(&left);
        }
        was_empty = left.is_empty();
        if !was_empty {
            thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Ends the processes that this one adopted from a supervisor that was killed: children in a
/// session of their own, because a supervisor starts its program in one. Other children of this
/// process have its session.
pub(super) fn end_adopted() {
    let own = getpid();
    let session = process(own.as_raw_nonzero().get()).map_or(0, |it| it.session);
    let started = Instant::now();
    loop {
        let is_adopted =
            |it: &Process| it.parent == own.as_raw_nonzero().get() && it.session != session;
        let left: Vec<Process> = all().into_values().filter(is_adopted).collect();
        for process in &left {
            let _ = kill_process(process.pid, Signal::KILL);
            let _ = waitpid(Some(process.pid), WaitOptions::NOHANG);
        }
        if left.is_empty() || started.elapsed() > KILL_TIMEOUT {
            return;
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// The names of processes with their numbers.
pub(super) fn names(processes: &[Process]) -> Vec<String> {
    processes.iter().map(|it| format!("{} ({})", it.name, it.pid)).collect()
}

/// Reaps the children of this process that have ended, except `kept`.
fn reap(kept: Option<Pid>) {
    let own = getpid().as_raw_nonzero().get();
    for process in all().into_values() {
        if process.is_zombie && process.parent == own && Some(process.pid) != kept {
            let _ = waitpid(Some(process.pid), WaitOptions::NOHANG);
        }
    }
}

/// All processes by number.
fn all() -> BTreeMap<i32, Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    numbers.filter_map(|number| Some((number, process(number)?))).collect()
}

fn process(number: i32) -> Option<Process> {
    let text = fs::read(format!("/proc/{number}/stat")).ok()?;
    of_stat(number, &String::from_utf8_lossy(&text))
}

/// A process from its `stat` (proc(5)): the name in parentheses may contain any character, and the
/// state, the parent, the group and the session follow the last one.
fn of_stat(number: i32, text: &str) -> Option<Process> {
    let (before, after) = text.rsplit_once(')')?;
    let name = before.split_once('(')?.1.to_owned();
    let mut fields = after.split_whitespace();
    let is_zombie = matches!(fields.next()?, "Z" | "X" | "x");
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    Some(Process { pid: Pid::from_raw(number)?, parent, session, name, is_zombie })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_of_hostile_name_is_read() {
        let found = of_stat(7, "7 (a) b (Z 1 2) S 3 4 5 0 -1").unwrap();
        let expected = ("a) b (Z 1 2", 3, 5, false);
        assert_eq!((&found.name[..], found.parent, found.session, found.is_zombie), expected);
        assert!(of_stat(7, "7 (z) Z 1 1 1 0").unwrap().is_zombie);
        for bad in ["", "7", "7 (a", "7 (a)", "7 (a) S", "7 (a) S x 1 1"] {
            assert!(of_stat(7, bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn grandchildren_are_below() {
        let mut child =
            std::process::Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().unwrap();
        let root = Pid::from_child(&child);
        let started = Instant::now();
        while below(root).is_empty() && started.elapsed() < Duration::from_secs(30) {
            thread::sleep(POLL_INTERVAL);
        }
        let found = below(root);
        assert_eq!(found.len(), 1, "{found:?}");
        // Only the number stays: the name changes when the shell's child becomes `sleep`.
        assert!(below(getpid()).iter().any(|it| it.pid == found[0].pid));
        kill_process(found[0].pid, Signal::KILL).unwrap();
        child.wait().unwrap();
    }
}
