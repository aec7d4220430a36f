//! Missing permissions and exhausted limits: each causes a fallback or a named error, and the
//! channel remains usable.

use haul_channel::{Building, Channel, Error, Listener, Mechanism, Settings};

use crate::death::{SIZE, Started, start};
use crate::support::{by, pattern};

fn meet(what: &str, mechanism: Mechanism, settings: &Settings) -> (Channel, Started) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = Listener::bind(&path).unwrap();
    let peer = start(what, mechanism, &path);
    (listener.accept(settings).unwrap(), peer)
}

#[test]
fn handshake_detects_missing_permission_of_peer() {
    for mechanism in [Mechanism::Pull, Mechanism::Double] {
        let (mut channel, _peer) = meet("forbid-all", mechanism, &by(mechanism));
        assert!(!channel.offers(mechanism) && channel.offers(Mechanism::Lease));
        let error = channel.send(&pattern(SIZE, 9)).unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        let settings = Settings { mechanism: None, ..by(mechanism) };
        let (mut channel, _peer) = meet("forbid-all", mechanism, &settings);
        assert_eq!(channel.send(&pattern(SIZE, 9)).unwrap().mechanism, Mechanism::Ring);
    }
}

fn limit(resource: libc::__rlimit_resource_t, value: u64) {
    let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
    // SAFETY: a structure of the right type, which is only read.
    let result = unsafe { libc::setrlimit(resource, &raw const limit) };
    assert_eq!(result, 0);
}

/// The role of a peer that can open no more files.
pub(crate) fn send_without_descriptors(channel: &mut Channel) {
    limit(libc::RLIMIT_NOFILE, 3);
    let error = Building::new(100_000).unwrap_err();
    assert!(error.to_string().contains("ulimit -n"), "{error}");
    let sent = channel.send(&pattern(SIZE, 1)).unwrap();
    assert_eq!(sent.mechanism, Mechanism::Ring);
    assert!(sent.fell_back_from.is_some());
    channel.send(b"after").unwrap();
}

#[test]
fn ring_carries_message_without_descriptors() {
    let staged = Mechanism::Staged;
    let (mut channel, _peer) = meet("few-files", staged, &by(staged));
    assert!(channel.recv().unwrap()[..] == pattern(SIZE, 1));
    assert_eq!(channel.recv().unwrap()[..], *b"after");
}

/// The role of a peer that can open no more files. The peer loses messages with a descriptor, and
/// reports why.
pub(crate) fn receive_without_descriptors(channel: &mut Channel) {
    limit(libc::RLIMIT_NOFILE, 3);
    let error = channel.recv().map(|got| got.len()).unwrap_err();
    assert!(matches!(error, Error::System { .. }), "{error}");
    assert!(error.to_string().contains("ulimit -n"), "{error}");
    assert!(matches!(channel.recv(), Err(Error::Broken)));
}

#[test]
fn receiver_without_descriptors_reports_limit() {
    let staged = Mechanism::Staged;
    let (mut channel, peer) = meet("few-files-to-receive", staged, &by(staged));
    channel.send(&pattern(SIZE, 3)).unwrap();
    peer.ended_well();
}

/// Limits the bytes that this process may map in addition to those that are mapped now.
fn limit_memory(more: u64) {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    limit(libc::RLIMIT_AS, pages * 4096 + more);
}

/// The role of a peer that can map no more memory. The peer's messages go through the ring, which
/// already exists.
pub(crate) fn send_without_memory(channel: &mut Channel, mechanism: Mechanism) {
    let bytes = pattern(SIZE, 4);
    limit_memory(SIZE as u64 / 2);
    let error = Building::new(SIZE).unwrap_err();
    assert!(error.to_string().contains("free memory"), "{error}");
    for _ in 0..2 {
        let sent = channel.send(&bytes).unwrap();
        assert_eq!((sent.mechanism, sent.fell_back_from), (Mechanism::Ring, Some(mechanism)));
    }
    // The failed attempts left nothing behind.
    channel.send(b"after").unwrap();
}

