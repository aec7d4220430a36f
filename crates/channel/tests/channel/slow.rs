//! Descriptors that are slow to close, for tests that hand them over.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::sockopt;

/// The time that the close of such a descriptor waits, if the library does not prevent it.
const LINGER: Duration = Duration::from_secs(100);

/// A connection whose other end, the second value, reads nothing. The last close of the
/// connection waits until the written bytes are sent, at most for `linger`. Returns `None`
/// without a loopback network.
pub(crate) fn slow_for(linger: Duration) -> Option<(OwnedFd, TcpStream)> {
    let connected = TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| Ok((TcpStream::connect(listener.local_addr()?)?, listener)));
    let Ok((mut slow, listener)) = connected else {
        eprintln!(
            "SKIPPED: descriptors that are slow to be closed: no loopback network: ip link set lo up"
        );
        return None;
    };
    let other = listener.accept().unwrap().0;
    slow.set_nonblocking(true).unwrap();
    while slow.write(&[0; 65536]).is_ok() {}
    slow.set_nonblocking(false).unwrap();
    sockopt::set_socket_linger(&slow, Some(linger)).unwrap();
    Some((slow.into(), other))
}

/// Like `slow_for`, for longer than any test takes.
pub(crate) fn slow() -> Option<(OwnedFd, TcpStream)> {
    slow_for(LINGER)
}
