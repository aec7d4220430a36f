//! Descriptors that take long to be closed, for tests that hand them over.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::sockopt;

/// How long whoever closes one of them is held up, if nothing is done about it.
const LINGER: Duration = Duration::from_secs(100);

/// A connection whose other end, the second, takes nothing more: as it is closed by the last who
/// has it, it waits until what was written has gone, for so long at most. `None` where there is no
/// network of this machine with itself.
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

/// The same, for longer than any test takes.
pub(crate) fn slow() -> Option<(OwnedFd, TcpStream)> {
    slow_for(LINGER)
}
