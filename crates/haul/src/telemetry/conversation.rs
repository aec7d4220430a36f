//! Greeting, commands, answers.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fd::AsFd;
use rustix::io::Errno;
use serde_json::Value;

use super::answer::{Greeting, beginning, read_answer, read_greeting};
use super::error::{Error, io_of};
use crate::peer::deadline::after;
use crate::peer::error::Error as PeerError;
use crate::peer::fork::Here;
use crate::peer::socket::{self, Socket};

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
}

impl Telemetry {
    /// Connects to the socket at `path` and reads its greeting; no wait, then or later, is longer
    /// than `deadline`.
    ///
    /// # Errors
    /// [`Error::Connect`], [`Error::Silent`], [`Error::Ended`], [`Error::NotTelemetry`].
    pub fn connect(path: &Path, deadline: Duration) -> Result<Self, Error> {
        let until = after(deadline);
        let socket = connect(path, until)?;
        let mut buffer = vec![0; GREETING_BYTES_MAX];
        let packet = receive(&socket, &mut buffer, until, path, "", deadline)?;
        let greeting = read_greeting(packet).map_err(|problem| Error::NotTelemetry {
            path: path.into(),
            problem,
            said: beginning(packet),
        })?;
        let bytes = greeting.answer_bytes_max.clamp(GREETING_BYTES_MAX, ANSWER_BYTES_MAX);
        // DPDK announces its buffer; what it sends may have a NUL behind it.
        buffer.resize(bytes + 1, 0);
        Ok(Self {
            socket,
            path: path.into(),
            greeting,
            deadline,
            buffer,
            here: Here::now(),
            failed: None,
        })
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

fn connect(path: &Path, until: Instant) -> Result<Socket, Error> {
    loop {
        match socket::connect(path).and_then(Socket::adopt) {
            Ok(socket) => return Ok(socket),
            Err(PeerError::Socket { reason, .. })
                if reason.kind() == io::ErrorKind::WouldBlock && Instant::now() < until =>
            {
                std::thread::sleep(NAP);
            }
            Err(error) => return Err(Error::Connect { path: path.into(), reason: io_of(error) }),
        }
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
    let (path, command) = (|| path.to_path_buf(), || command.to_owned());
    let system = |reason| Error::System { attempt: "hear", path: path(), reason };
    let size_bytes = loop {
        let is_there = socket::wait_readable(socket.as_fd(), Some(until));
        if !is_there.map_err(|error| system(io_of(error)))? {
            return Err(Error::Silent { path: path(), command: command(), waited });
        }
        match socket::hear(socket, buffer) {
            Ok(size_bytes) => break size_bytes,
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(Errno::CONNRESET) => break 0,
            Err(reason) => return Err(system(reason.into())),
        }
    };
    let limit_bytes = buffer.len();
    match size_bytes {
        0 => Err(Error::Ended { path: path(), command: command() }),
        _ if size_bytes > limit_bytes => {
            Err(Error::TooLong { path: path(), command: command(), size_bytes, limit_bytes })
        }
        _ => Ok(&buffer[..size_bytes]),
    }
}
