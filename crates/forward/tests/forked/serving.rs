//! Servers that fork: the accepting process closes its copy and a worker continues, or vice
//! versa. Each process can use its copy, whatever the other processes do with their copies.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use haul_channel::{Account, Building, Channel, Error, Listener, Mechanism};

use crate::child::{Child, alone};
use crate::support::{BY_COPY, by, pattern};

/// The size of a message in bytes: several chunks of the ring, and pieces of `double`.
const SIZE: usize = 1_200_000;

fn size(mechanism: Mechanism) -> usize {
    if mechanism == Mechanism::Inline { 5000 } else { SIZE }
}

fn give(channel: &mut Channel, mechanism: Mechanism, seed: u64) -> Result<Account, Error> {
    let bytes = pattern(size(mechanism), seed);
    if mechanism != Mechanism::Sealed {
        return channel.send(&bytes);
    }
    let mut building = Building::new(bytes.len())?;
    building.copy_from_slice(&bytes);
    channel.send_built(building)
}

fn check(channel: &mut Channel, mechanism: Mechanism, seed: u64) {
    let got = channel.recv().unwrap();
    assert!(got[..] == pattern(size(mechanism), seed), "{mechanism}: message {seed} is wrong");
    let account = got.account();
    assert_eq!((account.mechanism, account.fell_back_from), (mechanism, None));
}

fn socket() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    (folder, path)
}

/// Sends three messages, receives two answers, and expects the end of the channel.
fn ask(path: &Path, mechanism: Mechanism) {
    let mut channel = Channel::connect(path, &by(mechanism)).unwrap();
    for seed in 0..3 {
        let account = give(&mut channel, mechanism, seed).unwrap();
        assert_eq!((account.mechanism, account.fell_back_from), (mechanism, None));
    }
    for seed in 3..5 {
        check(&mut channel, mechanism, seed);
    }
    let end = channel.recv().map(|got| got.len());
    assert!(matches!(end, Err(Error::Closed)), "{mechanism}: {end:?}");
}

/// The other side of [`ask`].
fn answer(mut channel: Channel, mechanism: Mechanism) {
    for seed in 0..3 {
        check(&mut channel, mechanism, seed);
    }
    for seed in 3..5 {
        let account = give(&mut channel, mechanism, seed).unwrap();
        assert_eq!((account.mechanism, account.fell_back_from), (mechanism, None), "{seed}");
    }
}

fn all() -> impl Iterator<Item = Mechanism> {
    BY_COPY.into_iter().chain([Mechanism::Inline, Mechanism::Sealed])
}

/// A client of this mechanism, and the channel that it connected; `None` if the mechanism is not
/// available.
fn meet(listener: &Listener, path: &Path, mechanism: Mechanism) -> Option<(Child, Channel)> {
    let client = Child::start(|| ask(path, mechanism));
    let channel = listener.accept(&by(mechanism)).unwrap();
    let is_built = mechanism == Mechanism::Sealed;
    (is_built || channel.offers(mechanism)).then_some((client, channel))
}

#[test]
fn worker_serves_while_accepting_process_closes_copy() {
    let _alone = alone();
    let (_folder, path) = socket();
    let listener = Listener::bind(&path).unwrap();
    for mechanism in all() {
        let Some((client, channel)) = meet(&listener, &path, mechanism) else { continue };
        let mut channel = Some(channel);
        let worker = Child::start(|| {
            // The other copy is closed first.
            thread::sleep(Duration::from_millis(50));
            answer(channel.take().unwrap(), mechanism);
        });
        drop(channel);
        assert_eq!((worker.wait(), client.wait()), (0, 0), "{mechanism}");
    }
    assert!(path.exists(), "workers do not remove the listener");
}

#[test]
fn worker_serves_while_accepting_process_keeps_copy() {
    let _alone = alone();
    let (_folder, path) = socket();
    let listener = Listener::bind(&path).unwrap();
    for mechanism in all() {
        let Some((client, channel)) = meet(&listener, &path, mechanism) else { continue };
        let mut channel = Some(channel);
        let worker = Child::start(|| answer(channel.take().unwrap(), mechanism));
        // The worker used both halves, so the worker's end ends the channel.
        assert_eq!((worker.wait(), client.wait()), (0, 0), "{mechanism}");
    }
}

#[test]
fn worker_serves_after_accepting_process_died() {
    let _alone = alone();
    let (_folder, path) = socket();
    let listener = Listener::bind(&path).unwrap();
    for mechanism in all() {
        let Some((client, channel)) = meet(&listener, &path, mechanism) else { continue };
        // A daemon: another process adopts the child, which reports its success through a pipe.
        let (end, report) = rustix::pipe::pipe().unwrap();
        let mut channel = Some(channel);
        let server = Child::start(|| {
            let mut given = Some((channel.take().unwrap(), &report));
            let worker = Child::start(|| {
                let (channel, report) = given.take().unwrap();
                thread::sleep(Duration::from_millis(50));
                answer(channel, mechanism);
                rustix::io::write(report, b"well").unwrap();
            });
            std::mem::forget((given, worker));
        });
        drop((channel, report));
        assert_eq!(server.wait(), 0);
        assert_eq!(client.wait(), 0, "{mechanism}");
        let mut word = [0; 4];
        assert_eq!(rustix::io::read(&end, &mut word), Ok(4), "{mechanism}");
    }
}

