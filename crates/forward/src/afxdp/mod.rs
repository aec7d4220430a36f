//! A network interface through an AF_XDP socket: packets leave the kernel in shared memory, before
//! its network stack sees them.
//!
//! If the driver supports it, it writes packets directly to that memory; with every other driver,
//! the kernel copies them once. The port receives all packets of its queue. The kernel receives
//! the packets of the interface's other queues.
//!
//! From the bottom up:
//!
//! - `ring`: the rings that are shared with the kernel;
//! - `btf`: the numbers of the kernel's functions that programs may call;
//! - `program`: the program that hands packets to the socket;
//! - `session`: the socket with its memory, its rings and its program.

mod btf;
mod program;
mod ring;
mod session;

use std::fmt;
use std::io;
use std::thread;
use std::time::Duration;

use super::clock::now_ns;
use super::contract::{Link, Port};
use super::counters::{Counters, DropReason};
use super::error::Error;
use super::interface::{CHECK_NS, FRAME_BYTES_MIN, Features, Interface, State, refused, unfit};
use super::pool::{Burst, Pool};
use session::Session;

/// The port: see the module. While its interface is down or absent, no packet arrives, and each
/// packet that is sent is dropped. Packets pass again when the interface returns, or when a new
/// interface of the same name appears. A packet counts as sent when it is in the interface's
/// ring.
pub struct AfXdp {
    name: String,
    queue: u32,
    interface: Interface,
    state: State,
    /// `None` while the interface is absent or cannot be used; `obstacle` then holds the reason.
    session: Option<Session>,
    obstacle: Option<String>,
    features: Features,
    checked_ns: u64,
    is_over: bool,
    counters: Counters,
}

impl fmt::Debug for AfXdp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut value = f.debug_struct("AfXdp");
        value.field("name", &self.name).field("interface", &self.interface.name());
        value.field("queue", &self.queue).field("state", &self.state).finish_non_exhaustive()
    }
}

/// How long an interface may be busy. The kernel frees a queue only some time after the queue's
/// previous socket, such as an earlier run's, was closed.
const FREED_NS: u64 = 3_000_000_000;

/// Drivers that report to XDP the tags that they remove from packets: those of Linux 6.18 that set
/// `xmo_rx_vlan_tag`.
const TAG_DRIVERS: [&str; 3] = ["veth", "ice", "mlx5_core"];

