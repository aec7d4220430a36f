//! Opens, splits and closes channels. `message` sends and receives.

use std::ffi::{c_char, c_int};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::path::Path;
use std::ptr;

use haul_rust::channel::{
    Channel, Error, Identity, Listener, Receiver, Sender, Settings, Users, pair,
};

use crate::argument::{give, put, take, text_of};
use crate::options::{haul_channel_options, mechanism_of};
use crate::status::haul_status;

/// One end of a channel between two processes, for both directions, or one half of an end: see
/// haul_channel_split(). Only one thread at a time may use a channel. A fork copies it. The first
/// process that uses a direction afterwards owns that direction; a call in another process
/// returns HAUL_ERROR_BROKEN. Each process must close its own copy.
#[derive(Debug)]
pub struct haul_channel {
    /// The half is in a box, so that a message in flight can borrow it.
    pub(crate) sender: Option<Box<Sender>>,
    receiver: Option<Receiver>,
    /// The descriptor that both halves poll. The descriptor is open as long as either half is.
    fd: c_int,
    /// The identity of the peer when the channel was opened. This identity is used while a
    /// message borrows the sending half and the channel has no receiving half.
    peer: Identity,
}

impl haul_channel {
    fn new(channel: Channel) -> Self {
        let (fd, peer) = (channel.as_fd().as_raw_fd(), channel.peer());
        let (sender, receiver) = channel.split();
        Self { sender: Some(Box::new(sender)), receiver: Some(receiver), fd, peer }
    }

    /// The process at the other end now.
    fn peer(&self) -> Identity {
        let sender = || self.sender.as_ref().map(|sender| sender.peer());
        self.receiver.as_ref().map(Receiver::peer).or_else(sender).unwrap_or(self.peer)
    }
}

/// The sending half.
///
/// # Safety
/// `channel` is NULL or a channel that no other thread uses while the half is borrowed.
pub(crate) unsafe fn sender_of<'a>(
    channel: *mut haul_channel,
) -> Result<&'a mut Sender, haul_status> {
    // SAFETY: the caller's promise.
    let channel = unsafe { channel.as_mut() }.ok_or(haul_status::HAUL_ERROR_NULL)?;
    channel.sender.as_deref_mut().ok_or(haul_status::HAUL_ERROR_ARGUMENT)
}

/// The receiving half.
///
/// # Safety
/// As for [`sender_of`].
pub(crate) unsafe fn receiver_of<'a>(
    channel: *mut haul_channel,
) -> Result<&'a mut Receiver, haul_status> {
    // SAFETY: the caller's promise.
    let channel = unsafe { channel.as_mut() }.ok_or(haul_status::HAUL_ERROR_NULL)?;
    channel.receiver.as_mut().ok_or(haul_status::HAUL_ERROR_ARGUMENT)
}

/// A socket with a path, which accepts channels.
#[derive(Debug)]
pub struct haul_channel_listener {
    listener: Listener,
}

/// The process at the other end of a channel, as the kernel reports it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct haul_channel_identity {
    /// The process number; 0 if the process is in a PID namespace that this process cannot see.
    pub process: i32,
    /// The user of the process. All users without a number in this user namespace have the same
    /// number, usually 65534.
    pub user: u32,
    /// The group of the process.
    pub group: u32,
}

const _: () = assert!(size_of::<haul_channel_identity>() == 12);

/// Creates a socket at path, for this user alone, and writes its listener to listener. Replaces a
/// socket at path that no process has open.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_ARGUMENT; HAUL_ERROR_EXISTS; HAUL_ERROR_NOT_FOUND;
/// HAUL_ERROR_FORBIDDEN; HAUL_ERROR_SYSTEM. For an empty path, returns HAUL_ERROR_ARGUMENT.
/// listener is written only on HAUL_OK.
///
/// # Safety
/// path is NULL or a string; listener is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_listen(
    path: *const c_char,
    listener: *mut *mut haul_channel_listener,
) -> haul_status {
    // SAFETY: the caller's promises.
    unsafe { haul_channel_listen_for(path, ptr::null(), listener) }
}

