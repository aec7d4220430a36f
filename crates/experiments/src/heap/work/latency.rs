//! Single allocations while the heap grows: the time of the slowest of ten thousand. After each
//! allocation, the thread waits for the same time, and only reads the clock. The heap does not
//! cause the interruptions of that wait.

use haul_measure::clock::Clock;
use haul_measure::sample::Sample;
use haul_measure::statistics;

use super::{Block, Found, Held, no_block, pause, touch};
use crate::heap::allocator::Allocator;
use crate::heap::protocol::Shape;

/// The reported quantiles of the allocations. The last one is the longest allocation.
const QUANTILES: [f64; 4] = [0.5, 0.99, 0.9999, 1.0];

/// The reported quantiles of the waits.
const WAIT_QUANTILES: [f64; 2] = [0.9999, 1.0];

/// The longest wait, in ns: the wait after an interrupted allocation must not be as long as the
/// interruption. Almost all slow calls are refills, which are shorter than this limit.
const WAIT_NS_MAX: f64 = 1000.0;

/// Allocates `count` blocks, each timed separately, with a pause before it. Touches the pages of
/// each block after its allocation, so that the heap must grow.
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
            // SAFETY: the block was allocated two lines above, with this size.
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

/// Waits by the clock. Returns the time of the wait, in ticks.
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
