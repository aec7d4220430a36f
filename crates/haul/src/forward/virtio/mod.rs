//! A virtual machine's network device, from the guest's side: a vhost-user front end, whose memory
//! is the pool's.
//!
//! haul is the guest then: one process can hold a whole flow through a virtual machine, and any
//! back end can be tried. The back end writes to the rings and the packets as it likes: what it
//! says is checked, and a ring whose words cannot be ends the session, which is counted as a reset;
//! another one begins. The session is begun by a thread of its own, so that no call waits for the
//! back end.
//!
//! From the bottom up:
//!
//! - `layout`: how a ring is laid out;
//! - `queue`: a ring, driven;
//! - `session`: the thread that meets a back end and agrees with it.

mod layout;
mod queue;
mod session;

use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::contract::{Agreement, Link, Port};
use super::counters::{Counters, DropReason};
use super::error::Error;
use super::pool::{Burst, Pool};
use super::ring::features;
use super::user_socket::Role;
use layout::Broken;
use queue::Queue;
use session::{Offer, Opening, Session};

/// How a virtio port is made.
#[derive(Clone, Debug)]
pub struct VirtioSettings {
    /// The socket.
    pub path: PathBuf,
    /// Who listens on it.
    pub role: Role,
    /// Descriptors of each ring: a power of two, 64 to 32,768.
    pub size: u16,
    /// Whether packets may take several buffers.
    pub is_mergeable: bool,
    /// Whether rings are packed, which the back end has to have then; else they are split.
    pub is_packed: bool,
}

impl VirtioSettings {
    /// Split rings of 1,024 with mergeable buffers, at a socket that the back end listens on.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let role = Role::Client;
        Self { path: path.into(), role, size: 1024, is_mergeable: true, is_packed: false }
    }
}

/// The device.
#[derive(Debug)]
pub struct Virtio {
    name: String,
    settings: VirtioSettings,
    /// The rings, in the pool's memory, from the first service on.
    queues: Option<[Queue; 2]>,
    /// A session that is being begun.
    opening: Opening,
    session: Option<Session>,
    is_stopped: bool,
    counters: Counters,
}

/// Rings of the device: to the guest and from it.
const TO_GUEST: usize = 0;
const FROM_GUEST: usize = 1;

/// What the back end must have.
const NEEDED: u64 = features::VERSION_1;

impl Virtio {
    /// A device of one queue pair. It meets its back end from the first [`Port::service`] on; a
    /// server's socket is there when this returns.
    ///
    /// # Errors
    /// [`Error::Value`] for a ring that cannot be; [`Error::Path`] for a socket that cannot be had;
    /// [`Error::System`].
    pub fn open(name: &str, settings: &VirtioSettings) -> Result<Self, Error> {
        let size = settings.size;
        if !size.is_power_of_two() || !(64..=32_768).contains(&size) {
            let (what, value) = ("a ring of", format!("{size} descriptors"));
            return Err(Error::Value { what, value, limit: "powers of two from 64 to 32768 are" });
        }
        let opening = Opening::new(&settings.path, settings.role)?;
        Ok(Self {
            name: name.into(),
            settings: settings.clone(),
            queues: None,
            opening,
            session: None,
            is_stopped: false,
            counters: Counters::default(),
        })
    }

    /// The features that were agreed on, once there is a link.
    #[must_use]
    pub fn features(&self) -> Option<u64> {
        self.session.as_ref().map(Session::features)
    }

    fn wanted(&self) -> u64 {
        let mergeable = if self.settings.is_mergeable { features::MERGEABLE } else { 0 };
        // Of chains that are used in order, a packed ring's device may show the last alone.
        let order = if self.settings.is_packed { features::PACKED } else { features::IN_ORDER };
        features::VERSION_1 | order | mergeable
    }

    /// Begins to meet a back end, with empty rings.
    fn open_session(&mut self, pool: &mut Pool) -> Result<(), Error> {
        let mut queues = match self.queues.take() {
            Some(queues) => queues,
            None => {
                let VirtioSettings { size, is_packed, .. } = self.settings;
                [Queue::new(pool, size, is_packed)?, Queue::new(pool, size, is_packed)?]
            }
        };
        queues.iter_mut().for_each(|queue| queue.reset(pool));
        let offer = Offer {
            memory: session::memory_of(pool)?,
            rings: queues.each_ref().map(Queue::place),
            wanted: self.wanted(),
            needed: NEEDED | if self.settings.is_packed { features::PACKED } else { 0 },
        };
        self.queues = Some(queues);
        self.opening.begin(offer)
    }

