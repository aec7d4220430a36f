//! A virtual machine's network device, from the host's side: a vhost-user back end.
//!
//! Everything that the guest can write is treated as hostile. An invalid chain costs one packet,
//! which is counted as dropped. A ring whose indices jump, lost memory, or an invalid message
//! ends the conversation, which is counted as a reset: the device then returns to its initial
//! state, and the front end may reconnect. No action of a guest stops another port.
//!
//! From the bottom up:
//!
//! - `inflight`: the progress of the rings, recorded in memory that outlives this process;
//! - `copying`: the copies of a burst by an engine;
//! - `layout`: the layouts of a ring;
//! - `last_conversation`: why the last front end has no link;
//! - `back_off`: how long an empty or a full ring is not polled;
//! - `moderation`: when a driver is called that waits for the chains of a ring from the guest;
//! - `vring`: the configuration of a ring, and the ring that results;
//! - `device`: the configuration of the device, and its rings, which two threads share;
//! - `chain`: a chain of descriptors, followed with every check;
//! - `enqueue`: packets to the guest;
//! - `dequeue`: packets from the guest;
//! - `beside`: packets to the guest that an engine copies;
//! - `device_ring`: a ring that another program manages, for its packets;
//! - `control`: the thread that connects to front ends.

mod back_off;
mod beside;
mod chain;
mod control;
mod copying;
mod dequeue;
mod device;
mod device_ring;
mod enqueue;
mod inflight;
mod last_conversation;
mod layout;
mod moderation;
mod vring;

use std::path::PathBuf;
use std::sync::{Arc, MutexGuard};

use haul_heap::guard;
use rustix::fd::{AsFd, OwnedFd};

use super::contract::{Agreement, Link, Port};
use super::copy::{Copier, CopyMethod};
use super::counters::{Counters, DropReason};
use super::error::Error;
use super::offloads::Offloads;
use super::pool::{BURST_MAX, Burst, Pool};
use super::ring::features;
use super::user_socket::{Role, caller};
use beside::Keeper;
use chain::Scratch;
use control::Control;
use device::Device;
use haul_engine::Queue;
use haul_peer::caller::Caller;
use haul_peer::users::Users;
use layout::Broken;
use vring::Slot;

pub use device_ring::{DeviceRing, Progress};

/// The settings of a vhost port.
#[derive(Clone, Debug)]
pub struct VhostSettings {
    /// The socket.
    pub path: PathBuf,
    /// Which side listens on the socket.
    pub role: Role,
    /// Users whose processes may be at the other end. Processes of other users are refused before
    /// either side sends a byte.
    pub users: Users,
    /// Queue pairs, 1 to 64.
    pub queues: u16,
    /// The function that copies packets.
    pub copy: CopyMethod,
    /// Whether a packet may take several of the guest's buffers. Packets that are longer than one
    /// buffer need this.
    pub is_mergeable: bool,
    /// Whether guest and device may leave work to each other: checksums, and the division of long
    /// packets of TCP. A received packet may then ask for work ([`Pool::header`]), and have up to
    /// 65,597 B; a forwarder's worker does the work that the other port does not take.
    pub has_offloads: bool,
    /// The engine that copies long bursts to the guest while the worker goes on. The port keeps the
    /// packets until their copies have ended. The guest gets whole packets only, in order. A packet
    /// counts as sent when the guest gets it. With `None`, the default, and with an engine that is
    /// the CPU alone, the worker copies.
    pub engine: Option<Queue>,
    /// The worker copies bursts of fewer bytes, and those that [`engine`](Self::engine) leaves to
    /// the CPU, as `auto` does below its break-even size. 16 KiB by default.
    pub engine_bytes_min: usize,
}

impl VhostSettings {
    /// One queue pair, with mergeable buffers, at a socket that this side listens on, for processes
    /// of this user and root.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let (role, users, queues, copy) = (Role::Server, Users::Own, 1, CopyMethod::Haul);
        let (path, engine, engine_bytes_min) = (path.into(), None, beside::BYTES_MIN);
        let (is_mergeable, has_offloads) = (true, false);
        Self {
            path,
            role,
            users,
            queues,
            copy,
            is_mergeable,
            has_offloads,
            engine,
            engine_bytes_min,
        }
    }
}

