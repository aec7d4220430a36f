//! Greeting, commands, answers.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use serde_json::Value;

use super::answer::{Greeting, beginning, read_answer, read_greeting};
use super::error::{Error, io_of, left_alone};
use haul_peer::deadline::after;
use haul_peer::error::Error as PeerError;
use haul_peer::fork::Here;
use haul_peer::socket::{self, Socket};
use haul_peer::users::Users;

/// The longest answer that is taken, whatever the program announces: 64 times DPDK's own limit.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// The longest greeting that is taken; DPDK's buffer for it is as long.
const GREETING_BYTES_MAX: usize = 1024;
/// The longest command: DPDK reads one byte less than 1,024.
const COMMAND_BYTES_MAX: usize = 1023;
/// Between two attempts to connect to a program with a full queue of clients.
const NAP: Duration = Duration::from_millis(10);

/// A connection to a program's telemetry. Dropping it closes the connection and changes nothing in
/// the program.
#[derive(Debug)]
pub struct Telemetry {
    socket: Socket,
    path: PathBuf,
    greeting: Greeting,
    deadline: Duration,
    /// For one answer.
    buffer: Vec<u8>,
    /// The process that has it: as a child of fork drops its copy, the parent's goes on.
    here: Here,
    /// What failed: after that, an answer that comes late would be taken for the next one's.
    failed: Option<String>,
    /// The users of other sockets that were left alone as this program was looked for.
    pub(super) others: Vec<u32>,
}

impl Telemetry {
    /// Connects to the socket at `path` and reads its greeting; no wait, then or later, is longer
    /// than `deadline`. The program is of one's own user or root.
    ///
    /// # Errors
    /// [`Error::Connect`], [`Error::OtherUser`], [`Error::Silent`], [`Error::Ended`],
    /// [`Error::NotTelemetry`].
    pub fn connect(path: &Path, deadline: Duration) -> Result<Self, Error> {
        Self::connect_for(path, &Users::Own, deadline)
    }

    /// As [`connect`](Self::connect), to a program of one of these users.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_for(path: &Path, users: &Users, deadline: Duration) -> Result<Self, Error> {
        let mut calls = [Call::to(path.into())];
        Call::wait_for_all(&mut calls, users, deadline, deadline);
        let [call] = calls;
        call.end(deadline)
    }

    /// The same to all of these at once: it takes as long as to one.
    pub(super) fn connect_to_all(
        paths: Vec<PathBuf>,
        users: &Users,
        deadline: Duration,
    ) -> Vec<Result<Self, Error>> {
        let mut calls: Vec<Call> = paths.into_iter().map(Call::to).collect();
        let (some, parts) = parts_of(calls.len());
        for part in calls.chunks_mut(some) {
            Call::wait_for_all(part, users, deadline / parts, deadline);
        }
        calls.into_iter().map(|call| call.end(deadline / parts)).collect()
    }

    /// How many sockets were left alone as this program was looked for, because other users'
    /// processes are behind them, and how they would be asked, as a person hears it; `None` where
    /// none was.
    #[must_use]
    pub fn left_alone(&self) -> Option<String> {
        left_alone(&self.others)
    }

    /// `DPDK 22.11.11`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.greeting.version
    }

    /// The program's process, in its own PID namespace.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.greeting.process
    }

    /// The socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Asks a command with its parameters, such as `/ethdev/stats,0`. Costs a send, a wait and a
    /// receive.
    ///
    /// # Errors
    /// [`Error::Refused`] where the program answers null: the connection goes on. After any other
    /// error but [`Error::Command`] it does not, and says so.
    pub fn ask(&mut self, command: &str) -> Result<Value, Error> {
        let is_command = command.starts_with('/')
            && command.len() <= COMMAND_BYTES_MAX
            && !command.chars().any(char::is_control);
        if !is_command {
            return Err(Error::Command { command: command.to_owned() });
        }
        if let Some(earlier) = &self.failed {
            return Err(Error::OutOfStep { path: self.path.clone(), earlier: earlier.clone() });
        }
        let answer = self.exchange(command);
        self.failed = answer.as_ref().err().map(ToString::to_string);
        match answer? {
            Value::Null => {
                Err(Error::Refused { path: self.path.clone(), command: command.to_owned() })
            }
            value => Ok(value),
        }
    }

    fn exchange(&mut self, command: &str) -> Result<Value, Error> {
        let (path, until) = (&self.path, after(self.deadline));
        match socket::say(&self.socket, command.as_bytes()) {
            Ok(()) => {}
            Err(Errno::PIPE | Errno::CONNRESET) => {
                return Err(Error::Ended { path: path.clone(), command: command.to_owned() });
            }
            Err(reason) => {
                let (path, reason) = (path.clone(), reason.into());
                return Err(Error::System { attempt: "ask", path, reason });
            }
        }
        let (socket, buffer) = (&self.socket, &mut self.buffer);
        let packet = receive(socket, buffer, until, path, command, self.deadline)?;
        read_answer(packet, command).map_err(|problem| Error::NotAnAnswer {
            path: path.clone(),
            command: command.to_owned(),
            problem,
            said: beginning(packet),
        })
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        if !self.here.is_here() {
            self.socket.leave_to_others();
        }
    }
}