/// Like haul_channel_listen(), but for the users that options allow; options may be NULL. If
/// options allow a user other than this user and root, every process that can reach path may
/// connect, and haul_channel_accept() with the same options refuses processes of other users.
///
/// Returns the codes of haul_channel_listen().
///
/// # Safety
/// path is NULL or a string; options is NULL or readable; listener is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_listen_for(
    path: *const c_char,
    options: *const haul_channel_options,
    listener: *mut *mut haul_channel_listener,
) -> haul_status {
    // SAFETY: the caller's promise for path.
    let path = match unsafe { text_of(path) } {
        Ok(path) => path,
        Err(status) => return status,
    };
    // SAFETY: the caller's promise for options.
    let options = unsafe { options.as_ref() };
    let users = match options.map_or(Ok(Users::Own), haul_channel_options::users) {
        Ok(users) => users,
        Err(status) => return status,
    };
    let make =
        || Ok(haul_channel_listener { listener: Listener::bind_for(Path::new(path), &users)? });
    // SAFETY: the caller's promise for listener.
    unsafe { give(listener, make) }
}

/// Waits for a peer to connect and writes the channel to channel. options may be NULL. A peer that
/// connects and then breaks the protocol delays this call by at most the deadline; the listener
/// stays usable.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_ARGUMENT; HAUL_ERROR_FORBIDDEN if the peer is of a
/// user other than this user and root, and options do not allow that user; HAUL_ERROR_DEADLINE;
/// HAUL_ERROR_PEER_GONE; HAUL_ERROR_PROTOCOL; HAUL_ERROR_NO_MEMORY; HAUL_ERROR_NO_ENGINE if options
/// name an engine that this machine lacks; HAUL_ERROR_SYSTEM. channel is written only on HAUL_OK.
///
/// # Safety
/// listener is NULL or a listener; options is NULL or readable; channel is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_accept(
    listener: *const haul_channel_listener,
    options: *const haul_channel_options,
    channel: *mut *mut haul_channel,
) -> haul_status {
    // SAFETY: the caller's promise for listener.
    let Some(listener) = (unsafe { listener.as_ref() }) else {
        return haul_status::HAUL_ERROR_NULL;
    };
    // SAFETY: the caller's promise for options and channel.
    unsafe { open(options, channel, |settings| listener.listener.accept(settings)) }
}

/// Connects to the listener at path and writes the channel to channel. options may be NULL. Makes
/// some twenty system calls and a mapping of some 4 MiB, whose pages are allocated when they are
/// used.
///
/// Returns the codes of haul_channel_accept(), and HAUL_ERROR_NOT_FOUND if no process listens at
/// path.
///
/// # Safety
/// path is NULL or a string; options is NULL or readable; channel is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_connect(
    path: *const c_char,
    options: *const haul_channel_options,
    channel: *mut *mut haul_channel,
) -> haul_status {
    // SAFETY: the caller's promise for path.
    let path = match unsafe { text_of(path) } {
        Ok(path) => path,
        Err(status) => return status,
    };
    // SAFETY: the caller's promise for options and channel.
    unsafe { open(options, channel, |settings| Channel::connect(Path::new(path), settings)) }
}

/// Creates two connected sockets, closed on exec, and writes them to fds. One socket is for
/// haul_channel_connect_fd() in one process, the other socket for haul_channel_accept_fd() in
/// another process.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_SYSTEM.
///
/// # Safety
/// fds is NULL or has room for two descriptors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_pair(fds: *mut c_int) -> haul_status {
    let make = || {
        let (one, other) = pair()?;
        Ok([one.into_raw_fd(), other.into_raw_fd()])
    };
    // SAFETY: NULL or with room for two, by the caller's promise.
    unsafe { put(fds.cast::<[c_int; 2]>(), make) }
}

