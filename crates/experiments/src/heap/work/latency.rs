//! Single allocations while the heap grows: what the slowest of ten thousand takes.

use haul_measure::clock::Clock;
use haul_measure::sample::Sample;
use haul_measure::statistics;

use super::{Block, Found, Held, no_block, pause, touch};
use crate::heap::allocator::Allocator;
use crate::heap::protocol::Shape;

/// The quantiles that are told, then the longest.
const QUANTILES: [f64; 4] = [0.5, 0.99, 0.9999, 1.0];

/// Allocates `count` blocks, each timed alone, with a pause before each and its pages touched after
/// it, so that the heap has to grow.
pub(super) fn latency<A: Allocator>(
    allocator: &A,
    clock: &Clock,
    held: &mut Held,
    count: usize,
    shape: Shape,
    delay_ns: u64,
) -> Result<Found, String> {
    held.ticks.clear();
    let (sample, ()) = Sample::of(clock, || {
        for _ in 0..count {
            pause(clock, delay_ns);
            let start = clock.now();
            let block = allocator.allocate(shape.size, shape.align);
            held.ticks.push(clock.now().saturating_sub(start));
            let Some(address) = block else { break };
            // SAFETY: the block was given two lines above, of this size.
            unsafe { touch(address, shape.size) };
            held.blocks.push(Block { address, size: shape.size });
        }
    });
    if held.blocks.len() < count {
        return Err(no_block(shape, held.blocks.len()));
    }
    let times: Vec<f64> = held.ticks.iter().map(|&ticks| clock.ns_between(0, ticks)).collect();
    let values = QUANTILES.iter().filter_map(|&q| statistics::quantile(&times, q)).collect();
    Ok(Found { samples: vec![sample], operations: count as u64, values })
}
