//! What a run and its drivers say to each other: one line of JSON each way, in turn.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::peers::Peer;

/// The first line to a driver: what it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// Whose heap it drives.
    pub peer: Peer,
    /// The heap's library, where it is loaded by name and not preloaded.
    pub library: Option<PathBuf>,
    /// How many threads do each task at once.
    pub threads: usize,
    /// The CPUs they are pinned to.
    pub cpus: Vec<usize>,
    /// The most that all live blocks take together, for heaps that reserve at their start.
    pub memory_bytes: usize,
    /// The most blocks that a thread holds at once.
    pub blocks_max: usize,
    /// Whether huge pages of the kernel's pool may be used, by heaps that can.
    pub pool: bool,
    /// haul's own: whether the heap is one that other processes can share.
    pub shared: bool,
    /// haul's own: how much the heap grows ahead of need, by a thread of its own; 0: it does not.
    pub grow_ahead_bytes: usize,
    /// haul's own: how much of the heap has memory from the start.
    pub ready_bytes: usize,
}

/// A block's size and alignment, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// How many bytes.
    pub size: usize,
    /// A power of two.
    pub align: usize,
}

/// What a driver does next, on all its threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Task {
    /// Allocates `count` more blocks, of these shapes in turn, and keeps them. Gives ns a block.
    Grow {
        /// How many blocks, on each thread.
        count: usize,
        /// Their shapes.
        shapes: Vec<Shape>,
    },
    /// Frees every block that is kept, in the order of their allocation. Gives ns a block.
    Release,
    /// Writes to every page of every block that is kept. Gives the resident bytes beyond those at
    /// the start, and the bytes of these blocks.
    Footprint,
    /// Gives the resident bytes beyond those at the start, when the heap had time to give back.
    Residue,
    /// "bulk" of ByteDance's rte_malloc test: allocates `count`, fills them, frees them. Gives ns
    /// an allocation and ns a free.
    Bulk {
        /// How many blocks, on each thread.
        count: usize,
        /// Their shape.
        shape: Shape,
    },
    /// "no-bulk" of the same: `count` times allocates one, fills it, waits, frees it. Gives ns an
    /// allocation, ns a free, and ns of the whole.
    NoBulk {
        /// How often, on each thread.
        count: usize,
        /// The block's shape.
        shape: Shape,
        /// How long it waits before the free, in ns.
        delay_ns: u64,
    },
    /// Allocates `count` blocks with a pause before each and keeps them, each timed alone. Gives
    /// quantiles in ns: 50%, 99%, 99.99%, and the longest; then 99.99% and the longest of waits
    /// that were as long as the allocation before.
    Latency {
        /// How many blocks, on each thread.
        count: usize,
        /// Their shape.
        shape: Shape,
        /// How long the pause is, in ns.
        delay_ns: u64,
    },
    /// Reads the steps of a replay. Gives the resident bytes beyond those at the start.
    Load {
        /// The file that they stand in.
        path: PathBuf,
    },
    /// Does the steps of a replay from one to another. Gives ns for each, from the start of all
    /// threads to the end of the last, and the resident bytes beyond those at the start.
    Replay {
        /// The first step.
        first: usize,
        /// The one after the last.
        end: usize,
    },
    /// Does something again and again. Gives ns for one as a thread spends them, the mean over
    /// threads, and ns for one of each thread from the start of all to the end of the last.
    Repeat {
        /// What.
        what: Repeated,
        /// How often, on each thread.
        iterations: u64,
        /// The block's shape, or that of the largest.
        shape: Shape,
        /// What sizes and lifetimes are drawn from.
        seed: u64,
    },
}

/// What [`Task::Repeat`] repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Repeated {
    /// Allocates a block and frees it.
    Pairs,
    /// "realloc" of ByteDance's rte_malloc test: allocates, fills, doubles, fills, doubles again,
    /// fills, frees.
    Realloc,
    /// Replaces a block drawn from so many that are live by one of a size drawn evenly in its
    /// logarithm, from 16 B to the shape's size.
    Lifetimes {
        /// How many are live, on each thread.
        live: usize,
    },
    /// Every other thread allocates, and its neighbour frees what it allocated.
    Remote,
}

/// A driver's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// To [`Start`]: it is ready.
    Ready {
        /// The heap's version, as its library says it.
        version: String,
        /// What its memory consists of, where it says so.
        pages: Option<String>,
    },
    /// To a [`Task`]: it is done.
    Done {
        /// What the task gives.
        values: Vec<f64>,
        /// Whether another process ran meanwhile on one of the CPUs.
        hit: bool,
    },
    /// It cannot be done.
    Failed {
        /// What was attempted, and why it did not come about.
        reason: String,
    },
}
