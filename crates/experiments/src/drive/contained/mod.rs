//! A program that runs with all processes that it starts inside a container of processes, which
//! leaves none of them behind.
//!
//! A run starts a *supervisor*, which starts the program. The supervisor is the subreaper of its
//! descendants: a process whose parent ends becomes its child, whatever group or session the
//! process has. When the program ends, when the run asks for it, or when the run's socket closes
//! because the run was killed, the supervisor ends all of them. If the supervisor itself is killed,
//! the kernel kills the program (`PR_SET_PDEATHSIG`), and the run, a subreaper too, ends the
//! remaining processes. Only if run and supervisor are killed at the same moment, a process that
//! the program started may outlive them.
//!
//! From the bottom up:
//!
//! - `order`: the messages between run and supervisor;
//! - `tree`: the processes below a process, and their end;
//! - `output`: what a program prints;
//! - `supervisor`: the supervising process.

mod order;
mod output;
mod supervisor;
mod tree;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{getpid, set_child_subreaper};

use self::order::{Reply, Request};
use super::conversation::{Conversation, Silence};
use super::{Program, children};

pub(crate) use order::{End, Start};
pub(crate) use output::Output;
pub use supervisor::serve;

/// The time between two checks whether the run must stop.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The time in which a supervisor ends the processes that are left.
const OVER_TIMEOUT: Duration = Duration::from_secs(15);

/// A running program. Its processes are ended when this value is dropped.
pub(crate) struct Contained {
    supervisor: Child,
    conversation: Conversation,
    stdout: Output,
    stderr: Output,
    /// The end of the program, once it is known.
    end: Option<End>,
}

/// Why a wait for a program ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Waited {
    /// The program ended.
    Ended(End),
    /// The caller's condition holds.
    Met,
    /// The time is over.
    TooLong,
}

/// Why a program cannot be run, or its end is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The program was not started, for this reason of the system.
    NotStarted(String),
    /// The supervisor failed, or was killed.
    Supervisor(String),
    /// These processes could not be ended.
    Survived(Vec<String>),
}

impl Contained {
    /// Starts the program below a supervisor, which `driver` starts.
    ///
    /// # Errors
    /// The program or the supervisor cannot be started.
    pub(crate) fn start(driver: &Program, start: Start) -> Result<Self, Fault> {
        let failed = |reason: io::Error| Fault::Supervisor(reason.to_string());
        // An error would mean a kernel before Linux 3.4; then only the supervisor is a subreaper.
        let _ = set_child_subreaper(Some(getpid()));
        let (own, other) = UnixStream::pair().map_err(failed)?;
        let (stdout, stdout_of_program) = Output::new().map_err(failed)?;
        let (stderr, stderr_of_program) = Output::new().map_err(failed)?;
        let mut command = Command::new(&driver.path);
        command.args(&driver.arguments).env_remove("LD_PRELOAD").process_group(0);
        command.stdin(Stdio::from(OwnedFd::from(other)));
        command.stdout(stdout_of_program).stderr(stderr_of_program);
        let supervisor = command.spawn().map_err(failed)?;
        // This closes the run's copies of the program's ends of the pipes.
        drop(command);
        let conversation = Conversation::with_driver(own).map_err(failed)?;
        let mut contained = Self { supervisor, conversation, stdout, stderr, end: None };
        contained.say(&Request::Start(start))?;
        match contained.hear(OVER_TIMEOUT)? {
            Some(Reply::Started) => Ok(contained),
            Some(Reply::NotStarted { reason }) => Err(Fault::NotStarted(reason)),
            other => Err(Fault::Supervisor(format!("it answered {other:?}"))),
        }
    }

    /// What the program has printed on standard output.
    pub(crate) fn stdout(&self) -> &Output {
        &self.stdout
    }

    /// What the program has printed on standard error.
    pub(crate) fn stderr(&self) -> &Output {
        &self.stderr
    }

    /// Waits until the program ends, the time is over, or `is_met` holds, which is checked 20
    /// times a second.
    ///
    /// # Errors
    /// The supervisor failed.
    pub(crate) fn wait(
        &mut self,
        timeout: Duration,
        mut is_met: impl FnMut(&Self) -> bool,
    ) -> Result<Waited, Fault> {
        let started = Instant::now();
        while self.end.is_none() {
            if is_met(self) {
                return Ok(Waited::Met);
            }
            let left = timeout.saturating_sub(started.elapsed());
            if left.is_zero() {
                return Ok(Waited::TooLong);
            }
            match self.hear(left.min(POLL_INTERVAL))? {
                Some(Reply::Ended(end)) => self.end = Some(end),
                None => {}
                other => return Err(Fault::Supervisor(format!("it answered {other:?}"))),
            }
        }
        Ok(self.end.clone().map_or(Waited::TooLong, Waited::Ended))
    }

    /// Ends the program, if it runs, and the processes that it left. The program gets SIGTERM
    /// first. Returns the end of the program, which counts the resources of a server, and the
    /// names of the processes that were left when the program ended by itself.
    ///
    /// # Errors
    /// A process could not be ended, or the supervisor failed.
    pub(crate) fn over(&mut self) -> Result<(Option<End>, Vec<String>), Fault> {
        if self.end.is_none() {
            // A program that ends in this moment makes its supervisor end as well, and the wait
            // below reads what it said.
            let _ = self.say(&Request::Stop);
        }
        let started = Instant::now();
        loop {
            let left = OVER_TIMEOUT.saturating_sub(started.elapsed());
            match self.hear(left.max(POLL_INTERVAL))? {
                Some(Reply::Ended(end)) => self.end = Some(end),
                Some(Reply::Over { left, survived }) => {
                    self.stdout.close();
                    self.stderr.close();
                    return match survived.is_empty() {
                        true => Ok((self.end.clone(), left)),
                        false => Err(Fault::Survived(survived)),
                    };
                }
                Some(other) => return Err(Fault::Supervisor(format!("it answered {other:?}"))),
                None if started.elapsed() < OVER_TIMEOUT => {}
                None => return Err(Fault::Supervisor("it did not end its processes".into())),
            }
        }
    }

    fn say(&mut self, request: &Request) -> Result<(), Fault> {
        let said = self.conversation.say_message(request);
        said.map_err(|reason| Fault::Supervisor(reason.to_string()))
    }

    /// The next message; `None` if none arrives in this time.
    fn hear(&mut self, timeout: Duration) -> Result<Option<Reply>, Fault> {
        let failed = |reason: String| Fault::Supervisor(reason);
        match self.conversation.hear_within(timeout.max(Duration::from_millis(1))) {
            Ok(line) => serde_json::from_str(&line).map(Some).map_err(|it| failed(it.to_string())),
            Err(Silence::TooLong(_)) => Ok(None),
            Err(silence) => Err(failed(silence.to_string())),
        }
    }
}

impl Drop for Contained {
    fn drop(&mut self) {
        // The supervisor ends its processes, and then itself, when its socket closes.
        self.conversation.close();
        let started = Instant::now();
        while children::is_running(&mut self.supervisor) && started.elapsed() < OVER_TIMEOUT {
            std::thread::sleep(Duration::from_millis(1));
        }
        // If it is still running, it is stopped or hangs in the kernel.
        let _ = self.supervisor.kill();
        let _ = self.supervisor.wait();
        // A supervisor that was killed leaves its processes to this one.
        tree::end_adopted();
    }
}
