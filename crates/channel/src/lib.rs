//! Bulk transfer between two processes, by the cheapest way that both ends and the machine allow.
//!
//! Process A has a chunk of data in its memory; afterwards process B has a private copy, and
//! neither can disturb the other's. Messages go both ways, in order, each whole or not at all.
//!
//! ```no_run
//! # mod haul { pub use haul_channel as channel; }
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
//! - **The peer is of one's own user, or root**, as the kernel says it, unless [`Settings::users`]
//!   allows others.
//! - **The peer is not believed.** What it writes into shared memory is read once, into private
//!   memory, and checked; its memory is mapped only after seals and size were seen; it cannot cause
//!   SIGBUS, and it cannot stall a call beyond [`Settings::wait`] and [`Settings::deadline`]. Only
//!   [`Settings::trusts_peer`], at both ends, allows mechanisms for which this does not hold.
//! - **Death is noticed.** The first call after the peer closed fails, and the first that begins
//!   0.1 ms after it died. Of a message that was sent before that nobody can say whether it was
//!   received.
//! - **A fork copies an end**, and the first process that uses a direction afterwards has it; in
//!   the others it is [`Error::TakenOver`]. Each closes its own copy, and the peer sees the end
//!   when no process can go on.
//! - **Nothing is left behind.** All memory is anonymous and goes with the processes.
//!
//! # From the bottom up
//!
//! - `table`: the measured choices of mechanisms;
//! - `shared`: what both ends have: words, shared memory, waiting;
//! - `pages`: pages of messages that take the place of others;
//! - `mechanism`: one file for each mechanism, and which of them a message takes;
//! - `send`: the half that messages go into;
//! - `receive`: the half that they come out of.

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
pub use mechanism::vmsplice::vmsplice_copy;
pub use pages::buffer::Buffer;
pub use receive::receiver::Receiver;
pub use send::sender::{Explanation, Sender};
pub use send::sending::Sending;
pub use shared::account::Account;
pub use shared::error::Error;
pub use shared::names::Mechanism;
pub use shared::settings::Settings;
pub use table::{ChannelTable, Choice, install};

/// One end of a channel between two processes, for both directions. One thread at a time uses it,
/// or one each of its halves.
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

    /// Begins a channel over a connected socket, one of a [`pair`] or an inherited one, which is
    /// the channel's from here on, in all its copies. The other end calls
    /// [`accept_over`](Self::accept_over).
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_over(socket: OwnedFd, settings: &Settings) -> Result<Self, Error> {
        let socket = Socket::adopt(socket)?;
        closer::check()?;
        let agreed = handshake::connect(&socket, settings)?;
        Self::new(socket, agreed, settings, 0)
    }

    /// The other end of [`connect_over`](Self::connect_over).
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
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

    /// See [`Receiver::recv_into_exposed`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn recv_into_exposed(&mut self, target: &mut [u8]) -> Result<Account, Error> {
        // SAFETY: the caller's promise is the same.
        unsafe { self.receiver.recv_into_exposed(target) }
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

    /// Who is at the other end: the process that was met, or one that it forked and that goes on.
    #[must_use]
    pub fn peer(&self) -> Identity {
        self.receiver.peer()
    }

    /// Whether the mechanism can be used to send to this peer, as it was tried when they met.
    #[must_use]
    pub fn offers(&self, mechanism: Mechanism) -> bool {
        self.receiver.offers(mechanism)
    }

    /// The two halves, for two threads. Only one of them at a time can be driven by polling: both
    /// have the same descriptor.
    #[must_use]
    pub fn split(self) -> (Sender, Receiver) {
        self.link().is_split.store(true, Relaxed);
        (self.sender, self.receiver)
    }

    fn link(&self) -> &Link {
        self.receiver.link()
    }
}

/// Two connected sockets: one for this process, one to be inherited or handed over. Closed on exec.
///
/// # Errors
/// [`Error::System`].
pub fn pair() -> Result<(OwnedFd, OwnedFd), Error> {
    Ok(socket::pair()?)
}

impl AsFd for Channel {
    /// Readable when [`try_recv`](Channel::try_recv) or [`Sending::advance`] should be called
    /// again.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link().as_fd()
    }
}

/// A socket with a path that channels are accepted on. Its path goes as it is dropped; where a fork
/// made copies, as the last is dropped, or by the process that made it and accepted since the fork.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    bound: Bound,
    life: Option<Life>,
    /// The process that made it, and how many forks it had noticed as it was accepted on last.
    here: Here,
    forks: AtomicU64,
}

impl Listener {
    /// Makes a socket at `path`, for this user alone. A socket that a process left there which is
    /// gone is replaced; nothing else ever is.
    ///
    /// # Errors
    /// [`Error::Socket`], also where something is there already.
    pub fn bind(path: &Path) -> Result<Self, Error> {
        Self::bind_for(path, &Users::Own)
    }

    /// As [`bind`](Self::bind), for these users: where they are others than one's own and root,
    /// everybody may connect that reaches `path`, and [`accept`](Self::accept) refuses all but
    /// [`Settings::users`].
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_for(path: &Path, users: &Users) -> Result<Self, Error> {
        let life = Some(Life::new()?);
        let (kind, backlog) = (SocketType::SEQPACKET, socket::BACKLOG);
        let (socket, bound) = listening::listen(path, kind, backlog, users.are_others())?;
        let (here, forks) = (Here::now(), AtomicU64::new(fork::forks()));
        Ok(Self { socket, bound, life, here, forks })
    }

    /// The next channel. Whoever connects and then does not behave costs at most the deadline.
    ///
    /// # Errors
    /// As [`Channel::connect`], [`Error::OtherUser`] where whoever connects is not of
    /// [`Settings::users`];
    /// [`Error::Deadline`] when nobody comes. The listener stays usable.
    pub fn accept(&self, settings: &Settings) -> Result<Channel, Error> {
        // Who waits is left to wait: each connection is one more descriptor to be closed.
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
    /// Readable when somebody waits to be accepted.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    /// Other processes that have it, which a fork made, go on listening, unless the one that made
    /// it has accepted on it since and so has not left it to them.
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