fn is_busy(reason: &io::Error) -> bool {
    matches!(reason.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
}

impl AfXdp {
    /// Opens a port on a queue of the interface of this name. Waits up to three seconds while the
    /// queue is busy.
    ///
    /// # Errors
    /// [`Error::Path`] if the interface does not exist, its packets have no Ethernet header, this
    /// process may not use it, or another program uses it.
    pub fn open(name: &str, interface: &str, queue: u32) -> Result<Self, Error> {
        let (interface, state) = Interface::new(interface)?;
        let started_ns = now_ns();
        let session = loop {
            match Session::open(&state, queue) {
                Ok(session) => break session,
                Err(reason) if is_busy(&reason) && now_ns() - started_ns < FREED_NS => {
                    thread::sleep(Duration::from_millis(5));
                }
                Err(reason) => return Err(refused(interface.name(), reason)),
            }
        };
        let features = interface.features();
        Ok(Self {
            name: name.into(),
            queue,
            interface,
            state,
            session: Some(session),
            obstacle: None,
            features,
            checked_ns: now_ns(),
            is_over: false,
            counters: Counters::default(),
        })
    }

    /// Whether the driver writes packets directly to the port's memory, and whether the program
    /// runs in the driver; `None` while the interface is absent.
    #[must_use]
    pub fn is_zero_copy_and_in_driver(&self) -> Option<(bool, bool)> {
        self.session.as_ref().map(Session::attachment)
    }

    /// Checks whether the interface still exists, and whether its index, MTU or type has changed.
    fn check(&mut self) {
        self.count_lost();
        let state = self.interface.state().ok();
        let about = |it: State| (it.index, it.mtu, it.kind);
        if state.map(about) != Some(about(self.state)) || self.session.is_none() {
            if self.session.take().is_some() {
                self.counters.resets += 1;
            }
            self.obstacle = self.interface.obstacle(state.as_ref());
            // A failed attempt is repeated at the next check.
            if let Some(state) = state.as_ref().filter(|state| state.has_ethernet()) {
                match Session::open(state, self.queue) {
                    Ok(session) => self.session = Some(session),
                    Err(reason) => {
                        self.obstacle = Some(refused(self.interface.name(), reason).to_string());
                    }
                }
                self.features = self.interface.features();
            }
        }
        self.state = state.unwrap_or(State { is_up: false, ..self.state });
    }

    /// Counts the packets for which the kernel had no room in the ring.
    fn count_lost(&mut self) {
        let lost = self.session.as_mut().map_or(0, Session::lost);
        self.counters.rx.dropped(DropReason::Full, lost);
    }
}

impl Port for AfXdp {
    fn name(&self) -> &str {
        &self.name
    }

    fn rx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) -> usize {
        let (mut taken, mut bytes, mut short) = (0, 0, 0);
        if let Some(session) = &mut self.session {
            session.receive(burst.room(), |part| {
                if part.len() < FRAME_BYTES_MIN {
                    short += 1;
                    return true;
                }
                // Without a buffer, the packet stays in the ring. If the ring is full, the kernel
                // drops packets.
                let Some(packet) = pool.take(part.len()) else { return false };
                let is_written = pool.write(&packet, 0, part);
                debug_assert!(is_written, "a packet of {} B holds as many", part.len());
                burst.push(packet);
                (taken, bytes) = (taken + 1, bytes + part.len() as u64);
                true
            });
        }
        self.counters.rx.dropped(DropReason::TooShort, short);
        self.counters.rx.batch(taken, bytes);
        taken
    }

    fn tx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) -> usize {
        let (mut sent, mut bytes) = (0, 0);
        let Some(session) = self.session.as_mut().filter(|_| self.state.is_up && !self.is_over)
        else {
            self.counters.tx.dropped(DropReason::NoLink, burst.len() as u64);
            pool.free_burst(burst);
            self.counters.tx.batch(0, 0);
            return 0;
        };
        session.reclaim();
        let longest = session.longest();
        let mut is_open = true;
        for _ in 0..burst.len() {
            let Some(packet) = burst.pop() else { break };
            let length = pool.length(&packet);
            let too_long = (length > longest).then_some(DropReason::TooLong);
            if let Some(reason) = unfit(pool, &packet, self.state.mtu).or(too_long) {
                self.counters.tx.dropped(reason, 1);
            } else {
                is_open = is_open
                    && session.fill(length, |target| {
                        let is_read = pool.read(&packet, 0, target);
                        debug_assert!(is_read, "a packet holds its length");
                    });
                if !is_open {
                    // This packet and all later ones move to the back, so that their order stays.
                    burst.push(packet);
                    continue;
                }
                (sent, bytes) = (sent + 1, bytes + length as u64);
            }
            pool.free(packet);
        }
        session.send();
        self.counters.tx.batch(sent, bytes);
        sent
    }

    fn service(&mut self, _: &mut Pool) -> Result<(), Error> {
        let now_ns = now_ns();
        if let Some(session) = &mut self.session {
            session.push();
        }
        if now_ns - self.checked_ns >= CHECK_NS && !self.is_over {
            self.checked_ns = now_ns;
            self.check();
        }
        Ok(())
    }

    fn link(&self) -> Link {
        let is_there = self.session.is_some() || self.is_over;
        if self.state.is_up && is_there { Link::Up } else { Link::Down }
    }

    fn obstacle(&self) -> Option<String> {
        let is_there = self.session.is_some();
        let state = is_there.then(|| self.interface.obstacle(Some(&self.state))).flatten();
        state.or_else(|| self.obstacle.clone().filter(|_| !is_there && !self.is_over))
    }

    fn notes(&self) -> Vec<String> {
        let name = self.interface.name();
        let Features { driver, takes_tags, .. } = &self.features;
        let asks = self.session.as_ref().is_none_or(Session::restores_tags);
        let has_tags = asks && TAG_DRIVERS.contains(&&**driver);
        let mut notes = Vec::new();
        if driver == "veth" {
            // The other end may be in a network namespace that this process cannot see.
            notes.push(format!(
                "packets that a kernel sends into the other end of {name} arrive with incomplete \
                 checksums, which XDP does not report: ethtool -K PEER tx off at that end, or use \
                 afpacket"
            ));
            if !has_tags {
                notes.push(format!(
                    "packets that a kernel sends into the other end of {name} arrive without \
                     their VLAN tags, which XDP does not see: ethtool -K PEER txvlan off at that \
                     end, or use afpacket"
                ));
            }
        } else if *takes_tags && !has_tags {
            notes.push(format!(
                "{name} removes VLAN tags from packets before XDP sees them: ethtool -K {name} \
                 rxvlan off, or use afpacket"
            ));
        }
        notes
    }

    fn drain(&mut self, _: &mut Pool) -> bool {
        !self.state.is_up || self.session.as_mut().is_none_or(Session::push)
    }

    fn stop(&mut self, _: &mut Pool) {
        self.count_lost();
        self.session = None;
        self.is_over = true;
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }
}
