//! Keys of copies and of memory.

/// memcpy, memmove or memset.
pub const FUNCTION: &str = "function";
/// The distribution that sizes are drawn from.
pub const DISTRIBUTION: &str = "distribution";
/// The sizes that are drawn evenly.
pub const SIZE_CLASS: &str = "size_class";
/// The file that a distribution was read from.
pub const FILE: &str = "file";
/// The location of the bytes: the cache that contains them, or none.
pub const LEVEL: &str = "level";
/// Whether predictors can learn the branches.
pub const BRANCHES: &str = "branches";
/// The part of each target that is read right after its call.
pub const THEN_READ: &str = "then_read";
/// The share of addresses that are odd.
pub const MISALIGNED: &str = "misaligned";
/// How often source and target overlap; for a simulated machine, whether copies overlap with
/// computing.
pub const OVERLAP: &str = "overlap";
/// The call of the subject: through C, or inlined.
pub const CALL: &str = "call";
/// The fastest subjects.
pub const BEST: &str = "best";
/// The time of haul over the time of the best subjects.
pub const OVER_BEST: &str = "over_best";
/// The lower end of the interval of [`OVER_BEST`].
pub const OVER_BEST_LOW: &str = "over_best_low";
/// The upper end of the interval of [`OVER_BEST`].
pub const OVER_BEST_HIGH: &str = "over_best_high";
/// The recorded program whose calls are replayed.
pub const STREAM: &str = "stream";
/// The description of a recording by its user.
pub const ABOUT: &str = "about";
/// The index of the recorded thread.
pub const THREAD: &str = "thread";
/// The number of calls.
pub const CALLS: &str = "calls";
/// The number of call sites.
pub const SITES: &str = "sites";
/// The call site: module, offset and function.
pub const SITE: &str = "site";
/// The calls that were sampled.
pub const SAMPLED: &str = "sampled";
/// The number of profiled processes.
pub const PROCESSES: &str = "processes";
/// The mean work between two samples of a thread: the bytes and a constant for each call.
pub const WORK_PER_SAMPLE_BYTES: &str = "work_per_sample_bytes";
/// Copies by the class of their size: 0 bytes, 1, 2 to 3, 4 to 7 and so on.
pub const COPY_CALLS_BY_CLASS: &str = "copy_calls_by_class";
/// The bytes of copies by the class of their size.
pub const COPY_BYTES_BY_CLASS: &str = "copy_bytes_by_class";
/// Fills by the class of their size.
pub const FILL_CALLS_BY_CLASS: &str = "fill_calls_by_class";
/// The bytes of fills by the class of their size.
pub const FILL_BYTES_BY_CLASS: &str = "fill_bytes_by_class";
/// The estimated time of the calls with the C library's functions.
pub const LIBC_S: &str = "libc_s";
/// The estimated time of the calls with haul's functions.
pub const HAUL_S: &str = "haul_s";
/// The processor time of the program and of the children that it waited for.
pub const PROGRAM_CPU_S: &str = "program_cpu_s";
/// The size that half of the calls do not exceed, rounded up to a power of two less one.
pub const SIZE_MEDIAN_BYTES: &str = "size_median_bytes";
/// The largest size, rounded up likewise.
pub const SIZE_MAX_BYTES: &str = "size_max_bytes";
/// The share of copies with source and target less than 4 KiB apart.
pub const NEAR: &str = "near";
/// The memory that the calls use.
pub const ARENA_BYTES: &str = "arena_bytes";
/// How the recorder knows when targets are read.
pub const READS_BY: &str = "reads_by";
/// The share of calls whose target is read right after the call.
pub const READ_SHARE: &str = "read_share";
/// The phase of tuning: training, search or check.
pub const PHASE: &str = "phase";
/// The part of a policy that was tuned.
pub const PART: &str = "part";
/// The choice of a policy that was tried.
pub const CHOICE: &str = "choice";
/// The distance of a target above its source.
pub const DISTANCE_BYTES: &str = "distance_bytes";

// Memory.
/// The operation: reading, writing or copying.
pub const OPERATION: &str = "operation";
/// The kind or the number of a subject's pages.
pub const PAGES: &str = "pages";
/// The size of a page.
pub const PAGE_BYTES: &str = "page_bytes";
/// How a page is touched; the engine of a simulated machine; the mode of a driver.
pub const MODE: &str = "mode";
