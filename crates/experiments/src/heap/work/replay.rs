//! The steps of a recorded history. Each thread performs its own steps, and waits if the block's
//! previous step belongs to another thread.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use haul_measure::clock::Clock;
use haul_measure::crew::Meeting;
use haul_measure::sample::Sample;
use haul_measure::sys;
use haul_model::trace::Kind;

use super::fixed::Fixed;
use super::{Found, no_block, touch};
use crate::heap::allocator::Allocator;
use crate::heap::protocol::Shape;
use crate::heap::script::{self, Step};

/// The number of times that a thread checks for another thread's step before it yields.
const SPINS: u32 = 64;

/// All steps, and their blocks.
pub(super) struct Script {
    steps: Fixed<Step>,
    /// Indices of the steps of each thread, in ascending order, one thread after the other.
    by_thread: Fixed<u32>,
    /// The beginning of each thread's indices, and the end of the last thread's indices.
    begins: Vec<usize>,
    places: Fixed<Place>,
    /// Whether a thread gave up, so that the other threads must not wait for it.
    broken: AtomicBool,
}

/// A block's state.
struct Place {
    block: AtomicPtr<u8>,
    size: AtomicUsize,
    /// The number of completed steps of the block. The thread whose turn it is has exclusive
    /// access to the block.
    turn: AtomicU32,
}

impl Script {
    /// Reads the file of steps, for this number of threads, into memory that does not belong to a
    /// heap.
    pub(super) fn read(path: &Path, threads: usize) -> Result<Self, String> {
        let failed = |error: io::Error| format!("cannot read {}: {error}", path.display());
        let mut reader = script::Reader::open(path).map_err(failed)?;
        if u32::try_from(reader.steps()).is_err() {
            return Err("there are more than 2^32 steps".into());
        }
        let steps = Fixed::new(reader.steps(), |_| reader.next().map_err(failed))?;
        let thread = |step: &Step| usize::from(step.thread) % threads;
        let mut begins = vec![0; threads + 1];
        for step in steps.iter() {
            begins[thread(step) + 1] += 1;
        }
        for index in 0..threads {
            begins[index + 1] += begins[index];
        }
        let (mut next, mut of) = (0, 0);
        let by_thread = Fixed::new(steps.len(), |place| {
            while place == begins[of + 1] {
                (next, of) = (0, of + 1);
            }
            next += steps[next..].iter().position(|step| thread(step) == of).unwrap_or(0) + 1;
            Ok(next as u32 - 1)
        })?;
        let blocks = steps.iter().map(|step| step.block as usize + 1).max().unwrap_or(0);
        let place = |_| {
            Ok(Place {
                block: AtomicPtr::new(ptr::dangling_mut()),
                size: AtomicUsize::new(0),
                turn: AtomicU32::new(0),
            })
        };
        let places = Fixed::new(blocks, place)?;
        Ok(Self { steps, by_thread, begins, places, broken: AtomicBool::new(false) })
    }

    /// Performs this thread's steps of a range.
    pub(super) fn perform<A: Allocator>(
        &self,
        allocator: &A,
        clock: &Clock,
        thread: usize,
        range: Range<usize>,
        meeting: &Meeting<'_>,
    ) -> Result<Found, String> {
        let own = &self.by_thread[self.begins[thread]..self.begins[thread + 1]];
        let start = own.partition_point(|&index| (index as usize) < range.start);
        let end = own.partition_point(|&index| (index as usize) < range.end);
        meeting.wait();
        let (sample, done) = Sample::of(clock, || {
            own[start..end].iter().try_for_each(|&index| self.step(allocator, index as usize))
        });
        if done.is_err() {
            self.broken.store(true, Ordering::Release);
        }
        done?;
        let operations = range.len() as u64;
        Ok(Found { samples: vec![sample], operations, values: Vec::new() })
    }

    fn step<A: Allocator>(&self, allocator: &A, index: usize) -> Result<(), String> {
        let step = &self.steps[index];
        let place = &self.places[step.block as usize];
        self.wait_for(place, step.turn)?;
        let (size, align) = (step.size as usize, 1_usize << step.align_log2.min(63));
        let new = match step.kind {
            Kind::Allocate => allocator.allocate(size, align),
            Kind::AllocateZeroed => allocator.allocate_zeroed(size, align),
            Kind::Reallocate => {
                let (block, old_size) = place.held();
                // SAFETY: the turn shows that this heap allocated the block, and that this thread
                // alone has access to it.
                unsafe { allocator.reallocate(block, old_size, size, align) }
            }
            Kind::Free => {
                // SAFETY: as above.
                unsafe { allocator.free(place.held().0) };
                // SYNC: block handed on
                place.turn.store(step.turn + 1, Ordering::Release);
                return Ok(());
            }
        };
        let block = new.ok_or_else(|| no_block(Shape { size, align }, index))?;
        // SAFETY: the heap allocated it a few lines above, with this size.
        unsafe { touch(block, size) };
        place.block.store(block.as_ptr(), Ordering::Relaxed);
        place.size.store(size, Ordering::Relaxed);
        // SYNC: block handed on
        place.turn.store(step.turn + 1, Ordering::Release);
        Ok(())
    }

    fn wait_for(&self, place: &Place, turn: u32) -> Result<(), String> {
        let mut spins = 0_u32;
        // SYNC: block handed on
        while place.turn.load(Ordering::Acquire) != turn {
            if self.broken.load(Ordering::Acquire) {
                return Err("another thread gave up".into());
            }
            spins = spins.wrapping_add(1);
            if spins.is_multiple_of(SPINS) {
                sys::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
        Ok(())
    }
}

impl Place {
    /// The block and its size. Only the thread whose turn it is may call this.
    fn held(&self) -> (NonNull<u8>, usize) {
        let block = NonNull::new(self.block.load(Ordering::Relaxed)).unwrap_or(NonNull::dangling());
        (block, self.size.load(Ordering::Relaxed))
    }
}