    /// Leaves the back end; what the rings held comes back to the pool.
    fn close_session(&mut self, pool: &mut Pool, is_reset: bool) {
        self.session = None;
        self.counters.resets += u64::from(is_reset);
        let mut lost = 0;
        if let Some(queues) = &mut self.queues {
            lost = queues[FROM_GUEST].outstanding() as u64;
            queues.iter_mut().for_each(|queue| queue.reset(pool));
        }
        self.counters.tx.dropped(DropReason::Reset, lost);
    }
}

impl Port for Virtio {
    fn name(&self) -> &str {
        &self.name
    }

    fn rx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) -> usize {
        let (Some(session), Some(queues)) = (&self.session, &mut self.queues) else {
            self.counters.rx.batch(0, 0);
            return 0;
        };
        let queue = &mut queues[TO_GUEST];
        let result = queue.receive(pool, burst, session.features(), &mut self.counters.rx);
        queue.fill(pool, session.header_bytes());
        queue.call(session.kick(TO_GUEST));
        match result {
            Ok(packets) => packets,
            Err(Broken) => {
                self.close_session(pool, true);
                0
            }
        }
    }

    fn tx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) -> usize {
        let (Some(session), Some(queues)) = (&self.session, &mut self.queues) else {
            self.counters.tx.dropped(DropReason::NoLink, burst.len() as u64);
            pool.free_burst(burst);
            self.counters.tx.batch(0, 0);
            return 0;
        };
        let queue = &mut queues[FROM_GUEST];
        let header_bytes = session.header_bytes();
        match queue.send(pool, burst, header_bytes, &mut self.counters.tx) {
            Ok(packets) => {
                queue.call(session.kick(FROM_GUEST));
                packets
            }
            Err(Broken) => {
                self.close_session(pool, true);
                0
            }
        }
    }

    fn service(&mut self, pool: &mut Pool) -> Result<(), Error> {
        if self.is_stopped {
            return Ok(());
        }
        if self.session.as_ref().is_some_and(has_hung_up) {
            self.close_session(pool, false);
        }
        if self.session.is_some() {
            return Ok(());
        }
        if !self.opening.is_begun() {
            return self.open_session(pool);
        }
        if let Some(session) = self.opening.take() {
            if let Some(queues) = &mut self.queues {
                queues[TO_GUEST].fill(pool, session.header_bytes());
                queues[TO_GUEST].call(session.kick(TO_GUEST));
            }
            self.session = Some(session);
        }
        Ok(())
    }

    fn link(&self) -> Link {
        if self.session.is_some() { Link::Up } else { Link::Down }
    }

    fn agreement(&self) -> Option<Agreement> {
        let ring_size = u32::from(self.settings.size);
        self.features().map(|features| Agreement { features, ring_size })
    }

    fn drain(&mut self, pool: &mut Pool) -> bool {
        let (Some(_), Some(queues)) = (&self.session, &mut self.queues) else { return true };
        // One that is broken is found out by the next burst, or goes with the port.
        let _ = queues[FROM_GUEST].reclaim(pool);
        queues[FROM_GUEST].outstanding() == 0
    }

    fn stop(&mut self, pool: &mut Pool) {
        self.is_stopped = true;
        self.opening.stop();
        if let Some(session) = &mut self.session {
            session.stop();
        }
        if let Some(queues) = &mut self.queues {
            let _ = queues[FROM_GUEST].reclaim(pool);
        }
        self.close_session(pool, false);
        if let Some(queues) = self.queues.take() {
            queues.into_iter().for_each(|queue| queue.free(pool));
        }
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }
}

/// Whether the back end has closed the socket, or says what nobody asked for.
fn has_hung_up(session: &Session) -> bool {
    let mut ready = [PollFd::new(session.socket(), PollFlags::IN | PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut ready, Some(&now)).is_ok_and(|count| count > 0)
}
