//! A driver as its run sees it: started, asked, and ended with the run.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::peers::{Found, Peer};
use super::protocol::{Reply, Start, Task};
use crate::error::Error;
use crate::printed::Printed;

/// The longest that one task or start may take: a heap that hangs is told, not waited for.
const PATIENCE: Duration = Duration::from_secs(120);

/// How drivers are started: a program that calls [`super::driver::serve`].
#[derive(Clone, Debug)]
pub struct Driver {
    /// The program.
    pub program: PathBuf,
    /// Its arguments; the peer's name comes behind them.
    pub arguments: Vec<OsString>,
    /// What it is told by its environment.
    pub environment: Vec<(OsString, OsString)>,
}

/// A driver that runs.
pub(super) struct Running {
    peer: Peer,
    child: Child,
    reader: BufReader<UnixStream>,
    writer: UnixStream,
    printed: Printed,
    /// The heap's version, and what its memory consists of.
    pub(super) version: String,
    pub(super) pages: Option<String>,
}

/// What a task gave.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    pub(super) values: Vec<f64>,
    pub(super) hit: bool,
}

impl Running {
    /// Starts a driver for this heap, and the heap in it.
    ///
    /// # Errors
    /// [`Error::Driver`]: the process or the heap did not start.
    pub(super) fn start(driver: &Driver, found: &Found, start: &Start) -> Result<Self, Error> {
        let mut running = Self::spawn(driver, found).map_err(|reason| Error::Driver {
            peer: found.peer.name().to_owned(),
            attempt: format!("start {}", driver.program.display()),
            reason: reason.to_string(),
        })?;
        match running.converse(start, "start its heap")? {
            Reply::Ready { version, pages } => {
                running.version = version;
                running.pages = pages;
                Ok(running)
            }
            Reply::Failed { reason } => Err(running.error("start its heap", reason)),
            Reply::Done { .. } => Err(running.error("start its heap", "it answers out of turn")),
        }
    }

    /// Has it do a task.
    ///
    /// # Errors
    /// [`Error::Driver`]: the task failed, or the process ended or hangs.
    pub(super) fn perform(&mut self, task: &Task) -> Result<Figures, Error> {
        let attempt = attempt(task);
        match self.converse(task, attempt)? {
            Reply::Done { values, hit } if values.iter().all(|value| value.is_finite()) => {
                Ok(Figures { values, hit })
            }
            Reply::Failed { reason } => Err(self.error(attempt, reason)),
            _ => Err(self.error(attempt, "it answers out of turn")),
        }
    }

    fn spawn(driver: &Driver, found: &Found) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(PATIENCE))?;
        ours.set_write_timeout(Some(PATIENCE))?;
        let (printed, input) = Printed::new()?;
        let mut command = Command::new(&driver.program);
        command.args(&driver.arguments).arg(found.peer.name());
        command.envs(driver.environment.iter().map(|(name, value)| (name, value)));
        command.env_remove("LD_PRELOAD");
        if let (Some(library), false) = (&found.library, found.peer == Peer::Dpdk) {
            command.env("LD_PRELOAD", library);
        }
        command.stdin(Stdio::from(OwnedFd::from(theirs)));
        command.stdout(input.try_clone()?).stderr(input);
        let child = command.spawn()?;
        // Our copies of the child's ends close with it: what it prints ends when it ends.
        drop(command);
        Ok(Self {
            peer: found.peer,
            child,
            reader: BufReader::new(ours.try_clone()?),
            writer: ours,
            printed,
            version: String::new(),
            pages: None,
        })
    }

    fn converse<T: serde::Serialize>(
        &mut self,
        message: &T,
        attempt: &str,
    ) -> Result<Reply, Error> {
        let mut talk = || {
            let text = serde_json::to_string(message)?;
            self.writer.write_all(format!("{text}\n").as_bytes())?;
            let mut answer = String::new();
            if self.reader.read_line(&mut answer)? == 0 {
                return Err(io::Error::other("its process ended"));
            }
            Ok(serde_json::from_str(&answer)?)
        };
        talk().map_err(|reason: io::Error| match reason.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                self.error(attempt, "its process ended")
            }
            io::ErrorKind::WouldBlock => {
                self.error(attempt, format!("no answer within {} s", PATIENCE.as_secs()))
            }
            _ => self.error(attempt, reason.to_string()),
        })
    }

    /// Ends it, and tells with the reason what it printed.
    fn error(&mut self, attempt: &str, reason: impl Into<String>) -> Error {
        self.end();
        let reason = self.printed.told_with(reason.into());
        Error::Driver { peer: self.peer.name().to_owned(), attempt: attempt.to_owned(), reason }
    }

    fn end(&mut self) {
        // It may have ended by itself: then there is nobody to end, and its status is nobody's
        // business.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

fn attempt(task: &Task) -> &'static str {
    match task {
        Task::Grow { .. } => "grow",
        Task::Release => "free all blocks",
        Task::Footprint | Task::Residue => "tell its footprint",
        Task::Bulk { .. } => "do the bulk test",
        Task::NoBulk { .. } => "do the no-bulk test",
        Task::Latency { .. } => "do the latency test",
        Task::Repeat { .. } => "repeat",
        Task::Load { .. } => "read the steps of a replay",
        Task::Replay { .. } => "replay",
    }
}
