//! Messages whose bytes an engine copies.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use haul_channel::{Account, Channel, Error, Listener, Mechanism, Settings};
use haul_engine::Queue;
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::death::start;
use crate::held::{Held, Way};
use crate::support::{by, ends, pattern, two};

/// The mechanisms in which this process copies into memory that both ends map.
const BESIDE: [Mechanism; 2] = [Mechanism::Ring, Mechanism::Lease];

/// Sizes around the smallest copy of an engine, the ring, and the longest copy of a lease.
const SIZES: [usize; 9] =
    [1, 65_535, 65_536, 262_145, 1_048_576, 1_048_577, 4_194_304, 8_388_609, 20_000_001];

/// A size that an engine copies, and that fits into a part of the ring for which every second-level
/// cache is large enough.
const AT_ONCE: usize = 100_000;

pub(crate) fn with(mechanism: Mechanism, queue: &Queue) -> Settings {
    Settings { engine: Some(queue.clone()), ..by(mechanism) }
}

fn is_readable(channel: &impl AsFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut set = [PollFd::new(channel, PollFlags::IN)];
    rustix::event::poll(&mut set, Some(&now)) == Ok(1)
}

/// Sends `bytes` by `send`, or as shared bytes.
fn give(channel: &mut Channel, bytes: &Arc<Vec<u8>>, is_shared: bool) -> Result<Account, Error> {
    match is_shared {
        true => channel.start_send_shared(Arc::clone(bytes))?.finish(),
        false => channel.send(bytes),
    }
}

fn arrives(one: &mut Channel, other: &mut Channel, bytes: &Arc<Vec<u8>>, is_shared: bool) {
    thread::scope(|scope| {
        let sending = scope.spawn(|| give(one, bytes, is_shared).unwrap());
        let got = other.recv().unwrap();
        assert!(got[..] == bytes[..], "{} B changed on the way", bytes.len());
        let sent = sending.join().unwrap();
        assert_eq!(sent.fell_back_from, None);
        let copies = sent.copied_bytes + got.account().copied_bytes;
        assert_eq!(copies, u64::from(sent.mechanism.copies()) * bytes.len() as u64);
    });
    assert_eq!(Arc::strong_count(bytes), 1, "a copy still has the bytes");
}

#[test]
fn message_of_every_size_arrives_by_every_engine() {
    for name in ["inline", "worker", "auto"] {
        let queue = Queue::by_name(name).unwrap();
        for mechanism in BESIDE {
            let (mut one, mut other) = ends(&with(mechanism, &queue));
            for (seed, size) in SIZES.into_iter().enumerate() {
                let bytes = Arc::new(pattern(size, seed as u64));
                for is_shared in [false, true] {
                    arrives(&mut one, &mut other, &bytes, is_shared);
                    arrives(&mut other, &mut one, &bytes, is_shared);
                }
            }
        }
    }
}

#[test]
fn engine_that_fails_is_replaced_by_cpu() {
    for way in [Way::Copies, Way::Stops, Way::Disappears, Way::Refuses] {
        for (mechanism, finishes_on_cpu) in
            [(Mechanism::Ring, true), (Mechanism::Ring, false), (Mechanism::Lease, false)]
        {
            let (held, queue) = Held::queue(way, finishes_on_cpu);
            let (mut one, mut other) = ends(&with(mechanism, &queue));
            let bytes = Arc::new(pattern(3_000_001, 7));
            for is_shared in [false, true] {
                let before = held.starts.load(Relaxed);
                arrives(&mut one, &mut other, &bytes, is_shared);
                assert!(held.starts.load(Relaxed) > before, "the engine was not asked");
            }
        }
    }
}

#[test]
fn message_with_checksum_or_of_one_small_piece_does_not_use_engine() {
    let (held, queue) = Held::queue(Way::Copies, true);
    for mechanism in BESIDE {
        let settings = Settings { integrity: true, ..with(mechanism, &queue) };
        let (mut one, mut other) = ends(&settings);
        let bytes = Arc::new(pattern(2_000_000, 3));
        arrives(&mut one, &mut other, &bytes, true);
        let (mut one, mut other) = ends(&with(mechanism, &queue));
        arrives(&mut one, &mut other, &Arc::new(pattern(65_535, 3)), true);
    }
    assert_eq!(held.starts.load(Relaxed), 0);
}

#[test]
fn message_is_visible_only_after_engine_has_copied_it() {
    for mechanism in BESIDE {
        let (held, queue) = Held::queue(Way::Holds, true);
        let (mut one, mut other) = two(&with(mechanism, &queue), &by(mechanism));
        let bytes = Arc::new(pattern(AT_ONCE, 11));
        let mut sending = one.start_send_shared(Arc::clone(&bytes)).unwrap();
        // A lease starts when the receiver has offered its memory.
        for _ in 0..3 {
            assert!(!sending.advance().unwrap());
            assert!(other.try_recv().unwrap().is_none(), "{mechanism}: it is not there yet");
        }
        assert!(!sending.advance().unwrap());
        assert!(!is_readable(&sending.as_fd()), "{mechanism}: nothing has happened");
        assert_eq!(held.release(), 1, "{mechanism}");
        assert!(is_readable(&sending.as_fd()), "{mechanism}: the end wakes an event loop");
        assert!(sending.advance().unwrap(), "{mechanism}");
        drop(sending);
        assert_eq!(Arc::strong_count(&bytes), 1, "{mechanism}");
        assert!(other.recv().unwrap()[..] == bytes[..], "{mechanism}");
        assert!(other.try_recv().unwrap().is_none() && !is_readable(&other));
    }
}

