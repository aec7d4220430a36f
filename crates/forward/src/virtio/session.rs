//! The thread that meets a back end and agrees with it. Nothing waits for it.

use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

use super::super::error::Error;
use super::super::messages::{Frontend, Kick, RingAt};
use super::super::pool::Pool;
use super::super::ring::features;
use super::super::user_socket::{Meeting, RETRY_NS, Role, Wake};
use haul_peer::fork::{Here, Thread};
use haul_peer::guest::Described;
use haul_peer::socket::refuse_descriptors;
use haul_peer::users::Users;

/// How long a back end may take for one answer, before another try.
const ANSWER: Duration = Duration::from_secs(2);

/// How long it may take for all of a queue pair as the port is stopped: that is waited for.
const ANSWER_AT_STOP: Duration = Duration::from_millis(100);

/// The memory that is shared: a file of one region, at this process's own addresses.
#[derive(Debug)]
pub(super) struct SharedMemory {
    file: OwnedFd,
    region: Described,
}

/// All of the pool's memory.
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

/// What a queue pair brings: the rings to the guest and from it, and the memory that they lie in.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) memory: SharedMemory,
    pub(super) rings: [RingAt; 2],
}

/// What a back end is offered.
#[derive(Debug)]
pub(super) struct Offer {
    memory: Vec<SharedMemory>,
    rings: Vec<RingAt>,
    wanted: u64,
    needed: u64,
}

impl Offer {
    /// Of all queue pairs. Those of one worker have the same memory, which is offered once.
    ///
    /// # Errors
    /// [`Error::System`]: the process has no descriptor left.
    pub(super) fn of(parts: &[&Part], wanted: u64, needed: u64) -> Result<Self, Error> {
        let mut memory: Vec<SharedMemory> = Vec::new();
        for Part { memory: SharedMemory { file, region }, .. } in parts {
            if memory.iter().all(|other| other.region.peer != region.peer) {
                memory.push(SharedMemory { file: cloned(file.as_fd())?, region: *region });
            }
        }
        let rings = parts.iter().flat_map(|part| part.rings).collect();
        Ok(Self { memory, rings, wanted, needed })
    }
}

/// A back end that has agreed.
pub(super) struct Session {
    frontend: Mutex<Frontend>,
    socket: UnixStream,
    features: u64,
    kicks: Vec<Kick>,
    is_over: AtomicBool,
    /// The process that has it.
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

