//! How two ends meet.
//!
//! 1. the one that connects says hello;
//! 2. the one that accepts says hello and hands over the shared memory;
//! 3. the first proves that it heard, and says whether it could read the other's memory;
//! 4. the second does the same.
//!
//! Each begins to watch the other before it asks for the proof, so a process that gives the proof
//! lived then, and its number cannot have gone to another one.

use std::time::Instant;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::rand::GetRandomFlags;

use super::error::Error;
use super::greeting::Greeting;
use super::layout;
use super::settings::Settings;
use haul_peer::memory::Sealed;
use haul_peer::process::{Peer, Readable};
use haul_peer::region::Region;
use haul_peer::socket;
use haul_peer::{deadline, reach};

/// What both ends know of each other afterwards.
#[derive(Debug)]
pub(crate) struct Agreement {
    pub(crate) peer: Peer,
    pub(crate) region: Region,
    pub(crate) chunk_bytes: usize,
    /// Both ends trust each other.
    pub(crate) is_trusted: bool,
    /// This end has read the peer's memory.
    pub(crate) can_pull: bool,
    /// The peer has read this end's memory.
    pub(crate) peer_can_pull: bool,
}

/// One end on its way through the handshake.
struct Party<'a> {
    attempt: &'static str,
    socket: &'a OwnedFd,
    settings: &'a Settings,
    until: Instant,
    /// In memory of its own, so that the peer can try to read it.
    nonce: Box<u64>,
}

impl<'a> Party<'a> {
    /// Refuses whoever is not of a user that may be there, before a word is said.
    fn new(
        attempt: &'static str,
        socket: &'a OwnedFd,
        settings: &'a Settings,
    ) -> Result<Self, Error> {
        settings.users.check_other_end(attempt, socket)?;
        let mut nonce = [0; 8];
        rustix::rand::getrandom(&mut nonce, GetRandomFlags::empty())
            .map_err(Error::system("have random numbers"))?;
        let nonce = Box::new(u64::from_ne_bytes(nonce));
        Ok(Self { attempt, socket, settings, until: deadline::after(settings.deadline), nonce })
    }

    fn greeting(&self, step: u32) -> Greeting {
        let trusts = self.settings.trusts_peer;
        let probe = if trusts { (&raw const *self.nonce).expose_provenance() as u64 } else { 0 };
        Greeting { step, trusts, nonce: *self.nonce, probe, ..Greeting::default() }
    }

    fn send(&self, greeting: Greeting, file: Option<BorrowedFd<'_>>) -> Result<(), Error> {
        let sent = socket::send(self.socket, &greeting.to_bytes(), file);
        sent.map_err(|reason| match reason {
            Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => haul_peer::error::Error::Gone.into(),
            reason => Error::system("greet the peer")(reason),
        })
    }

    fn receive(&self, step: u32) -> Result<(Greeting, socket::Packet), Error> {
        let packet = socket::receive_until(self.socket, self.settings.deadline, self.until)?;
        let greeting = Greeting::from_bytes(&packet.bytes[..packet.length], step)?;
        Ok((greeting, packet))
    }

    /// The peer's last word: it heard this end's number, and it is the process that is watched.
    fn receive_proof(&self, step: u32, peer: &Peer) -> Result<Greeting, Error> {
        let (greeting, packet) = self.receive(step)?;
        if greeting.echo != *self.nonce || !peer.is(packet.sender) {
            return Err(Error::Handshake {
                what: "proof",
                found: "not of the process that began".into(),
                expected: "the number that it was given".into(),
            });
        }
        Ok(greeting)
    }

    /// The one who speaks may be another than the one that the socket was connected to.
    fn watch(&self, packet: &socket::Packet) -> Result<Peer, Error> {
        let sender = packet.sender.ok_or_else(|| Error::Handshake {
            what: "greeting",
            found: "without a sender that the kernel vouches for".into(),
            expected: "one with SCM_CREDENTIALS".into(),
        })?;
        let (process, user, _) = sender;
        self.settings.users.check(self.attempt, named(process), user)?;
        Ok(Peer::watch(sender))
    }

