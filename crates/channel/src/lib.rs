//! Bulk transfer between two processes, by the cheapest mechanism that both ends and the machine
//! allow.
//!
//! Process A has data in its memory. After a transfer, process B has a private copy, and neither
//! process can change the data of the other process. Messages go in both directions, in order,
//! and each arrives whole or not at all.
//!
//! ```no_run
//! # mod haul { pub mod channel { pub use haul_channel::*; } }
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
//! - **Completion.** Once [`send`](Channel::send) returns, or [`Sending::advance`] returns true,
//!   the sender may reuse the bytes: the receiver never sees later writes to them. The buffer that
//!   `recv` returns is the receiver's alone.
//! - **Whole or not at all.** If a peer dies, closes or gives up within a message, the call returns
//!   an error. The caller gets no part of the message.
//! - **The peer belongs to the same user or to root**, as the kernel reports it, unless
//!   [`Settings::users`] allows other users.
//! - **The peer is not trusted.** haul reads each value that the peer writes into shared memory
//!   once, into private memory, and checks it. haul maps the peer's memory only after it has
//!   checked seals and size. The peer cannot cause SIGBUS, and it cannot stall a call beyond
//!   [`Settings::wait`] and [`Settings::deadline`]. Only [`Settings::trusts_peer`], set at both
//!   ends, allows mechanisms without these guarantees.
//! - **Death is noticed.** The first call after the peer closed the channel fails. If the peer
//!   died, the first call that begins at least 0.1 ms later fails. The sender cannot know whether
//!   the peer received a message that was sent before.
//! - The first process that uses a direction afterwards owns that direction; calls in the other
//!   processes return [`Error::TakenOver`]. Each process closes its own copy. The peer sees the
//!   channel closed when no process can continue.
//! - **Nothing is left behind.** All memory is anonymous, and the kernel frees it when the
//!   processes end.
//!
//! # From the bottom up
//!
//! - `table`: the measured choices of mechanisms;
//! - `shared`: words, shared memory and waiting, which both ends use;
//! - `pages`: memory for messages, and pages of messages that replace other pages;
//! - `mechanism`: one file or folder per mechanism, and the choice of a mechanism;
//! - `send`: the sending half;
//! - `receive`: the receiving half.

mod mechanism;
mod pages;
mod receive;
mod send;
mod shared;
mod table;

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::SocketType;

use haul_peer::closer;
use haul_peer::fork::{self, Here};
use haul_peer::life::Life;
use haul_peer::listening::{self, Bound};
use haul_peer::socket::{self, Socket};
use shared::handshake::{self, Agreement};
use shared::link::Link;

pub use haul_model::Bytes;
pub use haul_peer::process::Identity;
pub use haul_peer::users::Users;
pub use mechanism::choose::Reason;
pub use mechanism::sealed::Building;
pub use pages::buffer::Buffer;
pub use receive::receiver::Receiver;
pub use send::sender::{Explanation, Sender};
pub use send::sending::Sending;
pub use shared::account::Account;
pub use shared::error::Error;
pub use shared::names::Mechanism;
pub use shared::settings::Settings;
pub use table::{ChannelTable, Choice, install};

/// One end of a channel between two processes, for both directions. One thread at a time may use
/// a channel, or one thread per half.
#[derive(Debug)]
pub struct Channel {
    sender: Sender,
    receiver: Receiver,
}

impl Channel {
    /// Connects to the [`Listener`] at `path`.
    ///
    /// Costs about twenty system calls and one mapping of about 4 MiB, whose pages are allocated
    /// when they are used.
    ///
    /// # Errors
    /// [`Error::Socket`] if no process listens; [`Error::Handshake`], [`Error::Memory`] if the
    /// listener is not haul's; [`Error::OtherUser`] if [`Settings::users`] does not allow the
    /// listener's user; [`Error::Deadline`]; [`Error::System`]; [`Error::Unclosed`].
    pub fn connect(path: &Path, settings: &Settings) -> Result<Self, Error> {
        Self::connect_over(socket::connect(path)?, settings)
    }

