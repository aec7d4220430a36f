//! Failures that a program notices too late: a peer that has died before a message is sent,
//! descriptors to which other code prints, limits that end a process by a signal, an empty path.

use std::io::IoSlice;
use std::path::Path;
use std::thread;
use std::time::Duration;

use haul_channel::{Buffer, Building, Channel, Error, Listener, Mechanism, Settings, Users, pair};

use crate::child::{Child, alone};
use crate::interfering::with_a_peer;
use crate::support::{by, pattern};

/// A call to send or receive, with its name.
type Call = (&'static str, fn(&mut Channel, usize) -> Result<(), Error>);

const CALLS: [Call; 6] = [
    ("send", |channel, size| channel.send(&pattern(size, 1)).map(drop)),
    ("send_vectored", |channel, size| {
        let bytes = pattern(size, 1);
        let (one, other) = bytes.split_at(size / 2);
        channel.send_vectored(&[IoSlice::new(one), IoSlice::new(other)]).map(drop)
    }),
    ("start_send and advance", |channel, size| {
        let bytes = pattern(size, 1);
        channel.start_send(&bytes)?.advance().map(drop)
    }),
    ("send_built", |channel, size| channel.send_built(Building::new(size)?).map(drop)),
    ("recv", |channel, _| channel.recv().map(drop)),
    ("try_recv", |channel, _| channel.try_recv().map(drop)),
];

fn plain(mechanism: Option<Mechanism>) -> Settings {
    Settings { mechanism, ..by(Mechanism::Ring) }
}

#[test]
fn first_call_after_death_or_close_reports_it() {
    let _alone = alone();
    for is_killed in [true, false] {
        for (name, call) in CALLS {
            for size in [64, 4096, 60_000, 1 << 20] {
                let (own, other) = pair().unwrap();
                let mut ends = Some((own, other));
                let child = Child::start(|| {
                    let (own, other) = ends.take().unwrap();
                    drop(own);
                    let mut channel = Channel::accept_over(other, &plain(None)).unwrap();
                    assert_eq!(channel.recv().unwrap()[..], *b"hello");
                    if is_killed {
                        // SAFETY: ends this process.
                        unsafe { libc::raise(libc::SIGKILL) };
                    }
                    drop(channel);
                });
                let (own, other) = ends.take().unwrap();
                drop(other);
                let mut channel = Channel::connect_over(own, &plain(None)).unwrap();
                channel.send(b"hello").unwrap();
                child.wait();
                // One tick of the clock that the channel checks; a real program's next call does
                // not follow that soon.
                thread::sleep(Duration::from_millis(1));
                for time in 0..2 {
                    let result = call(&mut channel, size);
                    let is_right = match &result {
                        Err(Error::PeerGone { .. }) => true,
                        Err(Error::Closed) => !is_killed && name.contains("recv"),
                        // The state after a failed receive.
                        Err(Error::Broken) => time > 0 && name.contains("recv"),
                        _ => false,
                    };
                    assert!(is_right, "{name}, {size} B, killed {is_killed}: {result:?}");
                }
            }
        }
    }
}

/// Standard input, output and error, which a daemon closes.
const STANDARD: [libc::c_int; 3] = [0, 1, 2];

#[test]
fn channel_uses_no_standard_descriptor_number() {
    let _alone = alone();
    for mechanism in Mechanism::ALL {
        let child = Child::start(|| {
            for number in STANDARD {
                // SAFETY: nothing in this child uses these descriptors any more.
                unsafe { libc::close(number) };
            }
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("socket");
            let listener = Listener::bind(&path).unwrap();
            let settings = by(mechanism);
            let (mut one, mut other) = thread::scope(|scope| {
                let accepting = scope.spawn(|| listener.accept(&settings).unwrap());
                (Channel::connect(&path, &settings).unwrap(), accepting.join().unwrap())
            });
            let mut building = Building::new(100_000).unwrap();
            building.fill(7);
            let got = thread::scope(|scope| {
                let sending = scope.spawn(|| match mechanism {
                    Mechanism::Sealed => one.send_built(building).unwrap(),
                    Mechanism::Inline => one.send(&[7; 1000]).unwrap(),
                    _ => one.send(&[7; 100_000]).unwrap(),
                });
                let got = other.recv().unwrap();
                sending.join().unwrap();
                got
            });
            assert!(got.iter().all(|byte| *byte == 7));
            let sockets = pair().unwrap();
            for number in STANDARD {
                // SAFETY: only reads the flags of a descriptor number.
                let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
                assert_eq!(flags, -1, "{mechanism}: descriptor {number} is in use");
            }
            drop((one, other, sockets));
        });
        assert_eq!(child.wait(), 0, "{mechanism}");
    }
}

fn limit(resource: libc::__rlimit_resource_t, value: u64) {
    let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
    // SAFETY: a structure of the right type, which is only read.
    assert_eq!(unsafe { libc::setrlimit(resource, &raw const limit) }, 0);
}

#[test]
fn file_size_limit_is_kept_or_named_and_kills_no_process() {
    let _alone = alone();
    for mechanism in Mechanism::ALL.into_iter().filter(|one| *one != Mechanism::Inline) {
        let child = Child::start(|| {
            limit(libc::RLIMIT_FSIZE, 1 << 20);
            let error = Building::new(4 << 20).map(drop).unwrap_err().to_string();
            assert!(error.contains("RLIMIT_FSIZE") && error.contains("ulimit -f"), "{error}");
            assert_eq!(Building::new(1 << 20).unwrap().len(), 1 << 20);
            assert_eq!(Buffer::new(4 << 20).unwrap().len(), 4 << 20);
            let named = Some(mechanism).filter(|one| *one != Mechanism::Sealed);
            let (own, other) = pair().unwrap();
            let settings = &plain(named);
            thread::scope(|scope| {
                scope.spawn(move || {
                    let mut channel = Channel::connect_over(own, settings).unwrap();
                    if named.is_some_and(|named| !channel.offers(named)) {
                        return channel.send_built(Building::new(9).unwrap()).map(drop).unwrap();
                    }
                    channel.send(&pattern(2 << 20, 4)).map(drop).unwrap();
                });
                let mut channel = Channel::accept_over(other, settings).unwrap();
                let got = channel.recv().unwrap();
                assert!(got.len() == 9 || got[..] == pattern(2 << 20, 4), "{mechanism}");
            });
        });
        assert_eq!(child.wait(), 0, "{mechanism}");
    }
}

#[test]
fn file_size_limit_below_minimum_is_named() {
    let _alone = alone();
    let child = Child::start(|| {
        limit(libc::RLIMIT_FSIZE, 100 << 10);
        let (own, other) = pair().unwrap();
        let settings = &plain(None);
        thread::scope(|scope| {
            scope.spawn(move || Channel::connect_over(own, settings).map(drop).unwrap_err());
            let error = Channel::accept_over(other, settings).map(drop).unwrap_err().to_string();
            assert!(error.contains("102400 B") && error.contains("ulimit -f"), "{error}");
        });
    });
    assert_eq!(child.wait(), 0);
}

#[test]
fn empty_path_is_refused() {
    let _alone = alone();
    let empty = Path::new("");
    for error in [
        Listener::bind(empty).map(drop),
        Listener::bind_for(empty, &Users::Any).map(drop),
        Channel::connect(empty, &plain(None)).map(drop),
    ] {
        let error = error.unwrap_err().to_string();
        assert!(error.contains("\"\"") && error.contains("name a path"), "{error}");
    }
}

#[test]
fn idle_peer_counts_as_alive() {
    let _alone = alone();
    let (mut channel, peer) = with_a_peer(Mechanism::Inline, |mut channel| {
        for _ in 0..3 {
            channel.recv().unwrap();
        }
    });
    for _ in 0..3 {
        thread::sleep(Duration::from_millis(300));
        channel.send(b"still here").unwrap();
    }
    assert_eq!(peer.wait(), 0);
}
