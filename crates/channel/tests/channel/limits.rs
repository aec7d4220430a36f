//! Limits, listeners, and ends that close.

use std::io::IoSlice;
use std::os::unix::fs::PermissionsExt;
use std::thread;
use std::time::{Duration, Instant};

use haul_channel::{Buffer, Channel, Error, Listener, Mechanism, Settings};

use crate::support::{BY_COPY, SHORT, by, ends, impatient, pattern};

#[test]
fn listener_accepts_its_user_alone_and_removes_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = Listener::bind(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let taken = Listener::bind(&path).unwrap_err();
    assert!(matches!(taken, Error::Socket { .. }), "{taken}");
    thread::scope(|scope| {
        let settings = by(Mechanism::Ring);
        let connecting = settings.clone();
        let path = &path;
        scope.spawn(move || Channel::connect(path, &connecting).unwrap().send(b"hello").unwrap());
        let mut channel = listener.accept(&settings).unwrap();
        assert_eq!(channel.recv().unwrap()[..], *b"hello");
        assert_eq!(channel.peer().process, Some(std::process::id() as i32));
    });
    drop(listener);
    assert!(!path.exists());
    let gone = Channel::connect(&path, &impatient()).map(drop).unwrap_err();
    assert!(gone.to_string().contains("haul channel recv"), "{gone}");
}

#[test]
fn accept_waits_limited_time_for_connection_and_greeting() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = Listener::bind(&path).unwrap();
    let start = Instant::now();
    let error = listener.accept(&impatient()).map(drop).unwrap_err();
    assert!(matches!(error, Error::Deadline { .. }), "{error}");
    // A stream socket cannot connect to the listener at all, so the silent peer connects with the
    // right type.
    let silent = rustix::net::socket(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        None,
    )
    .unwrap();
    let address = rustix::net::SocketAddrUnix::new(&path).unwrap();
    rustix::net::connect(&silent, &address).unwrap();
    let error = listener.accept(&impatient()).map(drop).unwrap_err();
    assert!(matches!(error, Error::Deadline { .. }), "{error}");
    assert!(start.elapsed() < 80 * SHORT);
}

#[test]
fn send_refuses_message_over_limit() {
    let small = Settings { size_max: 1000, ..impatient() };
    let (mut one, mut other) = ends(&small);
    assert!(matches!(one.send(&[0; 1001]), Err(Error::TooLong { .. })));
    one.send(&[1; 1000]).unwrap();
    assert_eq!(other.recv().unwrap().len(), 1000);
}

/// The parts are the same bytes many times: together more bytes than 64 bits can count.
#[test]
fn send_refuses_parts_whose_sum_overflows() {
    const PART_BYTES: usize = 1 << 45;
    let Ok(memory) = Buffer::new(PART_BYTES) else {
        eprintln!(
            "SKIPPED: parts whose sum overflows: no addresses without memory: set vm.overcommit_memory to 0"
        );
        return;
    };
    let mut parts = vec![IoSlice::new(&memory); 1 << 19];
    parts.push(IoSlice::new(&memory[..100]));
    let (mut one, mut other) = ends(&impatient());
    let error = one.send_vectored(&parts).unwrap_err();
    assert!(matches!(error, Error::TooLong { .. }), "{error}");
    one.send(&[7; 100]).unwrap();
    assert_eq!(other.recv().unwrap()[..], [7; 100]);
}

#[test]
fn unavailable_mechanism_is_named_error() {
    let (mut one, _other) = ends(&Settings { mechanism: Some(Mechanism::Pull), ..impatient() });
    assert!(!one.offers(Mechanism::Pull));
    let error = one.send(&[0; 5000]).unwrap_err();
    assert!(error.to_string().contains("does not trust"), "{error}");
    let (mut one, _other) = ends(&by(Mechanism::Inline));
    assert!(matches!(one.send(&[0; 8193]), Err(Error::Unavailable { .. })));
}

#[test]
fn receiver_distinguishes_close_from_death_within_message() {
    let (one, mut other) = ends(&by(Mechanism::Ring));
    drop(one);
    assert!(matches!(other.recv(), Err(Error::Closed)));
    // Messages that were sent before still arrive.
    let (mut one, mut other) = ends(&by(Mechanism::Staged));
    one.send(&pattern(100_000, 1)).unwrap();
    one.send(&[]).unwrap();
    drop(one);
    assert!(other.recv().unwrap()[..] == pattern(100_000, 1));
    assert!(other.recv().unwrap().is_empty());
    assert!(matches!(other.recv(), Err(Error::Closed)));
    for mechanism in BY_COPY {
        let (mut one, other) = ends(&by(mechanism));
        drop(other);
        let error = loop {
            match one.send(&[0; 9_000_000]) {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::PeerGone { .. }), "{mechanism}: {error}");
    }
}

/// Both ends free the memory of a large message when it is no longer used.
#[test]
fn small_messages_drop_large_pool() {
    // No other message of these tests is as large.
    let size = 130 << 20;
    let mappings = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let is_large = |line: &&str| {
            let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
            let number = |text| u64::from_str_radix(text, 16).unwrap();
            line.contains("haul-channel") && number(end) - number(start) == size
        };
        maps.lines().filter(is_large).count()
    };
    let (mut one, mut other) = ends(&by(Mechanism::Lease));
    thread::scope(|scope| {
        let one = &mut one;
        scope.spawn(move || one.send(&vec![7; size as usize]).unwrap());
        assert!(other.recv().unwrap().iter().all(|byte| *byte == 7));
    });
    assert_eq!(mappings(), 2, "the pool is kept for another such message");
    for _ in 0..18 {
        thread::scope(|scope| {
            let one = &mut one;
            scope.spawn(move || one.send(&[7; 5000]).unwrap());
            other.recv().unwrap();
        });
    }
    assert_eq!(mappings(), 0);
}

#[test]
fn deadline_without_message_leaves_channel_usable() {
    let (mut one, mut other) = ends(&impatient());
    let start = Instant::now();
    let error = other.recv().map(drop).unwrap_err();
    assert!(matches!(error, Error::Deadline { .. }), "{error}");
    assert!(start.elapsed() >= SHORT && start.elapsed() < SHORT + Duration::from_secs(20));
    one.send(b"late").unwrap();
    assert_eq!(other.recv().unwrap()[..], *b"late");
}

#[test]
fn account_reports_memory_calls_time_and_faults() {
    let (mut one, mut other) = ends(&by(Mechanism::Staged));
    let size = 5_000_000;
    let bytes = pattern(size, 2);
    let sent = one.send(&bytes).unwrap();
    let got = other.recv().unwrap();
    assert_eq!(sent.extra_memory_bytes, size as u64);
    assert!(sent.system_calls >= 7 && got.account().system_calls >= 6, "{sent:?}");
    assert!(sent.cpu.is_some_and(|time| time > Duration::ZERO));
    // A new target of many pages was accessed for the first time, with or without huge pages.
    assert!(got.account().faults.is_some_and(|faults| faults >= 1));
    one.send(b"small").unwrap();
    assert_eq!(other.recv().unwrap().account().cpu, None);
}
