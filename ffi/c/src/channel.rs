//! Channels: made, and left. What goes through them is in `message`.

use std::ffi::{c_char, c_int};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::path::Path;
use std::ptr;

use haul_rust::channel::{Channel, Error, Identity, Listener, Receiver, Sender, Settings, pair};

use crate::argument::{give, put, take, text_of};
use crate::options::{haul_channel_options, mechanism_of};
use crate::status::haul_status;

/// One end of a channel between two processes, for both directions, or one of its halves: see
/// haul_channel_split(). One thread at a time may use it. A fork copies it: a direction is the
/// first process's that uses it afterwards, and HAUL_ERROR_BROKEN in the others; each closes its
/// own copy.
#[derive(Debug)]
pub struct haul_channel {
    /// In memory of its own, so that a message on its way can have it.
    pub(crate) sender: Option<Box<Sender>>,
    receiver: Option<Receiver>,
    /// What both halves poll, for as long as either lives.
    fd: c_int,
    /// Who the peer was as it was met: while the sending half is lent to a message, and there is no
    /// other, nobody can be asked.
    peer: Identity,
}

impl haul_channel {
    fn new(channel: Channel) -> Self {
        let (fd, peer) = (channel.as_fd().as_raw_fd(), channel.peer());
        let (sender, receiver) = channel.split();
        Self { sender: Some(Box::new(sender)), receiver: Some(receiver), fd, peer }
    }

    /// Who is at the other end now.
    fn peer(&self) -> Identity {
        let sender = || self.sender.as_ref().map(|sender| sender.peer());
        self.receiver.as_ref().map(Receiver::peer).or_else(sender).unwrap_or(self.peer)
    }
}

/// The half that messages go into.
///
/// # Safety
/// `channel` is NULL or a channel that nobody else uses while the half is borrowed.
pub(crate) unsafe fn sender_of<'a>(
    channel: *mut haul_channel,
) -> Result<&'a mut Sender, haul_status> {
    // SAFETY: the caller's promise.
    let channel = unsafe { channel.as_mut() }.ok_or(haul_status::HAUL_ERROR_NULL)?;
    channel.sender.as_deref_mut().ok_or(haul_status::HAUL_ERROR_ARGUMENT)
}

/// The half that messages come out of.
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

/// A socket with a path that channels are accepted on.
#[derive(Debug)]
pub struct haul_channel_listener {
    listener: Listener,
}

/// Who is at the other end of a channel, as the kernel vouches for it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct haul_channel_identity {
    /// Its process; 0 where it lives in a PID namespace that this one cannot see.
    pub process: i32,
    /// Its user. Users that have no number in this user namespace all have the same one, mostly
    /// 65534.
    pub user: u32,
    /// Its group.
    pub group: u32,
}

const _: () = assert!(size_of::<haul_channel_identity>() == 12);

/// Makes a socket at path, for this user alone, and writes its listener to listener. A socket there
/// that no process has any more is replaced.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_ARGUMENT; HAUL_ERROR_EXISTS; HAUL_ERROR_NOT_FOUND;
/// HAUL_ERROR_FORBIDDEN; HAUL_ERROR_SYSTEM. A path that is empty is HAUL_ERROR_ARGUMENT. listener
/// is written on HAUL_OK alone.
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

/// As haul_channel_listen(), for the users that options allow, which may be NULL: where they are
/// others than one's own and root, everybody may connect that reaches path, and
/// haul_channel_accept() with the same options refuses all but these.
///
/// As haul_channel_listen().
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
    let users = match unsafe { settings_of(options) } {
        Ok(settings) => settings.users,
        Err(status) => return status,
    };
    let make =
        || Ok(haul_channel_listener { listener: Listener::bind_for(Path::new(path), &users)? });
    // SAFETY: the caller's promise for listener.
    unsafe { give(listener, make) }
}

/// Waits for somebody to connect, and writes the channel to channel. options may be NULL. Whoever
/// connects and then does not behave costs at most the deadline; the listener stays usable.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_ARGUMENT; HAUL_ERROR_FORBIDDEN where the peer is of
/// a user other than one's own and root, and options do not allow it; HAUL_ERROR_DEADLINE;
/// HAUL_ERROR_PEER_GONE; HAUL_ERROR_PROTOCOL; HAUL_ERROR_NO_MEMORY; HAUL_ERROR_SYSTEM. channel is
/// written on HAUL_OK alone.
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

