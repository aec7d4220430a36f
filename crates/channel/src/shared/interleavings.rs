//! The protocols of the counter, the bell, the ring, closing and leasing in every order that two
//! ends can run in, up to three preemptions, under loom: `RUSTFLAGS="--cfg loom" cargo test -p haul
//! --lib --release interleavings`.

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, AtomicU64};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::bell::{self, ASLEEP};
use super::closing;
use super::counter::{self, Claim};
use super::layout::{CLOSED, GIVEN_UP, OPEN};
use super::words::{Flags, Word};

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(check);
}

/// What two ends of `double` share: the counter, what the sender finished, and the target.
struct Shared {
    claimed: AtomicU64,
    pushed: AtomicU64,
    target: Vec<UnsafeCell<u64>>,
}

impl Shared {
    fn new(pieces: usize) -> Arc<Self> {
        let target = (0..pieces).map(|_| UnsafeCell::new(0)).collect();
        let shared = Self { claimed: AtomicU64::new(0), pushed: AtomicU64::new(0), target };
        counter::begin(&shared.claimed, 1);
        Arc::new(shared)
    }

    fn pieces(&self) -> u64 {
        self.target.len() as u64
    }

    /// The sender moves what it can, at most so many pieces.
    fn send(&self, pieces_max: u64) {
        for pushed in 0..pieces_max {
            let Claim::Piece(piece) = counter::claim_front(&self.claimed, 1, self.pieces()) else {
                return;
            };
            assert_eq!(piece, pushed);
            // loom finds it out if anybody else touches this piece meanwhile.
            self.target[piece as usize].with_mut(|cell| {
                // SAFETY: loom lets nobody else have it meanwhile, or fails the test.
                unsafe { *cell += 1 }
            });
            self.pushed.put(pushed + 1);
        }
    }

    /// The receiver moves what it can, and says how many pieces those were.
    fn receive(&self, pieces_max: u64) -> u64 {
        let mut own = 0;
        while own < pieces_max {
            let claim = counter::claim_back(&self.claimed, 1, self.pieces(), own);
            let Claim::Piece(piece) = claim else { break };
            self.target[piece as usize].with_mut(|cell| {
                // SAFETY: as above.
                unsafe { *cell += 1 }
            });
            own += 1;
        }
        own
    }

    /// Every piece from `start` on was moved once, seen by who looks now.
    fn check(&self, pieces: std::ops::Range<u64>) {
        for piece in pieces {
            // SAFETY: as above.
            self.target[piece as usize].with(|cell| assert_eq!(unsafe { *cell }, 1, "{piece}"));
        }
    }
}

#[test]
fn what_both_moved_is_all_there_is_and_is_seen() {
    model(|| {
        let shared = Shared::new(3);
        let sender = Arc::clone(&shared);
        let thread = thread::spawn(move || sender.send(u64::MAX));
        let own = shared.receive(u64::MAX);
        while shared.pushed.get() != shared.pieces() - own {
            thread::yield_now();
        }
        // Without a join: the count alone must make the pieces visible.
        shared.check(0..shared.pieces());
        thread.join().unwrap();
    });
}

#[test]
fn a_receiver_that_closes_is_touched_no_more_than_it_says() {
    model(|| {
        let shared = Shared::new(3);
        let sender = Arc::clone(&shared);
        let thread = thread::spawn(move || sender.send(u64::MAX));
        let own = shared.receive(1);
        let front = counter::close(&shared.claimed, 1, shared.pieces());
        assert!(front + own <= shared.pieces());
        while shared.pushed.get() < front {
            thread::yield_now();
        }
        // Whatever is beyond is the receiver's alone from here on: it may write there.
        shared.check(0..front);
        for piece in front..shared.pieces() - own {
            shared.target[piece as usize].with_mut(|cell| {
                // SAFETY: loom fails the test if the sender still writes there.
                unsafe { *cell += 1 }
            });
        }
        thread.join().unwrap();
        shared.check(0..shared.pieces());
    });
}

