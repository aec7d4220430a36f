//! An interface of the kernel's, by a socket of XDP: packets leave the kernel before it looks at
//! them, in shared memory.
//!
//! Where the driver can, it writes packets straight to that memory; with every other driver the
//! kernel copies them once. What comes by the port's queue comes to it alone; the interface's other
//! queues are left to the kernel.
//!
//! From the bottom up:
//!
//! - `ring`: the rings that are shared with the kernel;
//! - `btf`: where the kernel's functions are that programs may call;
//! - `program`: the program that hands packets to the socket;
//! - `session`: the socket with both, and its memory.

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
use super::interface::{FRAME_BYTES_MIN, Features, Interface, LOOK_NS, State, refused, unfit};
use super::pool::{Burst, Pool};
use session::Session;

/// The port: see the module. While its interface is down or away, nothing comes, and what is sent
/// is dropped; when it is there again, also as a new one of the same name, packets go through
/// again. A packet counts as sent when the interface's ring has it.
pub struct AfXdp {
    name: String,
    queue: u32,
    interface: Interface,
    state: State,
    /// `None` while the interface is away, or cannot be used; then why.
    session: Option<Session>,
    obstacle: Option<String>,
    features: Features,
    looked_ns: u64,
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

/// How long an interface may be busy: the kernel frees a queue some time after the socket that had
/// it has gone, as behind an earlier run.
const FREED_NS: u64 = 3_000_000_000;

/// Drivers that tell XDP of the tags that they take out of packets: those of Linux 6.18 that set
/// `xmo_rx_vlan_tag`.
const TELLS_TAGS: [&str; 3] = ["veth", "ice", "mlx5_core"];

fn is_busy(reason: &io::Error) -> bool {
    matches!(reason.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
}

impl AfXdp {
    /// A port on a queue of the interface of this name. Takes a second where that is busy.
    ///
    /// # Errors
    /// [`Error::Path`] where there is none, its packets have no Ethernet header, this process may
    /// not use it, or another program has it.
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
            looked_ns: now_ns(),
            is_over: false,
            counters: Counters::default(),
        })
    }

    /// Whether the driver writes packets straight to the port's memory, and whether the program
    /// runs in the driver; `None` while the interface is away.
    #[must_use]
    pub fn is_zero_copy_and_in_driver(&self) -> Option<(bool, bool)> {
        self.session.as_ref().map(Session::how)
    }

    /// Looks whether the interface is still there, and the same.
    fn look(&mut self) {
        self.count_lost();
        let state = self.interface.state().ok();
        let about = |it: State| (it.index, it.mtu, it.kind);
        if state.map(about) != Some(about(self.state)) || self.session.is_none() {
            if self.session.take().is_some() {
                self.counters.resets += 1;
            }
            self.obstacle = self.interface.obstacle(state.as_ref());
            // What cannot be had now is tried again.
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

    /// Counts what the kernel had no room for in the ring.
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
                // Without a buffer it stays in the ring; when that is full, the kernel drops.
                let Some(packet) = pool.take(part.len()) else { return false };
                let is_written = pool.write(&packet, 0, part);
                debug_assert!(is_written, "a packet of {} B takes so many", part.len());
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
                        debug_assert!(is_read, "a packet has the length that it says");
                    });
                if !is_open {
                    // To the back, and so all behind it: they stay in their order.
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
        if now_ns - self.looked_ns >= LOOK_NS && !self.is_over {
            self.looked_ns = now_ns;
            self.look();
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
        let asks = self.session.as_ref().is_none_or(Session::asks_for_tags);
        let has_tags = asks && TELLS_TAGS.contains(&&**driver);
        let mut notes = Vec::new();
        if driver == "veth" {
            // Its other end may be in a network that this process does not see.
            notes.push(format!(
                "what a kernel sends into the other end of {name} comes with checksums that are \
                 not filled in, which XDP does not tell: ethtool -K PEER tx off at that end, or \
                 afpacket here"
            ));
            if !has_tags {
                notes.push(format!(
                    "what a kernel sends into the other end of {name} comes without its VLAN \
                     tags, which XDP does not see: ethtool -K PEER txvlan off at that end, or \
                     afpacket here"
                ));
            }
        } else if *takes_tags && !has_tags {
            notes.push(format!(
                "{name} takes VLAN tags out of packets before XDP sees them: ethtool -K {name} \
                 rxvlan off, or afpacket here"
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
