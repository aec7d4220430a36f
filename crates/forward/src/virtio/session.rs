//! The thread that connects to a back end and negotiates with it. No port waits for this thread.

use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::error::Error;
use crate::messages::{Frontend, Kick, RingAt};
use crate::pool::Pool;
use crate::ring::features;
use crate::user_socket::{Endpoint, RETRY_NS, Role, Wake};
use haul_peer::fork::{Here, Thread};
use haul_peer::guest::Described;
use haul_peer::socket::refuse_descriptors;
use haul_peer::users::Users;

/// How long a back end may need for one answer. After that, the next attempt begins.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a back end may need to stop each ring of a queue pair when the port is stopped. The
/// port waits for this.
const STOP_TIMEOUT: Duration = Duration::from_millis(100);

/// The shared memory: a file of one region, at this process's own addresses.
#[derive(Debug)]
pub(super) struct SharedMemory {
    file: OwnedFd,
    region: Described,
}

/// The whole memory of the pool.
pub(super) fn memory_of(pool: &Pool) -> Result<SharedMemory, Error> {
    let memory = pool.memory();
    let file = cloned(memory.file())?;
    let start = memory.base().as_ptr().expose_provenance() as u64;
    let region = Described { guest: start, peer: start, bytes: memory.bytes() as u64, offset: 0 };
    Ok(SharedMemory { file, region })
}

fn cloned(file: BorrowedFd<'_>) -> Result<OwnedFd, Error> {
    file.try_clone_to_owned().map_err(|reason| Error::System {
        attempt: "share the pool's memory",
        reason,
        remedy: "raise the limit of files (ulimit -n)",
    })
}

/// The offer of a queue pair: the rings to the guest and from it, and the memory that holds them.
#[derive(Debug)]
pub(super) struct PairOffer {
    pub(super) memory: SharedMemory,
    pub(super) rings: [RingAt; 2],
}

/// The offer to a back end.
#[derive(Debug)]
pub(super) struct Offer {
    memory: Vec<SharedMemory>,
    rings: Vec<RingAt>,
    wanted: u64,
    needed: u64,
}

impl Offer {
    /// Combines the offers of all queue pairs. Pairs of one worker have the same memory, which is
    /// offered once.
    ///
    /// # Errors
    /// [`Error::System`]: the process has no descriptor left.
    pub(super) fn of(pairs: &[&PairOffer], wanted: u64, needed: u64) -> Result<Self, Error> {
        let mut memory: Vec<SharedMemory> = Vec::new();
        for PairOffer { memory: SharedMemory { file, region }, .. } in pairs {
            if memory.iter().all(|other| other.region.peer != region.peer) {
                memory.push(SharedMemory { file: cloned(file.as_fd())?, region: *region });
            }
        }
        let rings = pairs.iter().flat_map(|part| part.rings).collect();
        Ok(Self { memory, rings, wanted, needed })
    }
}

/// The connection to a back end after the negotiation.
pub(super) struct Session {
    frontend: Mutex<Frontend>,
    socket: UnixStream,
    features: u64,
    kicks: Vec<Kick>,
    is_over: AtomicBool,
    /// The process that owns the session.
    here: Here,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("features", &self.features).finish_non_exhaustive()
    }
}

impl Session {
    pub(super) fn features(&self) -> u64 {
        self.features
    }

    pub(super) fn header_bytes(&self) -> usize {
        features::header_bytes(self.features)
    }

    pub(super) fn kick(&self, ring: usize) -> Option<&Kick> {
        self.kicks.get(ring)
    }

