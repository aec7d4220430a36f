//! The conversation with a program: greeting, commands, answers.

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

/// The longest answer that is accepted, even if the program announces more: 64 times DPDK's own
/// limit.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// The longest greeting that is accepted, the length of DPDK's buffer for it.
const GREETING_BYTES_MAX: usize = 1024;
/// The longest command: DPDK accepts one byte less than 1,024.
const COMMAND_BYTES_MAX: usize = 1023;
/// Pause between two attempts to connect to a program whose queue of clients is full.
const NAP: Duration = Duration::from_millis(10);

/// A connection to a program's telemetry. Dropping it closes the connection and does not affect the
/// program.
#[derive(Debug)]
pub struct Telemetry {
    socket: Socket,
    path: PathBuf,
    greeting: Greeting,
    deadline: Duration,
    /// Space for one answer.
    buffer: Vec<u8>,
    /// The process that owns the connection: a child of fork that drops its copy does not end the
    /// parent's connection.
    here: Here,
    /// The error of an earlier command. The answer to that command may arrive late, and could be
    /// mistaken for the answer to the next command.
    failed: Option<String>,
    /// The users of other programs' sockets that the search skipped.
    pub(super) others: Vec<u32>,
}

impl Telemetry {
    /// Connects to the socket at `path` and reads the greeting. No wait for the program, in this
    /// call or a later one, exceeds `deadline`. The program must run as this user or root.
    ///
    /// # Errors
    /// [`Error::Connect`], [`Error::OtherUser`], [`Error::Silent`], [`Error::Ended`],
    /// [`Error::NotTelemetry`].
    pub fn connect(path: &Path, deadline: Duration) -> Result<Self, Error> {
        Self::connect_for(path, &Users::Own, deadline)
    }

    /// Like [`connect`](Self::connect), but to a program of one of these users.
    ///
    /// # Errors
    /// See [`connect`](Self::connect).
    pub fn connect_for(path: &Path, users: &Users, deadline: Duration) -> Result<Self, Error> {
        let mut calls = [Call::to(path.into())];
        Call::wait_for_all(&mut calls, users, deadline, deadline);
        let [call] = calls;
        call.end(deadline)
    }

    /// Like [`connect_for`](Self::connect_for), but connects to all of `paths` concurrently. This
    /// takes no longer than one connection.
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

    /// How many sockets the search for this program skipped because they belong to other users, and
    /// how to include them, for an operator; `None` if it skipped none.
    #[must_use]
    pub fn left_alone(&self) -> Option<String> {
        left_alone(&self.others)
    }

    /// `DPDK 22.11.11`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.greeting.version
    }

    /// The program's process ID, in the program's own PID namespace.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.greeting.process
    }

    /// The socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sends a command with its parameters, such as `/ethdev/stats,0`, and returns the answer.
    /// Costs a send, a wait and a receive.
    ///
    /// # Errors
    /// [`Error::Refused`] if the program answers null; the connection stays usable. After any
    /// other error except [`Error::Command`], each further command fails with
    /// [`Error::OutOfStep`].
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
            received: beginning(packet),
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

/// The largest number of sockets that are open at the same time during a search.
const OPEN_MAX: usize = 256;

/// How many of `count` sockets are open at the same time, and the resulting number of parts. At
/// most half of the process's limit of descriptors is used.
fn parts_of(count: usize) -> (usize, u32) {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let some = usize::try_from(limit / 2).unwrap_or(OPEN_MAX).clamp(1, OPEN_MAX);
    (some, count.div_ceil(some).max(1) as u32)
}

/// A connection that is being made to a program.
struct Call {
    path: PathBuf,
    state: State,
}

enum State {
    /// The program has not accepted the connection yet.
    New,
    /// The program has not sent its greeting yet.
    Connected(Socket),
    Over(Result<Telemetry, Error>),
}

impl Call {
    fn to(path: PathBuf) -> Self {
        Self { path, state: State::New }
    }

