//! Forked copies whose processes interfere with each other: one dies, both use the same copy, or
//! one drops a channel that the other is using.

use std::thread;
use std::time::{Duration, Instant};

use haul_channel::{Buffer, Building, Channel, Error, Listener, Mechanism, pair};

use crate::child::{Child, alone};
use crate::support::{BY_COPY, by, pattern};

/// A channel to a child that runs `act` with the other end.
pub(crate) fn with_a_peer(mechanism: Mechanism, act: impl FnOnce(Channel)) -> (Channel, Child) {
    let (own, other) = pair().unwrap();
    let mut ends = Some((own, other));
    let mut act = Some(act);
    let child = Child::start(|| {
        let (own, other) = ends.take().unwrap();
        drop(own);
        act.take().unwrap()(Channel::accept_over(other, &by(mechanism)).unwrap());
    });
    let (own, other) = ends.take().unwrap();
    drop(other);
    (Channel::connect_over(own, &by(mechanism)).unwrap(), child)
}

#[test]
fn killed_worker_is_noticed_while_accepting_process_lives() {
    let _alone = alone();
    for has_begun in [false, true] {
        let (mut channel, server) = with_a_peer(Mechanism::Ring, |channel| {
            let mut channel = Some(channel);
            let worker = Child::start(|| {
                let mut channel = channel.take().unwrap();
                channel.recv().unwrap();
                let bytes = pattern(9 << 20, 1);
                let mut sending = channel.start_send(&bytes).unwrap();
                sending.advance().unwrap();
                // SAFETY: ends this process.
                unsafe { libc::raise(libc::SIGKILL) };
            });
            assert_eq!(worker.wait(), -libc::SIGKILL);
            if !has_begun {
                drop(channel.take());
            }
            // The accepting process stays alive, in one case with a copy of the channel.
            thread::sleep(Duration::from_secs(50));
        });
        channel.send(b"begin").unwrap();
        let start = Instant::now();
        // The worker dies in the middle of the message.
        let error = channel.recv().map(|got| got.len()).unwrap_err();
        assert!(matches!(error, Error::PeerGone { .. }), "{error}");
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
        server.kill();
    }
}

#[test]
fn second_process_on_one_half_gets_error_without_harm() {
    let _alone = alone();
    let (channel, peer) = with_a_peer(Mechanism::Ring, |mut channel| {
        for expected in [&b"child"[..], b"again"] {
            assert_eq!(channel.recv().unwrap()[..], *expected);
        }
        assert!(matches!(channel.recv(), Err(Error::Closed)));
        // The receiving half closes a moment after the sending half.
        let begun = Instant::now();
        while channel.send(b"answer").is_ok() {
            assert!(begun.elapsed() < Duration::from_secs(10), "the other half never closes");
        }
    });
    let mut channel = Some(channel);
    let (has_sent, sent) = rustix::pipe::pipe().unwrap();
    let (wait, go) = rustix::pipe::pipe().unwrap();
    let child = Child::start(|| {
        let mut channel = channel.take().unwrap();
        channel.send(b"child").unwrap();
        rustix::io::write(&sent, b"x").unwrap();
        rustix::io::read(&wait, &mut [0]).unwrap();
        channel.send(b"again").unwrap();
    });
    // If the child fails, its end of the pipe is the last one.
    drop(sent);
    assert_eq!(rustix::io::read(&has_sent, &mut [0]), Ok(1), "the child fails");
    let mut own = channel.take().unwrap();
    for _ in 0..2 {
        let error = own.send(b"parent").unwrap_err();
        assert!(matches!(error, Error::TakenOver { .. }), "{error}");
    }
    let error = own.start_send(&[1; 9000]).map(drop).unwrap_err();
    assert!(matches!(error, Error::TakenOver { .. }), "{error}");
    drop(own);
    rustix::io::write(&go, b"x").unwrap();
    assert_eq!((child.wait(), peer.wait()), (0, 0));
}

