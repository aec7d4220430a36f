//! Tests the protocols of the counter, the bell, the ring, closing and leasing in every
//! interleaving of two ends with up to three preemptions, under loom: `RUSTFLAGS="--cfg loom"
//! cargo test -p haul-channel --lib --release interleavings`.

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

/// The memory that two ends of `double` share: the counter, the count of finished pieces, and the
/// target.
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

    /// The sender moves as many pieces as it can claim, at most `pieces_max`.
    fn send(&self, pieces_max: u64) {
        for pushed in 0..pieces_max {
            let Claim::Piece(piece) = counter::claim_front(&self.claimed, 1, self.pieces()) else {
                return;
            };
            assert_eq!(piece, pushed);
            // loom fails the test if the other end accesses this piece meanwhile.
            self.target[piece as usize].with_mut(|cell| {
                // SAFETY: loom fails the test if the other end accesses it meanwhile.
                unsafe { *cell += 1 }
            });
            self.pushed.put(pushed + 1);
        }
    }

    /// The receiver moves as many pieces as it can claim, at most `pieces_max`, and returns their
    /// number.
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

    /// Checks that each of these pieces was moved once and is visible to this thread.
    fn check(&self, pieces: std::ops::Range<u64>) {
        for piece in pieces {
            // SAFETY: as above.
            self.target[piece as usize].with(|cell| assert_eq!(unsafe { *cell }, 1, "{piece}"));
        }
    }
}

#[test]
fn both_ends_move_every_piece_once_and_receiver_sees_all() {
    model(|| {
        let shared = Shared::new(3);
        let sender = Arc::clone(&shared);
        let thread = thread::spawn(move || sender.send(u64::MAX));
        let own = shared.receive(u64::MAX);
        while shared.pushed.get() != shared.pieces() - own {
            thread::yield_now();
        }
        // The threads are not joined yet: the count alone must make the pieces visible.
        shared.check(0..shared.pieces());
        thread.join().unwrap();
    });
}

#[test]
fn sender_writes_only_pieces_claimed_before_close() {
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
        // From now on the receiver may write to the pieces behind `front`.
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

/// One end that sleeps: the bell, how it sleeps, and the futex.
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

    /// Rings like `Lane::ring_bell`.
    fn ring(&self) {
        if bell::sleep_state(&self.how) & ASLEEP != 0 {
            bell::ring(&self.bell, &self.how);
            let _guard = self.futex.lock().unwrap();
            self.woken.notify_one();
        }
    }

    /// Waits like `drive`: announces, polls once more, sleeps. Unlike a real sleep, this sleep
    /// has no time limit, so that loom reports a lost wake-up as a deadlock.
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
fn sleeper_wakes_for_published_word() {
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

/// The ring with one chunk: each end sleeps while it cannot continue.
#[test]
fn chunks_arrive_whole_and_in_order() {
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

/// If an end sees that the other end is closed and finds no published word, the other end
/// published no word before it closed. This holds for the receiver that polls for a message and
/// for the sender that polls for an answer.
#[test]
fn poll_finds_word_published_before_close() {
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
            assert_eq!(state, OPEN, "closed, but the word published before is not found");
            thread::yield_now();
        }
        thread.join().unwrap();
    });
}

#[test]
fn sleeper_wakes_for_close() {
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

/// `pull` reads bytes in place while their owner gives them up and changes them.
#[test]
fn receiver_of_changed_bytes_sees_that_sender_gave_up() {
    use loom::sync::atomic::Ordering::Relaxed;
    model(|| {
        let shared = Arc::new((AtomicU32::new(OPEN), [AtomicU64::new(7), AtomicU64::new(7)]));
        let owner = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            closing::publish(&owner.0, GIVEN_UP);
            // Reads by another process have no order.
            owner.1[1].store(8, Relaxed);
            owner.1[0].store(8, Relaxed);
        });
        let bytes = [0, 1].map(|index: usize| shared.1[index].load(Relaxed));
        if !closing::has_given_up(&shared.0) {
            assert_eq!(bytes, [7, 7], "changed bytes count as whole");
        }
        thread.join().unwrap();
    });
}

/// Memory of a pool is leased for one message after the other: the sender writes to it only after
/// the offer, and the receiver reads it only after the sender has published the message.
#[test]
fn lease_passes_between_sender_and_receiver() {
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
        // Models `lease::Sending::step`. For the second message, the sender cannot map the
        // target.
        let thread = thread::spawn(move || {
            for message in 1..=MESSAGES {
                if other.offered.get() != message {
                    other.sender.sleep_until(|| other.offered.get() == message);
                }
                if message == MESSAGES {
                    other.abandoned.put(message);
                } else {
                    other.bytes.with_mut(|bytes| {
                        // SAFETY: loom fails the test if the receiver accesses it meanwhile.
                        unsafe { *bytes = message + 10 }
                    });
                    other.filled_lease.put(message);
                }
                other.receiver.ring();
            }
        });
        // Models `lease::Receiving::step`.
        for message in 1..=MESSAGES {
            leased.offered.put(message);
            leased.sender.ring();
            let is_published =
                || leased.filled_lease.get() == message || leased.abandoned.get() == message;
            if !is_published() {
                leased.receiver.sleep_until(is_published);
            }
            leased.bytes.with_mut(|bytes| {
                // SAFETY: loom fails the test if the sender still accesses it.
                let found = unsafe { std::mem::replace(&mut *bytes, 99) };
                let expected = if leased.filled_lease.get() == message { message + 10 } else { 99 };
                assert_eq!(found, expected);
            });
        }
        thread.join().unwrap();
    });
}