    /// Waits until all programs have greeted or failed, at most for `wait`.
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
            // Pause between two attempts to connect to a program whose queue of clients is full.
            let is_new = calls.iter().any(|call| matches!(call.state, State::New));
            let pause = if is_new { left.min(NAP) } else { left };
            for index in ready(calls, pause) {
                calls[index].receive_greeting(deadline);
            }
        }
    }

    /// Connects, and checks the user of the process at the other end.
    fn connect(&mut self, users: &Users) {
        let path = self.path.clone();
        let socket = match socket::connect(&path).and_then(Socket::adopt) {
            Ok(socket) => socket,
            Err(PeerError::Socket { reason, .. }) if reason.kind() == io::ErrorKind::WouldBlock => {
                // The queue of clients is full. A program of another user is not worth waiting for.
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

    /// Receives the greeting, if it has arrived.
    fn receive_greeting(&mut self, deadline: Duration) {
        let path = &self.path;
        let State::Connected(socket) = &self.state else { return };
        let mut buffer = vec![0; GREETING_BYTES_MAX];
        let packet = match socket::hear(socket, &mut buffer) {
            Err(Errno::AGAIN | Errno::INTR) => return,
            received => packet_of(received, &buffer, path, ""),
        };
        let greeting = packet.and_then(|packet| {
            read_greeting(packet).map_err(|problem| Error::NotTelemetry {
                path: path.clone(),
                problem,
                received: beginning(packet),
            })
        });
        let state = std::mem::replace(&mut self.state, State::New);
        self.state = match (greeting, state) {
            (Ok(greeting), State::Connected(socket)) => {
                let bytes = greeting.answer_bytes_max.clamp(GREETING_BYTES_MAX, ANSWER_BYTES_MAX);
                // DPDK announces the length of its buffer; its answers may have a trailing NUL.
                buffer.resize(bytes + 1, 0);
                let path = self.path.clone();
                let (failed, others) = (None, Vec::new());
                let here = Here::now();
                let connected =
                    Telemetry { socket, path, greeting, deadline, buffer, here, failed, others };
                State::Over(Ok(connected))
            }
            (Err(error), State::Connected(_)) => State::Over(Err(error)),
            (_, state) => state,
        };
    }

    /// The result after the time is over.
    fn end(self, waited: Duration) -> Result<Telemetry, Error> {
        let path = self.path;
        match self.state {
            State::Over(result) => result,
            State::New => Err(Error::Connect { path, reason: io::ErrorKind::WouldBlock.into() }),
            State::Connected(_) => Err(Error::Silent { path, command: String::new(), waited }),
        }
    }
}

/// The connections that are readable or closed, after at most `pause`.
fn ready(calls: &[Call], pause: Duration) -> Vec<usize> {
    let open = calls.iter().enumerate().filter_map(|(index, call)| match &call.state {
        State::Connected(socket) => Some((index, socket)),
        _ => None,
    });
    let open: Vec<(usize, &Socket)> = open.collect();
    let mut set: Vec<PollFd<'_>> =
        open.iter().map(|(_, socket)| PollFd::new(&***socket, PollFlags::IN)).collect();
    let pause = Timespec::try_from(pause).ok();
    // A failure of poll is treated like a timeout.
    if poll(&mut set, pause.as_ref()).is_err() {
        return Vec::new();
    }
    let is_ready = |index: &usize| !set[*index].revents().is_empty();
    (0..open.len()).filter(is_ready).map(|index| open[index].0).collect()
}

fn refused(path: PathBuf, error: PeerError) -> Error {
    match error {
        PeerError::OtherUser { process, user, is_unknown, allowed, .. } => {
            Error::OtherUser { path, process, user, is_unknown, allowed }
        }
        error => {
            Error::System { attempt: "identify the process behind", path, reason: io_of(error) }
        }
    }
}

/// Receives the next packet.
fn receive<'a>(
    socket: &OwnedFd,
    buffer: &'a mut [u8],
    until: Instant,
    path: &Path,
    command: &str,
    waited: Duration,
) -> Result<&'a [u8], Error> {
    let system = |reason| Error::System { attempt: "receive from", path: path.into(), reason };
    loop {
        let is_there = socket::wait_readable(socket.as_fd(), Some(until));
        if !is_there.map_err(|error| system(io_of(error)))? {
            let (path, command) = (path.into(), command.to_owned());
            return Err(Error::Silent { path, command, waited });
        }
        match socket::hear(socket, buffer) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            received => return packet_of(received, buffer, path, command),
        }
    }
}

/// The received packet, or the error that explains its absence.
fn packet_of<'a>(
    received: Result<usize, Errno>,
    buffer: &'a [u8],
    path: &Path,
    command: &str,
) -> Result<&'a [u8], Error> {
    let (path, command) = (|| path.to_path_buf(), || command.to_owned());
    let limit_bytes = buffer.len();
    match received {
        Ok(0) | Err(Errno::CONNRESET) => Err(Error::Ended { path: path(), command: command() }),
        Ok(size_bytes) if size_bytes > limit_bytes => {
            Err(Error::TooLong { path: path(), command: command(), size_bytes, limit_bytes })
        }
        Ok(size_bytes) => Ok(&buffer[..size_bytes]),
        Err(reason) => {
            Err(Error::System { attempt: "receive from", path: path(), reason: reason.into() })
        }
    }
}
