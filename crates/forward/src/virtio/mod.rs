//! A virtual machine's network device, from the guest's side: a vhost-user front end, whose memory
//! is the pool's.
//!
//! haul is the guest here, so that one process can hold a whole flow through a virtual machine, and
//! any back end can be tested. The back end may write anything to the rings and the packets: its
//! values are checked. An invalid ring ends the session, which is counted as a reset, and another
//! session begins. A separate thread connects, so that no call waits for the back end.
//!
//! From the bottom up:
//!
//! - `layout`: the layouts of a ring;
//! - `queue`: a driver's ring;
//! - `session`: the thread that connects to a back end and negotiates with it;
//! - `device`: the session that several queue pairs share.

mod device;
mod layout;
mod queue;
mod session;

use std::path::PathBuf;
use std::sync::Arc;

use haul_heap::guard;

use super::clock::now_ns;
use super::contract::{Agreement, Link, Port};
use super::counters::{Counters, DropReason};
use super::error::Error;
use super::pool::{Burst, Pool};
use super::ring::features;
use super::user_socket::{Role, caller};
use device::Device;
use haul_peer::caller::Caller;
use haul_peer::users::Users;
use layout::Broken;
use queue::Queue;
use session::{Connector, PairOffer, Session};

/// The settings of a virtio port.
#[derive(Clone, Debug)]
pub struct VirtioSettings {
    /// The socket.
    pub path: PathBuf,
    /// Which side listens on the socket.
    pub role: Role,
    /// Users whose processes may be at the other end. Processes of other users are refused before
    /// the pool's memory is shared, because the back end can read and write all of that memory.
    pub users: Users,
    /// Queue pairs, 1 to 8; the back end must have as many.
    pub queues: u16,
    /// The number of descriptors per ring: a power of two, 64 to 32,768.
    pub size: u16,
    /// Whether a packet may use several buffers.
    pub is_mergeable: bool,
    /// Whether rings are packed, which the back end must then support; otherwise they are split.
    pub is_packed: bool,
    /// Whether buffers are used in the order in which they were made available, if the back end
    /// supports this.
    pub is_in_order: bool,
}

impl VirtioSettings {
    /// One queue pair of split rings with 1,024 descriptors and mergeable buffers, used in order.
    /// The back end listens on the socket, and is a process of this user or root.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            role: Role::Client,
            users: Users::Own,
            queues: 1,
            size: 1024,
            is_mergeable: true,
            is_packed: false,
            is_in_order: true,
        }
    }
}

/// The largest number of queue pairs: each may have memory of its own, and DPDK's back end
/// accepts 8 regions.
const QUEUES_MAX: u16 = 8;

/// A queue pair of the device. Its rings lie in the memory of the pool that its first
/// [`Port::service`] receives, until the port is stopped or dropped.
///
/// # Panics
/// Every call with another pool panics, from the first service until the port is stopped.
#[derive(Debug)]
pub struct Virtio {
    name: String,
    pair: u16,
    size: u16,
    is_packed: bool,
    /// The rings in the pool's memory, after the first service.
    queues: Option<[Queue; 2]>,
    device: Arc<Device>,
    session: Option<Arc<Session>>,
    is_stopped: bool,
    /// The time of the next attempt to mend the pool's memory, if some of its pages are missing.
    mends_ns: u64,
    /// Calls the back end. A call never waits for a resource that the back end shares.
    caller: Caller,
    counters: Counters,
}

/// Time between two attempts to mend the pool's memory.
const MEND_NS: u64 = 100_000_000;

/// Why a back end was disconnected.
const INVALID_RING: &str = "a ring held values that no device writes";
const LOST_PAGES: &str = "it removed pages of the pool's memory, and the system has no others";

/// The rings of a pair: to the guest and from it.
const TO_GUEST: usize = 0;
const FROM_GUEST: usize = 1;

/// Features that the back end must have.
const NEEDED: u64 = features::VERSION_1;

