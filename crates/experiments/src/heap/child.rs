//! Controls a driver: a run starts the driver, gives it tasks, and ends it.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use super::peers::{Found, Peer};
use super::protocol::{Reply, Start, Task};
use crate::drive::{Children, Conversation, Printed, Program};
use crate::error::Error;

/// A running driver: a program that calls [`super::driver::serve`].
pub(super) struct Running {
    peer: Peer,
    child: Children,
    conversation: Conversation,
    printed: Printed,
    /// The heap's version, and the kind of its pages.
    pub(super) version: String,
    pub(super) pages: Option<String>,
}

/// The result of a task.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    pub(super) values: Vec<f64>,
    pub(super) hit: bool,
}

impl Running {
    /// Starts a driver for this heap, which starts the heap.
    ///
    /// # Errors
    /// [`Error::Driver`]: the process or the heap did not start.
    pub(super) fn start(driver: &Program, found: &Found, start: &Start) -> Result<Self, Error> {
        let mut running = Self::spawn(driver, found).map_err(|reason| Error::Driver {
            peer: found.peer.name().to_owned(),
            attempt: format!("start {}", driver.path.display()),
            reason: reason.to_string(),
        })?;
        match running.converse(start, "start its heap")? {
            Reply::Ready { version, pages } => {
                running.version = version;
                running.pages = pages;
                Ok(running)
            }
            Reply::Failed { reason } => Err(running.error("start its heap", reason)),
            Reply::Done { .. } => {
                Err(running.error("start its heap", "it sent an unexpected answer"))
            }
        }
    }

    /// Makes the driver perform a task.
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
            _ => Err(self.error(attempt, "it sent an unexpected answer")),
        }
    }

    fn spawn(driver: &Program, found: &Found) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let (printed, input) = Printed::new()?;
        let mut command = driver.command(&input)?;
        command.arg(found.peer.name());
        if let (Some(library), false) = (&found.library, found.peer == Peer::Dpdk) {
            command.env("LD_PRELOAD", library);
        }
        command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(input);
        let mut child = Children::new();
        child.push(command.spawn()?);
        Ok(Self {
            peer: found.peer,
            child,
            conversation: Conversation::with_driver(ours)?,
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
            let text = serde_json::to_string(message).map_err(|error| error.to_string())?;
            self.conversation.say(&text).map_err(|silence| silence.to_string())?;
            let answer = self.conversation.hear().map_err(|silence| silence.to_string())?;
            serde_json::from_str(&answer).map_err(|error| error.to_string())
        };
        talk().map_err(|reason: String| self.error(attempt, reason))
    }

    /// Ends the driver, and adds its output to the reason.
    fn error(&mut self, attempt: &str, reason: impl Into<String>) -> Error {
        self.child.end();
        let reason = self.printed.with_output(reason.into());
        Error::Driver { peer: self.peer.name().to_owned(), attempt: attempt.to_owned(), reason }
    }
}

fn attempt(task: &Task) -> &'static str {
    match task {
        Task::Grow { .. } => "grow",
        Task::Release => "free all blocks",
        Task::Footprint | Task::Residue => "report its footprint",
        Task::Bulk { .. } => "do the bulk test",
        Task::NoBulk { .. } => "do the no-bulk test",
        Task::Latency { .. } => "do the latency test",
        Task::Zeroed { .. } => "make blocks of zeros",
        Task::Repeat { .. } => "repeat",
        Task::Load { .. } => "read the steps of a replay",
        Task::Replay { .. } => "replay",
    }
}