/// Sockets that are open at once while programs are looked for.
const OPEN_MAX: usize = 256;

/// How many of so many sockets are open at once, and in how many parts that is: at most half of the
/// descriptors that this process may have.
fn parts_of(count: usize) -> (usize, u32) {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let some = usize::try_from(limit / 2).unwrap_or(OPEN_MAX).clamp(1, OPEN_MAX);
    (some, count.div_ceil(some).max(1) as u32)
}

/// A program that is met.
struct Call {
    path: PathBuf,
    state: State,
}

enum State {
    /// Nobody has taken the connection yet.
    New,
    /// It is to greet.
    Connected(Socket),
    Over(Result<Telemetry, Error>),
}

impl Call {
    fn to(path: PathBuf) -> Self {
        Self { path, state: State::New }
    }

    /// Waits until all have greeted or failed, and not longer than `wait`.
    fn wait_for_all(calls: &mut [Self], users: &Users, wait: Duration, deadline: Duration) {
        let until = after(wait);
        loop {
            for call in calls.iter_mut().filter(|call| matches!(call.state, State::New)) {
                call.connect(users);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || calls.iter().all(|call| matches!(call.state, State::Over(_))) {
                return;
            }
            // Between two attempts to connect to a program with a full queue of clients.
            let is_new = calls.iter().any(|call| matches!(call.state, State::New));
            let pause = if is_new { left.min(NAP) } else { left };
            for index in ready(calls, pause) {
                calls[index].hear(deadline);
            }
        }
    }

    /// Connects, and asks whose process is at the other end.
    fn connect(&mut self, users: &Users) {
        let path = self.path.clone();
        let socket = match socket::connect(&path).and_then(Socket::adopt) {
            Ok(socket) => socket,
            Err(PeerError::Socket { reason, .. }) if reason.kind() == io::ErrorKind::WouldBlock => {
                // Its queue of clients is full: nobody waits at another user's.
                let owner = fs::metadata(&path).map(|facts| facts.uid());
                let others = owner.ok().and_then(|owner| users.check("ask", None, owner).err());
                if let Some(error) = others {
                    self.state = State::Over(Err(refused(path, error)));
                }
                return;
            }
            Err(error) => {
                let failed = Error::Connect { path, reason: io_of(error) };
                self.state = State::Over(Err(failed));
                return;
            }
        };
        self.state = match users.check_other_end("ask", &*socket) {
            Ok(()) => State::Connected(socket),
            Err(error) => State::Over(Err(refused(path, error))),
        };
    }

    /// Takes the greeting, where it is there.
    fn hear(&mut self, deadline: Duration) {
        let path = &self.path;
        let State::Connected(socket) = &self.state else { return };
        let mut buffer = vec![0; GREETING_BYTES_MAX];
        let packet = match socket::hear(socket, &mut buffer) {
            Err(Errno::AGAIN | Errno::INTR) => return,
            heard => packet_of(heard, &buffer, path, ""),
        };
        let greeting = packet.and_then(|packet| {
            read_greeting(packet).map_err(|problem| Error::NotTelemetry {
                path: path.clone(),
                problem,
                said: beginning(packet),
            })
        });
        let state = std::mem::replace(&mut self.state, State::New);
        self.state = match (greeting, state) {
            (Ok(greeting), State::Connected(socket)) => {
                let bytes = greeting.answer_bytes_max.clamp(GREETING_BYTES_MAX, ANSWER_BYTES_MAX);
                // DPDK announces its buffer; what it sends may have a NUL behind it.
                buffer.resize(bytes + 1, 0);
                let path = self.path.clone();
                let (failed, others) = (None, Vec::new());
                let here = Here::now();
                let met =
                    Telemetry { socket, path, greeting, deadline, buffer, here, failed, others };
                State::Over(Ok(met))
            }
            (Err(error), State::Connected(_)) => State::Over(Err(error)),
            (_, state) => state,
        };
    }

    /// What came of it when the time is over.
    fn end(self, waited: Duration) -> Result<Telemetry, Error> {
        let path = self.path;
        match self.state {
            State::Over(result) => result,
            State::New => Err(Error::Connect { path, reason: io::ErrorKind::WouldBlock.into() }),
            State::Connected(_) => Err(Error::Silent { path, command: String::new(), waited }),
        }
    }
}

/// Which of the calls something was said on, or that ended, after a pause at most.
fn ready(calls: &[Call], pause: Duration) -> Vec<usize> {
    let open = calls.iter().enumerate().filter_map(|(index, call)| match &call.state {
        State::Connected(socket) => Some((index, socket)),
        _ => None,
    });
    let open: Vec<(usize, &Socket)> = open.collect();
    let mut set: Vec<PollFd<'_>> =
        open.iter().map(|(_, socket)| PollFd::new(&***socket, PollFlags::IN)).collect();
    let pause = Timespec::try_from(pause).ok();
    // Whatever poll refuses, the time goes on.
    if poll(&mut set, pause.as_ref()).is_err() {
        return Vec::new();
    }
    let is_ready = |place: &usize| !set[*place].revents().is_empty();
    (0..open.len()).filter(is_ready).map(|place| open[place].0).collect()
}

fn refused(path: PathBuf, error: PeerError) -> Error {
    match error {
        PeerError::OtherUser { process, user, is_unknown, allowed, .. } => {
            Error::OtherUser { path, process, user, is_unknown, allowed }
        }
        error => Error::System { attempt: "ask who is behind", path, reason: io_of(error) },
    }
}

/// The next packet.
fn receive<'a>(
    socket: &OwnedFd,
    buffer: &'a mut [u8],
    until: Instant,
    path: &Path,
    command: &str,
    waited: Duration,
) -> Result<&'a [u8], Error> {
    let system = |reason| Error::System { attempt: "hear", path: path.into(), reason };
    loop {
        let is_there = socket::wait_readable(socket.as_fd(), Some(until));
        if !is_there.map_err(|error| system(io_of(error)))? {
            let (path, command) = (path.into(), command.to_owned());
            return Err(Error::Silent { path, command, waited });
        }
        match socket::hear(socket, buffer) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            heard => return packet_of(heard, buffer, path, command),
        }
    }
}

/// A packet that was heard, or what it says that there is none.
fn packet_of<'a>(
    heard: Result<usize, Errno>,
    buffer: &'a [u8],
    path: &Path,
    command: &str,
) -> Result<&'a [u8], Error> {
    let (path, command) = (|| path.to_path_buf(), || command.to_owned());
    let limit_bytes = buffer.len();
    match heard {
        Ok(0) | Err(Errno::CONNRESET) => Err(Error::Ended { path: path(), command: command() }),
        Ok(size_bytes) if size_bytes > limit_bytes => {
            Err(Error::TooLong { path: path(), command: command(), size_bytes, limit_bytes })
        }
        Ok(size_bytes) => Ok(&buffer[..size_bytes]),
        Err(reason) => Err(Error::System { attempt: "hear", path: path(), reason: reason.into() }),
    }
}
