//! Descriptors that take long to be closed, handed over wherever that can be done: no call waits for them,
//! and none that ends a channel does.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use haul::channel::{Channel, Error, Listener, Mechanism, Settings, pair};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, sockopt};

use crate::raw::{ABANDONED, LANE_BYTES, Liar, OFFERED, greeting, receive, send};
use crate::support::impatient;

/// How long whoever closes one of them is held up, if nothing is done about it.
const LINGER: Duration = Duration::from_secs(100);
/// Long enough for a loaded machine.
const SOON: Duration = Duration::from_secs(30);

/// A connection whose other end, the second, takes nothing more: as it is closed by the last who has it,
/// it waits until what was written has gone, as it was told to.
fn slow_for(linger: Duration) -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut slow = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let other = listener.accept().unwrap().0;
    slow.set_nonblocking(true).unwrap();
    while slow.write(&[0; 65536]).is_ok() {}
    slow.set_nonblocking(false).unwrap();
    sockopt::set_socket_linger(&slow, Some(linger)).unwrap();
    (slow.into(), other)
}

fn slow() -> (OwnedFd, TcpStream) {
    slow_for(LINGER)
}

#[test]
fn such_a_descriptor_holds_up_whoever_closes_it() {
    let (slow, _other) = slow_for(Duration::from_secs(1));
    let start = Instant::now();
    drop(slow);
    assert!(start.elapsed() >= Duration::from_millis(900), "{:?}", start.elapsed());
}

#[track_caller]
fn soon<T>(run: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = run();
    assert!(start.elapsed() < SOON, "it took {:?}", start.elapsed());
    result
}

fn packet(kind: u8, number: u64) -> Vec<u8> {
    std::iter::once(kind).chain(number.to_le_bytes()).collect()
}

#[test]
fn as_memory_of_a_channel() {
    for count in [1, 4] {
        let (slow, _other) = slow();
        let (own, other) = pair().unwrap();
        sockopt::set_socket_passcred(&own, true).unwrap();
        // Whoever closes it last is held up, so it is on its way before anybody looks for it: the number
        // that is to be sent back is not known yet.
        let files: Vec<_> = (0..count).map(|_| slow.as_fd()).collect();
        send(&own, &greeting(2, 256 << 10, 1, 0), &files);
        drop(slow);
        let error = soon(|| Channel::connect_over(other, &impatient()).map(drop).unwrap_err());
        assert!(matches!(error, Error::Handshake { what: "echo", .. }), "{error}");
    }
}

#[test]
fn with_a_greeting_that_has_none() {
    let (slow, _other) = slow();
    let (own, other) = pair().unwrap();
    sockopt::set_socket_passcred(&own, true).unwrap();
    send(&own, &greeting(1, 0, 1, 0), &[slow.as_fd()]);
    drop(slow);
    let error = soon(|| Channel::accept_over(other, &impatient()).map(drop).unwrap_err());
    assert!(matches!(error, Error::Deadline { .. }), "{error}");
    assert!(receive(&own).1.is_some(), "it went on with the handshake");
}

#[test]
fn as_memory_of_a_message() {
    for kind in [3, 5] {
        let (slow, _other) = slow();
        let (liar, mut victim) = Liar::meet(&impatient());
        send(&liar.socket, &packet(1, 0), &[slow.as_fd()]);
        drop(slow);
        liar.publish(0, [0, kind, 8192, 0]);
        let error = soon(|| victim.recv().map(|got| got.len()).unwrap_err());
        assert!(matches!(error, Error::Memory { .. }), "{kind}: {error}");
        soon(|| drop(victim));
    }
}

#[test]
fn as_a_pool_and_as_a_pipe() {
    let (slow_pool, _other) = slow();
    let settings = Settings { mechanism: Some(Mechanism::Lease), ..impatient() };
    let (liar, mut victim) = Liar::meet_trusted(&settings);
    send(&liar.socket, &packet(2, 5), &[slow_pool.as_fd()]);
    drop(slow_pool);
    liar.poke(LANE_BYTES + OFFERED + 16, 5);
    liar.poke(LANE_BYTES + OFFERED, 1);
    soon(|| victim.send(&[1; 500_000]).unwrap_err());
    assert_eq!(liar.peek(LANE_BYTES + ABANDONED), 1);
    soon(|| drop(victim));

    let (slow_pipe, _other) = slow();
    let (liar, mut victim) = Liar::meet_trusted(&impatient());
    send(&liar.socket, &packet(3, 0), &[slow_pipe.as_fd()]);
    drop(slow_pipe);
    liar.publish(0, [0, 8, 8192, 1]);
    let error = soon(|| victim.recv().map(|got| got.len()).unwrap_err());
    assert!(matches!(error, Error::Memory { .. }), "{error}");
}

/// Of what cannot be asked for, and in packets of no bytes; the channel is at its end by that.
#[test]
fn as_nothing_that_there_is() {
    for bytes in [&packet(9, 0)[..], &packet(1, 700), &[], &[7; 200]] {
        let (slow, _other) = slow();
        let (liar, mut victim) = Liar::meet(&impatient());
        for _ in 0..3 {
            send(&liar.socket, bytes, &[slow.as_fd()]);
        }
        drop(slow);
        soon(|| assert!(matches!(victim.try_recv(), Ok(None) | Err(Error::Broken))));
        soon(|| assert!(matches!(victim.try_recv(), Err(Error::Broken))));
        soon(|| drop(victim));
    }
}

#[test]
fn left_behind_in_a_socket() {
    let (slow, _other) = slow();
    let (liar, victim) = Liar::meet(&impatient());
    send(&liar.socket, &[], &[]);
    send(&liar.socket, &packet(1, 0), &[slow.as_fd()]);
    drop(slow);
    soon(|| drop(victim));
    assert_eq!(receive(&liar.socket).0, Vec::<u64>::new(), "the channel was closed");
}

#[test]
fn of_a_visitor_that_nobody_accepts() {
    let (slow, _other) = slow();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = Listener::bind(&path).unwrap();
    let visitor = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    rustix::net::connect(&visitor, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    send(&visitor, &greeting(1, 0, 1, 0), &[slow.as_fd()]);
    drop(slow);
    soon(|| drop(listener));
    assert!(!path.exists());
}

/// It is named for what it is not.
#[test]
fn as_a_message_that_would_be_right() {
    let (slow, _other) = slow();
    let (liar, mut victim) = Liar::meet(&impatient());
    send(&liar.socket, &packet(1, 0), &[slow.as_fd()]);
    drop(slow);
    liar.publish(0, [0, 3, 8192, 0]);
    let error = soon(|| victim.recv().map(|got| got.len()).unwrap_err());
    assert!(error.to_string().contains("not of memory"), "{error}");
}

/// Memory is closed at once, by whoever closes the channel.
#[test]
fn memory_that_nobody_took_goes_with_the_channel() {
    let (liar, victim) = Liar::meet(&impatient());
    let file = rustix::fs::memfd_create(c"left", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    rustix::io::ioctl_fionbio(&reader, true).unwrap();
    send(&liar.socket, &packet(1, 0), &[file.as_fd()]);
    send(&liar.socket, &packet(3, 0), &[writer.as_fd()]);
    drop((file, writer));
    drop(victim);
    assert_eq!(receive(&liar.socket).0, Vec::<u64>::new());
    // The writing end of the pipe, which nobody expected, goes a little later.
    let start = Instant::now();
    while rustix::io::read(&reader, &mut [0]) == Err(rustix::io::Errno::AGAIN) {
        assert!(start.elapsed() < SOON);
        thread::yield_now();
    }
}
