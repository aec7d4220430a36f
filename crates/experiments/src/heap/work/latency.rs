//! Single allocations while the heap grows: what the slowest of ten thousand takes. And beside each
//! a wait by the clock alone, as long as the allocation before it: what the machine's interruptions
//! make of that is no heap's doing.

use haul_measure::clock::Clock;
use haul_measure::sample::Sample;
use haul_measure::statistics;

use super::{Block, Found, Held, no_block, pause, touch};
use crate::heap::allocator::Allocator;
use crate::heap::protocol::Shape;

/// The quantiles that are told, then the longest.
const QUANTILES: [f64; 4] = [0.5, 0.99, 0.9999, 1.0];

/// Those of the waits that are told.
const WAIT_QUANTILES: [f64; 2] = [0.9999, 1.0];

/// The longest wait, in ns: an allocation that was interrupted must not make its wait as long.
/// Refills take less, and are all but a few of the calls that take longer than most.
const WAIT_NS_MAX: f64 = 1000.0;

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
    held.waits.clear();
    let mut wait_ns = 0.0;
    let (sample, ()) = Sample::of(clock, || {
        for _ in 0..count {
            pause(clock, delay_ns);
            held.waits.push(wait(clock, wait_ns));
            let start = clock.now();
            let block = allocator.allocate(shape.size, shape.align);
            let ticks = clock.now().saturating_sub(start);
            wait_ns = clock.ns_between(0, ticks).min(WAIT_NS_MAX);
            held.ticks.push(ticks);
            let Some(address) = block else { break };
            // SAFETY: the block was given two lines above, of this size.
            unsafe { touch(address, shape.size) };
            held.blocks.push(Block { address, size: shape.size });
        }
    });
    if held.blocks.len() < count {
        return Err(no_block(shape, held.blocks.len()));
    }
    let of_blocks = quantiles(clock, &held.ticks, &QUANTILES);
    let of_waits = quantiles(clock, &held.waits, &WAIT_QUANTILES);
    let values = of_blocks.into_iter().chain(of_waits).collect();
    Ok(Found { samples: vec![sample], operations: count as u64, values })
}

/// Waits by the clock; how long it came to, in ticks.
fn wait(clock: &Clock, ns: f64) -> u64 {
    let start = clock.now();
    loop {
        let now = clock.now();
        if clock.ns_between(start, now) >= ns {
            return now.saturating_sub(start);
        }
    }
}

fn quantiles(clock: &Clock, ticks: &[u64], wanted: &[f64]) -> Vec<f64> {
    let times: Vec<f64> = ticks.iter().map(|&ticks| clock.ns_between(0, ticks)).collect();
    wanted.iter().filter_map(|&q| statistics::quantile(&times, q)).collect()
}