/// Connects to the listener at path, and writes the channel to channel. options may be NULL. Some
/// twenty system calls and a mapping of some 4 MiB, of which pages are taken as they are used.
///
/// As haul_channel_accept(), and HAUL_ERROR_NOT_FOUND where nobody listens.
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

/// Two connected sockets, closed on exec, for haul_channel_connect_fd() in one process and
/// haul_channel_accept_fd() in another; both are written to fds.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_SYSTEM.
///
/// # Safety
/// fds is NULL or has room for two.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_pair(fds: *mut c_int) -> haul_status {
    let make = || {
        let (one, other) = pair()?;
        Ok([one.into_raw_fd(), other.into_raw_fd()])
    };
    // SAFETY: NULL or with room for two, by the caller's promise.
    unsafe { put(fds.cast::<[c_int; 2]>(), make) }
}

/// Begins a channel over a connected socket of haul_channel_pair(), or another Unix socket of type
/// SOCK_SEQPACKET. The descriptor is the library's from here on, whatever is returned.
///
/// As haul_channel_accept().
///
/// # Safety
/// fd is open and nobody else's; options is NULL or readable; channel is NULL or writable.
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

/// The other end of haul_channel_connect_fd(), likewise.
///
/// # Safety
/// fd is open and nobody else's; options is NULL or readable; channel is NULL or writable.
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

/// What to poll for reading before haul_channel_try_recv() is called again; -1 for NULL. It is the
/// channel's, closed on exec, and goes with it.
///
/// # Safety
/// channel is NULL or a channel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_fd(channel: *const haul_channel) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { channel.as_ref() }.map_or(-1, |channel| channel.fd)
}

/// What to poll for reading before haul_channel_accept(); -1 for NULL. It is the listener's.
///
/// # Safety
/// listener is NULL or a listener.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_listener_fd(listener: *const haul_channel_listener) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { listener.as_ref() }.map_or(-1, |listener| listener.listener.as_fd().as_raw_fd())
}

/// Writes to identity who is at the other end.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL. identity is written on HAUL_OK alone.
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

/// Whether a haul_channel_mechanism can be used to send to this peer; false for NULL, and where
/// there is no sending half.
///
/// # Safety
/// channel is NULL or a channel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_offers(channel: *const haul_channel, mechanism: u32) -> bool {
    // SAFETY: the caller's promise.
    let sender = unsafe { channel.as_ref() }.and_then(|channel| channel.sender.as_ref());
    sender.zip(mechanism_of(mechanism)).is_some_and(|(sender, mechanism)| sender.offers(mechanism))
}

/// Takes the sending half out of a channel, for another thread, and writes it to sender, a channel
/// that can only send; channel can only receive from here on. Each is closed by itself. What a half
/// cannot do returns HAUL_ERROR_ARGUMENT. Only one of the two at a time can be driven by polling:
/// both have the same descriptor.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_ARGUMENT where the channel is a half already, or a
/// message is on its way. sender is written on HAUL_OK alone.
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

/// Closes a channel, or one of its halves. What was sent whole the peer can still receive. After a
/// fork another process goes on with its own copy, unless this one has used the channel since. NULL
/// is fine.
///
/// # Safety
/// channel is NULL or a channel that no thread uses any more, with no message on its way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_close(channel: *mut haul_channel) {
    // SAFETY: the caller's promise.
    unsafe { take(channel) };
}

/// Closes a listener; the last process that has it, after a fork, removes its path. NULL is fine.
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
/// `fd`, if it is not negative, is open and nobody else's.
unsafe fn owned(fd: c_int) -> Option<OwnedFd> {
    if fd < 0 {
        return None;
    }
    // SAFETY: the caller's promise.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether the system, or a limit of this process's, gives no memory.
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
            // The enum may grow: a variant without a status of its own here is a defect.
            _ => haul_status::HAUL_ERROR_INTERNAL,
        }
    }
}