impl Virtio {
    /// Opens a device: a port for each of its queue pairs. It connects to its back end after the
    /// first [`Port::service`] of every port. A server's socket exists when this returns.
    ///
    /// # Errors
    /// [`Error::Value`] for a ring size or a number of queue pairs outside the limits;
    /// [`Error::Path`] for a socket that cannot be used; [`Error::System`].
    pub fn open(name: &str, settings: &VirtioSettings) -> Result<Vec<Self>, Error> {
        let VirtioSettings { role, queues, size, is_packed, .. } = *settings;
        if !size.is_power_of_two() || !(64..=32_768).contains(&size) {
            let (what, value) = ("a ring of", format!("{size} descriptors"));
            return Err(Error::Value {
                what,
                value,
                limit: "choose a power of two from 64 to 32768",
            });
        }
        if queues == 0 || queues > QUEUES_MAX {
            let (what, value) = ("a number of queue pairs of", queues.to_string());
            return Err(Error::Value { what, value, limit: "choose 1 to 8" });
        }
        let connector = Connector::new(&settings.path, role, &settings.users)?;
        let needed = NEEDED | if is_packed { features::PACKED } else { 0 };
        let device = Arc::new(Device::new(connector, queues, wanted(settings), needed));
        let callers = (0..queues).map(|_| caller()).collect::<Result<Vec<_>, _>>()?;
        let port = |(pair, caller)| Self {
            name: name.into(),
            pair,
            size,
            is_packed,
            queues: None,
            device: device.clone(),
            session: None,
            is_stopped: false,
            mends_ns: 0,
            caller,
            counters: Counters::default(),
        };
        Ok((0..queues).zip(callers).map(port).collect())
    }

    /// The negotiated features, if there is a link.
    #[must_use]
    pub fn features(&self) -> Option<u64> {
        self.session.as_ref().map(|session| session.features())
    }

    /// The index of this pair's first ring in the device.
    fn ring(&self) -> usize {
        2 * usize::from(self.pair)
    }

    /// Panics if the rings lie in another pool: the port must be driven with one pool.
    #[inline]
    fn check(&self, pool: &Pool) {
        if let Some(queues) = &self.queues {
            assert!(queues[TO_GUEST].is_of(pool), "a virtio port must be driven with one pool");
        }
    }

    /// Joins the session if there is one; otherwise waits for one, with empty rings.
    fn join_session(&mut self, pool: &mut Pool) -> Result<(), Error> {
        let Self { size, is_packed, queues, .. } = self;
        let session = self.device.join(self.pair, || {
            let made = match queues.take() {
                Some(made) => made,
                None => {
                    [Queue::new(pool, *size, *is_packed)?, Queue::new(pool, *size, *is_packed)?]
                }
            };
            let made = queues.insert(made);
            made.iter_mut().for_each(|queue| queue.reset(pool));
            let rings = made.each_ref().map(Queue::location);
            Ok(PairOffer { memory: session::memory_of(pool)?, rings })
        })?;
        if let (Some(session), Some(queues)) = (&session, &mut self.queues) {
            let (features, first) = (session.features(), 2 * usize::from(self.pair));
            queues[TO_GUEST].begin(features, true);
            queues[FROM_GUEST].begin(features, false);
            queues[TO_GUEST].fill(pool, session.header_bytes());
            queues[TO_GUEST].call(&self.caller, session.kick(first + TO_GUEST));
        }
        self.session = session;
        Ok(())
    }

    /// Ends the session after a fault of the back end.
    fn end_session(&mut self, pool: &mut Pool) {
        if let Some(session) = &self.session {
            session.end();
        }
        self.counters.resets += 1;
        self.leave_session(pool);
        let why = if pool.memory().is_broken() { LOST_PAGES } else { INVALID_RING };
        self.device.record_disconnect(format!("the back end was disconnected: {why}"));
    }

    /// Whether a back end would see the pool's memory as this process sees it. Replaces missing
    /// pages as soon as the system has free ones.
    fn is_whole(&mut self, pool: &Pool) -> bool {
        if !pool.memory().is_broken() {
            return true;
        }
        let now_ns = now_ns();
        if now_ns < self.mends_ns {
            return false;
        }
        self.mends_ns = now_ns + MEND_NS;
        let Err(why) = pool.memory().mend() else { return true };
        let pages = if pool.memory().is_huge() { "huge pages (vm.nr_hugepages)" } else { "memory" };
        self.device.record_disconnect(format!(
            "the back end was disconnected: {LOST_PAGES} ({why}): free {pages}"
        ));
        false
    }