/// The largest number of queue pairs.
const QUEUES_MAX: u16 = 64;

/// Features that are always offered.
const FEATURES: u64 = features::VERSION_1
    | features::ANY_LAYOUT
    | features::INDIRECT
    | features::EVENT_INDEX
    | features::PACKED
    | features::IN_ORDER
    | features::MULTIQUEUE
    | features::PROTOCOL_FEATURES;

/// The features that these settings offer.
fn offered(settings: &VhostSettings) -> u64 {
    let VhostSettings { is_mergeable, has_offloads, .. } = *settings;
    let mut offered = FEATURES;
    if is_mergeable {
        offered |= features::MERGEABLE;
    }
    if has_offloads {
        offered |= features::FROM_DRIVER | features::TO_DRIVER;
    }
    // Without mergeable buffers, Linux would make each buffer long enough for 64 KiB.
    if has_offloads && is_mergeable {
        offered |= features::LONG_TO_DRIVER;
    }
    offered
}

/// A device whose guest stays connected as long as this value exists: [`Vhost::kept`].
#[derive(Clone, Debug)]
pub struct KeptDevice {
    _control: Arc<Control>,
}

/// A queue pair of a virtual machine's device. If the guest has not enabled the pair, its packets
/// go to an enabled pair, and are counted here.
#[derive(Debug)]
pub struct Vhost {
    name: String,
    queue: u16,
    device: Arc<Device>,
    copier: Copier,
    scratch: Scratch,
    /// Calls the guest. A call never waits for a resource that the guest shares.
    caller: Caller,
    counters: Counters,
    /// The engine, and the packets that are on their way to the guest.
    keeper: Option<Keeper>,
    /// Shared by all queue pairs: the thread ends with the last of them.
    _control: Arc<Control>,
}

impl Vhost {
    /// Opens a device: a port for each of its queue pairs. A server's socket exists when this
    /// returns.
    ///
    /// # Errors
    /// [`Error::Value`] for a number of queue pairs outside the limits; [`Error::Path`] for a
    /// socket that cannot be used; [`Error::System`].
    pub fn open(name: &str, settings: &VhostSettings) -> Result<Vec<Self>, Error> {
        let VhostSettings { queues, role, .. } = *settings;
        if queues == 0 || queues > QUEUES_MAX {
            let (what, value) = ("a number of queue pairs of", queues.to_string());
            return Err(Error::Value { what, value, limit: "choose 1 to 64" });
        }
        let engine = settings.engine.as_ref();
        let keeper = || engine.and_then(|queue| Keeper::of(queue, settings.engine_bytes_min));
        let is_beside = keeper().is_some();
        let device = Arc::new(Device::new(queues, offered(settings), caller()?, is_beside));
        let callers = (0..queues).map(|_| caller()).collect::<Result<Vec<_>, _>>()?;
        let control =
            Arc::new(Control::start(device.clone(), &settings.path, role, &settings.users)?);
        let port = |(queue, caller)| Self {
            name: name.into(),
            queue,
            device: device.clone(),
            copier: Copier::new(settings.copy),
            scratch: Scratch::new(BURST_MAX),
            caller,
            counters: Counters::default(),
            keeper: keeper(),
            _control: control.clone(),
        };
        Ok((0..queues).zip(callers).map(port).collect())
    }

    /// Keeps the device: its guest stays connected after its ports were dropped, but no worker
    /// polls its rings.
    #[must_use]
    pub fn kept(&self) -> KeptDevice {
        KeptDevice { _control: self._control.clone() }
    }

    /// The index of the ring to the guest; the ring from the guest follows it.
    fn ring_to_guest(&self) -> usize {
        2 * usize::from(self.queue)
    }

    /// Calls the driver if its call is what `which` returns for the ring from the guest.
    fn call_if(&self, which: impl FnOnce(&mut Slot) -> Option<Arc<OwnedFd>>) {
        let Some(mut ring) = self.device.ring(self.ring_to_guest() + 1) else { return };
        let call = which(&mut ring);
        drop(ring);
        call.iter().for_each(|call| self.caller.call(call.as_fd()));
    }

    fn drop_all(&mut self, pool: &mut Pool, burst: &mut Burst, reason: DropReason) {
        self.counters.tx.dropped(reason, burst.len() as u64);
        pool.free_burst(burst);
        self.counters.tx.batch(0, 0);
    }
}

