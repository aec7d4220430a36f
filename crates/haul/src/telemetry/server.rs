//! A telemetry socket of this process, in the words of DPDK's: a greeting, commands, answers. One
//! thread serves all clients. A client that sends what is no command is answered null; one that
//! does not read is closed.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use serde_json::{Value, json};

use super::error::{Error, io_of};
use crate::peer::fork::Thread;
use crate::peer::listening::{self, Bound};
use crate::peer::socket::{self, Socket};
use crate::peer::users::Users;

/// Clients at once, as many as DPDK serves (MAX_CONNECTIONS).
const CLIENTS_MAX: usize = 10;
/// The longest command, as DPDK's buffer for it.
const COMMAND_BYTES_MAX: usize = 1024;
/// The longest answer, as DPDK's (MAX_OUTPUT_LEN).
pub(super) const ANSWER_BYTES_MAX: usize = 16 * 1024;
/// After a failure of the system, such as too many open files.
const NAP: Duration = Duration::from_millis(50);

/// Answers a command, by the words behind it; `None` refuses.
pub(super) type Answer = Box<dyn FnMut(&str, &[&str]) -> Option<Value> + Send>;

/// A socket that is served. Dropping it ends the conversations and takes the socket away.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    /// Its own folder, which goes with it.
    folder: Option<PathBuf>,
    /// What it says, or that it is closed, ends the thread.
    end: Option<OwnedFd>,
    thread: Thread,
}

impl Server {
    /// Listens at `path`, for this user alone, and serves.
    ///
    /// # Errors
    /// [`Error::Serve`]: the path is another's, or none that a socket can have.
    pub(super) fn start(path: &Path, version: &str, answer: Answer) -> Result<Self, Error> {
        let refused = |error| Error::Serve { path: path.into(), reason: io_of(error) };
        let (listener, bound) = listening::listen(path, false).map_err(refused)?;
        let (end, stop) = socket::pair().map_err(refused)?;
        let greeting = json!({
            "version": version,
            "pid": std::process::id(),
            "max_output_len": ANSWER_BYTES_MAX,
        });
        let serving = Serving { listener, bound, stop, greeting, answer, clients: Vec::new() };
        let started = thread::Builder::new().name("haul-telemetry".into());
        let thread = started
            .spawn(move || serving.run())
            .map_err(|reason| Error::Serve { path: path.into(), reason })?;
        let thread = Thread::new(thread);
        Ok(Self { path: path.into(), folder: None, end: Some(end), thread })
    }

    /// The same in a folder that goes with it.
    ///
    /// # Errors
    /// As [`start`](Self::start); the folder has gone then.
    pub(super) fn start_in(
        folder: &Path,
        path: &Path,
        version: &str,
        answer: Answer,
    ) -> Result<Self, Error> {
        match Self::start(path, version, answer) {
            Ok(mut server) => {
                server.folder = Some(folder.into());
                Ok(server)
            }
            Err(error) => {
                // It stays where another process's socket is in it.
                let _ = std::fs::remove_dir(folder);
                Err(error)
            }
        }
    }

    /// The socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // In a child of fork there is nothing of it but copies of descriptors.
        if !self.thread.is_here() {
            return;
        }
        if let Some(end) = self.end.take() {
            // A child of fork may have it too, and close it late.
            socket::nudge(&end);
        }
        // It panics where an answer does, which is said already.
        let _ = self.thread.join();
        if let Some(folder) = &self.folder {
            let _ = std::fs::remove_dir(folder);
        }
    }
}

/// What the thread has.
struct Serving {
    listener: OwnedFd,
    bound: Bound,
    stop: OwnedFd,
    greeting: Value,
    answer: Answer,
    clients: Vec<Socket>,
}

impl Serving {
    fn run(mut self) {
        loop {
            let is_room = self.clients.len() < CLIENTS_MAX;
            let mut ready: Vec<PollFd<'_>> = vec![PollFd::new(&self.stop, PollFlags::IN)];
            // Whoever comes to a full house waits in the queue.
            let flags = if is_room { PollFlags::IN } else { PollFlags::empty() };
            ready.push(PollFd::new(&self.listener, flags));
            ready.extend(self.clients.iter().map(|client| PollFd::new(&**client, PollFlags::IN)));
            match rustix::event::poll(&mut ready, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => thread::sleep(NAP),
            }
            let is_ready: Vec<bool> = ready.iter().map(|it| !it.revents().is_empty()).collect();
            if is_ready[0] {
                return;
            }
            let clients = std::mem::take(&mut self.clients);
            for (client, is_ready) in clients.into_iter().zip(&is_ready[2..]) {
                if !is_ready || self.serve(&client) {
                    self.clients.push(client);
                }
            }
            if is_ready[1] && is_room {
                self.accept();
            }
        }
    }