    /// Leaves the session, and returns the packets in the rings to the pool. Packets that the back
    /// end had not returned were counted as sent when they were handed over; whether the back end
    /// processed them is unknown.
    fn leave_session(&mut self, pool: &mut Pool) {
        self.session = None;
        if let Some(queues) = &mut self.queues {
            queues.iter_mut().for_each(|queue| queue.reset(pool));
        }
    }
}

/// The features that a device requests.
fn wanted(settings: &VirtioSettings) -> u64 {
    let if_so = |is_so: bool, feature: u64| if is_so { feature } else { 0 };
    features::VERSION_1
        | if_so(settings.is_mergeable, features::MERGEABLE)
        | if_so(settings.is_packed, features::PACKED)
        | if_so(settings.is_in_order, features::IN_ORDER)
        | if_so(settings.queues > 1, features::MULTIQUEUE)
}

impl Port for Virtio {
    fn name(&self) -> &str {
        &self.name
    }

    fn queue(&self) -> u16 {
        self.pair
    }

    fn rx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) -> usize {
        self.check(pool);
        let ring = self.ring();
        let (Some(session), Some(queues)) = (&self.session, &mut self.queues) else {
            self.counters.rx.batch(0, 0);
            return 0;
        };
        let queue = &mut queues[TO_GUEST];
        let result = queue.receive(pool, burst, session.features(), &mut self.counters.rx);
        queue.fill(pool, session.header_bytes());
        queue.call(&self.caller, session.kick(ring + TO_GUEST));
        match result {
            Ok(packets) => packets,
            Err(Broken) => {
                self.end_session(pool);
                0
            }
        }
    }

    fn tx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) -> usize {
        self.check(pool);
        let ring = self.ring();
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
                queue.call(&self.caller, session.kick(ring + FROM_GUEST));
                packets
            }
            Err(Broken) => {
                self.end_session(pool);
                0
            }
        }
    }

    fn service(&mut self, pool: &mut Pool) -> Result<(), Error> {
        self.check(pool);
        if self.is_stopped {
            return Ok(());
        }
        // The program may have replaced the handler of SIGBUS since the last call. If the guard
        // cannot be installed now, the next call tries again.
        let _ = guard::install();
        if self.session.is_some() && pool.memory().is_broken() {
            self.end_session(pool);
        }
        if self.session.as_ref().is_some_and(|session| session.is_over()) {
            if let Some(session) = &self.session {
                session.end();
            }
            self.leave_session(pool);
        }
        if self.session.is_some() || !self.is_whole(pool) {
            return Ok(());
        }
        self.join_session(pool)
    }

    fn link(&self) -> Link {
        if self.session.is_some() { Link::Up } else { Link::Down }
    }

    fn agreement(&self) -> Option<Agreement> {
        let ring_size = u32::from(self.size);
        self.features().map(|features| Agreement { features, ring_size })
    }

    fn obstacle(&self) -> Option<String> {
        if self.session.is_some() { None } else { self.device.obstacle() }
    }

    fn drain(&mut self, pool: &mut Pool) -> bool {
        self.check(pool);
        let (Some(_), Some(queues)) = (&self.session, &mut self.queues) else { return true };
        // The next burst detects a broken ring; otherwise the ring ends with the port.
        let _ = queues[FROM_GUEST].reclaim(pool);
        queues[FROM_GUEST].outstanding() == 0
    }

    fn stop(&mut self, pool: &mut Pool) {
        self.check(pool);
        self.is_stopped = true;
        self.device.stop();
        if let Some(session) = &self.session {
            session.stop(self.ring()..self.ring() + 2);
        }
        if let Some(queues) = &mut self.queues {
            let _ = queues[FROM_GUEST].reclaim(pool);
        }
        self.leave_session(pool);
        self.queues = None;
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }
}