/// Ends a burst in either direction: publishes the used chains, calls the guest if `publish` says
/// so, and returns the number of packets. After a fault, disconnects the guest and returns `None`.
#[inline]
fn end_burst(
    device: &Device,
    caller: &Caller,
    mut ring: MutexGuard<'_, Slot>,
    result: Result<usize, Broken>,
    publish: impl FnOnce(&mut Slot) -> Option<Arc<OwnedFd>>,
) -> Option<usize> {
    match result {
        Ok(packets) => {
            let call = publish(&mut ring);
            drop(ring);
            call.iter().for_each(|call| caller.call(call.as_fd()));
            Some(packets)
        }
        Err(Broken) => {
            let is_memory_lost = ring.abandon();
            drop(ring);
            device.disconnect_after_fault(is_memory_lost);
            None
        }
    }
}

impl Port for Vhost {
    fn name(&self) -> &str {
        &self.name
    }

    fn queue(&self) -> u16 {
        self.queue
    }

    fn rx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) -> usize {
        if self.has_kept() {
            self.collect(pool);
        }
        let Self { device, copier, scratch, caller, counters, .. } = self;
        let Some(mut ring) = device.ring(2 * usize::from(self.queue) + 1) else { return 0 };
        if ring.is_changing {
            return 0;
        }
        if ring.lost > 0 {
            counters.rx.dropped(DropReason::Reset, std::mem::take(&mut ring.lost));
        }
        let Some(active) = &mut ring.active else {
            counters.rx.batch(0, 0);
            return 0;
        };
        let result = active.dequeue(pool, burst, copier, scratch, &mut counters.rx);
        end_burst(device, caller, ring, result, Slot::publish_moderated).unwrap_or(0)
    }

    fn tx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) -> usize {
        if self.keeper.is_some() {
            return self.tx_beside(pool, burst);
        }
        let Self { device, queue, copier, scratch, caller, counters, .. } = self;
        // Packets wait while the front end changes the ring.
        let to_guest = device.ring_to_guest(*queue);
        let Some(mut ring) = device.ring_soon(to_guest) else { return 0 };
        if ring.is_changing {
            return 0;
        }
        let Some(active) = &mut ring.active else {
            drop(ring);
            self.drop_all(pool, burst, DropReason::NoLink);
            return 0;
        };
        let result = active.enqueue(pool, burst, copier, scratch, &mut counters.tx);
        end_burst(device, caller, ring, result, Slot::publish).unwrap_or_else(|| {
            self.drop_all(pool, burst, DropReason::Reset);
            0
        })
    }

    fn service(&mut self, pool: &mut Pool) -> Result<(), Error> {
        // A worker whose other port has no room may not ask for packets of this one meanwhile.
        if self.has_kept() {
            self.collect(pool);
        }
        self.call_if(Slot::publish_moderated);
        // The program may have replaced the handler of SIGBUS since the last call. If the guard
        // cannot be installed now, the next call tries again.
        let _ = guard::install();
        self.counters.resets = self.device.resets();
        Ok(())
    }

    /// The work that the guest takes. Without a guest, each packet is dropped, and needs no work.
    fn offloads(&self) -> Offloads {
        match self.device.active_pairs() {
            0 => Offloads::ALL,
            _ => features::to_driver(self.device.negotiated()),
        }
    }

    fn link(&self) -> Link {
        let to_guest = self.ring_to_guest();
        let is_up = self.device.is_active(to_guest) && self.device.is_active(to_guest + 1);
        if is_up { Link::Up } else { Link::Down }
    }

    fn agreement(&self) -> Option<Agreement> {
        self.device.agreement(self.ring_to_guest())
    }

    fn obstacle(&self) -> Option<String> {
        if self.device.active_pairs() > 0 { None } else { self.device.obstacle() }
    }

    fn notes(&self) -> Vec<String> {
        self.device.notes()
    }

    fn drain(&mut self, pool: &mut Pool) -> bool {
        self.collect(pool);
        !self.has_kept()
    }

    fn stop(&mut self, pool: &mut Pool) {
        self.collect_all(pool);
        self.call_if(Slot::take_waiting_call);
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }
}
