//! A telemetry socket of this process that speaks DPDK's protocol: a greeting, commands, answers.
//! One thread serves all clients. An invalid command is answered with null. A client that does
//! not read its answers is disconnected. If the limit of clients is reached, the client that has
//! been silent for longest is disconnected to make room for the next one.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::SocketType;
use serde_json::{Value, json};

use super::error::{Error, io_of};
use haul_peer::fork::Thread;
use haul_peer::listening::{self, Bound};
use haul_peer::socket::{self, Socket};
use haul_peer::users::Users;

/// The largest number of clients that are connected at the same time, as in DPDK
/// (MAX_CONNECTIONS).
const CLIENTS_MAX: usize = 10;
/// How long a client may be silent while another one waits: longer than `haul pcie watch` is silent
/// by itself, 1 s, and shorter than it waits for a greeting, 2 s.
const SILENT_MAX: Duration = Duration::from_millis(1500);
/// The longest command, the length of DPDK's buffer for it.
const COMMAND_BYTES_MAX: usize = 1024;
/// The longest answer, as in DPDK (MAX_OUTPUT_LEN).
pub(super) const ANSWER_BYTES_MAX: usize = 16 * 1024;
/// Pause after a failure of the system, such as too many open files.
const NAP: Duration = Duration::from_millis(50);

/// Answers a command with its parameters; `None` refuses it.
pub(super) type Answer = Box<dyn FnMut(&str, &[&str]) -> Option<Value> + Send>;

/// A telemetry server. Dropping it ends the conversations and removes the socket.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    /// The server's own folder, which is removed with the server.
    folder: Option<PathBuf>,
    /// Data on this socket, or its close, ends the thread.
    end: Option<OwnedFd>,
    thread: Thread,
}

impl Server {
    /// Listens at `path` and serves these users.
    ///
    /// # Errors
    /// [`Error::Serve`]: another process uses the path, or no socket can have it.
    pub(super) fn start(
        path: &Path,
        users: &Users,
        version: &str,
        answer: Answer,
    ) -> Result<Self, Error> {
        let refused = |error| Error::Serve { path: path.into(), reason: io_of(error) };
        let (kind, backlog) = (SocketType::SEQPACKET, socket::BACKLOG);
        let listening = listening::listen(path, kind, backlog, users.are_others());
        let (listener, bound) = listening.map_err(refused)?;
        let (end, stop) = socket::pair().map_err(refused)?;
        let greeting = json!({
            "version": version,
            "pid": std::process::id(),
            "max_output_len": ANSWER_BYTES_MAX,
        });
        let (users, clients) = (users.clone(), Vec::new());
        let serving = Serving { listener, bound, users, stop, greeting, answer, clients };
        let started = thread::Builder::new().name("haul-telemetry".into());
        let thread = started
            .spawn(move || serving.run())
            .map_err(|reason| Error::Serve { path: path.into(), reason })?;
        let thread = Thread::new(thread);
        Ok(Self { path: path.into(), folder: None, end: Some(end), thread })
    }

