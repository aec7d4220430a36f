//! A network interface through an AF_PACKET socket whose rings are in memory that the kernel
//! shares.
//!
//! Works with every driver. The kernel's own network stack still uses the interface: the stack
//! and the port both receive each packet. A packet is copied twice in each direction, once by the
//! kernel and once here. Work that the kernel left to a device is done here: checksums are
//! completed, and merged packets are split again.
//!
//! From the bottom up:
//!
//! - `rings`: the sockets and their rings;
//! - `offloaded`: packets with work left.

mod offloaded;
mod rings;

use std::fmt;
use std::io;

use super::clock::now_ns;
use super::contract::{Link, Port};
use super::counters::{Counters, DropReason};
use super::error::Error;
use super::interface::{CHECK_NS, FRAME_BYTES_MIN, Features, Interface, State, refused, unfit};
use super::pool::{Burst, PACKET_BYTES_MAX, Pool};
use offloaded::Offloaded;
use rings::{Receiving, SendResult, Sending};

/// The port: see the module. While its interface is down or absent, no packet arrives, and each
/// packet that is sent is dropped. Packets pass again when the interface returns, or when a new
/// interface of the same name appears.
pub struct AfPacket {
    name: String,
    interface: Interface,
    state: State,
    /// `None` while the interface is absent or cannot be used; `obstacle` then holds the reason.
    rings: Option<Rings>,
    obstacle: Option<String>,
    features: Features,
    offloaded: Offloaded,
    checked_ns: u64,
    is_over: bool,
    counters: Counters,
}

/// The rings of both directions.
#[derive(Debug)]
struct Rings {
    receiving: Receiving,
    sending: Sending,
}

impl Rings {
    fn open(state: &State) -> io::Result<Self> {
        Ok(Self { receiving: Receiving::open(state)?, sending: Sending::open(state)? })
    }
}

impl fmt::Debug for AfPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut value = f.debug_struct("AfPacket");
        value.field("name", &self.name).field("interface", &self.interface.name());
        value.field("state", &self.state).finish_non_exhaustive()
    }
}

impl AfPacket {
    /// Opens a port on the interface of this name.
    ///
    /// # Errors
    /// [`Error::Path`] if the interface does not exist, its packets have no Ethernet header, or
    /// this process may not use it.
    pub fn open(name: &str, interface: &str) -> Result<Self, Error> {
        let (interface, state) = Interface::new(interface)?;
        let rings = Rings::open(&state).map_err(|reason| refused(interface.name(), reason))?;
        let features = interface.features();
        Ok(Self {
            name: name.into(),
            interface,
            state,
            rings: Some(rings),
            obstacle: None,
            features,
            offloaded: Offloaded::default(),
            checked_ns: now_ns(),
            is_over: false,
            counters: Counters::default(),
        })
    }

