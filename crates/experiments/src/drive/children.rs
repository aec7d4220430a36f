//! The processes of a subject, from their start to their end.

use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The time that processes have to end before they are killed.
const END_TIMEOUT: Duration = Duration::from_secs(3);

/// The time between two checks whether the processes have ended.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Processes that are ended when this value is dropped.
pub(crate) struct Children(Vec<Child>);

impl Children {
    /// No processes.
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a process.
    pub(crate) fn push(&mut self, child: Child) {
        self.0.push(child);
    }

    /// Whether all processes run.
    pub(crate) fn are_running(&mut self) -> bool {
        self.0.iter_mut().all(is_running)
    }

    /// Gives the processes time to end and to remove the files that they made.
    pub(crate) fn await_end(&mut self) {
        let started = Instant::now();
        while self.0.iter_mut().any(is_running) && started.elapsed() < END_TIMEOUT {
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Ends them. SIGTERM is sent first, because mpirun ends the processes that it started when
    /// it receives SIGTERM.
    pub(crate) fn end(&mut self) {
        for child in &mut self.0 {
            let process = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            if let Some(process) = process.filter(|_| is_running(child)) {
                // The process may have ended in the meantime, so that there is no process to
                // signal.
                let _ = kill_process(process, Signal::TERM);
            }
        }
        self.await_end();
        for child in &mut self.0 {
            // As above. The exit status of the process is not used.
            let _ = child.kill();
            let _ = child.wait();
        }
        self.0.clear();
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.end();
    }
}

/// Whether a process has not ended.
pub(super) fn is_running(child: &mut Child) -> bool {
    matches!(child.try_wait(), Ok(None))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn child_that_ignores_sigterm_is_killed() {
        let mut children = Children::new();
        let deaf = "trap '' TERM; echo; while :; do sleep 0.1; done";
        let mut child = Command::new("sh")
            .args(["-c", deaf])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
        children.push(child);
        assert!(children.are_running());
        let started = Instant::now();
        children.end();
        assert!(started.elapsed() >= END_TIMEOUT);
        assert!(children.0.is_empty());
    }
}
