//! An interface of the kernel's, by a socket of packets whose rings are shared memory.
//!
//! Works with every driver, and leaves the interface to the kernel's own network as well: both see
//! what comes. A packet is copied twice each way, once by the kernel and once here. What the kernel
//! left to a device is done here: checksums, and packets that it merged are cut again.
//!
//! From the bottom up:
//!
//! - `rings`: the sockets and their rings;
//! - `odd`: packets that something is left to do with.

mod odd;
mod rings;

use std::fmt;
use std::io;

use super::clock::now_ns;
use super::contract::{Link, Port};
use super::counters::{Counters, DropReason};
use super::error::Error;
use super::interface::{FRAME_BYTES_MIN, Features, Interface, LOOK_NS, State, refused, unfit};
use super::pool::{Burst, PACKET_BYTES_MAX, Pool};
use odd::Odd;
use rings::{Receiving, Sending, Sent};

/// The port: see the module. While its interface is down or away, nothing comes, and what is sent
/// is dropped; when it is there again, also as a new one of the same name, packets go through
/// again.
pub struct AfPacket {
    name: String,
    interface: Interface,
    state: State,
    /// `None` while the interface is away, or cannot be used; then why.
    rings: Option<Rings>,
    obstacle: Option<String>,
    features: Features,
    odd: Odd,
    looked_ns: u64,
    is_over: bool,
    counters: Counters,
}

/// The rings of both ways.
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
    /// A port on the interface of this name.
    ///
    /// # Errors
    /// [`Error::Path`] where there is none, its packets have no Ethernet header, or this process
    /// may not use it.
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
            odd: Odd::default(),
            looked_ns: now_ns(),
            is_over: false,
            counters: Counters::default(),
        })
    }

    /// Looks whether the interface is still there, and the same.
    fn look(&mut self) {
        self.count_lost();
        let state = self.interface.state().ok();
        let about = |it: State| (it.index, it.mtu, it.kind);
        if state.map(about) != Some(about(self.state)) || self.rings.is_none() {
            if self.rings.take().is_some() {
                self.counters.resets += 1;
            }
            self.obstacle = self.interface.obstacle(state.as_ref());
            // What cannot be had now is tried again.
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

    /// Counts what the kernel had no room for in the ring.
    fn count_lost(&mut self) {
        let lost = self.rings.as_mut().map_or(0, |rings| rings.receiving.lost());
        self.counters.rx.dropped(DropReason::Full, lost);
    }

    /// Frees and counts the packets of a burst that can never be sent.
    fn weed(&mut self, pool: &mut Pool, burst: &mut Burst) {
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
            if self.odd.is_pending() {
                let Some(length) = self.odd.give(pool, burst) else { break };
                (bytes, room) = (bytes + length as u64, room - 1);
                continue;
            }
            let Some(Rings { receiving, .. }) = &mut self.rings else { break };
            let Some(found) = receiving.peek() else { break };
            let length = found.length();
            if !found.is_plain() {
                self.odd.take(receiving, &found, &mut self.counters.rx);
                receiving.give_back();
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
                // Without a buffer it stays in the ring; when that is full, the kernel drops.
                let Some(packet) = pool.take(length) else { break };
                receiving.read(&found, |at, part| {
                    let is_written = pool.write(&packet, at, part);
                    debug_assert!(is_written, "a packet of {length} B takes so many");
                });
                burst.push(packet);
                bytes += length as u64;
            }
            receiving.give_back();
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
        self.weed(pool, burst);
        let (mut sent, mut bytes) = (0, 0);
        while let Some(Rings { sending, .. }) = &mut self.rings
            && fill(sending, pool, burst)
        {
            let Sent { packets, is_refused } = sending.send();
            for _ in 0..packets {
                let Some(packet) = burst.pop() else { break };
                bytes += pool.length(&packet) as u64;
                pool.free(packet);
            }
            sent += packets;
            if !is_refused {
                break;
            }
            // That one goes, and those behind it are tried again.
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
        if now_ns - self.looked_ns >= LOOK_NS && !self.is_over {
            self.looked_ns = now_ns;
            self.look();
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
                "the card of {name} merges packets (LRO), which the kernel may drop here: ethtool \
                 -K {name} lro off"
            ));
        }
        if merged > 0 {
            notes.push(format!(
                "{merged} packets that the kernel or the card had merged could not be cut again, \
                 and were dropped: ethtool -K {name} gro off lro off"
            ));
        }
        notes
    }

    fn stop(&mut self, _: &mut Pool) {
        self.count_lost();
        self.rings = None;
        self.odd = Odd::default();
        self.is_over = true;
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }
}

/// Copies the packets of a burst into the ring, as many as it has room for; whether any is there.
fn fill(sending: &mut Sending, pool: &Pool, burst: &Burst) -> bool {
    let (mut is_open, mut is_any) = (true, false);
    burst.for_each(|packet| {
        let length = pool.length(packet);
        is_open = is_open
            && sending.fill(length, |target| {
                let is_read = pool.read(packet, 0, target);
                debug_assert!(is_read, "a packet has the length that it says");
            });
        is_any |= is_open;
    });
    is_any
}
