//! What both halves of a channel stand on: the socket and what came by it, and the shared memory.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;

use super::error::Error;
use super::handshake::Agreement;
use super::layout;
use super::settings::Settings;
use crate::peer::poller::Poller;
use crate::peer::process::Peer;
use crate::peer::received::Received;
use crate::peer::region::Region;
use crate::peer::socket::{self, Socket};

/// Length of a packet that carries a descriptor: its kind, then a number.
const FILE_BYTES: usize = 9;

/// What a descriptor that comes with a packet is. A packet that begins with 0 only wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The memory of the message of this number.
    Memory = 1,
    /// The receiver's pool of this number.
    Pool = 2,
    /// The pipe that begins with the message of this number.
    Pipe = 3,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        [Self::Memory, Self::Pool, Self::Pipe].into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// One end of a channel.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) socket: Socket,
    pub(crate) poller: Poller,
    pub(crate) peer: Peer,
    pub(crate) region: Region,
    pub(crate) chunk_bytes: usize,
    pub(crate) is_trusted: bool,
    pub(crate) can_pull: bool,
    pub(crate) peer_can_pull: bool,
    pub(crate) settings: Settings,
    /// A transfer failed in the middle: what the words say means nothing any more.
    pub(crate) is_broken: AtomicBool,
    /// Each half of the channel has a thread of its own.
    pub(crate) is_split: AtomicBool,
    /// Descriptors that came and were not asked for yet, or what came in the place of one and could
    /// not be kept.
    came: Mutex<VecDeque<(Kind, u64, Received)>>,
}

impl Link {
    /// Whether the peer may have memory of this process's as it is, and can see that it is alone
    /// with it: of a file of another user the kernel tells the superuser alone.
    pub(crate) fn may_give_memory(&self) -> bool {
        let (own, peer) = (rustix::process::geteuid().as_raw(), self.peer.identity.user);
        self.is_trusted && (peer == own || peer == 0)
    }

    /// # Errors
    /// [`Error::System`] where there is no descriptor to poll.
    pub(crate) fn new(
        socket: Socket,
        agreed: Agreement,
        settings: Settings,
    ) -> Result<Self, Error> {
        let poller = Poller::new(socket.as_fd())?;
        Ok(Self {
            socket,
            poller,
            peer: agreed.peer,
            region: agreed.region,
            chunk_bytes: agreed.chunk_bytes,
            is_trusted: agreed.is_trusted,
            can_pull: agreed.can_pull,
            peer_can_pull: agreed.peer_can_pull,
            settings,
            is_broken: AtomicBool::new(false),
            is_split: AtomicBool::new(false),
            came: Mutex::default(),
        })
    }

    /// # Errors
    /// [`Error::Broken`].
    pub(crate) fn check_whole(&self) -> Result<(), Error> {
        if self.is_broken.load(Relaxed) { Err(Error::Broken) } else { Ok(()) }
    }

    /// Nothing after this is believed.
    pub(crate) fn break_off(&self) {
        self.is_broken.store(true, Relaxed);
    }

    /// Hands a descriptor over, ahead of the word that tells of it.
    pub(crate) fn send_file(
        &self,
        kind: Kind,
        number: u64,
        file: BorrowedFd<'_>,
    ) -> Result<(), Errno> {
        let mut bytes = [kind as u8; FILE_BYTES];
        bytes[1..].copy_from_slice(&number.to_le_bytes());
        socket::send(&self.socket, &bytes, Some(file))
    }

    /// The descriptor of this kind that came with this number; those of lower numbers are closed.
    ///
    /// # Errors
    /// As [`Received::file`].
    pub(crate) fn take_file(
        &self,
        kind: Kind,
        number: u64,
        expected: &'static str,
    ) -> Result<OwnedFd, Error> {
        self.read_socket();
        let mut came = self.came();
        came.retain(|&(of, with, _)| of != kind || with >= number);
        let index = came.iter().position(|&(of, with, _)| (of, with) == (kind, number));
        let found = index.and_then(|index| came.remove(index));
        Ok(found.map_or(Received::Nothing, |(.., file)| file).file(expected)?)
    }

    fn came(&self) -> MutexGuard<'_, VecDeque<(Kind, u64, Received)>> {
        self.came.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the packets that came. As many at once as a peer in order can have sent; what is
    /// malformed, or beyond what can be under way, is closed and forgotten. A peer that hands over
    /// what is none of a channel's is at its end.
    pub(crate) fn read_socket(&self) {
        for _ in 0..4 * layout::SLOTS {
            if self.is_broken.load(Relaxed) {
                return;
            }
            let Ok(Some(packet)) = socket::receive(&self.socket, self.is_trusted) else { return };
            match packet.file {
                Received::Nothing => continue,
                Received::Foreign => self.break_off(),
                _ => {}
            }
            let Some((kind, number)) = named(&packet.bytes[..packet.length]) else { continue };
            let mut came = self.came();
            if (came.len() as u64) < layout::SLOTS + FILES_BESIDE {
                came.push_back((kind, number, packet.file));
            }
        }
    }
}

/// Descriptors that can be under way beside those of messages: a pool and a pipe.
const FILES_BESIDE: u64 = 2;

/// What a packet that carries a descriptor says of it.
pub(crate) fn named(bytes: &[u8]) -> Option<(Kind, u64)> {
    let (kind, number) = bytes.split_first()?;
    Some((Kind::of(*kind)?, u64::from_le_bytes(number.try_into().ok()?)))
}

impl AsFd for Link {
    /// What an event loop polls.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}
