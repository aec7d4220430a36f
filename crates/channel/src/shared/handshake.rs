//! The handshake of two ends.
//!
//! 1. the connecting end sends a greeting;
//! 2. the accepting end sends a greeting and hands over the shared memory;
//! 3. the connecting end sends back the accepting end's number as a proof, and whether it could
//!    read the accepting end's memory;
//! 4. the accepting end does the same.
//!
//! Each end begins to watch the other end's process before it asks for the proof. So a process
//! that sends the proof was alive when the watch began, and its process ID cannot have been
//! reused.

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

/// The result of the handshake.
#[derive(Debug)]
pub(crate) struct Agreement {
    pub(crate) peer: Peer,
    pub(crate) region: Region,
    pub(crate) chunk_bytes: usize,
    /// Whether both ends trust each other.
    pub(crate) is_trusted: bool,
    /// Whether this end could read the peer's memory.
    pub(crate) can_pull: bool,
    /// Whether the peer could read this end's memory.
    pub(crate) peer_can_pull: bool,
}

/// One end during the handshake.
struct Party<'a> {
    attempt: &'static str,
    socket: &'a OwnedFd,
    settings: &'a Settings,
    until: Instant,
    /// The number is in separate memory, so that the peer can try to read it.
    nonce: Box<u64>,
}

impl<'a> Party<'a> {
    /// Refuses a peer whose user is not allowed, before any packet is sent.
    fn new(
        attempt: &'static str,
        socket: &'a OwnedFd,
        settings: &'a Settings,
    ) -> Result<Self, Error> {
        settings.users.check_other_end(attempt, socket)?;
        let mut nonce = [0; 8];
        rustix::rand::getrandom(&mut nonce, GetRandomFlags::empty())
            .map_err(Error::system("read random numbers"))?;
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

    /// Receives the peer's proof that it knows this end's number and is the process that is
    /// watched.
    fn receive_proof(&self, step: u32, peer: &Peer) -> Result<Greeting, Error> {
        let (greeting, packet) = self.receive(step)?;
        if greeting.echo != *self.nonce || !peer.is(packet.sender) {
            return Err(Error::Handshake {
                what: "proof",
                found: "not of the process that began".into(),
                expected: "the number that this end sent".into(),
            });
        }
        Ok(greeting)
    }

    /// Watches the sender of a packet, which may be a different process from the one that
    /// connected the socket.
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

    /// Whether this end can read the peer's number at the address that the peer sent.
    fn probe(&self, peer: &Peer, greeting: &Greeting) -> bool {
        let is_trusted = greeting.trusts && self.settings.trusts_peer;
        is_trusted
            && peer
                .identity
                .process
                .is_some_and(|p| reach::can_read(p, greeting.probe, greeting.nonce))
    }
}

/// The process, if this PID namespace can see it.
fn named(process: i32) -> Option<i32> {
    Some(process).filter(|process| *process > 0)
}

/// The handshake of the accepting end, which sends on lane 1.
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

/// The shared memory, and its chunk size: the size in the settings, or less if this process's
/// limits on files and addresses require that.
fn region(settings: &Settings) -> Result<(Region, usize), Error> {
    let mut chunk_bytes = settings.chunk_bytes();
    loop {
        match Region::create(layout::region_bytes(chunk_bytes)) {
            Err(_) if chunk_bytes > layout::CHUNK_BYTES_MIN => chunk_bytes /= 2,
            made => return Ok((made?, chunk_bytes)),
        }
    }
}

/// The handshake of the connecting end, which sends on lane 0.
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
