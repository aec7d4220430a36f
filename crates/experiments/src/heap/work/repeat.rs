//! Repeated operations: blocks and their frees, reallocations, random lifetimes, and frees by
//! another thread.

use std::hint::black_box;

use haul_measure::clock::Clock;
use haul_measure::crew::Meeting;
use haul_measure::interleave::LEAD_IN_DIVISOR;
use haul_measure::random::Random;
use haul_measure::sample::Sample;

use super::ring::Ring;
use super::{Block, Found, Held, fill, no_block};
use crate::heap::allocator::Allocator;
use crate::heap::protocol::{Repeated, Shape};

/// The smallest block of the test with random lifetimes, in bytes.
const SMALLEST_BYTES: usize = 16;

/// The state of one thread that repeats operations.
pub(super) struct Repeat<'a, A> {
    pub(super) allocator: &'a A,
    pub(super) clock: &'a Clock,
    pub(super) held: &'a mut Held,
    /// The queue to the thread's neighbour; `None` for the last of an odd number of threads.
    pub(super) ring: Option<&'a Ring>,
}

/// One round of operations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    pub(super) thread: usize,
    pub(super) shape: Shape,
    pub(super) seed: u64,
}

impl<A: Allocator> Repeat<'_, A> {
    /// First runs a part of the round untimed, so that caches and predictors are warm for it
    /// again. After that, runs and times the whole round.
    pub(super) fn run(
        &mut self,
        what: Repeated,
        iterations: u64,
        round: Round,
        meeting: &Meeting<'_>,
    ) -> Result<Found, String> {
        let mut random = Random::new(round.seed ^ (round.thread as u64) << 32);
        let lead_in = match what {
            // No lead-in: it would need both threads, and each run begins with an empty ring in
            // any case.
            Repeated::Remote => Ok(()),
            Repeated::Lifetimes { live } => self.populate(live, round.shape, &mut random),
            _ => self.repeat(what, iterations / LEAD_IN_DIVISOR, round, &mut random),
        };
        meeting.wait();
        lead_in?;
        let (sample, done) =
            Sample::of(self.clock, || self.repeat(what, iterations, round, &mut random));
        done?;
        Ok(Found { samples: vec![sample], operations: iterations, values: Vec::new() })
    }

    fn repeat(
        &mut self,
        what: Repeated,
        iterations: u64,
        round: Round,
        random: &mut Random,
    ) -> Result<(), String> {
        match what {
            Repeated::Pairs => self.pairs(iterations, round.shape),
            Repeated::Realloc => self.realloc(iterations, round.shape),
            Repeated::Lifetimes { .. } => self.lifetimes(iterations, round.shape, random),
            Repeated::Remote => self.remote(iterations, round),
        }
    }

    fn pairs(&self, iterations: u64, shape: Shape) -> Result<(), String> {
        for done in 0..iterations {
            let Some(block) = self.allocator.allocate(shape.size, shape.align) else {
                return Err(no_block(shape, done as usize));
            };
            // SAFETY: this heap allocated the block a line above, and nothing else refers to it.
            unsafe { self.allocator.free(black_box(block)) };
        }
        Ok(())
    }

    fn realloc(&self, iterations: u64, shape: Shape) -> Result<(), String> {
        let Shape { size, align } = shape;
        for _ in 0..iterations {
            let mut block =
                self.allocator.allocate(size, align).ok_or_else(|| no_block(shape, 0))?;
            // SAFETY: the block was allocated a line above, with this size.
            unsafe { fill(block, size) };
            for factor in [2, 4] {
                let (old, new) = (size * factor / 2, size * factor);
                // SAFETY: this heap allocated the block with the old size and this alignment, and
                // nothing else refers to it.
                let moved = unsafe { self.allocator.reallocate(block, old, new, align) };
                let Some(moved) = moved else {
                    // SAFETY: if nothing was allocated, the old block stays, and nothing else
                    // refers to it.
                    unsafe { self.allocator.free(block) };
                    return Err(no_block(Shape { size: new, align }, 1));
                };
                block = moved;
                // SAFETY: the block was allocated above, with the new size.
                unsafe { fill(block, new) };
            }
            // SAFETY: this heap allocated the block, and nothing else refers to it.
            unsafe { self.allocator.free(block) };
        }
        Ok(())
    }

    /// Allocates until `live` blocks are live. The blocks of an earlier round stay live.
    fn populate(&mut self, live: usize, shape: Shape, random: &mut Random) -> Result<(), String> {
        while self.held.blocks.len() < live {
            let block = self.drawn(shape, random)?;
            self.held.blocks.push(block);
        }
        Ok(())
    }

    fn lifetimes(
        &mut self,
        iterations: u64,
        shape: Shape,
        random: &mut Random,
    ) -> Result<(), String> {
        for _ in 0..iterations {
            let chosen = random.below(self.held.blocks.len());
            // The new block is allocated before the old one is freed, so that the list never
            // contains a freed block.
            let new = self.drawn(shape, random)?;
            let old = std::mem::replace(&mut self.held.blocks[chosen], new);
            // SAFETY: this heap allocated the block, and the list held the only reference to it.
            unsafe { self.allocator.free(old.address) };
        }
        Ok(())
    }

    fn drawn(&self, shape: Shape, random: &mut Random) -> Result<Block, String> {
        let size = drawn_size(shape.size, random);
        let address = self.allocator.allocate(size, shape.align);
        let address =
            address.ok_or_else(|| no_block(Shape { size, ..shape }, self.held.blocks.len()))?;
        // The first byte is written, as every program does. SAFETY: the block was allocated above
        // and has at least a byte.
        unsafe { fill(address, 1) };
        Ok(Block { address, size })
    }

    fn remote(&self, iterations: u64, round: Round) -> Result<(), String> {
        let ring = self.ring.ok_or("frees by another thread need an even number of threads")?;
        let Shape { size, align } = round.shape;
        if round.thread.is_multiple_of(2) {
            for done in 0..iterations {
                let Some(block) = self.allocator.allocate(size, align) else {
                    ring.give_up();
                    return Err(no_block(round.shape, done as usize));
                };
                // SAFETY: the block was allocated above and has at least a byte.
                unsafe { fill(block, 1) };
                ring.put(block);
            }
            return Ok(());
        }
        for _ in 0..iterations {
            let Some(block) = ring.take() else { return Ok(()) };
            // SAFETY: this heap allocated the block for the neighbour, which put it here and has no
            // other reference to it.
            unsafe { self.allocator.free(block) };
        }
        Ok(())
    }
}

/// A random size from the smallest to `size_max`: a random octave, then a random size within it,
/// both evenly distributed.
fn drawn_size(size_max: usize, random: &mut Random) -> usize {
    let octaves = (size_max / SMALLEST_BYTES).max(1).ilog2() as usize + 1;
    let first = SMALLEST_BYTES << random.below(octaves);
    (first + random.below(first)).min(size_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_sizes_cover_exactly_the_range() {
        let mut random = Random::new(3);
        for size_max in [1, 16, 17, 4096, 5000] {
            let drawn: Vec<usize> = (0..2000).map(|_| drawn_size(size_max, &mut random)).collect();
            assert!(drawn.iter().all(|size| (1..=size_max).contains(size)), "{size_max}");
            assert!(drawn.contains(&size_max) || size_max > 1000, "{size_max}");
            let small = drawn.iter().filter(|&&size| size < 64).count();
            assert!(small * 8 > drawn.len(), "{small} of {size_max}");
        }
    }
}