    /// Begins a channel over a connected socket: one of the two that [`pair`] returns, or an
    /// inherited one. From this call on, the socket and all its copies belong to the channel. The
    /// other end calls [`accept_over`](Self::accept_over).
    ///
    /// # Errors
    /// The errors of [`connect`](Self::connect).
    pub fn connect_over(socket: OwnedFd, settings: &Settings) -> Result<Self, Error> {
        let socket = Socket::adopt(socket)?;
        closer::check()?;
        let agreed = handshake::connect(&socket, settings)?;
        Self::new(socket, agreed, settings, 0)
    }

    /// The counterpart of [`connect_over`](Self::connect_over): begins the channel at the other
    /// end of the connection.
    ///
    /// # Errors
    /// The errors of [`connect`](Self::connect).
    pub fn accept_over(socket: OwnedFd, settings: &Settings) -> Result<Self, Error> {
        let socket = Socket::adopt(socket)?;
        closer::check()?;
        let agreed = handshake::accept(&socket, settings)?;
        Self::new(socket, agreed, settings, 1)
    }

    fn new(
        socket: Socket,
        agreed: Agreement,
        settings: &Settings,
        lane: usize,
    ) -> Result<Self, Error> {
        let lives = (Life::new()?, Life::new()?);
        let link = Arc::new(Link::new(socket, agreed, settings.clone(), lane)?);
        let receiver = Receiver::new(Arc::clone(&link), 1 - lane, lives.0);
        Ok(Self { sender: Sender::new(link, lane, lives.1), receiver })
    }

    /// See [`Sender::send`].
    ///
    /// # Errors
    /// The errors of [`Sender::send`].
    pub fn send(&mut self, bytes: &[u8]) -> Result<Account, Error> {
        self.sender.send(bytes)
    }

    /// See [`Sender::send_vectored`].
    ///
    /// # Errors
    /// The errors of [`Sender::send_vectored`].
    pub fn send_vectored(&mut self, parts: &[IoSlice<'_>]) -> Result<Account, Error> {
        self.sender.send_vectored(parts)
    }

    /// See [`Sender::send_built`].
    ///
    /// # Errors
    /// The errors of [`Sender::send_built`].
    pub fn send_built(&mut self, building: Building) -> Result<Account, Error> {
        self.sender.send_built(building)
    }

    /// See [`Sender::start_send`].
    ///
    /// # Errors
    /// The errors of [`Sender::start_send`].
    pub fn start_send<'a>(&'a mut self, bytes: &'a [u8]) -> Result<Sending<'a>, Error> {
        self.sender.start_send(bytes)
    }

    /// See [`Sender::start_send_shared`].
    ///
    /// # Errors
    /// The errors of [`Sender::start_send_shared`].
    pub fn start_send_shared(&mut self, bytes: Arc<Vec<u8>>) -> Result<Sending<'_>, Error> {
        self.sender.start_send_shared(bytes)
    }

    /// See [`Receiver::recv_into`].
    ///
    /// # Errors
    /// The errors of [`Receiver::recv_into`].
    pub fn recv_into(&mut self, target: &mut [u8]) -> Result<Account, Error> {
        self.receiver.recv_into(target)
    }

    /// See [`Receiver::recv_into_exposed`].
    ///
    /// # Errors
    /// The errors of [`Receiver::recv_into_exposed`].
    ///
    /// # Safety
    /// The obligations of [`Receiver::recv_into_exposed`].
    pub unsafe fn recv_into_exposed(&mut self, target: &mut [u8]) -> Result<Account, Error> {
        // SAFETY: the caller promises the same for this method.
        unsafe { self.receiver.recv_into_exposed(target) }
    }

    /// See [`Receiver::recv`].
    ///
    /// # Errors
    /// The errors of [`Receiver::recv`].
    pub fn recv(&mut self) -> Result<Buffer, Error> {
        self.receiver.recv()
    }

    /// See [`Receiver::try_recv`].
    ///
    /// # Errors
    /// The errors of [`Receiver::try_recv`].
    pub fn try_recv(&mut self) -> Result<Option<Buffer>, Error> {
        self.receiver.try_recv()
    }

