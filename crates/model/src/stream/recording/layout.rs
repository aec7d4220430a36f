//! The layout of a recording: a file that all recorded processes map and write.
//!
//! A header, a table of processes, a table of threads, and blocks. A block belongs to one thread
//! and has its events; the blocks of a thread form a list. Numbers are in the byte order of the
//! machine, because a recording never leaves it. An index plus 1 is a *reference*, so that 0 stands
//! for none.

/// The first bytes of a recording.
pub const MAGIC: [u8; 8] = *b"haulcpr\n";

/// The version of the layout.
pub const VERSION: u32 = 1;

/// The bytes of the header, of a process and of a thread.
pub const HEADER_BYTES: usize = 4096;
/// The bytes of a process.
pub const PROCESS_BYTES: usize = 256;
/// The bytes of a thread.
pub const THREAD_BYTES: usize = 256;

/// The bytes of a block, of its header, and of an event: 682 events fit.
pub const BLOCK_BYTES: usize = 16 << 10;
/// The bytes of a block's header.
pub const BLOCK_HEADER_BYTES: usize = 16;
/// The bytes of an event.
pub const EVENT_BYTES: usize = 24;

/// The number of events of a block.
pub const BLOCK_EVENTS: usize = (BLOCK_BYTES - BLOCK_HEADER_BYTES) / EVENT_BYTES;

/// The offsets of the header's fields.
pub mod head {
    /// [`VERSION`](super::VERSION), 32 bits.
    pub const VERSION_AT: usize = 8;
    /// The number of processes for which there is room, 32 bits.
    pub const PROCESSES: usize = 12;
    /// The number of threads, 32 bits.
    pub const THREADS: usize = 16;
    /// The number of blocks, 32 bits.
    pub const BLOCKS: usize = 20;
    /// The number of calls that each thread keeps, 64 bits.
    pub const CALLS: usize = 24;
    /// The number of calls that each thread skips before them, 64 bits.
    pub const SKIP: usize = 32;
    /// The mean distance of two sampled calls of a thread, 64 bits; 0 for no samples.
    pub const SAMPLE: usize = 40;
    /// The index of the next process, 32 bits. It may exceed the room.
    pub const NEXT_PROCESS: usize = 64;
    /// The index of the next thread.
    pub const NEXT_THREAD: usize = 128;
    /// The index of the next block.
    pub const NEXT_BLOCK: usize = 192;
}

/// The offsets of a process's fields.
pub mod process {
    /// The process ID, 32 bits; 0 if it is not known.
    pub const ID: usize = 0;
    /// A reference to the process that it was forked from, 32 bits.
    pub const PARENT: usize = 4;
    /// How reads were observed, 32 bits: 0 not yet, 1 by breakpoints, 2 not at all.
    pub const SAMPLING: usize = 8;
    /// A reference to the first block of its mappings as text, 32 bits.
    pub const MAPS: usize = 12;
    /// The length of this text in bytes, 32 bits.
    pub const MAPS_BYTES: usize = 16;
    /// The tick counter at an early time, 64 bits.
    pub const EARLY_TICKS: usize = 24;
    /// The monotonic clock at this time, 64 bits, in nanoseconds.
    pub const EARLY_NS: usize = 32;
    /// The tick counter at a late time.
    pub const LATE_TICKS: usize = 40;
    /// The monotonic clock at this time.
    pub const LATE_NS: usize = 48;
    /// The name of the program, filled up with zeros.
    pub const PROGRAM: usize = 64;
    /// The bytes of this name.
    pub const PROGRAM_BYTES: usize = 64;
    /// The version of its libc, filled up with zeros.
    pub const LIBC: usize = 128;
    /// The bytes of this version.
    pub const LIBC_BYTES: usize = 32;
}

/// The offsets of a thread's fields. The recorder has its own state behind them.
pub mod thread {
    /// A reference to its process, 32 bits.
    pub const PROCESS: usize = 0;
    /// The number of its calls, 64 bits.
    pub const CALLS: usize = 8;
    /// The sum of their sizes, 64 bits.
    pub const BYTES: usize = 16;
    /// The number of calls of each function: four times 64 bits, in the order of
    /// [`Kind`](super::super::Kind).
    pub const FUNCTIONS: usize = 24;
    /// The number of calls that interrupted a call that was being recorded, 64 bits.
    pub const NESTED: usize = 56;
    /// The number of calls that were not kept because all blocks are used, 64 bits.
    pub const NO_ROOM: usize = 64;
    /// A reference to its first block of calls, 32 bits.
    pub const FIRST_BLOCK: usize = 72;
    /// A reference to its first block of samples, 32 bits.
    pub const FIRST_SAMPLES: usize = 76;
    /// The first byte of the recorder's own state.
    pub const STATE: usize = 128;
}

/// The offsets of a block's fields.
pub mod block {
    /// A reference to the thread's next block, 32 bits.
    pub const NEXT: usize = 0;
    /// The number of its events, 32 bits. The recorder raises it after each event.
    pub const USED: usize = 4;
}

/// The offset of the first block in a file with these tables.
#[must_use]
pub const fn blocks_at(processes: usize, threads: usize) -> usize {
    let end = HEADER_BYTES + processes * PROCESS_BYTES + threads * THREAD_BYTES;
    end.next_multiple_of(HEADER_BYTES)
}
