//! The messages between a run and its drivers: one line of JSON in each direction, alternately.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::peers::Peer;

/// The first line to a driver: its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// The peer whose heap the driver calls.
    pub peer: Peer,
    /// The heap's library, if it is loaded by name and not preloaded.
    pub library: Option<PathBuf>,
    /// The number of threads that perform each task at the same time.
    pub threads: usize,
    /// The CPUs to which the threads are pinned.
    pub cpus: Vec<usize>,
    /// The largest memory of all live blocks together, for heaps that reserve this memory at
    /// their start.
    pub memory_bytes: usize,
    /// The largest number of blocks that a thread holds at the same time.
    pub blocks_max: usize,
    /// Whether heaps may use huge pages of the kernel's pool.
    pub pool: bool,
    /// For haul's heap: whether other processes can share the heap.
    pub shared: bool,
    /// For haul's heap: the bytes that a thread of the heap keeps ready for future allocations;
    /// 0: none.
    pub grow_ahead_bytes: usize,
    /// For haul's heap: the bytes that have memory from the start.
    pub ready_bytes: usize,
    /// The name of the engine of [`Task::Zeroed`]; empty for other tasks.
    pub engine: String,
}

/// A block's size and alignment, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// The number of bytes.
    pub size: usize,
    /// A power of two.
    pub align: usize,
}

/// The next task of a driver, on all its threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Task {
    /// Allocates `count` more blocks, of these shapes in turn, and keeps them. Returns ns per
    /// block.
    Grow {
        /// The number of blocks on each thread.
        count: usize,
        /// Their shapes.
        shapes: Vec<Shape>,
    },
    /// Frees all kept blocks, in the order of their allocation. Returns ns per block.
    Release,
    /// Writes to every page of every kept block. Returns the growth of the resident bytes since
    /// the start, and the bytes of these blocks.
    Footprint,
    /// Returns the growth of the resident bytes since the start, after the heap had time to
    /// return memory.
    Residue,
    /// "bulk" of ByteDance's rte_malloc test: allocates `count` blocks, fills them, and frees them.
    /// Returns ns per allocation and ns per free.
    Bulk {
        /// The number of blocks on each thread.
        count: usize,
        /// Their shape.
        shape: Shape,
    },
    /// "no-bulk" of ByteDance's rte_malloc test: `count` times allocates a block, fills it,
    /// waits, and frees it. Returns ns per allocation, ns per free, and ns per block including
    /// the wait.
    NoBulk {
        /// The number of blocks on each thread.
        count: usize,
        /// The block's shape.
        shape: Shape,
        /// The time before the free, in ns.
        delay_ns: u64,
    },
    /// Allocates `count` blocks with a pause before each and keeps them. Each allocation is timed
    /// separately. Returns quantiles of the allocations in ns: 50%, 99%, 99.99%, and the longest.
    /// After these, it returns the 99.99% quantile of the waits, and the longest wait. Each wait
    /// should be as long as the allocation before it.
    Latency {
        /// The number of blocks on each thread.
        count: usize,
        /// Their shape.
        shape: Shape,
        /// The time of the pause, in ns.
        delay_ns: u64,
    },
    /// Makes `count` blocks of zeros in each of three ways: the thread writes the zeros; an engine
    /// does, and the thread waits; an engine does, and the thread computes. Returns ns per block
    /// of the first two, ns of the submission, and the hidden share of the third.
    Zeroed {
        /// The number of blocks on each thread.
        count: usize,
        /// Their shape.
        shape: Shape,
    },
    /// Reads the steps of a replay. Returns the growth of the resident bytes since the start.
    Load {
        /// The file of the steps.
        path: PathBuf,
    },
    /// Performs a range of a replay's steps. Returns ns per step, from the start of all threads
    /// to the end of the last thread, and the growth of the resident bytes since the start.
    Replay {
        /// The first step.
        first: usize,
        /// The index after the last step.
        end: usize,
    },
    /// Repeats an operation. Returns the ns that a thread spends per operation (the mean over
    /// threads). After that value, it returns the ns per operation of each thread, from the start
    /// of all threads to the end of the last thread.
    Repeat {
        /// The operation.
        what: Repeated,
        /// The number of operations on each thread.
        iterations: u64,
        /// The block's shape, or the shape of the largest block.
        shape: Shape,
        /// The seed of sizes and lifetimes.
        seed: u64,
    },
}

/// The operation that [`Task::Repeat`] repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Repeated {
    /// Allocates a block and frees it.
    Pairs,
    /// "realloc" of ByteDance's rte_malloc test: allocates a block, fills it, doubles and fills it
    /// twice, and frees it.
    Realloc,
    /// Replaces a randomly chosen live block with a block of a random size, evenly distributed in
    /// its logarithm, from 16 B to the shape's size.
    Lifetimes {
        /// The number of live blocks on each thread.
        live: usize,
    },
    /// Every second thread allocates blocks, and its neighbour frees them.
    Remote,
}

/// A driver's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// The answer to [`Start`]: the heap is ready.
    Ready {
        /// The heap's version, as reported by its library.
        version: String,
        /// The kind of the heap's pages, if the heap reports it.
        pages: Option<String>,
    },
    /// The answer to a [`Task`]: it is done.
    Done {
        /// The results of the task.
        values: Vec<f64>,
        /// Whether another process ran on one of the CPUs during the task.
        hit: bool,
    },
    /// The task failed.
    Failed {
        /// The attempt, and the reason of its failure.
        reason: String,
    },
}