    /// Whether the session is over: the back end has closed the socket or sent an unexpected
    /// message, or a queue pair has ended the session.
    pub(super) fn is_over(&self) -> bool {
        let mut ready = [PollFd::new(&self.socket, PollFlags::IN | PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        self.is_over.load(Ordering::Relaxed)
            || poll(&mut ready, Some(&now)).is_ok_and(|count| count > 0)
    }

    /// Ends the session for all queue pairs.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        // The socket may be closed already.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }

    /// Stops some of the rings through the back end. Disconnects a back end that does not answer
    /// in time. The socket's own timeout does not suffice, because the code that waits for the
    /// answer retries after that timeout. Therefore a thread waits for the answers, and the end
    /// of the connection ends this wait.
    pub(super) fn stop(&self, rings: Range<usize>) {
        let limit = STOP_TIMEOUT * u32::try_from(rings.len()).unwrap_or(1);
        let (done, is_done) = mpsc::channel();
        let ask = move || {
            let mut frontend = locked(&self.frontend);
            let is_stopped = rings.into_iter().all(|ring| frontend.stop(ring).is_ok());
            // The receiver may have given up already.
            let _ = done.send(is_stopped);
        };
        thread::scope(|scope| {
            let asking = thread::Builder::new().name("haul-virtio".into()).spawn_scoped(scope, ask);
            if asking.is_err() || is_done.recv_timeout(limit).is_err() {
                self.end();
            }
        });
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // In a child of fork, the session is the parent's.
        if self.here.is_here() {
            self.end();
        }
    }
}

/// The state that the thread and the port share.
#[derive(Debug, Default)]
struct Shared {
    result: Mutex<Option<Session>>,
    /// The socket of the present attempt.
    socket: Mutex<Option<UnixStream>>,
    /// Why the negotiation with the last back end failed.
    obstacle: Mutex<Option<String>>,
    is_stopped: AtomicBool,
}

/// A connection attempt that runs, or can be started.
#[derive(Debug)]
pub(super) struct Connector {
    endpoint: Arc<Endpoint>,
    wake: Wake,
    shared: Arc<Shared>,
    thread: Option<Thread>,
    /// The process that connects.
    here: Here,
}

fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connector {
    pub(super) fn new(path: &Path, role: Role, users: &Users) -> Result<Self, Error> {
        let (wake, endpoint) = (Wake::new()?, Arc::new(Endpoint::new(path, role, users)?));
        let here = Here::now();
        Ok(Self { endpoint, wake, shared: Arc::default(), thread: None, here })
    }

    pub(super) fn is_begun(&self) -> bool {
        self.thread.is_some()
    }

    /// Why the negotiation with the last back end failed; `None` before the first attempt and after
    /// a success.
    pub(super) fn obstacle(&self) -> Option<String> {
        locked(&self.shared.obstacle).clone()
    }

    /// Records that a back end was disconnected, with the reason.
    pub(super) fn record_disconnect(&self, why: String) {
        *locked(&self.shared.obstacle) = Some(why);
    }

    /// Starts to connect.
    pub(super) fn begin(&mut self, offer: Offer) -> Result<(), Error> {
        let (endpoint, wake) = (self.endpoint.clone(), self.wake.clone());
        let shared = self.shared.clone();
        let started = thread::Builder::new()
            .name("haul-virtio".into())
            .spawn(move || connect(&endpoint, &wake, &shared, &offer));
        let thread = started.map_err(|reason| Error::System {
            attempt: "start a thread for vhost-user's messages",
            reason,
            remedy: "raise the limit of processes (ulimit -u)",
        })?;
        self.thread = Some(Thread::new(thread));
        Ok(())
    }

    /// The session, if the negotiation has succeeded.
    pub(super) fn take(&mut self) -> Option<Session> {
        let session = locked(&self.shared.result).take()?;
        self.join();
        Some(session)
    }

    /// Ends the attempt in any state.
    pub(super) fn stop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::SeqCst);
        self.wake.wake();
        if let Some(socket) = &*locked(&self.shared.socket) {
            // The socket may be closed already.
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
        self.join();
        *locked(&self.shared.result) = None;
    }

    fn join(&mut self) {
        if let Some(mut thread) = self.thread.take() {
            // The thread ends with a session or without one.
            let _ = thread.join();
        }
        *locked(&self.shared.socket) = None;
    }
}

impl Drop for Connector {
    /// A child of fork has only copies of the descriptors: the back end is its parent's.
    fn drop(&mut self) {
        if self.here.is_here() {
            self.stop();
        }
    }
}

/// Connects to back ends until the negotiation with one succeeds.
fn connect(endpoint: &Endpoint, wake: &Wake, shared: &Shared, offer: &Offer) {
    let is_stopped = || shared.is_stopped.load(Ordering::SeqCst);
    while !is_stopped() {
        let socket = match endpoint.wait(wake) {
            Ok(Some(socket)) => socket,
            Ok(None) => continue,
            Err(why) => {
                *locked(&shared.obstacle) = Some(why);
                continue;
            }
        };
        refuse_descriptors(socket.as_fd());
        let Ok(other) = socket.try_clone() else {
            // The process has no descriptors left.
            wake.pause(RETRY_NS);
            continue;
        };
        *locked(&shared.socket) = Some(other);
        if is_stopped() {
            return;
        }
        let negotiated = negotiate(socket, offer);
        // A failure is not a reason to report if the stopped port closed its own socket.
        if negotiated.is_ok() || !is_stopped() {
            *locked(&shared.obstacle) = negotiated.as_ref().err().cloned();
        }
        match negotiated {
            Ok(session) => {
                *locked(&shared.result) = Some(session);
                return;
            }
            Err(_) => wake.pause(RETRY_NS),
        }
    }
}

fn negotiate(socket: UnixStream, offer: &Offer) -> Result<Session, String> {
    let text = |error: std::io::Error| error.to_string();
    socket.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(text)?;
    socket.set_write_timeout(Some(ANSWER_TIMEOUT)).map_err(text)?;
    let other = socket.try_clone().map_err(text)?;
    let mut frontend = Frontend::new(socket, offer.rings.len());
    let pairs = offer.rings.len() as u64 / 2;
    let features = frontend.negotiate(&other, offer.wanted, offer.needed, pairs)?;
    let memory = offer.memory.iter();
    let memory: Vec<_> = memory.map(|memory| (memory.file.as_fd(), memory.region)).collect();
    frontend.share(&memory)?;
    let kicks = frontend.start(&offer.rings, features)?;
    let (frontend, is_over) = (Mutex::new(frontend), AtomicBool::new(false));
    Ok(Session { frontend, socket: other, features, kicks, is_over, here: Here::now() })
}
