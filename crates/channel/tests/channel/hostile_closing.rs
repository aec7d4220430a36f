//! Descriptors that are slow to close are handed over in every possible packet. No call waits for
//! such descriptors, and the end of a channel does not wait either.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use haul_channel::{Channel, Error, Listener, Mechanism, Settings, pair};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, sockopt};

use crate::raw::{ABANDONED, LANE_BYTES, Liar, OFFERED, greeting, receive, send};
use crate::slow::{slow, slow_for};
use crate::support::{impatient, patient, pattern};

/// Long enough for a loaded machine.
const SOON: Duration = Duration::from_secs(30);

#[test]
fn closing_slow_descriptor_waits() {
    // Until its program runs, a process that another test starts has a copy of the descriptor.
    let waits = (0..10).any(|_| {
        let Some((slow, _other)) = slow_for(Duration::from_secs(1)) else { return true };
        let start = Instant::now();
        drop(slow);
        start.elapsed() >= Duration::from_millis(900)
    });
    assert!(waits);
}

#[track_caller]
fn soon<T>(run: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = run();
    assert!(start.elapsed() < SOON, "the call needed {:?}", start.elapsed());
    result
}

fn packet(kind: u8, number: u64) -> Vec<u8> {
    std::iter::once(kind).chain(number.to_le_bytes()).collect()
}

#[test]
fn slow_descriptor_as_memory_of_channel_delays_no_call() {
    for count in [1, 4] {
        let Some((slow, _other)) = slow() else { return };
        let (own, other) = pair().unwrap();
        sockopt::set_socket_passcred(&own, true).unwrap();
        // The last process that closes the descriptor waits. So the descriptor is in transit
        // before the victim reads, when the number that the greeting must send back is not known
        // yet.
        let files: Vec<_> = (0..count).map(|_| slow.as_fd()).collect();
        send(&own, &greeting(2, 256 << 10, 1, 0), &files);
        drop(slow);
        let error = soon(|| Channel::connect_over(other, &patient()).map(drop).unwrap_err());
        assert!(matches!(error, Error::Handshake { what: "echo", .. }), "{error}");
    }
}

#[test]
fn slow_descriptor_with_first_greeting_delays_no_call() {
    let Some((slow, _other)) = slow() else { return };
    let (own, other) = pair().unwrap();
    sockopt::set_socket_passcred(&own, true).unwrap();
    send(&own, &greeting(1, 0, 1, 0), &[slow.as_fd()]);
    drop(slow);
    let error = soon(|| Channel::accept_over(other, &impatient()).map(drop).unwrap_err());
    assert!(matches!(error, Error::Deadline { .. }), "{error}");
    assert!(receive(&own).1.is_some(), "the victim continued the handshake");
}

#[test]
fn slow_descriptor_as_memory_of_message_delays_no_call() {
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
fn slow_descriptor_as_pool_delays_no_call() {
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
}

/// The descriptors are in packets of unknown kinds or numbers, and in empty packets. Each of
/// these packets ends the channel.
#[test]
fn slow_descriptor_in_malformed_packet_ends_channel_without_delay() {
    for bytes in [&packet(9, 0)[..], &packet(3, 0), &packet(1, 700), &[], &[7; 200]] {
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
fn slow_descriptor_left_in_socket_delays_no_drop() {
    let Some((slow, _other)) = slow() else { return };
    let (liar, victim) = Liar::meet(&impatient());
    send(&liar.socket, &[], &[]);
    send(&liar.socket, &packet(1, 0), &[slow.as_fd()]);
    drop(slow);
    soon(|| drop(victim));
    assert_eq!(receive(&liar.socket).0, Vec::<u64>::new(), "the channel was closed");
}

#[test]
fn slow_descriptor_of_unaccepted_connection_delays_no_drop() {
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

/// The error names the wrong kind of descriptor.
#[test]
fn slow_descriptor_in_valid_message_is_named_in_error() {
    let Some((slow, _other)) = slow() else { return };
    let (liar, mut victim) = Liar::meet(&impatient());
    send(&liar.socket, &packet(1, 0), &[slow.as_fd()]);
    drop(slow);
    liar.publish(0, [0, 3, 8192, 0]);
    let error = soon(|| victim.recv().map(|got| got.len()).unwrap_err());
    assert!(error.to_string().contains("not of memory"), "{error}");
}

/// A closed socket does not linger: the kernel drops its unsent bytes.
#[test]
fn socket_in_packet_is_closed_without_linger() {
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

/// The socket of a broken channel stays readable, so a loop that polls it would never sleep.
#[test]
fn foreign_descriptor_ends_polled_transfer() {
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

/// Both halves share a socket, so this also ends the other half.
#[test]
fn error_of_one_half_ends_polled_transfer_of_other() {
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

/// An error about a message's memory is not reported for a missing pool.
#[test]
fn each_refusal_is_reported_by_half_that_it_concerns() {
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

/// The drop of the channel closes memory at once.
#[test]
fn unused_memory_is_closed_with_channel() {
    let (liar, victim) = Liar::meet(&impatient());
    let file = rustix::fs::memfd_create(c"left", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    rustix::io::ioctl_fionbio(&reader, true).unwrap();
    send(&liar.socket, &packet(1, 0), &[file.as_fd()]);
    send(&liar.socket, &packet(3, 0), &[writer.as_fd()]);
    drop((file, writer));
    drop(victim);
    assert_eq!(receive(&liar.socket).0, Vec::<u64>::new());
    // The writing end of the pipe, which was not expected, is closed a little later.
    let start = Instant::now();
    while rustix::io::read(&reader, &mut [0]) == Err(rustix::io::Errno::AGAIN) {
        assert!(start.elapsed() < SOON);
        thread::yield_now();
    }
}
