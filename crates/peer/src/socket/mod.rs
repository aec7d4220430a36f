//! A Unix socket to another process: packets, descriptors and their sender.
//!
//! From the bottom up:
//!
//! - `message`: bytes and descriptors, sent and received;
//! - `wait`: waits for a socket;
//! - `connection`: makes, connects and accepts sockets.

mod connection;
mod message;
mod wait;

use std::ops::Deref;

use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, Shutdown, SocketType, sockopt};

use super::closer;
use super::descriptor::keep;
use super::error::Error;
use super::received::Received;

pub use connection::{
    BACKLOG, accept, address_of, at, connect, connect_to, is_over, new_socket, other_end, pair,
    stop_listening,
};
pub use message::{
    PACKET_BYTES, Packet, Taken, hear, nudge, receive, refuse_descriptors, say, send, take,
};
pub use wait::{receive_until, wait_readable};

/// A connected socket for packets. Descriptors that are still in transit in the socket do not
/// delay its closing.
#[derive(Debug)]
pub struct Socket {
    socket: Option<OwnedFd>,
    /// Whether another process that has a copy of the descriptor continues to use the socket.
    is_others: bool,
}

/// The largest number of packets that are read from a socket when it is closed. Reading them
/// takes about 10 ms.
const PACKETS_LEFT_MAX: u32 = 4096;

impl Socket {
    /// Prepares a connected Unix socket for packets for its use. Refuses any other descriptor.
    ///
    /// # Errors
    /// [`Error::NotASocket`], [`Error::System`].
    pub fn adopt(socket: OwnedFd) -> Result<Self, Error> {
        let socket = keep(socket).map_err(Error::system("prepare the socket"))?;
        let refuse = |found| Error::NotASocket { found };
        let domain = sockopt::socket_domain(&socket).map_err(|_| refuse("not a socket"))?;
        let kind = sockopt::socket_type(&socket).map_err(|_| refuse("not a socket"))?;
        if domain != AddressFamily::UNIX || kind != SocketType::SEQPACKET {
            return Err(refuse("another kind of socket"));
        }
        let prepared = rustix::io::ioctl_fionbio(&socket, true);
        prepared.map_err(Error::system("prepare the socket"))?;
        let prepared = sockopt::set_socket_passcred(&socket, true);
        prepared.map_err(Error::system("prepare the socket"))?;
        Ok(Self { socket: Some(socket), is_others: false })
    }

    /// After this call, dropping the value only closes this process's descriptor.
    pub fn leave_to_others(&mut self) {
        self.is_others = true;
    }
}

impl Deref for Socket {
    type Target = OwnedFd;

    fn deref(&self) -> &OwnedFd {
        self.socket.as_ref().expect("the socket exists until the drop")
    }
}

impl Drop for Socket {
    /// Reads the packets that are still in the socket, because closing a socket also closes the
    /// descriptors in transit in it.
    fn drop(&mut self) {
        let Some(socket) = self.socket.take().filter(|_| !self.is_others) else { return };
        // From now on, the peer cannot send more packets.
        let _ = rustix::net::shutdown(&socket, Shutdown::Read);
        for _ in 0..PACKETS_LEFT_MAX {
            match receive(&socket) {
                Ok(Some(Packet { file: Received::Foreign, .. })) => break,
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return,
            }
        }
        closer::close([socket]);
    }
}
