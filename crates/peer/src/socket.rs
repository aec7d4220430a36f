//! A Unix socket to another process: packets, descriptors and their sender.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown,
    SocketAddrUnix, SocketFlags, SocketType, UCred, sockopt,
};

use super::closer;
use super::deadline::after;
use super::descriptor::{keep, kept};
use super::error::Error;
use super::received::{self, Received};

/// Bytes of the longest packet that this library sends or receives.
pub const PACKET_BYTES: usize = 128;

/// The largest number of descriptors per packet.
const DESCRIPTORS_MAX: usize = 1;

/// The largest number of waiting connections: the kernel's own default (SOMAXCONN).
pub const BACKLOG: i32 = 4096;

/// A packet from the peer.
#[derive(Debug)]
pub struct Packet {
    /// The buffer; its first `length` bytes are the packet.
    pub bytes: [u8; PACKET_BYTES],
    /// The length of the packet in bytes.
    pub length: usize,
    /// The descriptor that came with the packet.
    pub file: Received,
    /// The sender's process, user and group, as the kernel reports them. The process is 0 if it
    /// is in another PID namespace.
    pub sender: Option<(i32, u32, u32)>,
}

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

/// Creates a non-blocking socket that the caller will bind to `path` or connect to it. `path` is
/// only for the error.
pub fn new_socket(path: &Path, kind: SocketType) -> Result<OwnedFd, Error> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    kept(rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None))
        .map_err(|reason| at("make", path)(reason.into()))
}

/// Maps a system error of the socket at `path`.
pub fn at(attempt: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = PathBuf::from(path);
    move |reason| Error::Socket { attempt, path, reason }
}

/// Two connected sockets: one for this process, and one that another process inherits or
/// receives. Both are closed on exec.
///
/// # Errors
/// [`Error::System`].
pub fn pair() -> Result<(OwnedFd, OwnedFd), Error> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (one, other) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map_err(Error::system("make a pair of sockets"))?;
    let failed = || Error::system::<Errno>("make a pair of sockets");
    Ok((keep(one).map_err(failed())?, keep(other).map_err(failed())?))
}

/// The address of a socket's path. An empty path, perhaps from a missing setting, is refused,
/// because the kernel would choose an address that all users can reach.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`]: the path is empty or too long.
pub fn address_of(path: &Path) -> io::Result<SocketAddrUnix> {
    if path.as_os_str().is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path is empty"));
    }
    Ok(SocketAddrUnix::new(path)?)
}

/// Connects to the socket for packets at `path`.
pub fn connect(path: &Path) -> Result<OwnedFd, Error> {
    connect_to(path, SocketType::SEQPACKET)
}

/// Connects to the socket at `path`, which must have this type, without waiting. If its backlog
/// is full, the reason is [`io::ErrorKind::WouldBlock`].
pub fn connect_to(path: &Path, kind: SocketType) -> Result<OwnedFd, Error> {
    let address = address_of(path).map_err(at("connect to", path))?;
    let socket = new_socket(path, kind)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) => Ok(socket),
        // The system returns the same error for a file that is not a socket as for a socket
        // without a listener.
        Err(Errno::CONNREFUSED) if is_other_file(path) => {
            Err(at("connect to", path)(io::Error::other("it is not a socket")))
        }
        Err(reason) => Err(at("connect to", path)(reason.into())),
    }
}

fn is_other_file(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|facts| !facts.file_type().is_socket())
}

/// Accepts the next connection. Returns `None` if no process connects in time.
///
/// # Errors
/// [`Error::System`], for example if the listener was shut down, perhaps by another process that
/// has a copy of its descriptor.
pub fn accept(socket: &OwnedFd, wait: Option<Duration>) -> Result<Option<OwnedFd>, Error> {
    let until = wait.map(after);
    loop {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match kept(rustix::net::accept_with(socket, flags)) {
            Ok(connection) => return Ok(Some(connection)),
            // There was no connection, or the connection ended before it was accepted, or a
            // signal interrupted the call.
            Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => {}
            Err(reason) => return Err(Error::system("accept a connection")(reason)),
        }
        match wait_for(socket.as_fd(), until)? {
            Some(found) if is_over(found) => {
                let reason = "the listener was shut down: listen anew";
                return Err(Error::system("accept a connection")(io::Error::other(reason)));
            }
            // Another process accepted the connection, or the connection ended. Try again.
            Some(_) if until.is_none_or(|until| Instant::now() < until) => {}
            _ => return Ok(None),
        }
    }
}

/// Whether poll(2) reports that a listener is shut down, which is permanent.
pub fn is_over(found: PollFlags) -> bool {
    found.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
}

