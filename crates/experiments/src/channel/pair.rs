//! Two processes, the two ends, as their run sees them: started, asked, and ended with it.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::protocol::{Reply, Request, Side, Task, Took};
use crate::drive::{Children, Conversation, Folder, Printed, Program, Silence};
use crate::error::Error;

/// The longest that a pair takes to start: mpirun takes a second.
const PATIENCE_TO_START: Duration = Duration::from_secs(30);

/// How long an end may take to tell why it failed, once the other has.
const PATIENCE_FOR_MORE: Duration = Duration::from_millis(500);

/// How often a run looks whether a driver has come.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// How far ahead the moment is at which both ends begin: they have read the line by then.
const LEAD_NS: u64 = 300_000;

/// How the two ends of a pair are started.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program. Behind its arguments come the path of the run's socket and, where each end is
    /// started by itself, `A` or `B`.
    pub program: Program,
    /// Whether the program starts both ends, as mpirun does.
    pub starts_both: bool,
}

/// A pair that runs.
pub(super) struct Pair {
    name: String,
    children: Children,
    a: End,
    b: End,
    printed: Printed,
    /// Removed when the pair is.
    _folder: Folder,
    /// What is driven, in which version.
    pub(super) version: String,
}

/// The conversation with one end.
struct End {
    conversation: Conversation,
    version: String,
}

impl Pair {
    /// Starts both ends, on these processors.
    ///
    /// # Errors
    /// [`Error::Driver`]: one of them did not start, or does not come; [`Error::Folder`]: they have
    /// nowhere to meet.
    pub(super) fn start(name: &str, launch: &Launch, cpus: &[usize]) -> Result<Self, Error> {
        let failed = |reason: io::Error| Error::Driver {
            peer: name.to_owned(),
            attempt: format!("start {}", launch.program.path.display()),
            reason: reason.to_string(),
        };
        let nowhere = |reason: io::Error| Error::Folder {
            peer: name.to_owned(),
            folder: std::env::temp_dir(),
            reason,
        };
        let folder = Folder::new("channel").map_err(nowhere)?;
        let control = folder.path().join("control");
        let listener = UnixListener::bind(&control).map_err(nowhere)?;
        listener.set_nonblocking(true).map_err(nowhere)?;
        let (mut printed, input) = Printed::new().map_err(failed)?;
        let mut children = spawn(launch, &control, &input).map_err(failed)?;
        // Our copy of the drivers' end: what they print ends when they do.
        drop(input);
        let met = meet(&listener, &mut children);
        let (a, b) = match met {
            Ok(ends) => ends,
            Err(reason) => {
                children.end();
                return Err(failed(io::Error::other(printed.told_with(reason))));
            }
        };
        let version = a.version.clone();
        let name = name.to_owned();
        let mut pair = Self { name, children, a, b, printed, _folder: folder, version };
        let pinned = pair.both(&Request::Pin(cpus.to_vec()));
        pinned.map_err(|reason| pair.error("run on its processors", reason))?;
        Ok(pair)
    }

    /// Has both ends do a task; what A and B took.
    ///
    /// # Errors
    /// [`Error::Driver`]: it failed, one of them ended or hangs, or B has other bytes than were
    /// sent. The pair is of no use any more.
    pub(super) fn perform(&mut self, task: &Task) -> Result<(Took, Took), Error> {
        let done = self.both(&Request::Prepare(task.clone())).and_then(|_| {
            let start_ns = haul_measure::sys::monotonic_ns() + LEAD_NS;
            match self.both(&Request::Go(start_ns))? {
                (Reply::Done(a), Reply::Done(b)) => Ok((a, b)),
                _ => Err("it answers out of turn".to_owned()),
            }
        });
        let attempt = format!("move {} B {} times by {}", task.size, task.count, task.transport);
        done.map_err(|reason| self.error(&attempt, reason))
    }

    /// The same to both, who answer as they are done.
    fn both(&mut self, request: &Request) -> Result<(Reply, Reply), String> {
        self.a.say(request)?;
        self.b.say(request)?;
        match self.a.hear() {
            Ok(a) => Ok((a, self.b.hear()?)),
            Err(reason) => Err(self.b.told_with(reason)),
        }
    }