    fn accept(&mut self) {
        let client = match socket::accept(&self.listener, Some(Duration::ZERO)) {
            Ok(Some(client)) => client,
            Ok(None) => return,
            Err(_) => return thread::sleep(NAP),
        };
        // What it sends is no reason to wait as it is closed.
        let Ok(client) = Socket::adopt(client) else { return };
        let is_allowed = socket::other_end(&client)
            .and_then(|(process, user, _)| Users::Own.check("serve", Some(process), user));
        let greeting = self.greeting.to_string();
        if is_allowed.is_ok() && socket::say(&client, greeting.as_bytes()).is_ok() {
            self.clients.push(client);
        }
    }

    /// Answers what a client asks; false where it is to be closed.
    fn serve(&mut self, client: &OwnedFd) -> bool {
        let mut buffer = [0; COMMAND_BYTES_MAX];
        let length = match socket::hear(client, &mut buffer) {
            Ok(0) => return false,
            Ok(length) => length,
            Err(Errno::AGAIN | Errno::INTR) => return true,
            Err(_) => return false,
        };
        let text = String::from_utf8_lossy(buffer.get(..length).unwrap_or_default());
        let (name, words) = parts(text.trim_end_matches('\0'));
        let answer = (self.answer)(name, &words).unwrap_or(Value::Null);
        let text = |value: Value| json!(BTreeMap::from([(name, value)])).to_string();
        let mut packet = text(answer);
        if packet.len() > ANSWER_BYTES_MAX {
            packet = text(Value::Null);
        }
        socket::say(client, packet.as_bytes()).is_ok()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.bound.remove();
        socket::stop_listening(&self.listener);
    }
}

/// A command's name, and the words behind it.
fn parts(command: &str) -> (&str, Vec<&str>) {
    let (name, words) = command.split_once(',').unwrap_or((command, ""));
    (name, words.split(',').map(str::trim).filter(|word| !word.is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use super::super::Telemetry;
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(30);

    fn echo(path: &Path) -> Server {
        let answer = |name: &str, words: &[&str]| match name {
            "/echo" => Some(json!(words)),
            "/long" => Some(json!("x".repeat(ANSWER_BYTES_MAX))),
            _ => None,
        };
        Server::start(path, "haul 1", Box::new(answer)).unwrap()
    }

    #[test]
    fn commands_are_answered_and_the_socket_goes_with_the_server() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let server = echo(&path);
        assert_eq!(server.path(), path);
        let mut first = Telemetry::connect(&path, DEADLINE).unwrap();
        let mut second = Telemetry::connect(&path, DEADLINE).unwrap();
        assert_eq!((first.version(), first.process()), ("haul 1", std::process::id()));
        assert_eq!(first.ask("/echo,1, 2,,x").unwrap(), json!(["1", "2", "x"]));
        assert!(matches!(first.ask("/other"), Err(Error::Refused { .. })));
        let message = format!("/{}", "y".repeat(1022));
        assert!(matches!(second.ask(&message), Err(Error::Refused { .. })));
        assert_eq!(second.ask("/echo,\"").unwrap(), json!(["\""]));
        assert!(Server::start(&path, "haul 2", Box::new(|_, _| None)).is_err());
        drop(server);
        assert!(!path.exists());
        assert!(matches!(first.ask("/echo"), Err(Error::Ended { .. })));
        drop(echo(&path));
    }

    #[test]
    fn an_answer_that_is_too_long_is_null() {
        let folder = tempfile::tempdir().unwrap();
        let server = echo(&folder.path().join("socket"));
        let mut client = Telemetry::connect(server.path(), DEADLINE).unwrap();
        assert!(matches!(client.ask("/long"), Err(Error::Refused { .. })));
    }

    /// Clients that say nothing, never read, or go at once take nobody else's turn.
    #[test]
    fn bad_clients_hold_nobody_up() {
        let folder = tempfile::tempdir().unwrap();
        let server = echo(&folder.path().join("socket"));
        let path = server.path();
        let silent: Vec<_> = (0..3).map(|_| socket::connect(path).unwrap()).collect();
        let deaf = socket::connect(path).unwrap();
        for _ in 0..100_000 {
            // Until its own queue is full, or it is closed.
            if socket::say(&deaf, b"/echo,1").is_err() {
                break;
            }
        }
        for _ in 0..50 {
            drop(socket::connect(path).unwrap());
        }
        for packet in [&b"\xff\xfe"[..], b"/echo,\0\x01\"", &[0; 4096], b","] {
            let client = socket::connect(path).unwrap();
            let _ = socket::say(&client, packet);
        }
        let mut good = Telemetry::connect(path, DEADLINE).unwrap();
        assert_eq!(good.ask("/echo,7").unwrap(), json!(["7"]));
        drop(silent);
    }

    /// More than are served at once wait for their turn.
    #[test]
    fn a_full_house_lets_the_next_in_when_one_goes() {
        let folder = tempfile::tempdir().unwrap();
        let server = echo(&folder.path().join("socket"));
        let connect = || Telemetry::connect(server.path(), DEADLINE);
        let mut inside: Vec<_> = (0..CLIENTS_MAX).map(|_| connect().unwrap()).collect();
        thread::scope(|scope| {
            let waits = scope.spawn(|| connect()?.ask("/echo,9"));
            inside.pop();
            assert_eq!(waits.join().unwrap().unwrap(), json!(["9"]));
        });
    }
}