    /// Whether the peer's number can be read where it says it stands.
    fn probe(&self, peer: &Peer, greeting: &Greeting) -> bool {
        let is_trusted = greeting.trusts && self.settings.trusts_peer;
        is_trusted
            && peer
                .identity
                .process
                .is_some_and(|p| reach::can_read(p, greeting.probe, greeting.nonce))
    }
}

/// A process that can be seen from here.
fn named(process: i32) -> Option<i32> {
    Some(process).filter(|process| *process > 0)
}

/// The end that accepts: lane 1 is the one it sends on.
pub(crate) fn accept(socket: &OwnedFd, settings: &Settings) -> Result<Agreement, Error> {
    let party = Party::new("accept", socket, settings)?;
    let (greeting, packet) = party.receive(1)?;
    let peer = party.watch(&packet)?;
    let is_trusted = greeting.trusts && settings.trusts_peer;
    let (region, chunk_bytes) = region(settings)?;
    region.reserve(0, layout::fixed_bytes())?;
    let readable = is_trusted.then(|| Readable::to(peer.identity)).flatten();
    let hello =
        Greeting { echo: greeting.nonce, chunk_bytes: chunk_bytes as u32, ..party.greeting(2) };
    party.send(hello, Some(region.file().as_fd()))?;
    let last = party.receive_proof(3, &peer)?;
    drop(readable);
    let can_pull = party.probe(&peer, &greeting);
    party.send(Greeting { echo: greeting.nonce, can_pull, ..party.greeting(4) }, None)?;
    Ok(Agreement { peer, region, chunk_bytes, is_trusted, can_pull, peer_can_pull: last.can_pull })
}

/// The shared memory, and the size of its chunks: the settings', or less where this process's
/// limits of files and addresses allow no more.
fn region(settings: &Settings) -> Result<(Region, usize), Error> {
    let mut chunk_bytes = settings.chunk_bytes();
    loop {
        match Region::create(layout::region_bytes(chunk_bytes)) {
            Err(_) if chunk_bytes > layout::CHUNK_BYTES_MIN => chunk_bytes /= 2,
            made => return Ok((made?, chunk_bytes)),
        }
    }
}

/// The end that connects: lane 0 is the one it sends on.
pub(crate) fn connect(socket: &OwnedFd, settings: &Settings) -> Result<Agreement, Error> {
    let party = Party::new("connect", socket, settings)?;
    party.send(party.greeting(1), None)?;
    let (greeting, mut packet) = party.receive(2)?;
    if greeting.echo != *party.nonce {
        return Err(Error::Handshake {
            what: "echo",
            found: greeting.echo.to_string(),
            expected: party.nonce.to_string(),
        });
    }
    let peer = party.watch(&packet)?;
    let chunk_bytes = checked_chunk_bytes(greeting.chunk_bytes)?;
    let file = std::mem::take(&mut packet.file).file("one memory file")?;
    let region = Region::open(file, layout::region_bytes(chunk_bytes), Sealed::Size)?;
    let is_trusted = greeting.trusts && settings.trusts_peer;
    let can_pull = party.probe(&peer, &greeting);
    let readable = is_trusted.then(|| Readable::to(peer.identity)).flatten();
    party.send(Greeting { echo: greeting.nonce, can_pull, ..party.greeting(3) }, None)?;
    let last = party.receive_proof(4, &peer)?;
    drop(readable);
    Ok(Agreement { peer, region, chunk_bytes, is_trusted, can_pull, peer_can_pull: last.can_pull })
}

fn checked_chunk_bytes(announced: u32) -> Result<usize, Error> {
    let announced = announced as usize;
    let is_right = (layout::CHUNK_BYTES_MIN..=layout::CHUNK_BYTES_MAX).contains(&announced);
    if is_right && announced.is_power_of_two() {
        return Ok(announced);
    }
    Err(Error::Handshake {
        what: "chunk size",
        found: announced.to_string(),
        expected: format!("{} to {}", layout::CHUNK_BYTES_MIN, layout::CHUNK_BYTES_MAX),
    })
}
