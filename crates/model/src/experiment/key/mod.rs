//! Keys of [`Record::parameters`](crate::Record::parameters). A key of a value with a unit ends
//! in the unit. The keys of all parts of haul are here. A part's own keys are in its file, and
//! other parts may use them too:
//!
//! - `engine`: engines;
//! - `copy`: copies and memory;
//! - `heap`: heaps;
//! - `channel`: transfers between processes;
//! - `forward`: the forwarder;
//! - `sim`: the simulated server;
//! - `pcie`: PCIe traffic;
//! - `field`: field tests of whole programs;
//! - `compare`: comparisons of two files of records.

mod channel;
mod compare;
mod copy;
mod engine;
mod field;
mod forward;
mod heap;
mod pcie;
mod sim;

pub use self::channel::*;
pub use self::compare::*;
pub use self::copy::*;
pub use self::engine::*;
pub use self::field::*;
pub use self::forward::*;
pub use self::heap::*;
pub use self::pcie::*;
pub use self::sim::*;

/// The size of a copy, a block, a message or a buffer.
pub const SIZE_BYTES: &str = "size_bytes";
/// The number of threads that run concurrently.
pub const THREADS: &str = "threads";
/// The program that was recorded, replayed or simulated.
pub const PROGRAM: &str = "program";
/// The subject's own version.
pub const VERSION: &str = "version";
/// The number of processors that the subject may use.
pub const CPUS: &str = "cpus";
/// A remark that a reader must know.
pub const NOTE: &str = "note";
/// The command that repeats the measurement.
pub const RERUN: &str = "rerun";
/// The share of all processors' time that the hypervisor used during the measurement.
pub const STEAL_PERCENT: &str = "steal_percent";
/// The number of processors that unrelated programs kept busy during the measurement.
pub const OTHERS_PROCESSORS: &str = "others_processors";
/// The number of operations in a sample.
pub const OPERATIONS_PER_SAMPLE: &str = "operations_per_sample";
/// The number of rounds that were discarded because they were disturbed.
pub const ROUNDS_DISCARDED: &str = "rounds_discarded";
/// The processor time of an operation.
pub const CPU_NS: &str = "cpu_ns";
/// The page faults of all samples together.
pub const PAGE_FAULTS: &str = "page_faults";
/// The largest memory of the process.
pub const MEMORY_PEAK_BYTES: &str = "memory_peak_bytes";
/// The requested subjects that were left out.
pub const LEFT_OUT: &str = "left_out";
/// The subjects that are installed on the machine and were not requested.
pub const INSTALLED: &str = "installed";
