//! Descriptors that take long to be closed, handed over wherever that can be done: no call waits
//! for them, and none that ends a channel does.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use haul_channel::{Channel, Error, Listener, Mechanism, Settings, pair};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, sockopt};

use crate::raw::{ABANDONED, LANE_BYTES, Liar, OFFERED, greeting, receive, send};
use crate::slow::{slow, slow_for};
use crate::support::{impatient, pattern};

/// Long enough for a loaded machine.
const SOON: Duration = Duration::from_secs(30);

#[test]
fn such_a_descriptor_holds_up_whoever_closes_it() {
    let Some((slow, _other)) = slow_for(Duration::from_secs(1)) else { return };
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
        let Some((slow, _other)) = slow() else { return };
        let (own, other) = pair().unwrap();
        sockopt::set_socket_passcred(&own, true).unwrap();
        // Whoever closes it last is held up, so it is on its way before anybody looks for it: the
        // number that is to be sent back is not known yet.
        let files: Vec<_> = (0..count).map(|_| slow.as_fd()).collect();
        send(&own, &greeting(2, 256 << 10, 1, 0), &files);
        drop(slow);
        let error = soon(|| Channel::connect_over(other, &impatient()).map(drop).unwrap_err());
        assert!(matches!(error, Error::Handshake { what: "echo", .. }), "{error}");
    }
}

#[test]
fn with_a_greeting_that_has_none() {
    let Some((slow, _other)) = slow() else { return };
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
        let Some((slow, _other)) = slow() else { return };
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
    let Some((slow_pool, _other)) = slow() else { return };
    let settings = Settings { mechanism: Some(Mechanism::Lease), ..impatient() };
    let (liar, mut victim) = Liar::meet_trusted(&settings);
    send(&liar.socket, &packet(2, 5), &[slow_pool.as_fd()]);
    drop(slow_pool);
    liar.poke(LANE_BYTES + OFFERED + 16, 5);
    liar.poke(LANE_BYTES + OFFERED, 1);
    soon(|| victim.send(&[1; 500_000]).unwrap_err());
    assert_eq!(liar.peek(LANE_BYTES + ABANDONED), 1);
    soon(|| drop(victim));

    let Some((slow_pipe, _other)) = slow() else { return };
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
        let Some((slow, _other)) = slow() else { return };
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
    let Some((slow, _other)) = slow() else { return };
    let (liar, victim) = Liar::meet(&impatient());
    send(&liar.socket, &[], &[]);
    send(&liar.socket, &packet(1, 0), &[slow.as_fd()]);
    drop(slow);
    soon(|| drop(victim));
    assert_eq!(receive(&liar.socket).0, Vec::<u64>::new(), "the channel was closed");
}

#[test]
fn of_a_visitor_that_nobody_accepts() {
    let Some((slow, _other)) = slow() else { return };
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
    let Some((slow, _other)) = slow() else { return };
    let (liar, mut victim) = Liar::meet(&impatient());
    send(&liar.socket, &packet(1, 0), &[slow.as_fd()]);
    drop(slow);
    liar.publish(0, [0, 3, 8192, 0]);
    let error = soon(|| victim.recv().map(|got| got.len()).unwrap_err());
    assert!(error.to_string().contains("not of memory"), "{error}");
}

/// A socket need not be waited for at all: what it has not sent yet is thrown away.
#[test]
fn a_socket_does_not_linger() {
    let Some((slow, mut other)) = slow() else { return };
    let (liar, mut victim) = Liar::meet(&impatient());
    send(&liar.socket, &packet(1, 0), &[slow.as_fd()]);
    drop(slow);
    soon(|| assert!(matches!(victim.try_recv(), Err(Error::Broken))));
    other.set_read_timeout(Some(SOON)).unwrap();
    let end = loop {
        match other.read(&mut [0; 65536]) {
            Ok(0) => break None,
            Ok(_) => {}
            Err(error) => break Some(error.kind()),
        }
    };
    assert_eq!(end, Some(io::ErrorKind::ConnectionReset));
}

/// The socket stays readable after that, and whoever polls it would never rest.
#[test]
fn a_transfer_that_is_polled_ends_by_it() {
    let bytes = pattern(9_000_000, 37);
    let (liar, mut victim) = Liar::meet(&impatient());
    let mut sending = victim.start_send(&bytes).unwrap();
    assert!(!sending.advance().unwrap());
    let foreign = File::open("/dev/null").unwrap();
    send(&liar.socket, &packet(1, 0), &[foreign.as_fd()]);
    send(&liar.socket, &[0], &[]);
    assert!(matches!(sending.advance(), Err(Error::Broken)));
    assert!(matches!(sending.advance(), Err(Error::Broken)));
}

/// Without a word by the socket, too: there is one for both halves.
#[test]
fn a_transfer_that_is_polled_ends_with_the_other_half() {
    let bytes = pattern(9_000_000, 41);
    let (liar, victim) = Liar::meet(&impatient());
    let (mut sender, mut receiver) = victim.split();
    let mut sending = sender.start_send(&bytes).unwrap();
    assert!(!sending.advance().unwrap());
    liar.publish(0, [0, 99, 8192, 0]);
    let error = receiver.recv().map(drop).unwrap_err();
    assert!(matches!(error, Error::Protocol { .. }), "{error}");
    send(&liar.socket, &[0], &[]);
    assert!(matches!(sending.advance(), Err(Error::Broken)));
}

/// What came in the place of a message's memory is not told of a pool that never came.
#[test]
fn each_refusal_is_told_where_it_belongs() {
    let bytes = pattern(500_000, 43);
    let settings = Settings { mechanism: Some(Mechanism::Lease), ..impatient() };
    let (liar, victim) = Liar::meet_trusted(&settings);
    let (mut sender, mut receiver) = victim.split();
    let file = rustix::fs::memfd_create(c"two", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    send(&liar.socket, &packet(1, 0), &[file.as_fd(), file.as_fd()]);
    liar.poke(LANE_BYTES + OFFERED + 16, 5);
    liar.poke(LANE_BYTES + OFFERED, 1);
    let mut sending = sender.start_send(&bytes).unwrap();
    assert!(!sending.advance().unwrap());
    assert_eq!(liar.peek(LANE_BYTES + ABANDONED), 1, "there was no pool");
    liar.publish(0, [0, 3, 8192, 0]);
    let error = receiver.recv().map(drop).unwrap_err();
    assert!(error.to_string().contains("several descriptors"), "{error}");
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