    /// Like [`start`](Self::start), but in a folder that is removed with the server.
    ///
    /// # Errors
    /// See [`start`](Self::start). The folder is then removed.
    pub(super) fn start_in(
        folder: &Path,
        path: &Path,
        users: &Users,
        version: &str,
        answer: Answer,
    ) -> Result<Self, Error> {
        match Self::start(path, users, version, answer) {
            Ok(mut server) => {
                server.folder = Some(folder.into());
                Ok(server)
            }
            Err(error) => {
                // The removal fails if the folder holds another process's socket.
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
        // A child of fork has only copies of the descriptors.
        if !self.thread.is_here() {
            return;
        }
        if let Some(end) = self.end.take() {
            // A child of fork may hold a copy and close it late.
            socket::nudge(&end);
        }
        // The thread panics only if an answer panics. That panic was reported already.
        let _ = self.thread.join();
        if let Some(folder) = &self.folder {
            let _ = std::fs::remove_dir(folder);
        }
    }
}

/// The state of the thread.
struct Serving {
    listener: OwnedFd,
    bound: Bound,
    users: Users,
    stop: OwnedFd,
    greeting: Value,
    answer: Answer,
    clients: Vec<Client>,
}

struct Client {
    socket: Socket,
    /// When the client connected or last sent a command.
    last_heard: Instant,
}

impl Serving {
    fn run(mut self) {
        loop {
            let left = self.until_room();
            let mut ready: Vec<PollFd<'_>> = vec![PollFd::new(&self.stop, PollFlags::IN)];
            // If all places are occupied, new clients wait in the queue.
            let flags = if left.is_zero() { PollFlags::IN } else { PollFlags::empty() };
            ready.push(PollFd::new(&self.listener, flags));
            let clients = self.clients.iter();
            ready.extend(clients.map(|client| PollFd::new(&*client.socket, PollFlags::IN)));
            let pause = Timespec::try_from(left).ok().filter(|_| !left.is_zero());
            match rustix::event::poll(&mut ready, pause.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => thread::sleep(NAP),
            }
            let is_ready: Vec<bool> = ready.iter().map(|it| !it.revents().is_empty()).collect();
            if is_ready[0] {
                return;
            }
            let clients = std::mem::take(&mut self.clients);
            for (mut client, is_ready) in clients.into_iter().zip(&is_ready[2..]) {
                if *is_ready {
                    client.last_heard = Instant::now();
                }
                if !is_ready || self.serve(&client.socket) {
                    self.clients.push(client);
                }
            }
            if is_ready[1] && self.until_room().is_zero() {
                self.accept();
            }
        }
    }

    /// The longest time until a place for another client can become free.
    fn until_room(&self) -> Duration {
        match self.longest_silent() {
            Some(index) if self.clients.len() >= CLIENTS_MAX => {
                SILENT_MAX.saturating_sub(self.clients[index].last_heard.elapsed())
            }
            _ => Duration::ZERO,
        }
    }

    fn longest_silent(&self) -> Option<usize> {
        (0..self.clients.len()).min_by_key(|index| self.clients[*index].last_heard)
    }

    fn accept(&mut self) {
        let socket = match socket::accept(&self.listener, Some(Duration::ZERO)) {
            Ok(Some(socket)) => socket,
            Ok(None) => return,
            Err(_) => return thread::sleep(NAP),
        };
        // The close must not block on data that the client sends.
        let Ok(socket) = Socket::adopt(socket) else { return };
        let greeting = self.greeting.to_string();
        let is_allowed = self.users.check_other_end("serve", &*socket).is_ok();
        if !is_allowed || socket::say(&socket, greeting.as_bytes()).is_err() {
            return;
        }
        // Only an allowed client displaces another one.
        if self.clients.len() >= CLIENTS_MAX
            && let Some(index) = self.longest_silent()
        {
            self.clients.swap_remove(index);
        }
        self.clients.push(Client { socket, last_heard: Instant::now() });
    }

    /// Answers a client's command; false if the client must be disconnected.
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

/// Splits a command into its name and its parameters.
fn parts(command: &str) -> (&str, Vec<&str>) {
    let (name, words) = command.split_once(',').unwrap_or((command, ""));
    (name, words.split(',').map(str::trim).filter(|word| !word.is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Telemetry;

    const DEADLINE: Duration = Duration::from_secs(30);

    fn echo(path: &Path) -> Server {
        let answer = |name: &str, words: &[&str]| match name {
            "/echo" => Some(json!(words)),
            "/long" => Some(json!("x".repeat(ANSWER_BYTES_MAX))),
            _ => None,
        };
        Server::start(path, &Users::Own, "haul 1", Box::new(answer)).unwrap()
    }

    #[test]
    fn server_answers_commands_and_removes_its_socket() {
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
        assert!(Server::start(&path, &Users::Own, "haul 2", Box::new(|_, _| None)).is_err());
        drop(server);
        assert!(!path.exists());
        assert!(matches!(first.ask("/echo"), Err(Error::Ended { .. })));
        drop(echo(&path));
    }

    #[test]
    fn oversized_answer_is_null() {
        let folder = tempfile::tempdir().unwrap();
        let server = echo(&folder.path().join("socket"));
        let mut client = Telemetry::connect(server.path(), DEADLINE).unwrap();
        assert!(matches!(client.ask("/long"), Err(Error::Refused { .. })));
    }

    /// The other clients are silent, never read, or disconnect at once.
    #[test]
    fn bad_clients_do_not_delay_others() {
        let folder = tempfile::tempdir().unwrap();
        let server = echo(&folder.path().join("socket"));
        let path = server.path();
        let silent: Vec<_> = (0..3).map(|_| socket::connect(path).unwrap()).collect();
        let deaf = socket::connect(path).unwrap();
        for _ in 0..100_000 {
            // Sends until the client's own queue is full or the client is disconnected.
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

    /// Clients that occupy all places and then are silent give way to new ones; a client that keeps
    /// asking stays.
    #[test]
    fn silent_clients_give_way_to_new_ones() {
        let folder = tempfile::tempdir().unwrap();
        let server = echo(&folder.path().join("socket"));
        let connect = || Telemetry::connect(server.path(), DEADLINE);
        let mut asks = connect().unwrap();
        let mut silent: Vec<_> = (1..CLIENTS_MAX).map(|_| connect().unwrap()).collect();
        silent.iter_mut().for_each(|it| drop(it.ask("/echo,1").unwrap()));
        // The silent ones have been so for longer, also if a thread is late.
        asks.ask("/echo,2").unwrap();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    assert_eq!(asks.ask("/echo,2").unwrap(), json!(["2"]));
                    thread::sleep(SILENT_MAX / 100);
                }
            });
            let waits: Vec<_> = (0..3).map(|_| scope.spawn(connect)).collect();
            // All stay until the last one has come: it would take the place of one that leaves.
            let mut came: Vec<_> =
                waits.into_iter().map(|waits| waits.join().unwrap().unwrap()).collect();
            for came in &mut came {
                assert_eq!(came.ask("/echo,9").unwrap(), json!(["9"]));
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let gone = silent.iter_mut().filter_map(|it| it.ask("/echo,3").err()).count();
        assert_eq!(gone, 3, "one for each new client");
    }

    /// Clients above the limit wait for a place.
    #[test]
    fn full_server_serves_next_client_after_disconnect() {
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
