//! The slots and the ring between callers and helper thread, in every interleaving with up to
//! three preemptions, under loom: `RUSTFLAGS="--cfg loom" cargo test --release -p haul-engine
//! --lib interleavings`.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use haul_copy::Hint;

use crate::operation::{Operation, Request};
use crate::outcome::{Outcome, Value};
use crate::ring::{self, Entry, Ring};
use crate::slots::{Index, Slots};

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(check);
}

/// One queue: its slots, its ring, and targets of some pieces each.
struct Shared {
    slots: std::sync::Arc<Slots>,
    ring: Ring,
    targets: Vec<UnsafeCell<u32>>,
}

/// The pieces of an operation.
const PIECES: u32 = 2;

const DONE: Outcome = Outcome::Done(Value::Written);

impl Shared {
    fn new(slots: usize, operations: usize) -> Arc<Self> {
        let targets = (0..operations * PIECES as usize).map(|_| UnsafeCell::new(0)).collect();
        Arc::new(Self { slots: Slots::new(slots), ring: Ring::new(slots), targets })
    }

    /// What `Queue::submit` does. The request carries the number of the operation.
    fn submit(&self, operation: usize) -> Option<Index> {
        let index = self.slots.take()?;
        let fill = Operation::Fill { target: std::ptr::null_mut(), byte: 0, length: operation };
        let request = Request { operation: fill, hint: Hint::Unknown };
        // SAFETY: this thread has taken the slot, and loom fails the test if another accesses it.
        unsafe { self.slots.put(index, request) };
        self.ring.put(Entry { index, generation: self.slots.generation(index), request });
        Some(index)
    }

    /// Does one piece: loom fails the test if another thread accesses it meanwhile.
    fn execute(&self, request: Request, piece: u32) {
        let Operation::Fill { length: operation, .. } = request.operation else {
            panic!("the request is torn")
        };
        self.targets[operation * PIECES as usize + piece as usize].with_mut(|cell| {
            // SAFETY: as above.
            unsafe { *cell += 1 }
        });
    }

    /// What the helper thread does with one operation of several pieces.
    fn work(&self, entry: Entry) {
        let Entry { index, generation, request } = entry;
        let word = self.slots.word(index);
        while let Some(piece) = ring::claim_front(word, PIECES) {
            self.execute(request, piece);
            if ring::complete(word, PIECES) {
                // SAFETY: one thread completes the last piece, and this one is done with the slot.
                unsafe { self.slots.end_and_let_go(index, generation, DONE) };
                return;
            }
        }
        self.slots.let_go(index, generation);
    }

    /// What the helper thread does with an operation of one piece.
    fn work_whole(&self, entry: Entry) {
        let Entry { index, generation, request } = entry;
        if !self.slots.claim(index, generation) {
            self.slots.let_go(index, generation);
            return;
        }
        self.execute(request, 0);
        // SAFETY: this thread has claimed the operation, and is done with the slot.
        unsafe { self.slots.end_and_let_go(index, generation, DONE) };
    }

    fn work_on(&self, operations: usize, work: impl Fn(&Self, Entry)) {
        for _ in 0..operations {
            let entry = loop {
                if let Some(entry) = self.ring.take() {
                    break entry;
                }
                thread::yield_now();
            };
            work(self, entry);
        }
    }

    /// What a waiting caller does.
    fn wait(&self, index: Index, operation: usize, helps: bool) {
        while self.slots.outcome(index).is_none() {
            match ring::claim_back(self.slots.word(index), PIECES).filter(|_| helps) {
                Some(piece) => {
                    self.execute(self.request(index), piece);
                    if ring::complete(self.slots.word(index), PIECES) {
                        // SAFETY: one thread completes the last piece.
                        unsafe { self.slots.end_held(index, DONE) };
                    }
                }
                None => thread::yield_now(),
            }
        }
        self.take(index, operation, PIECES);
    }

    /// What a caller does that waits for an operation of one piece.
    fn wait_whole(&self, index: Index, operation: usize) {
        while self.slots.outcome(index).is_none() {
            let is_claimed = self.slots.is_claimed(index);
            if is_claimed || !self.slots.claim(index, self.slots.generation(index)) {
                thread::yield_now();
                continue;
            }
            self.execute(self.request(index), 0);
            // SAFETY: this thread has claimed the operation.
            unsafe { self.slots.end_held(index, DONE) };
        }
        self.take(index, operation, 1);
    }

    fn request(&self, index: Index) -> Request {
        // SAFETY: the slot is not released.
        unsafe { self.slots.request(index) }
    }

    /// Checks an operation that has ended, and releases its slot.
    fn take(&self, index: Index, operation: usize, pieces: u32) {
        for piece in 0..pieces as usize {
            self.targets[operation * PIECES as usize + piece].with(|cell| {
                // SAFETY: as above.
                assert_eq!(unsafe { *cell }, 1, "a piece is done once, and seen by the caller")
            });
        }
        self.slots.release(index);
    }
}

#[test]
fn helping_caller_and_helper_thread_do_every_piece_once() {
    model(|| {
        let shared = Shared::new(1, 1);
        let own = Arc::clone(&shared);
        let helper = thread::spawn(move || own.work_on(1, Shared::work));
        let index = shared.submit(0).unwrap();
        shared.wait(index, 0, true);
        helper.join().unwrap();
        assert!(shared.slots.take().is_some(), "the slot is free again");
    });
}

#[test]
fn slot_is_reused_only_after_the_helper_thread_has_let_go() {
    model(|| {
        let shared = Shared::new(1, 2);
        let own = Arc::clone(&shared);
        let helper = thread::spawn(move || own.work_on(2, Shared::work));
        let index = shared.submit(0).unwrap();
        shared.wait(index, 0, true);
        // The helper thread may still hold the slot.
        let index = loop {
            if let Some(index) = shared.submit(1) {
                break index;
            }
            thread::yield_now();
        };
        shared.wait(index, 1, true);
        helper.join().unwrap();
    });
}

#[test]
fn two_callers_get_two_slots_and_the_helper_thread_sees_both() {
    model(|| {
        let shared = Shared::new(2, 2);
        let caller = |operation: usize| {
            let own = Arc::clone(&shared);
            thread::spawn(move || own.submit(operation).unwrap())
        };
        let callers = [caller(0), caller(1)];
        shared.work_on(2, Shared::work);
        for (operation, caller) in callers.into_iter().enumerate() {
            shared.wait(caller.join().unwrap(), operation, false);
        }
        assert!(shared.slots.take().is_some() && shared.slots.take().is_some());
    });
}

#[test]
fn operation_of_one_piece_is_done_once_and_its_slot_and_place_are_reused() {
    model(|| {
        let shared = Shared::new(1, 2);
        let own = Arc::clone(&shared);
        let helper = thread::spawn(move || own.work_on(2, Shared::work_whole));
        for operation in 0..2 {
            // The helper thread may still hold the slot.
            let index = loop {
                if let Some(index) = shared.submit(operation) {
                    break index;
                }
                thread::yield_now();
            };
            shared.wait_whole(index, operation);
        }
        helper.join().unwrap();
        assert!(shared.slots.take().is_some(), "the slot is free again");
    });
}
