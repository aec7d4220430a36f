//! What both halves of a channel stand on: the socket and what came by it, and the shared memory.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::error::Error;
use super::handshake::Agreement;
use super::layout;
use super::settings::Settings;
use super::user::User;
use haul_peer::fork;
use haul_peer::poller::Poller;
use haul_peer::process::{self, Identity, Peer};
use haul_peer::received::Received;
use haul_peer::region::Region;
use haul_peer::socket::{self, Socket};

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
    /// The process that uses the sending half of the peer from now on, by this number.
    Sender = 4,
    /// The one that uses its receiving half.
    Receiver = 5,
}

impl Kind {
    /// The half that a descriptor is for, at the end that it comes to.
    fn half(self) -> Option<Half> {
        match self {
            Self::Memory | Self::Pipe => Some(Half::Receiving),
            Self::Pool => Some(Half::Sending),
            Self::Sender | Self::Receiver => None,
        }
    }

    fn of(byte: u8) -> Option<Self> {
        let all = [Self::Memory, Self::Pool, Self::Pipe, Self::Sender, Self::Receiver];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// One end of a channel.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) socket: Socket,
    pub(crate) poller: Poller,
    /// The processes that use the halves of the other end, by direction.
    peers: [Mutex<KnownPeer>; 2],
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
    arrivals: Mutex<VecDeque<Arrival>>,
    /// Halves of this end that are over, and in no other process either.
    ended: AtomicU8,
    /// Who uses the halves of this end, and where their words are.
    users: [(User, usize); 2],
    /// Forks that had been noticed as the two ends met.
    forks: u64,
}

/// A process that uses half of the other end.
#[derive(Debug)]
struct KnownPeer {
    /// What its word says, see `lane`.
    number: u64,
    peer: Arc<Peer>,
}

/// A descriptor that came, or what came in its place.
#[derive(Debug)]
struct Arrival {
    kind: Kind,
    number: u64,
    file: Received,
    sender: Option<(i32, u32, u32)>,
}

impl Link {
    /// Of the end that sends on this lane.
    ///
    /// # Errors
    /// [`Error::System`] where there is no descriptor to poll.
    pub(crate) fn new(
        socket: Socket,
        agreed: Agreement,
        settings: Settings,
        lane: usize,
    ) -> Result<Self, Error> {
        let poller = Poller::new(socket.as_fd())?;
        let peer = Arc::new(agreed.peer);
        let peers = [Arc::clone(&peer), peer];
        Ok(Self {
            socket,
            poller,
            peers: peers.map(|peer| Mutex::new(KnownPeer { number: 0, peer })),
            region: agreed.region,
            chunk_bytes: agreed.chunk_bytes,
            is_trusted: agreed.is_trusted,
            can_pull: agreed.can_pull,
            peer_can_pull: agreed.peer_can_pull,
            settings,
            is_broken: AtomicBool::new(false),
            is_split: AtomicBool::new(false),
            arrivals: Mutex::default(),
            ended: AtomicU8::new(0),
            users: [Half::Sending, Half::Receiving].map(|half| (User::new(), half.word(lane))),
            forks: fork::forks(),
        })
    }

    /// # Errors
    /// [`Error::Broken`].
    pub(crate) fn check_whole(&self) -> Result<(), Error> {
        if self.is_broken.load(Relaxed) { Err(Error::Broken) } else { self.check_memory() }
    }

