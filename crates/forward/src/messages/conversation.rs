//! The conversation of a device: each message is received whole before the crate `vhost` parses it.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use vhost::vhost_user::{BackendReqHandler, Error};

use super::backend::{Backend, Refusal, refuse};
use super::handler::Handler;
use haul_peer::descriptor::keep;
use haul_peer::{closer, received, socket};

/// SET_VRING_ENABLE: ring, state.
const ENABLE: u32 = 18;
const ENABLE_BYTES: usize = HEADER_BYTES + 8;
/// Request, flags, number of bytes that follow.
const HEADER_BYTES: usize = 12;
/// The longest body of a message that the crate accepts, and the most descriptors per message.
const BODY_BYTES_MAX: usize = 4096;
const FILES_MAX: usize = 32;
/// Flags: the protocol's version in the lower two bits, then whether the message is a reply, then
/// whether it requests one.
const VERSION: u32 = 1;
const IS_REPLY: u32 = 1 << 2;
const WANTS_REPLY: u32 = 1 << 3;

/// Why a conversation ends, for an operator; `None` if the other side disconnected.
type EndReason = Option<String>;

/// The conversation with a front end, message by message.
///
/// The crate that parses the messages may close the descriptors in them, and a close may wait for
/// the process that sent them. Therefore each message is received here first, as a whole, and the
/// crate reads it from an internal socket, so that the crate never closes the last copy of a
/// descriptor. Answers take the same path back.
pub(crate) struct Conversation<B: Backend> {
    requests: BackendReqHandler<Handler<B>>,
    /// The other end of the socket that the crate reads.
    inner: UnixStream,
    socket: Option<UnixStream>,
    backend: Arc<B>,
}

/// A received message. A separate thread closes its descriptors.
struct Message {
    bytes: Vec<u8>,
    files: Vec<OwnedFd>,
}

impl Drop for Message {
    fn drop(&mut self) {
        received::let_go(std::mem::take(&mut self.files));
    }
}

impl Message {
    /// Waits for the next message.
    fn receive(socket: &UnixStream) -> Result<Self, EndReason> {
        let mut message = Self { bytes: Vec::new(), files: Vec::new() };
        message.fill(socket, HEADER_BYTES)?;
        let [_, _, length] = words(&message.bytes);
        if length as usize > BODY_BYTES_MAX {
            return Err(Some(format!("it sent a message of {length} B, above 4,096 B")));
        }
        message.fill(socket, HEADER_BYTES + length as usize)?;
        Ok(message)
    }

    /// Receives until the message has `bytes` bytes.
    fn fill(&mut self, socket: &UnixStream, bytes: usize) -> Result<(), EndReason> {
        let mut filled = self.bytes.len();
        self.bytes.resize(bytes, 0);
        while filled < bytes {
            let flags = RecvFlags::empty();
            match socket::take(socket.as_fd(), &mut self.bytes[filled..], flags) {
                Err(Errno::INTR) => {}
                Ok(taken) if taken.length > 0 => {
                    filled += taken.length;
                    self.files.extend(taken.files);
                }
                Ok(_) if filled > 0 => {
                    return Err(Some("it disconnected in the middle of a message".to_owned()));
                }
                // A stopped port shuts its own socket down, or the other side disconnects.
                Ok(_) | Err(_) => return Err(None),
            }
            if self.files.len() > FILES_MAX {
                return Err(Some("it sent more than 32 descriptors with a message".to_owned()));
            }
        }
        Ok(())
    }

    /// Whether the message enables or disables a ring. QEMU enables the rings of a network device
    /// before it sets any feature, and the crate rejects that.
    fn is_enabling(&self) -> bool {
        let [code, flags, _] = words(&self.bytes);
        code == ENABLE && flags & !WANTS_REPLY == VERSION && self.bytes.len() == ENABLE_BYTES
    }
}

impl<B: Backend> Conversation<B> {
    /// # Errors
    /// The process has no descriptor left.
    pub(crate) fn new(socket: UnixStream, backend: Arc<B>) -> std::io::Result<Self> {
        let (inner, outer) = UnixStream::pair()?;
        let [inner, outer] = [keep(inner.into())?, keep(outer.into())?].map(UnixStream::from);
        let handler = Arc::new(Handler(backend.clone()));
        let requests = BackendReqHandler::from_stream(outer, handler);
        Ok(Self { requests, inner, socket: Some(socket), backend })
    }

    /// Waits for a message and executes it. Returns `Ok(false)` if the front end has disconnected
    /// properly.
    ///
    /// # Errors
    /// The fault of the message.
    pub(crate) fn next(&mut self) -> Result<bool, String> {
        let Some(socket) = &self.socket else { return Ok(false) };
        let message = match Message::receive(socket) {
            Ok(message) => message,
            Err(reason) => return reason.map_or(Ok(false), Err),
        };
        if message.is_enabling() {
            return self.enable(socket, &message);
        }
        let files: Vec<_> = message.files.iter().map(AsFd::as_fd).collect();
        if send(&self.inner, &message.bytes, &files).is_err() {
            return Ok(false);
        }
        let done = self.requests.handle_request();
        self.answer(socket);
        match done {
            Ok(()) => Ok(true),
            Err(Error::Disconnected | Error::SocketBroken(_)) => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Forwards the crate's answers to the front end.
    fn answer(&self, socket: &UnixStream) {
        let mut bytes = [0; HEADER_BYTES + BODY_BYTES_MAX];
        while let Ok(taken) = socket::take(self.inner.as_fd(), &mut bytes, RecvFlags::DONTWAIT)
            && taken.length > 0
        {
            let files: Vec<_> = taken.files.iter().map(AsFd::as_fd).collect();
            // A disconnected front end needs no answer.
            let _ = send(socket, &bytes[..taken.length], &files);
        }
    }

    fn enable(&self, socket: &UnixStream, message: &Message) -> Result<bool, String> {
        let [_, flags, _, ring, state] = words(&message.bytes);
        let done = match state {
            0 | 1 => self.backend.set_enabled(ring, state == 1),
            _ => refuse(format!("it set ring {ring} to the state {state}; 0 and 1 are possible")),
        };
        if flags & WANTS_REPLY != 0 {
            let result = u32::from(done.is_err());
            let reply = [ENABLE, VERSION | IS_REPLY, 8, result, 0].map(u32::to_ne_bytes).concat();
            // A disconnected front end needs no reply.
            let _ = send(socket, &reply, &[]);
        }
        done.map(|()| true).map_err(|Refusal(why)| why)
    }
}

impl<B: Backend> Drop for Conversation<B> {
    /// Messages that were not read may hold descriptors.
    fn drop(&mut self) {
        self.socket.take().into_iter().for_each(close);
    }
}

/// Ends a connection, and closes it without waiting for data in flight.
pub(crate) fn close(socket: UnixStream) {
    // The connection may be over already.
    let _ = socket.shutdown(std::net::Shutdown::Both);
    closer::close([OwnedFd::from(socket)]);
}

/// Sends bytes with descriptors.
fn send(socket: &UnixStream, bytes: &[u8], files: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    let parts = [IoSlice::new(bytes)];
    rustix::net::sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL).map(drop)
}

/// The words of a message, in this machine's byte order, as the protocol defines it.
fn words<const N: usize>(bytes: &[u8]) -> [u32; N] {
    let (words, _) = bytes.as_chunks();
    std::array::from_fn(|index| words.get(index).map_or(0, |word| u32::from_ne_bytes(*word)))
}