/// Refuses new connections, and closes those that wait to be accepted.
pub fn stop_listening(socket: &OwnedFd) {
    let _ = rustix::net::shutdown(socket, Shutdown::Both);
    for _ in 0..BACKLOG {
        let accepted = kept(rustix::net::accept_with(socket, SocketFlags::CLOEXEC));
        let Ok(connection) = accepted else { return };
        // Drops the connection as a `Socket`, so that packets that the other end has already sent
        // do not delay its closing.
        drop(Socket::adopt(connection));
    }
}

/// Sends a packet with this process's credentials and, if given, a descriptor.
pub fn send(socket: &OwnedFd, bytes: &[u8], file: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
    let own = UCred {
        pid: rustix::process::getpid(),
        uid: rustix::process::geteuid(),
        gid: rustix::process::getegid(),
    };
    match send_as(Some(own), socket, bytes, file) {
        // A process whose user has no number in its user namespace cannot send credentials. In
        // this case the kernel adds the sender's credentials itself.
        Err(Errno::INVAL | Errno::PERM) => send_as(None, socket, bytes, file),
        result => result,
    }
}

fn send_as(
    own: Option<UCred>,
    socket: &OwnedFd,
    bytes: &[u8],
    file: Option<BorrowedFd<'_>>,
) -> Result<(), Errno> {
    let mut space =
        [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX), ScmCredentials(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if let Some(own) = own {
        control.push(SendAncillaryMessage::ScmCredentials(own));
    }
    let files: Vec<BorrowedFd<'_>> = file.into_iter().collect();
    if !files.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&files));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    loop {
        match rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags) {
            Err(Errno::INTR) => {}
            result => return result.map(drop),
        }
    }
}

/// The process, the user and the group at the other end at the time when that end connected; for
/// a listener, when it began to listen. The process is 0 if it is not visible in this PID
/// namespace.
pub fn other_end(socket: impl AsFd) -> Result<(i32, u32, u32), Error> {
    let socket = socket.as_fd();
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes to a structure of this length, and to the length; both live
    // longer than the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut length,
        )
    };
    match result {
        0 => Ok((credentials.pid, credentials.uid, credentials.gid)),
        _ => {
            Err(Error::system("read the credentials of the other end")(io::Error::last_os_error()))
        }
    }
}

/// Sends bytes without credentials or a descriptor, without waiting.
pub fn say(socket: &OwnedFd, bytes: &[u8]) -> Result<(), Errno> {
    rustix::net::send(socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).map(drop)
}

/// Receives the bytes of the next packet and closes its descriptors, both without waiting.
/// Returns the packet's length, even if it exceeds the buffer.
pub fn hear(socket: &OwnedFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
    let taken = take(socket.as_fd(), buffer, flags)?;
    received::let_go(taken.files);
    Ok(taken.length)
}