/// One end's place to sleep: the bell, how it sleeps, and the futex.
struct Sleeper {
    bell: AtomicU32,
    how: AtomicU32,
    futex: Mutex<()>,
    woken: Condvar,
}

impl Sleeper {
    fn new() -> Self {
        let (bell, how) = (AtomicU32::new(0), AtomicU32::new(0));
        Self { bell, how, futex: Mutex::new(()), woken: Condvar::new() }
    }

    /// What `Lane::ring` does to the other end.
    fn ring(&self) {
        if bell::sleep_state(&self.how) & ASLEEP != 0 {
            bell::ring(&self.bell, &self.how);
            let _guard = self.futex.lock().unwrap();
            self.woken.notify_one();
        }
    }

    /// What `drive` does: announces, looks once more, sleeps. Without the time limit that a real
    /// sleep has: a ring that gets lost is a test that never ends, which loom tells.
    fn sleep_until(&self, mut is_there: impl FnMut() -> bool) {
        loop {
            let seen = bell::announce(&self.bell, &self.how, ASLEEP);
            if is_there() {
                return;
            }
            let mut guard = self.futex.lock().unwrap();
            while self.bell.get() == seen {
                guard = self.woken.wait(guard).unwrap();
            }
            if is_there() {
                return;
            }
        }
    }
}

#[test]
fn nobody_sleeps_through_what_was_told() {
    model(|| {
        let shared = Arc::new((AtomicU64::new(0), Sleeper::new()));
        let publisher = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            publisher.0.put(1);
            publisher.1.ring();
        });
        shared.1.sleep_until(|| shared.0.get() == 1);
        thread.join().unwrap();
    });
}

/// The ring with one chunk: each end sleeps where it cannot go on.
#[test]
fn chunks_come_in_order_and_whole() {
    const MESSAGES: u64 = 2;
    struct Ring {
        filled: AtomicU64,
        drained: AtomicU64,
        chunk: UnsafeCell<u64>,
        sender: Sleeper,
        receiver: Sleeper,
    }
    model(|| {
        let ring = Arc::new(Ring {
            filled: AtomicU64::new(0),
            drained: AtomicU64::new(0),
            chunk: UnsafeCell::new(0),
            sender: Sleeper::new(),
            receiver: Sleeper::new(),
        });
        let other = Arc::clone(&ring);
        let thread = thread::spawn(move || {
            for filled in 0..MESSAGES {
                if other.drained.get() != filled {
                    other.sender.sleep_until(|| other.drained.get() == filled);
                }
                other.chunk.with_mut(|chunk| {
                    // SAFETY: loom fails the test if the receiver reads it meanwhile.
                    unsafe { *chunk = filled + 10 }
                });
                other.filled.put(filled + 1);
                other.receiver.ring();
            }
        });
        for drained in 0..MESSAGES {
            if ring.filled.get() == drained {
                ring.receiver.sleep_until(|| ring.filled.get() != drained);
            }
            // SAFETY: loom fails the test if the sender writes it meanwhile.
            ring.chunk.with(|chunk| assert_eq!(unsafe { *chunk }, drained + 10));
            ring.drained.put(drained + 1);
            ring.sender.ring();
        }
        thread.join().unwrap();
    });
}

/// An end that looks, sees the other end closed and nothing told, was told nothing: the receiver
/// that looks for a message, and the sender for the answer to one.
#[test]
fn what_was_told_before_closing_is_found() {
    model(|| {
        let shared = Arc::new((AtomicU64::new(0), AtomicU32::new(OPEN), UnsafeCell::new(0)));
        let publisher = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            publisher.2.with_mut(|message| {
                // SAFETY: loom fails the test if the other end reads it meanwhile.
                unsafe { *message = 7 }
            });
            publisher.0.put(1);
            closing::publish(&publisher.1, CLOSED);
        });
        loop {
            let (state, published) = closing::poll(&shared.1, || shared.0.get());
            if published == 1 {
                // SAFETY: loom fails the test if the other end still writes it.
                shared.2.with(|message| assert_eq!(unsafe { *message }, 7));
                break;
            }
            assert_eq!(state, OPEN, "closed, and what was published before is not found");
            thread::yield_now();
        }
        thread.join().unwrap();
    });
}

