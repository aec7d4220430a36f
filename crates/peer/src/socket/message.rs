//! Messages through a socket, sent and received without waiting: bytes, descriptors and the
//! sender's credentials.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, UCred};

use crate::descriptor::keep;
use crate::received::{self, Received};

/// The size in bytes of the longest packet that this library sends or receives.
pub const PACKET_BYTES: usize = 128;

/// The largest number of descriptors per packet.
const DESCRIPTORS_MAX: usize = 1;

/// The buffer has room for 253 descriptors, the kernel's SCM_MAX_FD, and credentials: two headers
/// of 16 B, 1016 B and 16 B. If descriptors did not fit, the kernel would close them during the
/// call that receives, which may wait for the peer.
const CONTROL_BYTES: usize = 1064;

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

/// Sends bytes without credentials or a descriptor, without waiting.
pub fn say(socket: &OwnedFd, bytes: &[u8]) -> Result<(), Errno> {
    rustix::net::send(socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).map(drop)
}

/// Makes the peer's poll return. An error is ignored, because a full socket makes the poll return
/// anyway.
pub fn nudge(socket: &OwnedFd) {
    let _ = rustix::net::send(socket, &[0], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

/// Receives the bytes of the next packet and closes its descriptors, both without waiting.
/// Returns the packet's length, even if it exceeds the buffer.
pub fn hear(socket: &OwnedFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
    let taken = take(socket.as_fd(), buffer, flags)?;
    received::let_go(taken.files);
    Ok(taken.length)
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
    // An empty packet has a sender, but the end of the connection has no sender.
    if length == 0 && sender.is_none() {
        return Err(Errno::CONNRESET);
    }
    let file = Received::of(files, is_cut);
    Ok(Some(Packet { bytes, length, file, sender }))
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