/// Makes the peer's poll return. An error is ignored, because a full socket makes the poll return
/// anyway.
pub fn nudge(socket: &OwnedFd) {
    let _ = rustix::net::send(socket, &[0], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

/// Receives the next packet without waiting. Returns `None` if there is no packet. [`Received`]
/// says whether the packet's descriptor is kept.
pub fn receive(socket: &OwnedFd) -> Result<Option<Packet>, Errno> {
    let mut bytes = [0; PACKET_BYTES];
    let taken = match take(socket.as_fd(), &mut bytes, RecvFlags::DONTWAIT) {
        Ok(taken) => taken,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
        Err(reason) => return Err(reason),
    };
    let Taken { length, files, is_cut, sender } = taken;
    // An empty packet has a sender; the end of the connection has none.
    if length == 0 && sender.is_none() {
        return Err(Errno::CONNRESET);
    }
    let file = Received::of(files, is_cut);
    Ok(Some(Packet { bytes, length, file, sender }))
}

/// A received message. Closing one of its descriptors may wait for the peer: see
/// [`received::let_go`].
pub struct Taken {
    /// The number of bytes.
    pub length: usize,
    /// The descriptors that came with the message.
    pub files: Vec<OwnedFd>,
    /// Whether descriptors are missing.
    is_cut: bool,
    sender: Option<(i32, u32, u32)>,
}

/// Receives bytes, and all descriptors that came with them.
///
/// # Errors
/// The error of recvmsg(2).
pub fn take(socket: BorrowedFd<'_>, buffer: &mut [u8], flags: RecvFlags) -> Result<Taken, Errno> {
    let mut control = [0_u64; CONTROL_BYTES / 8];
    let mut vector = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: zeros are a valid value of this plain structure, with numbers 0 and null pointers.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = CONTROL_BYTES as _;
    let flags = flags.bits() as i32 | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the header names one vector and one control buffer. Both live longer than the call,
    // are writable, and have the lengths in the header. No other reference to them exists.
    let result = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags) };
    if result < 0 {
        return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    let (files, is_cut, sender) = controls(&header);
    Ok(Taken { length: result as usize, files, is_cut, sender })
}

/// Makes the kernel refuse descriptors from the peer, if it can (Linux 6.16), so that this
/// process has to close none.
pub fn refuse_descriptors(socket: BorrowedFd<'_>) {
    /// SO_PASSRIGHTS of asm-generic/socket.h.
    const PASS_RIGHTS: i32 = 83;
    let none = 0_i32;
    // SAFETY: the option has four bytes, which the kernel only reads. An older kernel refuses the
    // option's number.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            PASS_RIGHTS,
            (&raw const none).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
}

/// The buffer has room for 253 descriptors, the kernel's SCM_MAX_FD, and credentials: two headers
/// of 16 B, 1016 B and 16 B. If descriptors did not fit, the kernel would close them during the
/// call that receives, which may wait for the peer.
const CONTROL_BYTES: usize = 1064;

/// The content of the control buffer that the kernel filled: descriptors, whether descriptors are
/// missing, and the sender.
fn controls(header: &libc::msghdr) -> (Vec<OwnedFd>, bool, Option<(i32, u32, u32)>) {
    let (mut files, mut sender) = (Vec::new(), None);
    let mut is_cut = header.msg_flags & libc::MSG_CTRUNC != 0;
    // SAFETY: recvmsg filled the header.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    // SAFETY: the pointer is not null, so it points at a control header inside the buffer, which
    // is aligned.
    while let Some(control) = unsafe { next.as_ref() } {
        // SAFETY: a control header of the buffer; its data follow it.
        let data = unsafe { libc::CMSG_DATA(next) };
        // SAFETY: computes the length of a header without data, and accesses no memory.
        let head = unsafe { libc::CMSG_LEN(0) } as usize;
        let length = control.cmsg_len.saturating_sub(head);
        match (control.cmsg_level, control.cmsg_type) {
            (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                for index in 0..length / size_of::<RawFd>() {
                    // SAFETY: the kernel wrote `length` bytes of descriptors there.
                    let at = unsafe { data.cast::<RawFd>().add(index) };
                    // SAFETY: as above; the read requires no alignment.
                    let raw = unsafe { at.read_unaligned() };
                    // SAFETY: the kernel has just opened this descriptor for this process, and no
                    // other code knows it.
                    let file = unsafe { OwnedFd::from_raw_fd(raw) };
                    match keep(file) {
                        Ok(file) => files.push(file),
                        Err(_) => is_cut = true,
                    }
                }
            }
            (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) if length >= size_of::<libc::ucred>() => {
                // SAFETY: the kernel wrote such a structure there; the read requires no
                // alignment.
                let credentials = unsafe { data.cast::<libc::ucred>().read_unaligned() };
                sender = Some((credentials.pid, credentials.uid, credentials.gid));
            }
            _ => {}
        }
        // SAFETY: the header that recvmsg filled, and a control header of its buffer.
        next = unsafe { libc::CMSG_NXTHDR(header, next) };
    }
    (files, is_cut, sender)
}

/// Waits for the next packet until the instant `until`.
pub fn receive_until(socket: &OwnedFd, limit: Duration, until: Instant) -> Result<Packet, Error> {
    loop {
        match receive(socket) {
            Ok(Some(packet)) => return Ok(packet),
            Ok(None) => {}
            Err(_) => return Err(Error::Gone),
        }
        let is_late = Instant::now() >= until;
        if is_late || !wait_readable(socket.as_fd(), Some(until))? {
            let waited = limit + until.elapsed();
            return Err(Error::Late { waited, limit });
        }
    }
}

/// Waits until a descriptor is readable or its other end is gone. Returns false if the time is
/// over.
pub fn wait_readable(file: BorrowedFd<'_>, until: Option<Instant>) -> Result<bool, Error> {
    wait_for(file, until).map(|found| found.is_some())
}

/// Like [`wait_readable`], but returns the events; `None` if the time is over.
fn wait_for(file: BorrowedFd<'_>, until: Option<Instant>) -> Result<Option<PollFlags>, Error> {
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let time = left.map(|left| Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        });
        let mut set = [PollFd::from_borrowed_fd(file, PollFlags::IN)];
        match rustix::event::poll(&mut set, time.as_ref()) {
            Ok(0) => return Ok(None),
            Ok(_) => return Ok(Some(set[0].revents())),
            Err(Errno::INTR) => {}
            Err(reason) => return Err(Error::system("wait for the socket")(reason)),
        }
    }
}
