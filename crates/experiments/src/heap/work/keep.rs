//! Blocks that stay allocated from one task to the next: they are allocated, touched and freed.

use haul_measure::clock::Clock;
use haul_measure::sample::Sample;

use super::{Block, Found, Held, no_block, touch as touch_block};
use crate::heap::allocator::Allocator;
use crate::heap::protocol::Shape;

/// Allocates `count` more blocks. The shapes alternate.
pub(super) fn grow<A: Allocator>(
    allocator: &A,
    clock: &Clock,
    held: &mut Held,
    count: usize,
    shapes: &[Shape],
) -> Result<Found, String> {
    let before = held.blocks.len();
    let (sample, ()) = Sample::of(clock, || {
        for &Shape { size, align } in shapes.iter().cycle().take(count) {
            let Some(address) = allocator.allocate(size, align) else { break };
            held.blocks.push(Block { address, size });
        }
    });
    let done = held.blocks.len() - before;
    if done < count {
        return Err(no_block(shapes[done % shapes.len()], held.blocks.len()));
    }
    Ok(Found { samples: vec![sample], operations: count as u64, values: Vec::new() })
}

/// Frees all blocks, in the order of their allocation.
pub(super) fn release<A: Allocator>(allocator: &A, clock: &Clock, held: &mut Held) -> Found {
    let operations = held.blocks.len() as u64;
    let (sample, ()) = Sample::of(clock, || {
        for block in &held.blocks {
            // SAFETY: this heap allocated every block of the list, which is emptied below and holds
            // the only reference to each.
            unsafe { allocator.free(block.address) };
        }
    });
    held.blocks.clear();
    Found { samples: vec![sample], operations, values: Vec::new() }
}

/// Makes every page of every block resident. Returns the requested bytes.
pub(super) fn touch(held: &Held) -> Found {
    for block in &held.blocks {
        // SAFETY: the block is live and has this size; the list holds the only reference.
        unsafe { touch_block(block.address, block.size) };
    }
    let payload: usize = held.blocks.iter().map(|block| block.size).sum();
    Found { values: vec![payload as f64], ..Found::default() }
}

/// The requested bytes of the blocks of all threads, as [`touch`] found them.
pub(in crate::heap) fn payload_bytes(found: &[Found]) -> f64 {
    found.iter().flat_map(|found| &found.values).sum()
}