    /// # Errors
    /// [`Error::Memory`]: the peer has taken memory away that both ends share.
    pub(crate) fn check_memory(&self) -> Result<(), Error> {
        if self.region.is_broken() { Err(Error::memory_gone()) } else { Ok(()) }
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

    /// Tells the peer that the calling process uses half of this end, by this number, ahead of the
    /// word that says so.
    pub(crate) fn send_user(&self, half: Half, number: u64) -> Result<(), Errno> {
        let mut bytes = [half.kind() as u8; FILE_BYTES];
        bytes[1..].copy_from_slice(&number.to_le_bytes());
        let watch = process::own_watch();
        socket::send(&self.socket, &bytes, watch.as_ref().map(AsFd::as_fd))
    }

    /// Who uses a half of this end, and the word that says so.
    pub(crate) fn user(&self, half: Half) -> (&User, &AtomicU64) {
        let (user, word) = &self.users[half as usize];
        (user, self.region.word64(*word))
    }

    /// Whether this process uses a half of this end, and no other has taken it over.
    pub(crate) fn is_own(&self, half: Half) -> bool {
        let (user, word) = self.user(half);
        user.is_here() && user.is_last(word)
    }

    /// The process that uses the other end of a half, whose word says this number. Where no process
    /// has said so, it is one that is heard of by the socket alone.
    pub(crate) fn peer(&self, half: Half, number: u64) -> Arc<Peer> {
        let known = &self.peers[half as usize];
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.number == number {
            return Arc::clone(&known.peer);
        }
        self.read_socket();
        let Identity { user, group, .. } = known.peer.identity;
        match self.take_arrival(half.other().kind(), number) {
            Some(Arrival { file, sender: Some(sender), .. }) => {
                let watch = match file {
                    Received::File(watch) => Some(watch),
                    _ => None,
                };
                *known = KnownPeer { number, peer: Arc::new(Peer::named(sender, watch)) };
                Arc::clone(&known.peer)
            }
            _ => Arc::new(Peer::unknown(user, group)),
        }
    }

    /// What came of this kind with this number; what came with lower ones goes.
    fn take_arrival(&self, kind: Kind, number: u64) -> Option<Arrival> {
        let mut arrivals = self.arrivals();
        arrivals.retain(|it| it.kind != kind || it.number >= number);
        let index = arrivals.iter().position(|it| (it.kind, it.number) == (kind, number))?;
        arrivals.remove(index)
    }

    /// A half of this end is over, and no other process has it.
    pub(crate) fn end_half(&self) {
        self.ended.fetch_add(1, Relaxed);
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
        let found = self.take_arrival(kind, number);
        Ok(found.map_or(Received::Nothing, |arrival| arrival.file).file(expected)?)
    }

    fn arrivals(&self) -> MutexGuard<'_, VecDeque<Arrival>> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the packets that came. As many at once as a peer in order can have sent; what is
    /// malformed, or beyond what can be under way, is closed and forgotten. A peer that hands over
    /// what is none of a channel's is at its end.
    pub(crate) fn read_socket(&self) {
        for _ in 0..4 * layout::SLOTS {
            if self.is_broken.load(Relaxed) || self.is_next_for_other_process() {
                return;
            }
            let Ok(Some(packet)) = socket::receive(&self.socket, self.is_trusted) else { return };
            if matches!(packet.file, Received::Foreign) {
                self.break_off();
            }
            let Some((kind, number)) = parse_packet(&packet.bytes[..packet.length]) else {
                continue;
            };
            let is_user = matches!(kind, Kind::Sender | Kind::Receiver);
            if matches!(packet.file, Received::Nothing) && !is_user {
                continue;
            }
            let mut arrivals = self.arrivals();
            if (arrivals.len() as u64) < layout::SLOTS + PACKETS_BESIDE {
                let (file, sender) = (packet.file, packet.sender);
                arrivals.push_back(Arrival { kind, number, file, sender });
            }
        }
    }
}

impl Link {
    /// Whether the next packet has a descriptor for a half that another process uses, which will
    /// take it. Where there was no fork nobody else does. What it says of the peer is taken by
    /// either: without it, mechanisms that reach into the peer give way to the ring.
    fn is_next_for_other_process(&self) -> bool {
        if self.forks == fork::forks() {
            return false;
        }
        let mut bytes = [0; FILE_BYTES];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let there = rustix::net::recv(&*self.socket, &mut bytes, flags);
        let length = there.map_or(0, |(_, length)| length);
        let half = parse_packet(&bytes[..length]).and_then(|(kind, _)| kind.half());
        half.is_some_and(|half| !self.is_own(half))
    }
}

/// A half of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    Sending = 0,
    Receiving = 1,
}

impl Half {
    /// The half of the other end that it moves bytes to or from.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Sending => Self::Receiving,
            Self::Receiving => Self::Sending,
        }
    }

    /// How a packet says that a process uses this half.
    fn kind(self) -> Kind {
        match self {
            Self::Sending => Kind::Sender,
            Self::Receiving => Kind::Receiver,
        }
    }

    /// Where the region has the word that says which process uses it, at the end that sends on
    /// `lane`.
    fn word(self, lane: usize) -> usize {
        match self {
            Self::Sending => layout::words_start(lane) + layout::SENDER_USER,
            Self::Receiving => layout::words_start(1 - lane) + layout::RECEIVER_USER,
        }
    }
}

/// Packets that can be under way beside those of messages: a pool and a pipe, and processes that
/// use either half, of which several may say so and one does.
const PACKETS_BESIDE: u64 = 18;

/// What a packet that carries a descriptor says of it.
pub(crate) fn parse_packet(bytes: &[u8]) -> Option<(Kind, u64)> {
    let (kind, number) = bytes.split_first()?;
    Some((Kind::of(*kind)?, u64::from_le_bytes(number.try_into().ok()?)))
}

impl Drop for Link {
    /// The socket is shut down with the last process that has it.
    fn drop(&mut self) {
        if *self.ended.get_mut() < 2 {
            self.socket.leave_to_others();
        }
    }
}

impl AsFd for Link {
    /// What an event loop polls.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}
