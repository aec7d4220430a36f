//! The tasks of a driver's threads, with a module for each kind of task.
//!
//! - [`keep`]: blocks that stay allocated, and their pages;
//! - [`bulk`]: "bulk" and "no-bulk" of ByteDance's rte_malloc test;
//! - [`ring`]: a queue between two threads;
//! - [`repeat`]: repeated operations;
//! - [`latency`]: single allocations;
//! - [`zeroed`]: blocks of zeros;
//! - [`fixed`]: lists outside of any heap;
//! - [`replay`]: the steps of a recorded history.

mod bulk;
mod fixed;
mod keep;
mod latency;
mod repeat;
mod replay;
mod ring;
mod zeroed;

use std::ptr::NonNull;
use std::sync::{Mutex, OnceLock, PoisonError};

use haul::engine::Queue;
use haul_measure::clock::Clock;
use haul_measure::crew::Meeting;
use haul_measure::sample::Sample;

use super::allocator::Allocator;
use super::protocol::{Shape, Start, Task};
use ring::Ring;

pub(super) use keep::payload_bytes;

/// The byte that tests fill blocks with. The byte is not 0, so that the kernel does not merge the
/// pages of the blocks.
const FILL_BYTE: u8 = 0x5a;

/// The smallest size of a page in bytes. A page of any size is resident only after it was written
/// to.
const PAGE_BYTES: usize = 4096;

/// A block that stays allocated from one task to the next.
#[derive(Clone, Copy, Debug)]
struct Block {
    address: NonNull<u8>,
    size: usize,
}

// SAFETY: a block is an address and a length. The thread that frees the block or writes to it
// holds the only list that contains the block.
unsafe impl Send for Block {}

/// The blocks and times of one thread.
#[derive(Debug)]
pub(super) struct Held {
    blocks: Vec<Block>,
    /// Single times, in the clock's ticks.
    ticks: Vec<u64>,
    /// The times of the waits between the single operations, in the clock's ticks.
    waits: Vec<u64>,
}

/// A heap and the threads that use it.
pub(super) struct Harness<'a, A> {
    allocator: &'a A,
    clock: Clock,
    held: Vec<Mutex<Held>>,
    rings: Vec<Ring>,
    script: OnceLock<replay::Script>,
    /// The engine for blocks of zeros, if the start message names one. It is opened by a thread
    /// that is not pinned, because a helper thread may run where the thread that opens it may.
    engine: Option<Result<Queue, String>>,
}

/// The result of one thread in one task.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    /// The timed parts, in the order of the task's figures.
    pub(super) samples: Vec<Sample>,
    /// The number of operations in each timed part.
    pub(super) operations: u64,
    /// Figures that are not divided by the number of operations.
    pub(super) values: Vec<f64>,
}

impl<'a, A: Allocator> Harness<'a, A> {
    /// A harness for the threads and blocks of the start message. The memory that the threads
    /// write to later is allocated and touched here.
    pub(super) fn new(allocator: &'a A, start: &Start) -> Self {
        let held = || Mutex::new(Held::with_room(start.blocks_max));
        Self {
            allocator,
            clock: Clock::get(),
            held: (0..start.threads).map(|_| held()).collect(),
            rings: (0..start.threads / 2).map(|_| Ring::new()).collect(),
            script: OnceLock::new(),
            engine: (!start.engine.is_empty())
                .then(|| Queue::by_name(&start.engine).map_err(|error| error.to_string())),
        }
    }

    /// Performs a task as thread `thread`. All threads wait for each other before the timed part.
    ///
    /// # Errors
    /// The heap had no block.
    pub(super) fn perform(
        &self,
        thread: usize,
        task: &Task,
        meeting: &Meeting<'_>,
    ) -> Result<Found, String> {
        let mut held = self.held[thread].lock().unwrap_or_else(PoisonError::into_inner);
        let (allocator, clock) = (self.allocator, &self.clock);
        if !matches!(task, Task::Repeat { .. }) {
            // Every thread waits exactly once per task, even for a task that is not timed.
            meeting.wait();
        }
        match task {
            Task::Grow { count, shapes } => keep::grow(allocator, clock, &mut held, *count, shapes),
            Task::Release => Ok(keep::release(allocator, clock, &mut held)),
            Task::Footprint => Ok(keep::touch(&held)),
            Task::Residue => {
                allocator.idle();
                Ok(Found::default())
            }
            Task::Bulk { count, shape } => bulk::bulk(allocator, clock, &mut held, *count, *shape),
            Task::NoBulk { count, shape, delay_ns } => {
                bulk::no_bulk(allocator, clock, *count, *shape, *delay_ns)
            }
            Task::Latency { count, shape, delay_ns } => {
                latency::latency(allocator, clock, &mut held, *count, *shape, *delay_ns)
            }
            Task::Zeroed { count, shape } => {
                let queue = self.engine.as_ref().ok_or("the start message names no engine")?;
                let queue = queue.as_ref().map_err(String::clone)?;
                zeroed::zeroed(allocator, clock, *count, *shape, queue)
            }
            Task::Load { path } => {
                if thread == 0 {
                    let script = replay::Script::read(path, self.held.len())?;
                    self.script.set(script).map_err(|_| "the steps were read before")?;
                    // If the heap held free memory at the start, the memory that it allocates
                    // next would not be visible.
                    allocator.give_back();
                }
                Ok(Found::default())
            }
            Task::Replay { first, end } => {
                let script = self.script.get().ok_or("no steps were read")?;
                script.perform(allocator, clock, thread, *first..*end, meeting)
            }
            Task::Repeat { what, iterations, shape, seed } => {
                let round = repeat::Round { thread, shape: *shape, seed: *seed };
                let ring = self.rings.get(thread / 2);
                let mut repeat = repeat::Repeat { allocator, clock, held: &mut held, ring };
                repeat.run(*what, *iterations, round, meeting)
            }
        }
    }
}

impl Held {
    fn with_room(blocks: usize) -> Self {
        // Each list is filled once and emptied, so that its pages exist before the first timed
        // operation.
        let mut held = Self {
            blocks: vec![Block { address: NonNull::dangling(), size: 1 }; blocks],
            ticks: vec![1; blocks],
            waits: vec![1; blocks],
        };
        held.blocks.clear();
        held.ticks.clear();
        held.waits.clear();
        held
    }
}

fn no_block(shape: Shape, done: usize) -> String {
    let Shape { size, align } = shape;
    format!("no block of {size} B aligned to {align} B could be allocated after {done} others")
}

/// Fills a live block of `size` bytes.
///
/// # Safety
/// `block` must be valid for writes of `size` bytes, and nothing else may refer to them.
unsafe fn fill(block: NonNull<u8>, size: usize) {
    // SAFETY: the caller keeps the contract of this function, which is also the callee's.
    unsafe { block.as_ptr().write_bytes(FILL_BYTE, size) };
}

/// Writes to the first byte of a live block, and to one byte per page after it.
///
/// # Safety
/// Those of [`fill`].
unsafe fn touch(block: NonNull<u8>, size: usize) {
    for offset in (0..size).step_by(PAGE_BYTES) {
        // SAFETY: the offset is below the size, for which the caller says the block is valid.
        let byte = unsafe { block.as_ptr().add(offset) };
        // SAFETY: as above.
        unsafe { byte.write_volatile(FILL_BYTE) };
    }
}

/// Spins for this time, without giving the CPU to other threads.
fn pause(clock: &Clock, delay_ns: u64) {
    let start = clock.now();
    while clock.ns_between(start, clock.now()) < delay_ns as f64 {
        std::hint::spin_loop();
    }
}
