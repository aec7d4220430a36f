//! The error of this crate. Each message names the attempt, the value, the limit and the remedy.

use haul_model::Bytes;

/// The format of a size-distribution file: the remedy of most of its errors.
const DISTRIBUTION_REMEDY: &str = "give a file of one line of probabilities separated by commas, index = size in bytes, summing to 1";

/// The reason why a measurement is not possible.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A size distribution is not usable.
    #[error("cannot use the size distribution {name:?}: {fault}; {DISTRIBUTION_REMEDY}")]
    Distribution {
        /// The file's path, or the built-in distribution's name.
        name: String,
        /// The fault of the distribution.
        fault: DistributionFault,
    },
    /// No built-in distribution and no file has this name.
    #[error(
        "there is no size distribution {name:?}: no such file, and haul ships {known}; name one of these or a file"
    )]
    UnknownDistribution {
        /// The requested name.
        name: String,
        /// The names of the built-in distributions.
        known: String,
    },
    /// No cache level has this name.
    #[error("cannot place buffers at level {name:?}; the levels are l1, l2, llc, cold and mixed")]
    UnknownLevel {
        /// The requested name.
        name: String,
    },
    /// The measurement needs more memory than the machine has available.
    #[error(
        "cannot map {} to measure on: {} are available; measure smaller sizes or fewer threads, or free memory",
        asked.approximate(), available.approximate()
    )]
    BeyondMemory {
        /// The requested memory.
        asked: Bytes,
        /// The available memory.
        available: Bytes,
    },
    /// The kernel refused to map memory.
    #[error(
        "cannot map {} to measure on: {reason}; raise the limit (ulimit -v) or measure smaller sizes",
        asked.approximate()
    )]
    Map {
        /// The requested memory.
        asked: Bytes,
        /// The kernel's reason.
        reason: std::io::Error,
    },
    /// A sample is too short for the timer's precision.
    #[error(
        "cannot time {subject:?}: {iterations} iterations took {elapsed_ns:.0} ns, and below {limit_ns:.0} ns \
         (1000 times the timer's precision of {precision_ns:.1} ns) a sample means nothing; give it more work"
    )]
    SampleTooShort {
        /// The subject.
        subject: String,
        /// The iterations of the sample.
        iterations: u64,
        /// The time of the sample.
        elapsed_ns: f64,
        /// The timer's precision.
        precision_ns: f64,
        /// The least time of a sample.
        limit_ns: f64,
    },
    /// A subject panicked while it was measured.
    #[error(
        "subject {subject:?} panicked on thread {thread}: {message}; this is a defect of the subject, not of the run"
    )]
    Panicked {
        /// The subject.
        subject: String,
        /// The thread, from 0.
        thread: usize,
        /// The panic's message.
        message: String,
    },
    /// A run has no subjects, threads or rounds.
    #[error("cannot measure with {what} = {value}; it has to be at least {limit}")]
    Sampling {
        /// The parameter of the sampling.
        what: &'static str,
        /// Its value.
        value: u64,
        /// The least possible value.
        limit: u64,
    },
    /// The operating system did not start a thread.
    #[error("cannot start thread {thread} of {threads}: {reason}; measure with fewer threads")]
    Thread {
        /// The thread, from 0.
        thread: usize,
        /// The number of threads requested.
        threads: usize,
        /// The system's reason.
        reason: std::io::Error,
    },
}

/// The fault of a size distribution.
#[derive(Debug, thiserror::Error)]
pub enum DistributionFault {
    /// The file cannot be opened or read.
    #[error("it cannot be read ({0})")]
    Unreadable(#[from] std::io::Error),
    /// The path names a directory, a FIFO, a socket or a device.
    #[error("it is a {0}, not a regular file")]
    NotAFile(&'static str),
    /// The file is larger than any distribution can be.
    #[error("it holds {bytes} bytes, over the limit of {limit}")]
    TooLarge {
        /// The file's size, or the bytes read before the limit.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The file is not text.
    #[error("byte {0} is not text")]
    NotText(usize),
    /// An empty file.
    #[error("it is empty")]
    Empty,
    /// The file contains more than one line of numbers.
    #[error("line {0} holds more numbers, but a distribution is one line")]
    ManyLines(usize),
    /// The distribution has more entries than there are supported sizes.
    #[error("it holds {entries} entries, over the limit of {limit} (sizes up to 1 MiB)")]
    TooLong {
        /// The number of entries.
        entries: usize,
        /// The limit.
        limit: usize,
    },
    /// An entry is not a number. A truncated file often ends with such an entry.
    #[error("entry {index} is {text:?}, not a number{}", if *.last { " (it is the last one: the file may be truncated)" } else { "" })]
    NotANumber {
        /// The index of the entry, which is its size in bytes.
        index: usize,
        /// The entry's text, shortened.
        text: String,
        /// Whether this is the last entry.
        last: bool,
    },
    /// A negative probability.
    #[error("entry {index} is {value}, below 0")]
    Negative {
        /// The index of the entry.
        index: usize,
        /// Its value.
        value: f64,
    },
    /// NaN or infinite.
    #[error("entry {index} is {value}, not a finite probability")]
    NotFinite {
        /// The index of the entry.
        index: usize,
        /// Its value.
        value: f64,
    },
    /// The probabilities do not sum to 1, as in a truncated file.
    #[error(
        "its {entries} entries sum to {sum}, further than {tolerance} from 1 (the file may be truncated)"
    )]
    Sum {
        /// The number of entries.
        entries: usize,
        /// The sum of the probabilities.
        sum: f64,
        /// The accepted distance from 1.
        tolerance: f64,
    },
}