/// Opens a channel over a connected socket of haul_channel_pair(), or over another Unix socket of
/// type SOCK_SEQPACKET. The library owns the descriptor from this call on, also after an error.
///
/// Returns the codes of haul_channel_accept().
///
/// # Safety
/// fd is open and has no other owner; options is NULL or readable; channel is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_connect_fd(
    fd: c_int,
    options: *const haul_channel_options,
    channel: *mut *mut haul_channel,
) -> haul_status {
    // SAFETY: the caller's promise for fd.
    let Some(socket) = (unsafe { owned(fd) }) else { return haul_status::HAUL_ERROR_ARGUMENT };
    // SAFETY: the caller's promise for options and channel.
    unsafe { open(options, channel, |settings| Channel::connect_over(socket, settings)) }
}

/// Like haul_channel_connect_fd(), but for the other end.
///
/// # Safety
/// fd is open and has no other owner; options is NULL or readable; channel is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_accept_fd(
    fd: c_int,
    options: *const haul_channel_options,
    channel: *mut *mut haul_channel,
) -> haul_status {
    // SAFETY: the caller's promise for fd.
    let Some(socket) = (unsafe { owned(fd) }) else { return haul_status::HAUL_ERROR_ARGUMENT };
    // SAFETY: the caller's promise for options and channel.
    unsafe { open(options, channel, |settings| Channel::accept_over(socket, settings)) }
}

/// Returns the descriptor to poll for reading before haul_channel_try_recv() is called again; -1
/// for NULL. The channel owns the descriptor, which is closed on exec and with the channel.
///
/// # Safety
/// channel is NULL or a channel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_fd(channel: *const haul_channel) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { channel.as_ref() }.map_or(-1, |channel| channel.fd)
}

/// Returns the descriptor to poll for reading before haul_channel_accept(); -1 for NULL. The
/// listener owns the descriptor.
///
/// # Safety
/// listener is NULL or a listener.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_listener_fd(listener: *const haul_channel_listener) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { listener.as_ref() }.map_or(-1, |listener| listener.listener.as_fd().as_raw_fd())
}

/// Writes the identity of the process at the other end to identity.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL. identity is written only on HAUL_OK.
///
/// # Safety
/// channel is NULL or a channel, or a half of one; identity is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_peer(
    channel: *const haul_channel,
    identity: *mut haul_channel_identity,
) -> haul_status {
    // SAFETY: the caller's promise.
    let channel = unsafe { channel.as_ref() };
    let make = || {
        let Identity { process, user, group } = channel.ok_or(haul_status::HAUL_ERROR_NULL)?.peer();
        Ok(haul_channel_identity { process: process.unwrap_or(0), user, group })
    };
    // SAFETY: the caller's promise.
    unsafe { put(identity, make) }
}

/// Returns whether a haul_channel_mechanism can be used to send to this peer; false for NULL and
/// for a channel without a sending half.
///
/// # Safety
/// channel is NULL or a channel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_offers(channel: *const haul_channel, mechanism: u32) -> bool {
    // SAFETY: the caller's promise.
    let sender = unsafe { channel.as_ref() }.and_then(|channel| channel.sender.as_ref());
    sender.zip(mechanism_of(mechanism)).is_some_and(|(sender, mechanism)| sender.offers(mechanism))
}

/// Moves the sending half of a channel to sender, so that another thread can use it: sender is
/// then a channel that can only send. From this call on, channel can only receive. Each half must
/// be closed. A call that a half does not support returns HAUL_ERROR_ARGUMENT. Both halves have
/// the same descriptor, so only one half at a time can be driven by polling.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_ARGUMENT if the channel is a half already or a
/// message is in flight. sender is written only on HAUL_OK.
///
/// # Safety
/// channel is NULL or a channel; sender is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_split(
    channel: *mut haul_channel,
    sender: *mut *mut haul_channel,
) -> haul_status {
    // SAFETY: the caller's promise for channel.
    let Some(channel) = (unsafe { channel.as_mut() }).filter(|_| !sender.is_null()) else {
        return haul_status::HAUL_ERROR_NULL;
    };
    let Some(half) = channel.sender.take_if(|_| channel.receiver.is_some()) else {
        return haul_status::HAUL_ERROR_ARGUMENT;
    };
    let half = haul_channel { sender: Some(half), receiver: None, ..*channel };
    // SAFETY: the caller's promise for sender.
    unsafe { give(sender, || Ok(half)) }
}