    /// Ends both, and tells with the reason what they printed.
    fn error(&mut self, attempt: &str, reason: String) -> Error {
        self.close();
        let reason = self.printed.told_with(reason);
        Error::Driver { peer: self.name.clone(), attempt: attempt.to_owned(), reason }
    }

    /// Ends both. Closed, the conversation is over: mpirun and its ends, and what shares memory by
    /// name (iceoryx2), clean up behind them, which nobody does who is told to end by a signal.
    fn close(&mut self) {
        self.a.conversation.close();
        self.b.conversation.close();
        self.children.await_end();
        self.children.end();
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.close();
    }
}

impl End {
    fn say(&mut self, request: &Request) -> Result<(), String> {
        self.conversation.say(&request.to_string()).map_err(|silence| silence.to_string())
    }

    fn hear(&mut self) -> Result<Reply, String> {
        match self.conversation.hear().map_err(|silence| silence.to_string())?.parse()? {
            Reply::Failed(reason) => Err(reason),
            reply => Ok(reply),
        }
    }

    /// The other end's reason, with this one's behind it where it has failed as well: who has no
    /// descriptor left to listen is why nobody can connect.
    fn told_with(&mut self, reason: String) -> String {
        let more = self.conversation.hear_within(PATIENCE_FOR_MORE).map(|line| line.parse());
        match more {
            Ok(Ok(Reply::Failed(own))) if own != reason => {
                format!("{reason}; the other end: {own}")
            }
            _ => reason,
        }
    }
}

/// Starts the processes. Where each end is started by itself, standard output of one is standard
/// input of the other, both ways.
fn spawn(launch: &Launch, control: &Path, printed: &io::PipeWriter) -> io::Result<Children> {
    let command = || -> io::Result<Command> {
        let mut command = launch.program.command(printed)?;
        command.arg(control);
        Ok(command)
    };
    let mut children = Children::new();
    if launch.starts_both {
        let mut both = command()?;
        both.stdin(Stdio::null()).stdout(printed.try_clone()?);
        children.push(both.spawn()?);
        return Ok(children);
    }
    let ((from_a, to_b), (from_b, to_a)) = (io::pipe()?, io::pipe()?);
    for (side, input, output) in [(Side::A, from_b, to_b), (Side::B, from_a, to_a)] {
        let mut one = command()?;
        one.arg(side.to_string());
        one.stdin(Stdio::from(OwnedFd::from(input))).stdout(OwnedFd::from(output));
        children.push(one.spawn()?);
    }
    Ok(children)
}

/// Waits until both ends have said which they are.
fn meet(listener: &UnixListener, children: &mut Children) -> Result<(End, End), String> {
    let started = Instant::now();
    let (mut a, mut b) = (None, None);
    while a.is_none() || b.is_none() {
        match listener.accept() {
            Ok((stream, _)) => {
                let (side, end) = greet(stream)?;
                let place = if side == Side::A { &mut a } else { &mut b };
                if place.replace(end).is_some() {
                    return Err(format!("two processes say that they are {side}"));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if !children.are_running() {
                    return Err(Silence::Ended.to_string());
                }
                if started.elapsed() > PATIENCE_TO_START {
                    return Err(format!("not there within {} s", PATIENCE_TO_START.as_secs()));
                }
                std::thread::sleep(LOOK_AGAIN);
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    a.zip(b).ok_or_else(|| "an end is missing".to_owned())
}

fn greet(stream: UnixStream) -> Result<(Side, End), String> {
    let silent = |silence: Silence| silence.to_string();
    let mut conversation = Conversation::with_driver(stream).map_err(|error| error.to_string())?;
    let line = conversation.hear().map_err(silent)?;
    match line.parse() {
        Ok(Reply::Hello(side, version)) => Ok((side, End { conversation, version })),
        _ => Err(format!("it greets with {line:?}")),
    }
}