    /// Checks whether the interface still exists, and whether its index, MTU or type has changed.
    fn check(&mut self) {
        self.count_lost();
        let state = self.interface.state().ok();
        let about = |it: State| (it.index, it.mtu, it.kind);
        if state.map(about) != Some(about(self.state)) || self.rings.is_none() {
            if self.rings.take().is_some() {
                self.counters.resets += 1;
            }
            self.obstacle = self.interface.obstacle(state.as_ref());
            // A failed attempt is repeated at the next check.
            if let Some(state) = state.as_ref().filter(|state| state.has_ethernet()) {
                match Rings::open(state) {
                    Ok(rings) => self.rings = Some(rings),
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
        let lost = self.rings.as_mut().map_or(0, |rings| rings.receiving.lost());
        self.counters.rx.dropped(DropReason::Full, lost);
    }

    /// Frees and counts the packets of a burst that can never be sent.
    fn drop_unfit(&mut self, pool: &mut Pool, burst: &mut Burst) {
        for _ in 0..burst.len() {
            let Some(packet) = burst.pop() else { return };
            match unfit(pool, &packet, self.state.mtu) {
                None => burst.push(packet),
                Some(reason) => {
                    self.counters.tx.dropped(reason, 1);
                    pool.free(packet);
                }
            }
        }
    }
}

impl Port for AfPacket {
    fn name(&self) -> &str {
        &self.name
    }

    fn rx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) -> usize {
        let before = burst.len();
        let mut room = burst.room();
        let mut bytes = 0;
        while room > 0 {
            if self.offloaded.is_pending() {
                let Some(length) = self.offloaded.give(pool, burst) else { break };
                (bytes, room) = (bytes + length as u64, room - 1);
                continue;
            }
            let Some(Rings { receiving, .. }) = &mut self.rings else { break };
            let Some(found) = receiving.peek() else { break };
            let length = found.length();
            if !found.is_plain() {
                self.offloaded.take(receiving, &found, &mut self.counters.rx);
                receiving.release();
                continue;
            }
            let why = match length {
                ..FRAME_BYTES_MIN => Some(DropReason::TooShort),
                _ if length > PACKET_BYTES_MAX => Some(DropReason::TooLong),
                _ => None,
            };
            if let Some(reason) = why {
                self.counters.rx.dropped(reason, 1);
            } else {
                // Without a buffer, the packet stays in the ring. If the ring is full, the kernel
                // drops packets.
                let Some(packet) = pool.take(length) else { break };
                receiving.read(&found, |at, part| {
                    let is_written = pool.write(&packet, at, part);
                    debug_assert!(is_written, "a packet of {length} B holds {length} B");
                });
                burst.push(packet);
                bytes += length as u64;
            }
            receiving.release();
            room -= 1;
        }
        let taken = burst.len() - before;
        self.counters.rx.batch(taken, bytes);
        taken
    }

    fn tx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) -> usize {
        if !self.state.is_up || self.rings.is_none() || self.is_over {
            self.counters.tx.dropped(DropReason::NoLink, burst.len() as u64);
            pool.free_burst(burst);
        }
        self.drop_unfit(pool, burst);
        let (mut sent, mut bytes) = (0, 0);
        while let Some(Rings { sending, .. }) = &mut self.rings
            && fill(sending, pool, burst)
        {
            let SendResult { packets, is_refused } = sending.send();
            for _ in 0..packets {
                let Some(packet) = burst.pop() else { break };
                bytes += pool.length(&packet) as u64;
                pool.free(packet);
            }
            sent += packets;
            if !is_refused {
                break;
            }
            // This packet is dropped, and the later ones are retried.
            if let Some(packet) = burst.pop() {
                self.counters.tx.dropped(DropReason::Refused, 1);
                pool.free(packet);
            }
        }
        self.counters.tx.batch(sent, bytes);
        sent
    }

    fn service(&mut self, _: &mut Pool) -> Result<(), Error> {
        let now_ns = now_ns();
        if now_ns - self.checked_ns >= CHECK_NS && !self.is_over {
            self.checked_ns = now_ns;
            self.check();
        }
        Ok(())
    }

    fn link(&self) -> Link {
        let is_there = self.rings.is_some() || self.is_over;
        if self.state.is_up && is_there { Link::Up } else { Link::Down }
    }

    fn obstacle(&self) -> Option<String> {
        let is_there = self.rings.is_some();
        let state = is_there.then(|| self.interface.obstacle(Some(&self.state))).flatten();
        state.or_else(|| self.obstacle.clone().filter(|_| !is_there && !self.is_over))
    }

    fn notes(&self) -> Vec<String> {
        let (name, merged) =
            (self.interface.name(), self.counters.rx.drops_for(DropReason::Merged));
        let mut notes = Vec::new();
        if self.features.merges {
            notes.push(format!(
                "the NIC of {name} merges packets (LRO), and the kernel may drop these here: \
                 ethtool -K {name} lro off"
            ));
        }
        if merged > 0 {
            notes.push(format!(
                "{merged} packets that the kernel or the NIC had merged could not be split again, \
                 and were dropped: ethtool -K {name} gro off lro off"
            ));
        }
        notes
    }

    fn stop(&mut self, _: &mut Pool) {
        self.count_lost();
        self.rings = None;
        self.offloaded = Offloaded::default();
        self.is_over = true;
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }
}

/// Copies as many packets of a burst into the ring as the ring has room for. Returns whether the
/// ring holds any packet.
fn fill(sending: &mut Sending, pool: &Pool, burst: &Burst) -> bool {
    let (mut is_open, mut is_any) = (true, false);
    burst.for_each(|packet| {
        let length = pool.length(packet);
        is_open = is_open
            && sending.fill(length, |target| {
                let is_read = pool.read(packet, 0, target);
                debug_assert!(is_read, "a packet holds its length");
            });
        is_any |= is_open;
    });
    is_any
}