/// Closes a channel, or one of its halves. The peer can still receive messages that were sent
/// whole. After a fork another process can continue with its own copy, unless this process has used
/// the channel since the fork. channel may be NULL.
///
/// # Safety
/// channel is NULL or a channel that no thread uses any more, with no message in flight.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_close(channel: *mut haul_channel) {
    // SAFETY: the caller's promise.
    unsafe { take(channel) };
}

/// Closes a listener. After a fork the last process that closes its copy removes the path. listener
/// may be NULL.
///
/// # Safety
/// listener is NULL or a listener that no thread uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_listener_close(listener: *mut haul_channel_listener) {
    // SAFETY: the caller's promise.
    unsafe { take(listener) };
}

/// # Safety
/// `options` is NULL or readable; `target` is NULL or writable.
unsafe fn open(
    options: *const haul_channel_options,
    target: *mut *mut haul_channel,
    make: impl FnOnce(&Settings) -> Result<Channel, Error>,
) -> haul_status {
    // SAFETY: the caller's promise.
    let settings = match unsafe { settings_of(options) } {
        Ok(settings) => settings,
        Err(status) => return status,
    };
    // SAFETY: the caller's promise.
    unsafe { give(target, || Ok(haul_channel::new(make(&settings)?))) }
}

/// # Safety
/// `options` is NULL or readable.
unsafe fn settings_of(options: *const haul_channel_options) -> Result<Settings, haul_status> {
    // SAFETY: the caller's promise.
    let options = unsafe { options.as_ref() };
    options.map_or_else(|| Ok(Settings::default()), |options| options.settings())
}

/// # Safety
/// `fd`, if it is not negative, is open and has no other owner.
unsafe fn owned(fd: c_int) -> Option<OwnedFd> {
    if fd < 0 {
        return None;
    }
    // SAFETY: the caller's promise.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether the system, or a limit of this process, refused memory.
fn is_of_memory(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::OutOfMemory | io::ErrorKind::FileTooLarge)
}

impl From<Error> for haul_status {
    fn from(error: Error) -> Self {
        match error {
            Error::Socket { reason, .. } => match reason.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                    haul_status::HAUL_ERROR_NOT_FOUND
                }
                io::ErrorKind::AddrInUse => haul_status::HAUL_ERROR_EXISTS,
                io::ErrorKind::PermissionDenied => haul_status::HAUL_ERROR_FORBIDDEN,
                io::ErrorKind::InvalidInput => haul_status::HAUL_ERROR_ARGUMENT,
                _ => haul_status::HAUL_ERROR_SYSTEM,
            },
            Error::System { reason, .. } if is_of_memory(reason.kind()) => {
                haul_status::HAUL_ERROR_NO_MEMORY
            }
            Error::System { .. } | Error::Unclosed { .. } => haul_status::HAUL_ERROR_SYSTEM,
            Error::Handshake { .. } | Error::Memory { .. } | Error::Protocol { .. } => {
                haul_status::HAUL_ERROR_PROTOCOL
            }
            Error::OtherUser { .. } => haul_status::HAUL_ERROR_FORBIDDEN,
            Error::PeerGone { .. } => haul_status::HAUL_ERROR_PEER_GONE,
            Error::Closed => haul_status::HAUL_ERROR_CLOSED,
            Error::Deadline { .. } => haul_status::HAUL_ERROR_DEADLINE,
            Error::TooSmall { .. } => haul_status::HAUL_ERROR_TOO_SMALL,
            Error::TooLong { .. } => haul_status::HAUL_ERROR_TOO_LONG,
            Error::Unavailable { .. } => haul_status::HAUL_ERROR_UNAVAILABLE,
            Error::Damaged { .. } => haul_status::HAUL_ERROR_INTEGRITY,
            Error::GivenUp { .. } | Error::TakenOver { .. } | Error::Broken => {
                haul_status::HAUL_ERROR_BROKEN
            }
            // The enum may grow. A variant that has no separate status here is a defect.
            _ => haul_status::HAUL_ERROR_INTERNAL,
        }
    }
}
