//! A ring between one producer and one consumer, which carries blocks to the thread that frees
//! them.

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use haul_measure::sys;

/// The largest number of blocks in the ring: large enough that the two threads rarely wait, and
/// larger than a heap's cache of 64 blocks per class, so that this cache can seldom hold all of
/// them.
const PLACES: usize = 256;

/// The number of times that a thread checks the ring before it yields.
const SPINS: u32 = 64;

/// A bounded queue of blocks. One thread puts blocks in, and another thread takes them out.
pub(super) struct Ring {
    places: Vec<AtomicPtr<u8>>,
    /// The number of blocks that were put in; only the producer writes it.
    put: Apart,
    /// The number of blocks that were taken out; only the consumer writes it.
    taken: Apart,
    /// Whether the producer gave up.
    broken: AtomicBool,
}

/// A counter that shares neither its cache line nor the line that is prefetched with it.
#[repr(align(128))]
struct Apart(AtomicUsize);

impl Ring {
    pub(super) fn new() -> Self {
        Self {
            places: (0..PLACES).map(|_| AtomicPtr::new(ptr::null_mut())).collect(),
            put: Apart(AtomicUsize::new(0)),
            taken: Apart(AtomicUsize::new(0)),
            broken: AtomicBool::new(false),
        }
    }

    /// Waits for room and puts a block in.
    pub(super) fn put(&self, block: NonNull<u8>) {
        let put = self.put.0.load(Ordering::Relaxed);
        // SYNC: place emptied
        wait_until(|| put - self.taken.0.load(Ordering::Acquire) < PLACES);
        self.places[put % PLACES].store(block.as_ptr(), Ordering::Relaxed);
        // SYNC: place filled
        self.put.0.store(put + 1, Ordering::Release);
    }

    /// Waits for a block and takes it out; `None` if the producer gave up and the ring is empty.
    pub(super) fn take(&self) -> Option<NonNull<u8>> {
        let taken = self.taken.0.load(Ordering::Relaxed);
        // SYNC: place filled
        let has_more = || self.put.0.load(Ordering::Acquire) > taken;
        wait_until(|| has_more() || self.broken.load(Ordering::Acquire));
        if !has_more() {
            return None;
        }
        let block = self.places[taken % PLACES].load(Ordering::Relaxed);
        // SYNC: place emptied
        self.taken.0.store(taken + 1, Ordering::Release);
        NonNull::new(block)
    }

    /// Informs the consumer that there will be no more blocks.
    pub(super) fn give_up(&self) {
        self.broken.store(true, Ordering::Release);
    }
}

fn wait_until(reached: impl Fn() -> bool) {
    let mut spins = 0u32;
    while !reached() {
        spins += 1;
        if spins.is_multiple_of(SPINS) {
            sys::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_keeps_order_and_ends_if_producer_gives_up() {
        const COUNT: usize = 10_000;
        let ring = Ring::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for address in 1..=COUNT {
                    ring.put(NonNull::new(ptr::without_provenance_mut(address)).unwrap());
                }
                ring.give_up();
            });
            for address in 1..=COUNT {
                assert_eq!(ring.take().unwrap().addr().get(), address);
            }
            assert_eq!(ring.take(), None);
        });
    }
}
