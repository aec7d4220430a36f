//! Bulk transfer between two processes, by the cheapest way that both ends and the machine allow.
//!
//! Process A has a chunk of data in its memory; afterwards process B has a private copy, and
//! neither can disturb the other's. Messages go both ways, in order, each whole or not at all.
//!
//! ```no_run
//! use haul::channel::{Channel, Listener, Settings};
//! # fn main() -> Result<(), haul::channel::Error> {
//! // In B:
//! let path = std::path::PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR").unwrap()).join("bulk");
//! let listener = Listener::bind(&path)?;
//! let mut channel = listener.accept(&Settings::default())?;
//! let message = channel.recv()?;
//! // In A:
//! let mut channel = Channel::connect(&path, &Settings::default())?;
//! let account = channel.send(&[7; 1 << 20])?;
//! # Ok(()) }
//! ```
//!
//! # What holds for every mechanism
//!
//! - **Completion.** When [`send`](Channel::send) returns, or [`Sending::advance`] says true, the
//!   bytes are the sender's again: nothing written to them from then on is ever seen by the
//!   receiver. What `recv` gives is the receiver's alone.
//! - **Whole or not at all.** A peer that dies, closes or gives up in the middle of a message ends
//!   it with an error. No part of it is handed out.
//! - **The peer is of one's own user, or root**, as the kernel says it, unless [`Settings::users`] allows
//!   others.
//! - **The peer is not believed.** What it writes into shared memory is read once, into private
//!   memory, and checked; its memory is mapped only after seals and size were seen; it cannot cause
//!   SIGBUS, and it cannot stall a call beyond [`Settings::wait`] and [`Settings::deadline`]. Only
//!   [`Settings::trusts_peer`], at both ends, allows mechanisms for which this does not hold.
//! - **Nothing is left behind.** All memory is anonymous and goes with the processes.
//!
//! # From the bottom up
//!
//! `error`, `mechanism`, `account`: the words; `layout`: what stands where in the memory that both ends share; `words`, `counter`, `bell`, `closing`: what
//! both ends change there (`interleavings`: in every order); `region`: that memory; `checksum`: over the bytes of a message; `received`: descriptors of the peer's, `aside`: closed without waiting for it; `alone`: whether memory is somebody's alone; `socket`, `listening`, `peer`, `users`: the other process; `poller`: what an event loop polls; `link`: socket, memory and bells of
//! an end; `place`: where each end may run; `idle`: whether there is a processor for each end; `transfer`: steps, and waiting under a deadline; `ranges`, `pages`, `spares`, `announced`: pages that are put in the place of others; `source`, `buffer`: what goes in and what comes out; `inline`, `ring`, `staged`,
//! `sealed`, `pull`, `double`, `lease` (over `pool`), `vmsplice`: one mechanism each; `choose`: which of them; `handshake`: how two ends meet;
//! `sender` (with `begin`, `sending`), `receiver` (with `incoming`, `filling`): the two halves.

mod account;
mod alone;
mod announced;
mod aside;
mod begin;
mod bell;
mod buffer;
mod checksum;
mod choose;
mod closing;
mod counter;
mod distance;
mod double;
mod error;
mod filling;
mod handshake;
mod huge;
mod idle;
mod incoming;
mod inline;
#[cfg(all(test, loom))]
mod interleavings;
mod layout;
mod lease;
mod link;
mod listening;
mod mechanism;
mod near;
mod pages;
mod peer;
mod place;
mod poller;
mod pool;
mod pull;
mod ranges;
mod received;
mod receiver;
mod region;
mod ring;
mod sealed;
mod sender;
mod sending;
mod socket;
mod source;
mod spares;
mod staged;
mod transfer;
mod users;
mod vmsplice;
mod words;

use std::io::IoSlice;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use haul_model::Bytes;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::sys::Sys;
use handshake::Met;
use link::Link;
use listening::Bound;
use socket::Socket;

pub use account::Account;
pub use buffer::Buffer;
pub use error::Error;
pub use mechanism::Mechanism;
pub use peer::Identity;
pub use receiver::Receiver;
pub use sealed::Building;
pub use sender::Sender;
pub use sending::Sending;
pub use socket::pair;
pub use users::Users;
pub use vmsplice::vmsplice_copy;

