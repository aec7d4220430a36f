//! Socket options that rustix does not support.

use std::io;

use rustix::fd::{AsFd, AsRawFd};

/// A type for which any bits are a valid value, and which has no uninitialized gaps.
///
/// # Safety
/// Both properties must hold.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: numbers.
unsafe impl Plain for i32 {}
// SAFETY: four numbers of 32 bits.
unsafe impl Plain for libc::tpacket_req {}
// SAFETY: numbers of 32, 16, 16 bits and eight bytes, without a gap.
unsafe impl Plain for libc::packet_mreq {}
// SAFETY: two numbers of 32 bits.
unsafe impl Plain for libc::tpacket_stats {}

/// Sets an option.
///
/// # Errors
/// The system's error.
pub(crate) fn set<T: Plain>(socket: impl AsFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    let (socket, value) = (socket.as_fd().as_raw_fd(), std::ptr::from_ref(value));
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value has the given length, and is only read.
    let result = unsafe { libc::setsockopt(socket, level, name, value.cast(), length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads an option into `value`.
///
/// # Errors
/// The system's error.
pub(crate) fn get<T: Plain>(
    socket: impl AsFd,
    level: i32,
    name: i32,
    value: &mut T,
) -> io::Result<()> {
    let (socket, value) = (socket.as_fd().as_raw_fd(), std::ptr::from_mut(value));
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value has the given length, and any bits are valid.
    let result = unsafe { libc::getsockopt(socket, level, name, value.cast(), &raw mut length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
