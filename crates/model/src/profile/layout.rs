//! The layout of a profile: a file that all profiled processes of a run map and write.
//!
//! A header, and tables of processes, threads, modules and call sites. The room of each table is
//! part of the version, so that a file has one length. Numbers are in the byte order of the
//! machine. A *reference* is an index, where entry 0 of a table sums what has no entry of its own.

/// The first bytes of a profile.
pub const MAGIC: [u8; 8] = *b"haulcpp\n";

/// The version of the layout.
pub const VERSION: u32 = 1;

/// The bytes of the header.
pub const HEADER_BYTES: usize = 4096;

/// A table of entries of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// The offset of entry 0 in the file, in bytes.
    pub at: usize,
    /// The number of entries, with entry 0.
    pub entries: usize,
    /// The bytes of an entry.
    pub entry_bytes: usize,
}

impl Table {
    /// The offset of an entry; entry 0 if there is no such entry.
    ///
    /// ```
    /// use haul_model::profile::layout::{HEADER_BYTES, PROCESSES};
    /// assert_eq!(PROCESSES.entry(0), HEADER_BYTES);
    /// assert_eq!(PROCESSES.entry(usize::MAX), HEADER_BYTES);
    /// ```
    #[must_use]
    pub const fn entry(self, reference: usize) -> usize {
        let index = if reference < self.entries { reference } else { 0 };
        self.at.wrapping_add(index.wrapping_mul(self.entry_bytes))
    }

    /// The offset of the first byte after the table.
    #[must_use]
    pub const fn end(self) -> usize {
        self.at.wrapping_add(self.entries.wrapping_mul(self.entry_bytes))
    }
}

/// Processes: a build of a large program.
pub const PROCESSES: Table = Table { at: HEADER_BYTES, entries: 8192, entry_bytes: 256 };
/// Threads of all processes.
pub const THREADS: Table = Table { at: PROCESSES.end(), entries: 16_384, entry_bytes: 64 };
/// Files with code.
pub const MODULES: Table = Table { at: THREADS.end(), entries: 1024, entry_bytes: 512 };
/// Call sites of all processes.
pub const SITES: Table = Table { at: MODULES.end(), entries: 8192, entry_bytes: 1024 };
/// The bytes of a file.
pub const FILE_BYTES: usize = SITES.end();

/// Estimated numbers of calls are in these parts of a call, so that rounding down loses nothing
/// that matters where a sample stands for one call.
pub const PARTS_OF_A_CALL: u64 = 1 << 16;

/// The work of a call is its size plus this number of bytes. Samples are taken at a mean distance
/// of work, so that long copies, which carry most bytes, are sampled more often than short ones.
/// A sample then costs at most some 1% of the calls before it: 154 ns after 4,000 calls of 16 bytes
/// of 4 ns, or after 450 calls of 8 KiB of 47 ns (Emerald Rapids).
pub const WORK_OF_A_CALL: u64 = 1024;

/// The mean work between two samples of a thread, unless the user asks for another. Tried: 1 MiB,
/// with which samples took 4% of the time of short copies.
pub const WORK_PER_SAMPLE: u64 = 4 << 20;

/// The offsets of the header's fields.
pub mod head {
    /// [`VERSION`](super::VERSION), 32 bits.
    pub const VERSION_AT: usize = 8;
    /// The mean work between two samples, 64 bits.
    pub const WORK_PER_SAMPLE: usize = 16;
    /// The number of processes until now, 32 bits. It may exceed the room.
    pub const PROCESSES: usize = 64;
    /// The number of threads, as above.
    pub const THREADS: usize = 128;
}

/// The offsets of a process's fields.
pub mod process {
    /// The process ID, 32 bits; 0 for a forked child, which makes no system call.
    pub const ID: usize = 0;
    /// A reference to the process that it was forked from, 32 bits; 0 if it began by itself.
    pub const PARENT: usize = 4;
    /// 1 if the policy of copies comes from a `haul.toml`, 32 bits.
    pub const HAS_POLICY_FILE: usize = 8;
    /// The instruction set of the policy, a text.
    pub const ISA: usize = 16;
    /// The bytes of that text.
    pub const ISA_BYTES: usize = 16;
    /// The name of the program, a text.
    pub const PROGRAM: usize = 64;
    /// The bytes of that text.
    pub const PROGRAM_BYTES: usize = 64;
}

