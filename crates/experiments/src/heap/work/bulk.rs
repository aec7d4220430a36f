//! "bulk" and "no-bulk" of ByteDance's rte_malloc test. Allocation and free are timed separately
//! from the writes to the blocks and from the pause between them.

use haul_measure::clock::Clock;
use haul_measure::sample::Sample;

use super::{Found, Held, fill, keep, no_block, pause};
use crate::heap::allocator::Allocator;
use crate::heap::protocol::Shape;

/// Allocates `count` blocks, fills them, and frees them.
pub(super) fn bulk<A: Allocator>(
    allocator: &A,
    clock: &Clock,
    held: &mut Held,
    count: usize,
    shape: Shape,
) -> Result<Found, String> {
    let allocated = keep::grow(allocator, clock, held, count, &[shape]);
    for block in &held.blocks {
        // SAFETY: the block is live and has this size; the list holds the only reference.
        unsafe { fill(block.address, block.size) };
    }
    let mut found = keep::release(allocator, clock, held);
    found.samples.splice(0..0, allocated?.samples);
    Ok(found)
}

/// Allocates, fills, waits and frees, `count` times.
pub(super) fn no_bulk<A: Allocator>(
    allocator: &A,
    clock: &Clock,
    count: usize,
    shape: Shape,
    delay_ns: u64,
) -> Result<Found, String> {
    let (mut allocating, mut freeing) = (0.0, 0.0);
    let (whole, done) = Sample::of(clock, || {
        for done in 0..count {
            let start = clock.now();
            let block = allocator.allocate(shape.size, shape.align);
            allocating += clock.ns_between(start, clock.now());
            let Some(block) = block else { return done };
            // SAFETY: the block was allocated a line above, with this size.
            unsafe { fill(block, shape.size) };
            pause(clock, delay_ns);
            let start = clock.now();
            // SAFETY: this heap allocated the block above, and nothing else refers to it.
            unsafe { allocator.free(block) };
            freeing += clock.ns_between(start, clock.now());
        }
        count
    });
    if done < count {
        return Err(no_block(shape, done));
    }
    // The time that two readings of the clock take is subtracted.
    let each = |ns: f64| (ns / count as f64 - clock.precision_ns()).max(0.0);
    let values = vec![each(allocating), each(freeing), whole.ns / count as f64];
    Ok(Found { samples: vec![whole], operations: count as u64, values })
}
