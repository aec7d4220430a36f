//! A peer that implements the protocol itself, so that it can lie. The numbers repeat those of
//! `layout.rs`, so a change of the protocol must also be made here.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::thread::{self, JoinHandle};

use haul_channel::{Channel, Error, Settings, pair};
use rustix::event::{PollFd, PollFlags};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, UCred,
};

pub(crate) const PUBLISHED: u64 = 0;
pub(crate) const CONSUMED: u64 = 128;
pub(crate) const FILLED: u64 = 256;
pub(crate) const DRAINED: u64 = 384;
pub(crate) const REFUSED: u64 = 4 * 128;
pub(crate) const OFFERED: u64 = 9 * 128;
pub(crate) const CLAIMED: u64 = 10 * 128;
pub(crate) const PUSHED: u64 = 11 * 128;
pub(crate) const ABANDONED: u64 = 11 * 128 + 8;
pub(crate) const LEASE_FILLED: u64 = 11 * 128 + 16;
pub(crate) const LANE_BYTES: u64 = 4096;
const SLOTS_START: u64 = 8192;
const SLOT_BYTES: u64 = 8320;

/// Sends a packet with this process's credentials and these descriptors.
pub(crate) fn send(socket: &OwnedFd, bytes: &[u8], files: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4), ScmCredentials(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmCredentials(UCred {
        pid: rustix::process::getpid(),
        uid: rustix::process::getuid(),
        gid: rustix::process::getgid(),
    }));
    if !files.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    // The victim may have gone already.
    let _ = rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
}

/// The next packet's words and its descriptor; empty if the other end is gone.
pub(crate) fn receive(socket: &OwnedFd) -> (Vec<u64>, Option<OwnedFd>) {
    let _ =
        rustix::event::poll(&mut [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)], None);
    let mut bytes = [0; 64];
    let mut space = [MaybeUninit::uninit(); 256];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let vector = &mut [IoSliceMut::new(&mut bytes)];
    let Ok(received) = rustix::net::recvmsg(socket, vector, &mut control, flags) else {
        return (Vec::new(), None);
    };
    let count = received.bytes;
    let mut file = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(files) = message {
            file = files.last();
        }
    }
    let words =
        bytes[..count].chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    (words.collect(), file)
}