/// The offsets of a thread's fields.
pub mod thread {
    /// A reference to its process, 32 bits.
    pub const PROCESS: usize = 0;
    /// The number of samples, 64 bits.
    pub const SAMPLES: usize = 8;
    /// The estimated calls, in [parts](super::PARTS_OF_A_CALL), 64 bits.
    pub const CALLS: usize = 16;
    /// The estimated bytes, 64 bits.
    pub const BYTES: usize = 24;
}

/// The offsets of a module's fields.
pub mod module {
    /// The hash of its path, 64 bits; 0 for an unused entry.
    pub const HASH: usize = 0;
    /// The bytes of the path, 32 bits; 0 while they are written.
    pub const LENGTH: usize = 8;
    /// The path.
    pub const PATH: usize = 16;
    /// The most bytes of a path; longer ones lose their beginning.
    pub const PATH_BYTES: usize = 496;
}

/// The offsets of a site's fields. All but the first are 64-bit estimates: calls in
/// [parts](PARTS_OF_A_CALL), and bytes.
pub mod site {
    /// A reference to its module in the upper 16 bits, and the offset of the return address from
    /// the module's lowest address in the others. 0 for an unused entry, and for entry 0.
    pub const KEY: usize = 0;
    /// The number of samples, which is exact.
    pub const SAMPLES: usize = 8;
    /// The calls.
    pub const CALLS: usize = 16;
    /// The bytes.
    pub const BYTES: usize = 24;
    /// The calls by function, see [`kind`](super::kind).
    pub const KINDS: usize = 32;
    /// The calls by the class of their size.
    pub const CLASS_CALLS: usize = 64;
    /// The bytes by the class of the size.
    pub const CLASS_BYTES: usize = 64 + 8 * super::CLASSES;
    /// The copies whose source and target overlap.
    pub const OVERLAPS: usize = CLASS_BYTES + 8 * super::CLASSES;
    /// The copies by the class of the distance between source and target.
    pub const DISTANCES: usize = OVERLAPS + 8;
    /// The calls by the alignment of the target: its number of trailing zeros, at most 6.
    pub const TARGETS: usize = DISTANCES + 8 * super::DISTANCES;
    /// The copies by the alignment of the source.
    pub const SOURCES: usize = TARGETS + 8 * super::ALIGNMENTS;
}

/// Classes of sizes: 0 for 0 bytes, n for 2^(n-1) to 2^n - 1, the last for all above.
pub const CLASSES: usize = 41;
/// Classes of distances: the number of the bits of the distance, divided by 6.
pub const DISTANCES: usize = 8;
/// Alignments: 1, 2, 4 to 64 bytes.
pub const ALIGNMENTS: usize = 7;

const _: () = assert!(site::SOURCES + 8 * ALIGNMENTS <= SITES.entry_bytes);
const _: () = assert!(module::PATH + module::PATH_BYTES <= MODULES.entry_bytes);
const _: () = assert!(MODULES.entries < 1 << 16);

/// The functions.
pub mod kind {
    /// memcpy, mempcpy and their checked forms.
    pub const MEMCPY: u32 = 0;
    /// memmove and bcopy.
    pub const MEMMOVE: u32 = 1;
    /// memset with 0, bzero and explicit_bzero.
    pub const ZERO: u32 = 2;
    /// memset with another byte.
    pub const FILL: u32 = 3;
}

/// The class of a size.
///
/// ```
/// use haul_model::profile::layout::class_of;
/// assert_eq!([0, 1, 2, 3, 4, 4096, u64::MAX].map(class_of), [0, 1, 2, 2, 3, 13, 40]);
/// ```
#[must_use]
pub const fn class_of(size_bytes: u64) -> usize {
    let bits = (u64::BITS - size_bytes.leading_zeros()) as usize;
    if bits < CLASSES { bits } else { CLASSES - 1 }
}

/// The class of a distance.
///
/// ```
/// use haul_model::profile::layout::distance_class_of;
/// assert_eq!([0, 31, 32, 4096, u64::MAX].map(distance_class_of), [0, 0, 1, 2, 7]);
/// ```
#[must_use]
pub const fn distance_class_of(distance_bytes: u64) -> usize {
    let class = (u64::BITS - distance_bytes.leading_zeros()) as usize / 6;
    if class < DISTANCES { class } else { DISTANCES - 1 }
}
