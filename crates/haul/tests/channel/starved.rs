//! Permissions that were never there, and limits that are reached: a fallback or a named error, and
//! the channel lives on.

use haul::channel::{Building, Channel, Error, Listener, Mechanism, Settings};

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
fn what_the_peer_may_not_do_is_known_as_they_meet() {
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

/// What a peer does that can open nothing more.
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
fn without_descriptors_the_ring_carries_it() {
    for mechanism in [Mechanism::Staged, Mechanism::Vmsplice] {
        let (mut channel, _peer) = meet("few-files", mechanism, &by(mechanism));
        assert!(channel.recv().unwrap()[..] == pattern(SIZE, 1), "{mechanism}");
        assert_eq!(channel.recv().unwrap()[..], *b"after");
    }
}

/// What a peer does that can map nothing more: the message waits for a target that is there.
pub(crate) fn receive_without_memory(channel: &mut Channel) {
    let (mut target, expected) = (vec![0; SIZE], pattern(SIZE, 2));
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    limit(libc::RLIMIT_AS, pages * 4096 + SIZE as u64 / 2);
    let error = channel.recv().map(|got| got.len()).unwrap_err();
    assert!(matches!(error, Error::System { .. }), "{error}");
    assert!(error.to_string().contains("free memory"), "{error}");
    channel.recv_into(&mut target).unwrap();
    assert!(target == expected);
    channel.send(b"whole").unwrap();
}

#[test]
fn without_memory_the_message_stays() {
    for mechanism in [Mechanism::Ring, Mechanism::Lease] {
        let (mut channel, _peer) = meet("little-memory", mechanism, &by(mechanism));
        channel.send(&pattern(SIZE, 2)).unwrap();
        assert_eq!(channel.recv().unwrap()[..], *b"whole", "{mechanism}");
    }
}