#[test]
fn child_cannot_use_half_taken_by_parent() {
    let _alone = alone();
    let (mut channel, peer) = with_a_peer(Mechanism::Ring, |mut channel| {
        channel.send(b"first").unwrap();
        assert_eq!(channel.recv().unwrap()[..], *b"from the parent");
        assert!(matches!(channel.recv(), Err(Error::Closed)));
    });
    let (wait, go) = rustix::pipe::pipe().unwrap();
    let child = Child::start(|| {
        rustix::io::read(&wait, &mut [0]).unwrap();
        let error = channel.send(b"from the child").unwrap_err();
        assert!(matches!(error, Error::TakenOver { .. }), "{error}");
        let error = channel.recv().map(drop).unwrap_err();
        assert!(matches!(error, Error::TakenOver { .. }), "{error}");
        let error = channel.try_recv().map(drop).unwrap_err();
        assert!(matches!(error, Error::TakenOver { .. }), "{error}");
    });
    channel.send(b"from the parent").unwrap();
    assert_eq!(channel.recv().unwrap()[..], *b"first");
    rustix::io::write(&go, b"x").unwrap();
    assert_eq!(child.wait(), 0);
    drop(channel);
    assert_eq!(peer.wait(), 0);
}

#[test]
fn one_process_sends_while_another_receives() {
    let _alone = alone();
    for mechanism in BY_COPY {
        let (mut channel, peer) = with_a_peer(mechanism, |mut channel| {
            for seed in 0..20 {
                let got = channel.recv().unwrap();
                assert!(got[..] == pattern(300_000, seed), "{mechanism}: {seed}");
                channel.send(&got).unwrap();
            }
        });
        if !channel.offers(mechanism) {
            peer.kill();
            continue;
        }
        let child = Child::start(|| {
            for seed in 0..20 {
                let got = channel.recv().unwrap();
                assert!(got[..] == pattern(300_000, seed), "{mechanism}: {seed}");
            }
        });
        for seed in 0..20 {
            channel.send(&pattern(300_000, seed)).unwrap();
        }
        assert_eq!((child.wait(), peer.wait()), (0, 0), "{mechanism}");
    }
}

/// The parent keeps using everything that the child drops.
#[test]
fn child_drops_everything_and_parent_continues() {
    let _alone = alone();
    for mechanism in BY_COPY {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let mut listener = Some(Listener::bind(&path).unwrap());
        let (mut channel, peer) = with_a_peer(mechanism, |mut channel| {
            channel.send(&pattern(300_000, 1)).unwrap();
            assert!(channel.recv().unwrap()[..] == pattern(9 << 20, 2));
            let mut building = Building::new(300_000).unwrap();
            building.copy_from_slice(&pattern(300_000, 3));
            channel.send_built(building).unwrap();
            assert_eq!(channel.recv().unwrap()[..], *b"end");
        });
        if !channel.offers(mechanism) {
            peer.kill();
            continue;
        }
        let mut got = Some(channel.recv().unwrap());
        let mut other = Some((Buffer::new(1 << 20).unwrap(), Building::new(1 << 20).unwrap()));
        let bytes = pattern(9 << 20, 2);
        {
            let mut sending = Some(channel.start_send(&bytes).unwrap());
            sending.as_mut().unwrap().advance().unwrap();
            let child = Child::start(|| {
                let mut sending = sending.take().unwrap();
                let error = sending.advance().unwrap_err();
                assert!(matches!(error, Error::TakenOver { .. }), "{error}");
                drop((sending, listener.take(), got.take(), other.take()));
            });
            assert_eq!(child.wait(), 0, "{mechanism}");
            sending.take().unwrap().finish().unwrap();
        }
        assert!(got.unwrap()[..] == pattern(300_000, 1), "{mechanism}");
        assert!(channel.recv().unwrap()[..] == pattern(300_000, 3), "{mechanism}");
        let mut channel = Some(channel);
        assert_eq!(Child::start(|| drop(channel.take())).wait(), 0, "{mechanism}");
        channel.as_mut().unwrap().send(b"end").unwrap();
        assert!(path.exists() && listener.is_some());
        assert_eq!(peer.wait(), 0, "{mechanism}");
    }
}
