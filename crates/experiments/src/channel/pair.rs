//! Controls the two processes of a transfer: a run starts the processes, gives them tasks, and
//! ends them.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::protocol::{Cost, Reply, Request, Side, Task};
use crate::drive::{Children, Conversation, Folder, Printed, Program, Silence};
use crate::error::Error;

/// The longest time until both ends have started: mpirun takes a second.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The time that an end has to report its own failure after the other end has failed.
const OTHER_END_TIMEOUT: Duration = Duration::from_millis(500);

/// The time between two checks for a driver's connection.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The time from the line with a task to the start of the task at both ends: long enough for both
/// ends to read the line before the task starts.
const LEAD_NS: u64 = 300_000;

/// The command that starts the two ends.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program. After its arguments, the run appends the path of the run's socket and, if
    /// each end is started separately, `A` or `B`.
    pub program: Program,
    /// Whether the program starts both ends, as mpirun does.
    pub starts_both: bool,
}

/// Two running ends.
pub(super) struct Pair {
    name: String,
    children: Children,
    a: End,
    b: End,
    printed: Printed,
    /// The folder of the socket, which is removed together with the ends.
    _folder: Folder,
    /// The version of the library that the ends drive.
    pub(super) version: String,
}

/// The conversation with one end.
struct End {
    conversation: Conversation,
    version: String,
}

impl Pair {
    /// Starts both ends on these processors.
    ///
    /// # Errors
    /// [`Error::Driver`]: an end did not start, or does not connect; [`Error::Folder`]: the folder
    /// of their socket cannot be made.
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
        // This process's copy of the drivers' pipe is closed, so that the drivers' output ends
        // when the drivers end.
        drop(input);
        let met = meet(&listener, &mut children);
        let (a, b) = match met {
            Ok(ends) => ends,
            Err(reason) => {
                children.end();
                return Err(failed(io::Error::other(printed.with_output(reason))));
            }
        };
        let version = a.version.clone();
        let name = name.to_owned();
        let mut pair = Self { name, children, a, b, printed, _folder: folder, version };
        let pinned = pair.both(&Request::Pin(cpus.to_vec()));
        pinned.map_err(|reason| pair.error("run on its processors", reason))?;
        Ok(pair)
    }

    /// Makes both ends perform a task, and returns the costs of A and B.
    ///
    /// # Errors
    /// [`Error::Driver`]: the task failed, an end has ended or hangs, or B received bytes that
    /// differ from the bytes that A sent. After an error, the ends cannot be used any more.
    pub(super) fn perform(&mut self, task: &Task) -> Result<(Cost, Cost), Error> {
        let done = self.both(&Request::Prepare(task.clone())).and_then(|_| {
            let start_ns = haul_measure::sys::monotonic_ns() + LEAD_NS;
            match self.both(&Request::Go(start_ns))? {
                (Reply::Done(a), Reply::Done(b)) => Ok((a, b)),
                _ => Err("it sent an unexpected answer".to_owned()),
            }
        });
        let attempt = format!("move {} B {} times by {}", task.size, task.count, task.transport);
        done.map_err(|reason| self.error(&attempt, reason))
    }

    /// Sends the same request to both ends and waits for both replies. An end that fails ends the
    /// wait, because the other one may wait for it for longer.
    fn both(&mut self, request: &Request) -> Result<(Reply, Reply), String> {
        self.a.say(request)?;
        self.b.say(request)?;
        let is_a_first = self.a.conversation.answers_before(&self.b.conversation);
        let is_a_first = is_a_first.map_err(|silence| silence.to_string())?;
        let (first, second) =
            if is_a_first { (&mut self.a, &mut self.b) } else { (&mut self.b, &mut self.a) };
        match first.hear() {
            Ok(one) => {
                let other = second.hear()?;
                Ok(if is_a_first { (one, other) } else { (other, one) })
            }
            Err(reason) => Err(second.with_own_reason(reason)),
        }
    }

    /// Ends both processes, and adds their output to the reason.
    fn error(&mut self, attempt: &str, reason: String) -> Error {
        self.close();
        let reason = self.printed.with_output(reason);
        Error::Driver { peer: self.name.clone(), attempt: attempt.to_owned(), reason }
    }

    /// Ends both. mpirun and its ends, and a library that shares memory by name (iceoryx2),
    /// release their resources when the conversation is closed. A process that a signal ends does
    /// not release its resources.
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

    /// The failure reason of the other end, followed by this end's reason if this end has failed
    /// as well. For example, an end without a free descriptor cannot listen, so the other end
    /// cannot connect.
    fn with_own_reason(&mut self, reason: String) -> String {
        let more = self.conversation.hear_within(OTHER_END_TIMEOUT).map(|line| line.parse());
        match more {
            Ok(Ok(Reply::Failed(own))) if own != reason => {
                format!("{reason}; the other end: {own}")
            }
            _ => reason,
        }
    }
}

/// Starts the processes. If each end is started separately, the standard output of each end is
/// the standard input of the other.
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

/// Waits until each end has reported whether it is A or B.
fn meet(listener: &UnixListener, children: &mut Children) -> Result<(End, End), String> {
    let started = Instant::now();
    let (mut a, mut b) = (None, None);
    while a.is_none() || b.is_none() {
        match listener.accept() {
            Ok((stream, _)) => {
                let (side, end) = greet(stream)?;
                let place = if side == Side::A { &mut a } else { &mut b };
                if place.replace(end).is_some() {
                    return Err(format!("two processes report that they are end {side}"));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if !children.are_running() {
                    return Err(Silence::Ended.to_string());
                }
                if started.elapsed() > START_TIMEOUT {
                    return Err(format!("not there within {} s", START_TIMEOUT.as_secs()));
                }
                std::thread::sleep(POLL_INTERVAL);
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
        _ => Err(format!("its first line is {line:?}")),
    }
}