#[test]
fn nobody_sleeps_through_a_closing() {
    model(|| {
        let shared = Arc::new((AtomicU32::new(OPEN), Sleeper::new()));
        let closer = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            closing::publish(&closer.0, CLOSED);
            closer.1.ring();
        });
        shared.1.sleep_until(|| closing::poll(&shared.0, || ()).0 == CLOSED);
        thread.join().unwrap();
    });
}

/// Bytes that are read where they stand, by `pull`, while their owner gives them up and changes
/// them.
#[test]
fn bytes_that_changed_are_known_to_be_given_up() {
    use loom::sync::atomic::Ordering::Relaxed;
    model(|| {
        let shared = Arc::new((AtomicU32::new(OPEN), [AtomicU64::new(7), AtomicU64::new(7)]));
        let owner = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            closing::publish(&owner.0, GIVEN_UP);
            // What another process reads meanwhile has no order of its own.
            owner.1[1].store(8, Relaxed);
            owner.1[0].store(8, Relaxed);
        });
        let bytes = [0, 1].map(|index: usize| shared.1[index].load(Relaxed));
        if !closing::has_given_up(&shared.0) {
            assert_eq!(bytes, [7, 7], "changed bytes are taken for whole");
        }
        thread.join().unwrap();
    });
}

/// A place in a pool, leased for one message after the other: the sender writes there only what was
/// offered, and the receiver reads only what was laid.
#[test]
fn a_lease_is_written_by_one_and_read_by_the_other() {
    const MESSAGES: u64 = 2;
    struct Leased {
        offered: AtomicU64,
        filled_lease: AtomicU64,
        abandoned: AtomicU64,
        bytes: UnsafeCell<u64>,
        sender: Sleeper,
        receiver: Sleeper,
    }
    model(|| {
        let leased = Arc::new(Leased {
            offered: AtomicU64::new(0),
            filled_lease: AtomicU64::new(0),
            abandoned: AtomicU64::new(0),
            bytes: UnsafeCell::new(0),
            sender: Sleeper::new(),
            receiver: Sleeper::new(),
        });
        let other = Arc::clone(&leased);
        // `Lay::step`: of the second message the sender cannot reach the target.
        let thread = thread::spawn(move || {
            for message in 1..=MESSAGES {
                if other.offered.get() != message {
                    other.sender.sleep_until(|| other.offered.get() == message);
                }
                if message == MESSAGES {
                    other.abandoned.put(message);
                } else {
                    other.bytes.with_mut(|bytes| {
                        // SAFETY: loom fails the test if the receiver has it meanwhile.
                        unsafe { *bytes = message + 10 }
                    });
                    other.filled_lease.put(message);
                }
                other.receiver.ring();
            }
        });
        // `Let::step`.
        for message in 1..=MESSAGES {
            leased.offered.put(message);
            leased.sender.ring();
            let is_published =
                || leased.filled_lease.get() == message || leased.abandoned.get() == message;
            if !is_published() {
                leased.receiver.sleep_until(is_published);
            }
            leased.bytes.with_mut(|bytes| {
                // SAFETY: loom fails the test if the sender still has it; the receiver's own from
                // here.
                let found = unsafe { std::mem::replace(&mut *bytes, 99) };
                let expected = if leased.filled_lease.get() == message { message + 10 } else { 99 };
                assert_eq!(found, expected);
            });
        }
        thread.join().unwrap();
    });
}