#[test]
fn accepting_process_continues_while_child_closes_copy() {
    let _alone = alone();
    let (_folder, path) = socket();
    let listener = Listener::bind(&path).unwrap();
    for mechanism in all() {
        let Some((client, channel)) = meet(&listener, &path, mechanism) else { continue };
        let mut channel = Some(channel);
        assert_eq!(Child::start(|| drop(channel.take())).wait(), 0, "{mechanism}");
        answer(channel.take().unwrap(), mechanism);
        assert_eq!(client.wait(), 0, "{mechanism}");
    }
}

#[test]
fn forked_child_of_client_continues() {
    let _alone = alone();
    let (_folder, path) = socket();
    let listener = Listener::bind(&path).unwrap();
    for mechanism in all() {
        let client = Child::start(|| {
            let mut channel = Channel::connect(&path, &by(mechanism)).unwrap();
            give(&mut channel, mechanism, 0).unwrap();
            let mut channel = Some(channel);
            let child = Child::start(|| {
                let mut channel = channel.take().unwrap();
                for seed in 1..3 {
                    give(&mut channel, mechanism, seed).unwrap();
                }
                for seed in 3..5 {
                    check(&mut channel, mechanism, seed);
                }
            });
            drop(channel);
            assert_eq!(child.wait(), 0);
        });
        let channel = listener.accept(&by(mechanism)).unwrap();
        if mechanism == Mechanism::Sealed || channel.offers(mechanism) {
            answer(channel, mechanism);
            assert_eq!(client.wait(), 0, "{mechanism}");
        }
    }
}

#[test]
fn forked_children_of_both_ends_continue() {
    let _alone = alone();
    let (_folder, path) = socket();
    let listener = Listener::bind(&path).unwrap();
    for mechanism in all() {
        let client = Child::start(|| {
            let mut channel = Some(Channel::connect(&path, &by(mechanism)).unwrap());
            let child = Child::start(|| {
                let mut channel = channel.take().unwrap();
                for seed in 0..3 {
                    give(&mut channel, mechanism, seed).unwrap();
                }
                for seed in 3..5 {
                    check(&mut channel, mechanism, seed);
                }
            });
            drop(channel);
            assert_eq!(child.wait(), 0);
        });
        let mut channel = Some(listener.accept(&by(mechanism)).unwrap());
        let offers = channel.as_ref().is_some_and(|channel| channel.offers(mechanism));
        if mechanism == Mechanism::Sealed || offers {
            let worker = Child::start(|| answer(channel.take().unwrap(), mechanism));
            drop(channel);
            assert_eq!((worker.wait(), client.wait()), (0, 0), "{mechanism}");
        }
    }
}

#[test]
fn listener_closes_with_its_last_copy() {
    let _alone = alone();
    let (_folder, path) = socket();
    let mut listener = Some(Listener::bind(&path).unwrap());
    assert_eq!(Child::start(|| drop(listener.take())).wait(), 0);
    assert!(path.exists());
    // Classic prefork: each worker accepts one client.
    let workers = [0, 1].map(|_| {
        Child::start(|| {
            let listener = listener.take().unwrap();
            answer(listener.accept(&by(Mechanism::Ring)).unwrap(), Mechanism::Ring);
        })
    });
    drop(listener);
    assert!(path.exists(), "two workers hold it");
    for _ in 0..2 {
        assert_eq!(Child::start(|| ask(&path, Mechanism::Ring)).wait(), 0);
    }
    assert_eq!(workers.map(Child::wait), [0, 0]);
    assert!(!path.exists(), "no process listens any more");
    Listener::bind(&path).unwrap();
}

#[test]
fn shut_down_listener_fails_at_once_for_any_wait() {
    let _alone = alone();
    let (_folder, path) = socket();
    let listener = Listener::bind(&path).unwrap();
    rustix::net::shutdown(&listener, rustix::net::Shutdown::Both).unwrap();
    let start = Instant::now();
    for wait in [Some(Duration::ZERO), Some(Duration::from_secs(60)), None] {
        let settings = haul_channel::Settings { wait, ..by(Mechanism::Ring) };
        let error = listener.accept(&settings).map(drop).unwrap_err();
        assert!(error.to_string().contains("shut down"), "{wait:?}: {error}");
    }
    assert!(start.elapsed() < Duration::from_secs(30));
}