    /// See [`Receiver::wait_length`].
    ///
    /// # Errors
    /// The errors of [`Receiver::wait_length`].
    pub fn wait_length(&mut self) -> Result<usize, Error> {
        self.receiver.wait_length()
    }

    /// The process at the other end: the process that made the handshake, or its child that
    /// continues the channel.
    #[must_use]
    pub fn peer(&self) -> Identity {
        self.receiver.peer()
    }

    /// Whether the mechanism is available for messages to this peer, as the handshake determined
    /// it.
    #[must_use]
    pub fn offers(&self, mechanism: Mechanism) -> bool {
        self.receiver.offers(mechanism)
    }

    /// Splits the channel into its two halves, so that two threads can use them. Only one half at
    /// a time can be used with poll(2), because both halves have the same descriptor.
    #[must_use]
    pub fn split(self) -> (Sender, Receiver) {
        self.link().is_split.store(true, Relaxed);
        (self.sender, self.receiver)
    }

    fn link(&self) -> &Link {
        self.receiver.link()
    }
}

/// Two connected sockets: one for this process, one to inherit or to hand over. The kernel closes
/// both on exec.
///
/// # Errors
/// [`Error::System`].
pub fn pair() -> Result<(OwnedFd, OwnedFd), Error> {
    Ok(socket::pair()?)
}

impl AsFd for Channel {
    /// The descriptor is readable when [`try_recv`](Channel::try_recv) or [`Sending::advance`]
    /// should be called again.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link().as_fd()
    }
}

/// A socket with a path, on which a program accepts channels. The path is removed when the
/// listener is dropped. After a fork, the path is removed when the last copy of the listener is
/// dropped. It is also removed when the process that made the listener drops its copy, if that
/// process has accepted on the listener since the fork.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    bound: Bound,
    life: Option<Life>,
    /// The process that made the listener, and the number of forks noticed at the last accept.
    here: Here,
    forks: AtomicU64,
}

impl Listener {
    /// Makes a socket at `path`, for this user alone. Replaces a socket that a dead process left
    /// there, but never another file.
    ///
    /// # Errors
    /// [`Error::Socket`], also if another file is at `path`.
    pub fn bind(path: &Path) -> Result<Self, Error> {
        Self::bind_for(path, &Users::Own)
    }

    /// Like [`bind`](Self::bind), for these users. If `users` include others than the calling
    /// user and root, every process that reaches `path` may connect; [`accept`](Self::accept)
    /// then refuses all users except [`Settings::users`].
    ///
    /// # Errors
    /// The errors of [`bind`](Self::bind).
    pub fn bind_for(path: &Path, users: &Users) -> Result<Self, Error> {
        let life = Some(Life::new()?);
        let (kind, backlog) = (SocketType::SEQPACKET, socket::BACKLOG);
        let (socket, bound) = listening::listen(path, kind, backlog, users.are_others())?;
        let (here, forks) = (Here::now(), AtomicU64::new(fork::forks()));
        Ok(Self { socket, bound, life, here, forks })
    }

    /// Accepts the next channel. A process that connects and then makes no progress delays this
    /// call by at most the deadline.
    ///
    /// # Errors
    /// The errors of [`Channel::connect`]; [`Error::OtherUser`] if [`Settings::users`] does not
    /// allow the peer's user; [`Error::Deadline`] if no process connects. The listener stays
    /// usable.
    pub fn accept(&self, settings: &Settings) -> Result<Channel, Error> {
        // This check is made before a connection is accepted, because each accepted connection is
        // one more descriptor to close.
        closer::check()?;
        self.forks.store(fork::forks(), Relaxed);
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
    /// The descriptor is readable when a connection can be accepted.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    /// After a fork, other processes with a copy continue to listen, unless the process that made
    /// the listener has accepted on it since.
    fn drop(&mut self) {
        let is_kept = self.here.is_here() && *self.forks.get_mut() == fork::forks();
        let was_last = self.life.take().is_none_or(Life::was_last);
        if is_kept || was_last {
            socket::stop_listening(&self.socket);
            self.bound.remove();
        }
    }
}

/// The example of the crate's README, which must stay true.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
