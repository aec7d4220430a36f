//! The socket of a channel, the descriptors that arrived through it, and the shared memory. Both
//! halves of an end use the socket, the descriptors and the memory.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::beside::Beside;
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

/// The length of a packet with a descriptor: the descriptor's kind, then a number.
const FILE_BYTES: usize = 9;

/// The kind of a packet's descriptor. A packet that begins with 0 only wakes the peer's poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The memory of the message with this number.
    Memory = 1,
    /// The receiver's pool with this number.
    Pool = 2,
    /// The process that uses the peer's sending half from now on. The number of the packet stands
    /// for that process.
    Sender = 4,
    /// The process that uses the peer's receiving half from now on.
    Receiver = 5,
}

impl Kind {
    /// The half of the receiving end that uses a descriptor of this kind.
    fn half(self) -> Option<Half> {
        match self {
            Self::Memory => Some(Half::Receiving),
            Self::Pool => Some(Half::Sending),
            Self::Sender | Self::Receiver => None,
        }
    }

    fn of(byte: u8) -> Option<Self> {
        let all = [Self::Memory, Self::Pool, Self::Sender, Self::Receiver];
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
    /// The engine of this end.
    pub(crate) beside: Option<Beside>,
    /// Whether a transfer failed, so that the shared words are no longer reliable.
    pub(crate) is_broken: AtomicBool,
    /// Whether each half of the channel has its own thread.
    pub(crate) is_split: AtomicBool,
    /// Descriptors that arrived and were not used yet, or the reason why a descriptor could not
    /// be kept.
    arrivals: Mutex<VecDeque<Arrival>>,
    /// The number of halves of this end that are closed in all processes.
    ended: AtomicU8,
    /// The users of the two halves of this end, and the offsets of their words.
    users: [(User, usize); 2],
    /// The number of forks noticed at the handshake.
    forks: u64,
}

/// A process that uses a half of the other end.
#[derive(Debug)]
struct KnownPeer {
    /// The value of the half's word, see `lane`.
    number: u64,
    peer: Arc<Peer>,
}

/// A descriptor that arrived, or the reason why it could not be kept.
#[derive(Debug)]
struct Arrival {
    kind: Kind,
    number: u64,
    file: Received,
    sender: Option<(i32, u32, u32)>,
}

impl Link {
    /// A link for the end that sends on `lane`.
    ///
    /// # Errors
    /// [`Error::System`] if no descriptor to poll can be made.
    pub(crate) fn new(
        socket: Socket,
        agreed: Agreement,
        settings: Settings,
        lane: usize,
    ) -> Result<Self, Error> {
        let poller = Poller::new(socket.as_fd())?;
        let beside = settings.engine.as_ref().map(Beside::new).transpose()?;
        if let Some(beside) = &beside {
            poller.add(beside.bell().as_fd())?;
        }
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
            beside,
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
    /// [`Error::Memory`]: the peer has removed pages of the shared memory.
    pub(crate) fn check_memory(&self) -> Result<(), Error> {
        if self.region.is_broken() { Err(Error::memory_gone()) } else { Ok(()) }
    }

    /// Marks the channel as broken: from now on the shared words are not used.
    pub(crate) fn break_off(&self) {
        self.is_broken.store(true, Relaxed);
    }

    /// Hands over a descriptor, before the word that names it is published.
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

    /// Reports to the peer that the calling process uses a half of this end and has this number.
    /// Must be called before the half's word gets the number.
    pub(crate) fn send_user(&self, half: Half, number: u64) -> Result<(), Errno> {
        let mut bytes = [half.kind() as u8; FILE_BYTES];
        bytes[1..].copy_from_slice(&number.to_le_bytes());
        let watch = process::own_watch();
        socket::send(&self.socket, &bytes, watch.as_ref().map(AsFd::as_fd))
    }

    /// The user of a half of this end, and the word that names it.
    pub(crate) fn user(&self, half: Half) -> (&User, &AtomicU64) {
        let (user, word) = &self.users[half as usize];
        (user, self.region.word64(*word))
    }

    /// Whether this process uses a half of this end, and no other process has taken it over.
    pub(crate) fn is_own(&self, half: Half) -> bool {
        let (user, word) = self.user(half);
        user.is_here() && user.is_last(word)
    }

    /// The process that uses the other end of a half. `number` is the value in the word of that
    /// end. If no packet named that process, it is unknown, and only the socket shows its death.
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

    /// Removes the arrival of this kind and number. Drops arrivals of this kind with lower
    /// numbers.
    fn take_arrival(&self, kind: Kind, number: u64) -> Option<Arrival> {
        let mut arrivals = self.arrivals();
        arrivals.retain(|it| it.kind != kind || it.number >= number);
        let index = arrivals.iter().position(|it| (it.kind, it.number) == (kind, number))?;
        arrivals.remove(index)
    }

    /// Records that a half of this end is closed in all processes.
    pub(crate) fn end_half(&self) {
        self.ended.fetch_add(1, Relaxed);
    }

    /// The descriptor of this kind with this number. Closes descriptors of this kind with lower
    /// numbers.
    ///
    /// # Errors
    /// The errors of [`Received::file`].
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

    /// Reads the packets that arrived, at most as many as a correct peer can have sent. Drops
    /// malformed packets, and packets beyond the number that can be in transit, and closes their
    /// descriptors. If the peer hands over a descriptor of a foreign kind, the channel is broken.
    pub(crate) fn read_socket(&self) {
        for _ in 0..4 * layout::SLOTS {
            if self.is_broken.load(Relaxed) || self.is_next_for_other_process() {
                return;
            }
            let Ok(Some(packet)) = socket::receive(&self.socket) else { return };
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
    /// Whether the next packet has a descriptor for a half that another process uses and will
    /// read. Without a fork there is no other process. Either process reads a packet about the
    /// peer's users. If the information about the users is missing, the ring replaces mechanisms
    /// that access the peer's memory.
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
    /// The half of the other end with which this half exchanges bytes.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Sending => Self::Receiving,
            Self::Receiving => Self::Sending,
        }
    }

    /// The kind of a packet that names the user of this half.
    fn kind(self) -> Kind {
        match self {
            Self::Sending => Kind::Sender,
            Self::Receiving => Kind::Receiver,
        }
    }

    /// The offset of the word with the user of this half, at the end that sends on `lane`.
    fn word(self, lane: usize) -> usize {
        match self {
            Self::Sending => layout::words_start(lane) + layout::SENDER_USER,
            Self::Receiving => layout::words_start(1 - lane) + layout::RECEIVER_USER,
        }
    }
}

/// Number of packets that can be in transit in addition to the packets of messages: a pool, and
/// the users of either half. Several processes may send such a packet, although only one takes
/// the half over.
const PACKETS_BESIDE: u64 = 18;

/// The kind and the number in a packet with a descriptor.
pub(crate) fn parse_packet(bytes: &[u8]) -> Option<(Kind, u64)> {
    let (kind, number) = bytes.split_first()?;
    Some((Kind::of(*kind)?, u64::from_le_bytes(number.try_into().ok()?)))
}

impl Drop for Link {
    /// Leaves the socket open if another process has a copy of a half.
    fn drop(&mut self) {
        if *self.ended.get_mut() < 2 {
            self.socket.leave_to_others();
        }
    }
}

impl AsFd for Link {
    /// The descriptor that an event loop polls.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}