/// How a channel behaves at this end. The other end has its own.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Longest that a transfer may take from the moment the peer begins with it, and longest that
    /// the two ends may take to meet.
    pub deadline: Duration,
    /// Longest that a call waits for the peer to begin: a message to come, or room to be made.
    /// `None` is for as long as the peer lives.
    pub wait: Option<Duration>,
    /// Users whose processes may be at the other end: others are refused before a word is said.
    pub users: Users,
    /// Largest message, in bytes, to send or to take.
    pub size_max: u64,
    /// Whether the peer is one of one's own. If both ends say so, mechanisms are allowed that a
    /// hostile peer could abuse: `pull`, `double`, `lease`, `vmsplice`; and what was built in place
    /// changes hands as it is.
    pub trusts_peer: bool,
    /// The part of a message, 0 to 1, that the receiver is expected to write to. Where the ends do
    /// not trust each other, handing over what was built in place is cheap only while that is small;
    /// above what `haul.toml` says, or 0.11, the receiver copies it.
    pub dirty_fraction: f64,
    /// Whether what is sent carries a checksum of the whole message, which the receiver compares
    /// with the bytes that it keeps. It is fused into the copies that the processors make, and a
    /// pass of its own where the kernel makes them.
    pub integrity: bool,
    /// The mechanism to send by, whatever haul would choose. Messages of length zero are inline.
    pub mechanism: Option<Mechanism>,
}

impl Default for Settings {
    /// 30 seconds to begin, 30 to end; one's own user and root; 64 GiB; no trust; nothing written to; no checksum;
    /// haul's choice.
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(30),
            wait: Some(Duration::from_secs(30)),
            users: Users::Own,
            size_max: 64 << 30,
            trusts_peer: false,
            dirty_fraction: 0.0,
            integrity: false,
            mechanism: None,
        }
    }
}

impl Settings {
    /// A chunk of the ring in bytes: a quarter of the core's own L2, a power of two.
    fn chunk_bytes(&self) -> usize {
        static BYTES: OnceLock<usize> = OnceLock::new();
        *BYTES.get_or_init(|| {
            let quarter = Sys::new().caches().size_bytes(2).unwrap_or(1 << 20) / layout::CHUNKS;
            let floor = 1_usize << quarter.max(1).ilog2();
            floor.clamp(layout::CHUNK_BYTES_MIN, layout::CHUNK_BYTES_MAX)
        })
    }
}

/// One end of a channel between two processes, for both directions.
#[derive(Debug)]
pub struct Channel {
    sender: Sender,
    receiver: Receiver,
}

impl Channel {
    /// Connects to the [`Listener`] at `path`.
    ///
    /// Costs some twenty system calls and one mapping of some 4 MiB, of which pages are taken as
    /// they are used.
    ///
    /// # Errors
    /// [`Error::Socket`] where nobody listens; [`Error::Handshake`], [`Error::Memory`] where it is
    /// no channel; [`Error::OtherUser`] where the listener is not of [`Settings::users`];
    /// [`Error::Deadline`]; [`Error::System`]; [`Error::Unclosed`].
    pub fn connect(path: &Path, settings: &Settings) -> Result<Self, Error> {
        Self::connect_over(socket::connect(path)?, settings)
    }

    /// Begins a channel over a connected socket, one of a [`pair`] or an inherited one, which is the
    /// channel's from here on, in all its copies. The other end calls
    /// [`accept_over`](Self::accept_over).
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_over(socket: OwnedFd, settings: &Settings) -> Result<Self, Error> {
        let socket = Socket::adopt(socket)?;
        aside::check()?;
        let met = handshake::connect(&socket, settings)?;
        Self::new(socket, met, settings, 0)
    }

    /// The other end of [`connect_over`](Self::connect_over).
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn accept_over(socket: OwnedFd, settings: &Settings) -> Result<Self, Error> {
        let socket = Socket::adopt(socket)?;
        aside::check()?;
        let met = handshake::accept(&socket, settings)?;
        Self::new(socket, met, settings, 1)
    }

    fn new(socket: Socket, met: Met, settings: &Settings, lane: usize) -> Result<Self, Error> {
        let link = Arc::new(Link::new(socket, met, settings.clone())?);
        let receiver = Receiver::new(Arc::clone(&link), 1 - lane);
        Ok(Self { sender: Sender::new(link, lane), receiver })
    }