    /// Whether nothing comes of it any more: the back end has closed the socket, or says what
    /// nobody asked for, or a queue pair has ended it.
    pub(super) fn is_over(&self) -> bool {
        let mut ready = [PollFd::new(&self.socket, PollFlags::IN | PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        self.is_over.load(Ordering::Relaxed)
            || poll(&mut ready, Some(&now)).is_ok_and(|count| count > 0)
    }

    /// Ends it, for all queue pairs.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        // It may be closed already.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }

    /// Has the back end stop some of its rings. One that does not answer in time is left. The
    /// socket's own limit of time does not do: what waits for the answer waits again behind it. So
    /// a thread waits for the answers, and the end of the conversation ends that.
    pub(super) fn stop(&self, rings: Range<usize>) {
        let limit = ANSWER_AT_STOP * u32::try_from(rings.len()).unwrap_or(1);
        let (done, is_done) = mpsc::channel();
        let ask = move || {
            let mut frontend = locked(&self.frontend);
            let is_stopped = rings.into_iter().all(|ring| frontend.stop(ring).is_ok());
            // Nobody may wait any more.
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
        // In a child of fork it is the parent's.
        if self.here.is_here() {
            self.end();
        }
    }
}

/// What the thread and the port share.
#[derive(Debug, Default)]
struct Common {
    result: Mutex<Option<Session>>,
    /// The socket of the attempt that is under way.
    socket: Mutex<Option<UnixStream>>,
    /// Why the last back end that was met did not agree.
    obstacle: Mutex<Option<String>>,
    is_stopped: AtomicBool,
}

/// A session that is begun, or can be.
#[derive(Debug)]
pub(super) struct Opening {
    meeting: Arc<Meeting>,
    wake: Wake,
    common: Arc<Common>,
    thread: Option<Thread>,
    /// The process that meets the back end.
    here: Here,
}

fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Opening {
    pub(super) fn new(path: &Path, role: Role, users: &Users) -> Result<Self, Error> {
        let (wake, meeting) = (Wake::new()?, Arc::new(Meeting::new(path, role, users)?));
        let here = Here::now();
        Ok(Self { meeting, wake, common: Arc::default(), thread: None, here })
    }

    pub(super) fn is_begun(&self) -> bool {
        self.thread.is_some()
    }

    /// Why the last back end that was met did not agree; `None` where none was, or one has.
    pub(super) fn obstacle(&self) -> Option<String> {
        locked(&self.common.obstacle).clone()
    }

    /// A back end was left, for this reason.
    pub(super) fn left(&self, why: String) {
        *locked(&self.common.obstacle) = Some(why);
    }

    /// Begins to meet a back end.
    pub(super) fn begin(&mut self, offer: Offer) -> Result<(), Error> {
        let (meeting, wake) = (self.meeting.clone(), self.wake.clone());
        let common = self.common.clone();
        let started = thread::Builder::new()
            .name("haul-virtio".into())
            .spawn(move || meet(&meeting, &wake, &common, &offer));
        let thread = started.map_err(|reason| Error::System {
            attempt: "start a thread for vhost-user's messages",
            reason,
            remedy: "raise the limit of processes (ulimit -u)",
        })?;
        self.thread = Some(Thread::new(thread));
        Ok(())
    }

    /// The session, if the back end has agreed by now.
    pub(super) fn take(&mut self) -> Option<Session> {
        let session = locked(&self.common.result).take()?;
        self.join();
        Some(session)
    }

    /// Ends it, whatever the back end does.
    pub(super) fn stop(&mut self) {
        self.common.is_stopped.store(true, Ordering::SeqCst);
        self.wake.wake();
        if let Some(socket) = &*locked(&self.common.socket) {
            // It may be closed already.
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
        self.join();
        *locked(&self.common.result) = None;
    }

    fn join(&mut self) {
        if let Some(mut thread) = self.thread.take() {
            // It ends with a session or without one.
            let _ = thread.join();
        }
        *locked(&self.common.socket) = None;
    }
}

impl Drop for Opening {
    /// A child of fork has copies of the descriptors alone: the back end is its parent's.
    fn drop(&mut self) {
        if self.here.is_here() {
            self.stop();
        }
    }
}

/// Meets back ends until one agrees.
fn meet(meeting: &Meeting, wake: &Wake, common: &Common, offer: &Offer) {
    let is_stopped = || common.is_stopped.load(Ordering::SeqCst);
    while !is_stopped() {
        let socket = match meeting.wait(wake) {
            Ok(Some(socket)) => socket,
            Ok(None) => continue,
            Err(why) => {
                *locked(&common.obstacle) = Some(why);
                continue;
            }
        };
        refuse_descriptors(socket.as_fd());
        let Ok(other) = socket.try_clone() else {
            // The process may open no more files.
            wake.pause(RETRY_NS);
            continue;
        };
        *locked(&common.socket) = Some(other);
        if is_stopped() {
            return;
        }
        let agreed = agree(socket, offer);
        // What a port that is stopped does to its own socket is nobody's reason.
        if agreed.is_ok() || !is_stopped() {
            *locked(&common.obstacle) = agreed.as_ref().err().cloned();
        }
        match agreed {
            Ok(session) => {
                *locked(&common.result) = Some(session);
                return;
            }
            Err(_) => wake.pause(RETRY_NS),
        }
    }
}

fn agree(socket: UnixStream, offer: &Offer) -> Result<Session, String> {
    let text = |error: std::io::Error| error.to_string();
    socket.set_read_timeout(Some(ANSWER)).map_err(text)?;
    socket.set_write_timeout(Some(ANSWER)).map_err(text)?;
    let other = socket.try_clone().map_err(text)?;
    let mut frontend = Frontend::new(socket, offer.rings.len());
    let pairs = offer.rings.len() as u64 / 2;
    let features = frontend.agree(&other, offer.wanted, offer.needed, pairs)?;
    let memory = offer.memory.iter();
    let memory: Vec<_> = memory.map(|memory| (memory.file.as_fd(), memory.region)).collect();
    frontend.share(&memory)?;
    let kicks = frontend.start(&offer.rings, features)?;
    let (frontend, is_over) = (Mutex::new(frontend), AtomicBool::new(false));
    Ok(Session { frontend, socket: other, features, kicks, is_over, here: Here::now() })
}
