//! The one error of this crate. Each message names the attempt, the value, the limit and the
//! remedy.

use haul_model::Bytes;

/// What a size-distribution file has to look like: the remedy of most of its errors.
const DISTRIBUTION_REMEDY: &str = "give a file of one line of probabilities separated by commas, index = size in bytes, summing to 1";

/// Why something could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A size distribution is not usable.
    #[error("cannot use the size distribution {name:?}: {fault}; {DISTRIBUTION_REMEDY}")]
    Distribution {
        /// The file's path, or the built-in distribution's name.
        name: String,
        /// What is wrong with it.
        fault: DistributionFault,
    },
    /// No built-in distribution and no file has this name.
    #[error(
        "there is no size distribution {name:?}: no such file, and haul ships {known}; name one of these or a file"
    )]
    UnknownDistribution {
        /// What was asked for.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// No cache level has this name.
    #[error("cannot place buffers at level {name:?}; the levels are l1, l2, llc, cold and mixed")]
    UnknownLevel {
        /// What was asked for.
        name: String,
    },
    /// More memory than the machine has to give.
    #[error(
        "cannot map {} to measure on: {} are available; measure smaller sizes or fewer threads, or free memory",
        asked.approximate(), available.approximate()
    )]
    BeyondMemory {
        /// How much was asked for.
        asked: Bytes,
        /// How much there is.
        available: Bytes,
    },
    /// The kernel did not map memory.
    #[error(
        "cannot map {} to measure on: {reason}; raise the limit (ulimit -v) or measure smaller sizes",
        asked.approximate()
    )]
    Map {
        /// How much was asked for.
        asked: Bytes,
        /// What the kernel said.
        reason: std::io::Error,
    },
    /// A sample would be too near the timer's precision to mean anything.
    #[error(
        "cannot time {subject:?}: {iterations} iterations took {elapsed_ns:.0} ns, and below {limit_ns:.0} ns \
         (1000 times the timer's precision of {precision_ns:.1} ns) a sample means nothing; give it more work"
    )]
    SampleTooShort {
        /// Which subject.
        subject: String,
        /// How often it ran.
        iterations: u64,
        /// How long that took.
        elapsed_ns: f64,
        /// The timer's precision.
        precision_ns: f64,
        /// How long a sample has to be.
        limit_ns: f64,
    },
    /// A subject panicked while it was measured.
    #[error(
        "subject {subject:?} panicked on thread {thread}: {message}; this is a defect of the subject, not of the run"
    )]
    Panicked {
        /// Which subject.
        subject: String,
        /// On which thread, from 0.
        thread: usize,
        /// The panic's message.
        message: String,
    },
    /// A run without subjects, threads or rounds.
    #[error("cannot measure with {what} = {value}; it has to be at least {limit}")]
    Sampling {
        /// Which number of the sampling.
        what: &'static str,
        /// Its value.
        value: u64,
        /// The least that makes sense.
        limit: u64,
    },
    /// The operating system started no thread.
    #[error("cannot start thread {thread} of {threads}: {reason}; measure with fewer threads")]
    Thread {
        /// Which thread, from 0.
        thread: usize,
        /// How many were asked for.
        threads: usize,
        /// What the system said.
        reason: std::io::Error,
    },
}

/// What is wrong with a size distribution.
#[derive(Debug, thiserror::Error)]
pub enum DistributionFault {
    /// The file cannot be opened or read.
    #[error("it cannot be read ({0})")]
    Unreadable(#[from] std::io::Error),
    /// A directory, a FIFO, a socket, a device.
    #[error("it is a {0}, not a regular file")]
    NotAFile(&'static str),
    /// Larger than any distribution can be.
    #[error("it holds {bytes} bytes, over the limit of {limit}")]
    TooLarge {
        /// How large it is (or how much was read before giving up).
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// Not text.
    #[error("byte {0} is not text")]
    NotText(usize),
    /// Nothing in it.
    #[error("it is empty")]
    Empty,
    /// More than one line of numbers.
    #[error("line {0} holds more, and a distribution is one line")]
    ManyLines(usize),
    /// More entries than sizes are supported.
    #[error("it holds {entries} entries, over the limit of {limit} (sizes up to 1 MiB)")]
    TooLong {
        /// How many entries it has.
        entries: usize,
        /// The limit.
        limit: usize,
    },
    /// An entry that is not a number: what a truncated file ends with.
    #[error("entry {index} is {text:?}, not a number{}", if *.last { " (it is the last one: the file may be truncated)" } else { "" })]
    NotANumber {
        /// Which entry: the size in bytes that it stands for.
        index: usize,
        /// What stands there, shortened.
        text: String,
        /// Whether it is the last entry.
        last: bool,
    },
    /// A negative probability.
    #[error("entry {index} is {value}, below 0")]
    Negative {
        /// Which entry.
        index: usize,
        /// Its value.
        value: f64,
    },
    /// NaN or infinite.
    #[error("entry {index} is {value}, not a finite probability")]
    NotFinite {
        /// Which entry.
        index: usize,
        /// Its value.
        value: f64,
    },
    /// The probabilities do not sum to 1: what a truncated file sums to.
    #[error(
        "its {entries} entries sum to {sum}, further than {tolerance} from 1 (the file may be truncated)"
    )]
    Sum {
        /// How many entries it has.
        entries: usize,
        /// What they sum to.
        sum: f64,
        /// How far from 1 is accepted.
        tolerance: f64,
    },
}