    /// See [`Sender::send`].
    ///
    /// # Errors
    /// As there.
    pub fn send(&mut self, bytes: &[u8]) -> Result<Account, Error> {
        self.sender.send(bytes)
    }

    /// See [`Sender::send_vectored`].
    ///
    /// # Errors
    /// As there.
    pub fn send_vectored(&mut self, parts: &[IoSlice<'_>]) -> Result<Account, Error> {
        self.sender.send_vectored(parts)
    }

    /// See [`Sender::send_built`].
    ///
    /// # Errors
    /// As there.
    pub fn send_built(&mut self, building: Building) -> Result<Account, Error> {
        self.sender.send_built(building)
    }

    /// See [`Sender::start_send`].
    ///
    /// # Errors
    /// As there.
    pub fn start_send<'a>(&'a mut self, bytes: &'a [u8]) -> Result<Sending<'a>, Error> {
        self.sender.start_send(bytes)
    }

    /// See [`Receiver::recv_into`].
    ///
    /// # Errors
    /// As there.
    pub fn recv_into(&mut self, target: &mut [u8]) -> Result<Account, Error> {
        self.receiver.recv_into(target)
    }

    /// See [`Receiver::recv`].
    ///
    /// # Errors
    /// As there.
    pub fn recv(&mut self) -> Result<Buffer, Error> {
        self.receiver.recv()
    }

    /// See [`Receiver::try_recv`].
    ///
    /// # Errors
    /// As there.
    pub fn try_recv(&mut self) -> Result<Option<Buffer>, Error> {
        self.receiver.try_recv()
    }

    /// See [`Receiver::wait_length`].
    ///
    /// # Errors
    /// As there.
    pub fn wait_length(&mut self) -> Result<usize, Error> {
        self.receiver.wait_length()
    }

    /// Who is at the other end.
    #[must_use]
    pub fn peer(&self) -> Identity {
        self.link().peer.identity
    }

    /// Whether the mechanism can be used to send to this peer, as it was tried when they met.
    #[must_use]
    pub fn offers(&self, mechanism: Mechanism) -> bool {
        self.link().offers(mechanism)
    }

    /// The two halves, for two threads. Only one of them at a time can be driven by polling: both
    /// have the same descriptor.
    #[must_use]
    pub fn split(self) -> (Sender, Receiver) {
        (self.sender, self.receiver)
    }

    fn link(&self) -> &Link {
        self.receiver.link()
    }
}

impl AsFd for Channel {
    /// Readable when [`try_recv`](Channel::try_recv) or [`Sending::advance`] should be called
    /// again.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link().as_fd()
    }
}

/// A socket with a path that channels are accepted on. Its path goes as it is dropped.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    bound: Bound,
}

impl Listener {
    /// Makes a socket at `path`, for this user alone. A socket that a process left there which is gone is
    /// replaced; nothing else ever is.
    ///
    /// # Errors
    /// [`Error::Socket`], also where something is there already.
    pub fn bind(path: &Path) -> Result<Self, Error> {
        Self::bind_for(path, &Users::Own)
    }

    /// As [`bind`](Self::bind), for these users: where they are others than one's own and root, everybody
    /// may connect that reaches `path`, and [`accept`](Self::accept) refuses all but [`Settings::users`].
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_for(path: &Path, users: &Users) -> Result<Self, Error> {
        let (socket, bound) = listening::listen(path, users.are_others())?;
        Ok(Self { socket, bound })
    }

    /// The next channel. Whoever connects and then does not behave costs at most the deadline.
    ///
    /// # Errors
    /// As [`Channel::connect`], [`Error::OtherUser`] where whoever connects is not of [`Settings::users`];
    /// [`Error::Deadline`] when nobody comes. The listener stays usable.
    pub fn accept(&self, settings: &Settings) -> Result<Channel, Error> {
        // Who waits is left to wait: each connection is one more descriptor to be closed.
        aside::check()?;
        match socket::accept(&self.socket, settings.wait)? {
            Some(socket) => Channel::accept_over(socket, settings),
            None => {
                let limit = settings.wait.unwrap_or_default();
                let (done, size) = (Bytes(0), Bytes(0));
                Err(Error::Deadline { attempt: "accept", done, size, waited: limit, limit })
            }
        }
    }
}

impl AsFd for Listener {
    /// Readable when somebody waits to be accepted.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        socket::stop_listening(&self.socket);
        self.bound.remove();
    }
}