/// An event loop that began to wait for a copy, and then waits for the message by a call, must not
/// find the copy's event later.
#[test]
fn finished_message_leaves_no_event() {
    for mechanism in BESIDE {
        let (held, queue) = Held::queue(Way::Holds, true);
        let (mut one, mut other) = two(&with(mechanism, &queue), &by(mechanism));
        let bytes = Arc::new(pattern(AT_ONCE, 29));
        let mut sending = one.start_send_shared(Arc::clone(&bytes)).unwrap();
        for _ in 0..3 {
            assert!(!sending.advance().unwrap());
            assert!(other.try_recv().unwrap().is_none());
        }
        assert!(!sending.advance().unwrap());
        assert_eq!(held.release(), 1);
        assert!(is_readable(&sending.as_fd()), "{mechanism}: the end wakes an event loop");
        sending.finish().unwrap();
        assert!(other.recv().unwrap()[..] == bytes[..], "{mechanism}");
        // The words of the receiver are read; the copy's event was cleared before.
        assert!(one.try_recv().unwrap().is_none());
        assert!(!is_readable(&one), "{mechanism}: an event is left");
    }
}

#[test]
fn receiver_begins_before_engine_has_copied_all() {
    let (held, queue) = Held::queue(Way::Holds, true);
    let settings = with(Mechanism::Ring, &queue);
    let (mut one, mut other) = two(&settings, &by(Mechanism::Ring));
    let mut sending = one.start_send_shared(Arc::new(pattern(900_000, 5))).unwrap();
    assert!(!sending.advance().unwrap());
    held.advance(300_000);
    assert!(!sending.advance().unwrap());
    assert!(other.try_recv().unwrap().is_none());
    thread::scope(|scope| {
        let released = scope.spawn(|| {
            thread::sleep(Duration::from_millis(50));
            held.release()
        });
        drop(sending);
        assert_eq!(released.join().unwrap(), 1);
    });
    match other.recv().map(|got| got.len()).unwrap_err() {
        // Pieces of 64 KiB, of which four are whole.
        Error::GivenUp { done, .. } => assert_eq!(done.0, 262_144),
        error => panic!("{error}"),
    }
}

#[test]
fn forgotten_message_keeps_memory_of_its_copy() {
    for mechanism in BESIDE {
        let (held, queue) = Held::queue(Way::Holds, true);
        let (mut one, mut other) = two(&with(mechanism, &queue), &by(mechanism));
        let bytes = Arc::new(pattern(900_000, 13));
        let kept = Arc::downgrade(&bytes);
        let mut sending = one.start_send_shared(bytes).unwrap();
        for _ in 0..3 {
            assert!(!sending.advance().unwrap());
            assert!(other.try_recv().unwrap().is_none());
        }
        std::mem::forget(sending);
        drop((one, other));
        assert!(kept.upgrade().is_some_and(|bytes| bytes[..] == pattern(900_000, 13)));
        assert_eq!(held.release(), 1, "{mechanism}: the copy still writes to mapped memory");
    }
}

#[test]
fn engine_that_hangs_delays_dropped_message_for_second_and_leaks_it() {
    let (held, queue) = Held::queue(Way::Holds, true);
    let (mut one, other) = two(&with(Mechanism::Ring, &queue), &by(Mechanism::Ring));
    let bytes = Arc::new(pattern(900_000, 17));
    let kept = Arc::downgrade(&bytes);
    let mut sending = one.start_send_shared(bytes).unwrap();
    assert!(!sending.advance().unwrap());
    let start = Instant::now();
    drop(sending);
    assert!((Duration::from_millis(900)..Duration::from_secs(30)).contains(&start.elapsed()));
    drop((one, other));
    assert!(kept.upgrade().is_some());
    assert_eq!(held.release(), 1);
}

#[test]
fn message_whose_engine_hangs_ends_at_deadline() {
    let (held, queue) = Held::queue(Way::Holds, true);
    let limit = Duration::from_millis(300);
    let settings = Settings { wait: Some(limit), deadline: limit, ..with(Mechanism::Ring, &queue) };
    let (mut one, _other) = two(&settings, &by(Mechanism::Ring));
    let error = one.start_send_shared(Arc::new(pattern(900_000, 19))).unwrap().finish();
    assert!(matches!(error, Err(Error::Deadline { .. })), "{error:?}");
    assert_eq!(held.release(), 1);
}

/// The fork copies the state of all threads, so this runs in a process of its own.
#[test]
fn fork_within_message_leaves_copy_to_parent() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = Listener::bind(&path).unwrap();
    let peer = start("fork-beside", Mechanism::Ring, &path);
    let mut channel = listener.accept(&by(Mechanism::Ring)).unwrap();
    assert!(channel.recv().unwrap()[..] == pattern(AT_ONCE, 23));
    assert_eq!(channel.recv().unwrap()[..], *b"after");
    peer.ended_well();
}

/// The sender of the test above.
pub(crate) fn fork_within_message(channel_of: impl FnOnce(&Settings) -> Channel) {
    let (held, queue) = Held::queue(Way::Holds, true);
    let mut channel = channel_of(&with(Mechanism::Ring, &queue));
    let mut sending = channel.start_send_shared(Arc::new(pattern(AT_ONCE, 23))).unwrap();
    assert!(!sending.advance().unwrap());
    // SAFETY: this process has no other thread than the test's own, which wait.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let is_refused = matches!(sending.advance(), Err(Error::TakenOver { .. }));
        // The copy belongs to the parent: the child must neither make it nor wait for it.
        drop(sending);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!is_refused)) };
    }
    let mut status = 0;
    // SAFETY: waits for a child of this process.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0);
    assert_eq!(held.release(), 1);
    sending.finish().unwrap();
    channel.send(b"after").unwrap();
}