#[test]
fn sender_without_memory_uses_ring() {
    for mechanism in [Mechanism::Staged, Mechanism::Lease] {
        let (mut channel, peer) = meet("little-memory-to-send", mechanism, &by(mechanism));
        for _ in 0..2 {
            assert!(channel.recv().unwrap()[..] == pattern(SIZE, 4), "{mechanism}");
        }
        assert_eq!(channel.recv().unwrap()[..], *b"after");
        peer.ended_well();
    }
}

/// The role of a peer that gets no huge pages from the kernel.
pub(crate) fn answer_without_huge_pages(channel: &mut Channel, mechanism: Mechanism) {
    // SAFETY: takes only numbers.
    let result = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    assert_eq!(result, 0);
    let mut got = channel.recv().unwrap();
    let middle = LARGE / 3..LARGE / 3 + (3 << 20);
    got.will_write(middle.clone());
    assert!(got[..] == pattern(LARGE, 5));
    got[middle].fill(6);
    let answer = if mechanism == Mechanism::Sealed {
        let mut building = Building::new(LARGE).unwrap();
        building.copy_from_slice(&got);
        channel.send_built(building).unwrap()
    } else {
        channel.send(&got).unwrap()
    };
    assert_eq!((answer.mechanism, answer.fell_back_from), (mechanism, None));
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let anonymous = rollup.lines().find(|line| line.starts_with("AnonHugePages:"));
    assert!(anonymous.is_none_or(|line| line.contains(" 0 kB")), "{anonymous:?}");
    // The receiver may still be reading the sender's memory, so this process must not end until
    // the message was consumed.
    assert_eq!(channel.recv().unwrap()[..], *b"whole");
}

/// Several huge pages long, if the process could get any.
const LARGE: usize = 9 << 20;

#[test]
fn every_mechanism_works_without_huge_pages() {
    for mechanism in Mechanism::ALL.into_iter().filter(|each| *each != Mechanism::Inline) {
        let named = Some(mechanism).filter(|each| *each != Mechanism::Sealed);
        let settings = Settings { mechanism: named, ..by(mechanism) };
        let (mut channel, peer) = meet("small-pages", mechanism, &settings);
        if !channel.offers(mechanism) {
            continue;
        }
        let mut building = Building::new(LARGE).unwrap();
        building.copy_from_slice(&pattern(LARGE, 5));
        channel.send_built(building).unwrap();
        let got = channel.recv().unwrap();
        let (middle, bytes) = (LARGE / 3..LARGE / 3 + (3 << 20), pattern(LARGE, 5));
        assert!(got[..middle.start] == bytes[..middle.start], "{mechanism}");
        assert!(got[middle.clone()].iter().all(|byte| *byte == 6), "{mechanism}");
        assert!(got[middle.end..] == bytes[middle.end..], "{mechanism}");
        channel.send(b"whole").unwrap();
        peer.ended_well();
    }
}

/// The role of a peer that can map no more memory. The message waits for a target that already
/// exists.
pub(crate) fn receive_without_memory(channel: &mut Channel) {
    let (mut target, expected) = (vec![0; SIZE], pattern(SIZE, 2));
    limit_memory(SIZE as u64 / 2);
    let error = channel.recv().map(|got| got.len()).unwrap_err();
    assert!(matches!(error, Error::System { .. }), "{error}");
    assert!(error.to_string().contains("free memory"), "{error}");
    channel.recv_into(&mut target).unwrap();
    assert!(target == expected);
    channel.send(b"whole").unwrap();
}

#[test]
fn message_stays_if_receiver_has_no_memory() {
    for mechanism in [Mechanism::Ring, Mechanism::Lease] {
        let (mut channel, _peer) = meet("little-memory", mechanism, &by(mechanism));
        channel.send(&pattern(SIZE, 2)).unwrap();
        assert_eq!(channel.recv().unwrap()[..], *b"whole", "{mechanism}");
    }
}