/// A valid greeting.
pub(crate) fn greeting(step: u64, chunk_bytes: u64, nonce: u64, echo: u64) -> Vec<u8> {
    let magic = u64::from_le_bytes(*b"haulchan");
    let words = [magic, 9 | step << 32, chunk_bytes, 0, nonce, echo, 0, 0];
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

const NONCE_OF_LIAR: u64 = 4711;

fn greeting_with(step: u64, flags: u64, echo: u64, probe: u64) -> Vec<u8> {
    let mut bytes = greeting(step, 0, NONCE_OF_LIAR, echo);
    bytes[24..32].copy_from_slice(&flags.to_le_bytes());
    bytes[48..56].copy_from_slice(&probe.to_le_bytes());
    bytes
}

/// A peer that makes a correct handshake, and then acts as a test says.
pub(crate) struct Liar {
    pub(crate) socket: OwnedFd,
    pub(crate) memory: File,
}

impl Liar {
    /// The victim accepts, the liar connects: the liar sends on lane 0 and receives on lane 1.
    pub(crate) fn meet(settings: &Settings) -> (Self, Channel) {
        let (liar, victim, _) = Self::meet_with(settings, 0, 0);
        (liar, victim)
    }

    /// Like `meet`, for a victim that trusts the liar. Each end can access the other's memory,
    /// because both are in one process.
    pub(crate) fn meet_trusted(settings: &Settings) -> (Self, Channel) {
        let (liar, victim, _) = Self::meet_trusted_by(settings);
        (liar, victim)
    }

    /// Like `meet_trusted`, but also returns a copy of the victim's socket.
    pub(crate) fn meet_trusted_by(settings: &Settings) -> (Self, Channel, OwnedFd) {
        static NONCE: u64 = NONCE_OF_LIAR;
        let settings = Settings { trusts_peer: true, ..settings.clone() };
        Self::meet_with(&settings, 3, (&raw const NONCE).expose_provenance() as u64)
    }

    /// They meet again if a thread had no processor for as long as the settings allow a peer.
    fn meet_with(settings: &Settings, flags: u64, probe: u64) -> (Self, Channel, OwnedFd) {
        for _ in 0..20 {
            let (own, other) = pair().unwrap();
            let copy = other.try_clone().unwrap();
            let settings = settings.clone();
            let victim = thread::spawn(move || Channel::accept_over(other, &settings));
            let memory = Self::shake(&own, flags, probe);
            match victim.join().unwrap() {
                Ok(victim) => {
                    let memory = File::from(memory.expect("the accepting end hands memory over"));
                    return (Self { socket: own, memory }, victim, copy);
                }
                Err(error) => assert!(matches!(error, Error::Deadline { .. }), "{error}"),
            }
        }
        panic!("the ends never met in time");
    }

    /// Makes the handshake, and returns the memory from the victim. `None` if the victim has gone.
    fn shake(own: &OwnedFd, flags: u64, probe: u64) -> Option<OwnedFd> {
        rustix::net::sockopt::set_socket_passcred(own, true).unwrap();
        send(own, &greeting_with(1, flags & 1, 0, probe), &[]);
        let (words, memory) = receive(own);
        send(own, &greeting_with(3, flags, *words.get(4)?, probe), &[]);
        receive(own);
        memory
    }

    pub(crate) fn peek(&self, offset: u64) -> u64 {
        let mut bytes = [0; 8];
        self.memory.read_exact_at(&mut bytes, offset).unwrap();
        u64::from_le_bytes(bytes)
    }

    /// Waits until a word has this value.
    pub(crate) fn wait_for(&self, offset: u64, word: u64) {
        while self.peek(offset) != word {
            thread::yield_now();
        }
    }

    /// Writes the words of the checksum into the slot of a message on lane 0.
    pub(crate) fn sum(&self, message: u64, words: [u64; 3]) {
        let at = SLOTS_START + message % 16 * SLOT_BYTES + 32;
        for (index, word) in words.into_iter().enumerate() {
            self.poke(at + 8 * index as u64, word);
        }
    }

    /// Writes the table into the slot of a message on lane 0.
    pub(crate) fn table(&self, message: u64, parts: &[(u64, u64)]) {
        let at = SLOTS_START + message % 16 * SLOT_BYTES + 64;
        for (index, (address, length)) in parts.iter().enumerate() {
            self.poke(at + 16 * index as u64, *address);
            self.poke(at + 16 * index as u64 + 8, *length);
        }
    }

    pub(crate) fn poke(&self, offset: u64, word: u64) {
        self.memory.write_all_at(&word.to_le_bytes(), offset).unwrap();
    }

    /// Writes the header of a message into its slot on lane 0 and publishes it.
    pub(crate) fn publish(&self, message: u64, header: [u64; 4]) {
        let at = SLOTS_START + message % 16 * SLOT_BYTES;
        for (index, word) in header.into_iter().enumerate() {
            self.poke(at + 8 * index as u64, word);
        }
        self.poke(PUBLISHED, message + 1);
    }
}

/// The result of a connecting end if `offer` sends the accepting end's greeting.
pub(crate) fn offered(
    settings: &Settings,
    offer: impl FnOnce(&OwnedFd, u64) + Send + 'static,
) -> Result<Channel, Error> {
    let (own, other) = pair().unwrap();
    rustix::net::sockopt::set_socket_passcred(&own, true).unwrap();
    let liar: JoinHandle<OwnedFd> = thread::spawn(move || {
        let (words, _) = receive(&own);
        offer(&own, words[4]);
        own
    });
    let result = Channel::connect_over(other, settings);
    drop(liar.join().unwrap());
    result
}
