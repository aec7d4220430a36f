//! Blocks of zeros: written by the calling thread, by an engine for which the caller waits, and by
//! an engine beside a caller that computes.

use haul::engine::Queue;
use haul_measure::clock::Clock;
use haul_measure::sample::Sample;

use super::{Found, no_block, pause};
use crate::heap::allocator::Allocator;
use crate::heap::protocol::Shape;

/// The times of one thread, summed over its blocks, in ns.
#[derive(Default)]
struct Sums {
    /// A block whose zeros this thread writes, and its free.
    own: f64,
    /// The same by the engine, for which this thread waits.
    engine: f64,
    /// The part of `engine` until the submission has returned.
    start: f64,
    /// The same as `engine`, while this thread first computes for as long as `own` took.
    beside: f64,
}

/// Makes `count` blocks in each of the three ways, in turn.
pub(super) fn zeroed<A: Allocator>(
    allocator: &A,
    clock: &Clock,
    count: usize,
    shape: Shape,
    queue: &Queue,
) -> Result<Found, String> {
    let mut sums = Sums::default();
    let (whole, done) = Sample::of(clock, || {
        for done in 0..count {
            if one(allocator, clock, shape, queue, &mut sums).is_none() {
                return done;
            }
        }
        count
    });
    if done < count {
        return Err(no_block(shape, done));
    }
    let each = |ns: f64| ns / count as f64;
    let hidden = (2.0 * sums.own - sums.beside) / sums.own;
    let values = vec![each(sums.own), each(sums.engine), each(sums.start), hidden.clamp(0.0, 1.0)];
    Ok(Found { samples: vec![whole], operations: count as u64, values })
}

/// Makes a block in each way. Returns `None` if the heap has no block.
fn one<A: Allocator>(
    allocator: &A,
    clock: &Clock,
    shape: Shape,
    queue: &Queue,
    sums: &mut Sums,
) -> Option<()> {
    let Shape { size, align } = shape;
    let start = clock.now();
    let block = allocator.allocate_zeroed(size, align)?;
    // SAFETY: this heap allocated the block above, and nothing else refers to it.
    unsafe { allocator.free(std::hint::black_box(block)) };
    let own = clock.ns_between(start, clock.now());
    for computes in [false, true] {
        let start = clock.now();
        let started = allocator.start_zeroed(size, align, queue)?;
        let submitted = clock.ns_between(start, clock.now());
        if computes {
            pause(clock, own as u64);
        }
        let block = started.wait();
        // SAFETY: as above.
        unsafe { allocator.free(std::hint::black_box(block)) };
        let whole = clock.ns_between(start, clock.now());
        match computes {
            false => (sums.engine, sums.start) = (sums.engine + whole, sums.start + submitted),
            true => sums.beside += whole,
        }
    }
    sums.own += own;
    Some(())
}
