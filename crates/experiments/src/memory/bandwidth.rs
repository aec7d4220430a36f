//! The limit of every copy: the bytes per second that 1..N threads read, write or copy.
//!
//! Each thread walks separate buffers that are larger than the caches. Writing and copying use
//! libc and every kernel of haul: the kernels that use registers, and the kernels that bypass the
//! caches. The limit is the best of these, and each has a separate record.

use std::time::Duration;

use haul_copy::Isa;
use haul_machine::sys::Sys;
use haul_measure::memory::{Pages, Region, check_available};
use haul_measure::{Caches, Sampling, Subject};
use haul_model::experiment::{key, name};

use crate::context::Context;
use crate::copy::Function;
use crate::copy::operations::FILL_BYTE;
use crate::copy::subjects::{self, Candidate, Plain, Routine, Selection};
use crate::error::Error;
use crate::experiment::{Experiment, SMALL, nanoseconds, on_threads};
use crate::outcome::{self, Metric, Template};

/// The time of an operation in addition to its rounds, per byte of all buffers: seven rounds of
/// every kernel that copies, and seven rounds of other operations.
const COPYING_NS_PER_BYTE: f64 = 3.5;
const WALKING_NS_PER_BYTE: f64 = 1.0;

/// The smallest number of rounds per operation, independent of the budget.
const ROUNDS_MIN: usize = 7;

/// The operation on memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Loads all of a buffer.
    Read,
    /// Stores to all of a buffer.
    Write,
    /// Copies one buffer to another. Each copied byte counts once.
    Copy,
}

impl Operation {
    /// All operations.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Copy];

    /// The operation's name in records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Copy => "copy",
        }
    }

    /// The number of buffers of each thread.
    fn buffers(self) -> usize {
        if self == Self::Copy { 2 } else { 1 }
    }
}

/// Bandwidth by operation and number of threads.
#[derive(Clone, Debug)]
pub struct Bandwidth {
    /// The operation.
    pub operation: Operation,
    /// The number of threads that perform the operation at the same time.
    pub threads: usize,
    /// The size of each thread's buffer. The buffer must be larger than the caches, so that
    /// memory is measured.
    pub size_bytes: usize,
    /// The longest time of the rounds; at least seven rounds run in any case.
    pub budget: Duration,
}

/// The size of the buffers, and the time of the measurement.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// The longest time of an operation.
    pub budget: Duration,
    /// The size of a buffer as a multiple of the last-level cache.
    pub caches: usize,
    /// The largest size of all threads' buffers together, in bytes.
    pub bytes_max: usize,
}

impl Extent {
    /// A time that is enough to find the limit of a copy.
    pub const QUICK: Self =
        Self { budget: Duration::from_millis(250), caches: 2, bytes_max: 256 << 20 };

    /// A time that is enough for a published figure.
    pub const FULL: Self =
        Self { budget: Duration::from_millis(700), caches: 4, bytes_max: 512 << 20 };
}

impl Bandwidth {
    /// A bandwidth for which each thread's buffers have the size of several last-level caches. If
    /// all these buffers would be larger than a quarter of the memory, they share a quarter of
    /// the memory.
    #[must_use]
    pub fn new(
        operation: Operation,
        threads: usize,
        extent: Extent,
        caches: &Caches,
        available_bytes: u64,
    ) -> Self {
        const BUFFERS: usize = 2;
        let wanted = caches.llc_bytes.saturating_mul(extent.caches);
        let wanted = wanted.clamp(64 << 20, 512 << 20).min(extent.bytes_max / threads / BUFFERS);
        let fair = available_bytes / 4 / (threads * BUFFERS) as u64;
        let size_bytes = wanted.min(usize::try_from(fair).unwrap_or(usize::MAX)).max(1 << 20);
        Self { operation, threads, size_bytes, budget: extent.budget }
    }

    /// The bandwidth that limits this function on this number of threads.
    #[must_use]
    pub fn limit(
        function: Function,
        threads: usize,
        caches: &Caches,
        available_bytes: u64,
    ) -> Self {
        let is_fill = function == Function::Memset;
        let operation = if is_fill { Operation::Write } else { Operation::Copy };
        Self::new(operation, threads, Extent::QUICK, caches, available_bytes)
    }

    /// The size of each buffer: whole pages.
    fn buffer_bytes(&self) -> usize {
        self.size_bytes.max(4096).next_multiple_of(4096)
    }
}

impl Experiment for Bandwidth {
    fn name(&self) -> String {
        format!("memory {}{}", self.operation.name(), on_threads(self.threads))
    }

    fn budget(&self) -> Duration {
        self.budget
    }

    fn set_budget(&mut self, budget: Duration) {
        self.budget = budget;
    }

    fn overhead(&self, _: &Caches) -> Duration {
        // A machine with more processors has more channels to its memory: about one channel for
        // four processors.
        let bytes = self.size_bytes * self.threads / (self.threads / 4).clamp(1, 8);
        SMALL
            + match self.operation {
                Operation::Copy => nanoseconds(COPYING_NS_PER_BYTE, 2 * bytes),
                Operation::Read | Operation::Write => nanoseconds(WALKING_NS_PER_BYTE, bytes),
            }
    }

    fn check_memory(&self) -> Result<(), Error> {
        let buffers = self.operation.buffers() * self.threads;
        let wanted = (self.buffer_bytes() as u64).saturating_mul(buffers as u64);
        Ok(check_available(wanted, &Sys::new())?)
    }

    /// Emits one record for each kernel.
    ///
    /// # Errors
    /// The buffers are larger than the machine's memory; see [`haul_measure::Error`].
    fn measure(&self, context: &mut Context<'_>) -> Result<(), Error> {
        self.check_memory()?;
        let bytes = self.buffer_bytes();
        let region =
            || Region::touched(bytes.saturating_mul(self.operation.buffers()), Pages::Huge);
        let regions: Vec<Region> = (0..self.threads).map(|_| region()).collect::<Result<_, _>>()?;
        let walks = walks(self.operation)?;
        let streams: Vec<Stream<'_>> = walks
            .into_iter()
            .map(|(name, walk)| Stream { name, walk, regions: &regions, bytes })
            .collect();
        let entrants: Vec<&dyn Subject> =
            streams.iter().map(|stream| stream as &dyn Subject).collect();
        let sampling = Sampling {
            budget: self.budget,
            rounds_min: ROUNDS_MIN,
            threads: self.threads,
            ..Sampling::default()
        };
        let outcome = outcome::measure(context, &self.name(), &entrants, 0, &sampling)?;
        let template = Template {
            experiment: name::MEMORY_BANDWIDTH,
            parameters: vec![
                (key::OPERATION, self.operation.name().into()),
                (key::THREADS, self.threads.into()),
                (key::SIZE_BYTES, bytes.into()),
            ],
            metric: Metric::Throughput { bytes_per_operation: (bytes * self.threads) as f64 },
            notes: Vec::new(),
        };
        outcome::emit(context, &outcome, &template);
        Ok(())
    }
}

/// The method of walking a buffer.
#[derive(Clone, Copy, Debug)]
enum Walk {
    Read(fn(&[u64]) -> u64),
    Move(Routine),
}

/// The methods of an operation, the baseline first: libc, or the simplest loop for reading.
fn walks(operation: Operation) -> Result<Vec<(&'static str, Walk)>, Error> {
    let function = match operation {
        Operation::Read => return Ok(reads()),
        Operation::Write => Function::Memset,
        Operation::Copy => Function::Memcpy,
    };
    let candidates = subjects::select(function, &Selection::Kernels, Plain::C)?;
    let walk = |Candidate { name, routine }: Candidate| (name, Walk::Move(routine));
    Ok(candidates.into_iter().map(walk).collect())
}

fn reads() -> Vec<(&'static str, Walk)> {
    let mut walks: Vec<(&'static str, Walk)> = vec![("loads", Walk::Read(fold))];
    #[cfg(target_arch = "x86_64")]
    if Isa::Avx2.is_available() {
        walks.push(("loads_avx2", Walk::Read(x86_64::fold_avx2_checked)));
    }
    walks
}

/// All words combined into one, in eight chains: no chain waits for another, and the compiler
/// vectorises them.
#[inline(always)]
fn fold(words: &[u64]) -> u64 {
    let mut sums = [0u64; 32];
    let chunks = words.chunks_exact(32);
    for chunk in chunks {
        for (sum, word) in sums.iter_mut().zip(chunk) {
            *sum ^= word;
        }
    }
    sums.iter().fold(0, |all, sum| all ^ sum)
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    /// [`super::fold`] compiled for 32-byte registers.
    #[target_feature(enable = "avx2")]
    fn fold_avx2(words: &[u64]) -> u64 {
        super::fold(words)
    }

    /// `fold_avx2` as a plain function pointer. The pointer may be used only if AVX2 is
    /// available.
    pub(super) fn fold_avx2_checked(words: &[u64]) -> u64 {
        // SAFETY: `reads` uses this function only after Isa::Avx2.is_available().
        unsafe { fold_avx2(words) }
    }
}

struct Stream<'a> {
    name: &'static str,
    walk: Walk,
    regions: &'a [Region],
    bytes: usize,
}

impl Subject for Stream<'_> {
    fn name(&self) -> &str {
        self.name
    }

    fn run(&self, thread: usize, iterations: u64) {
        let source = self.regions[thread].pointer();
        for _ in 0..iterations {
            match self.walk {
                Walk::Read(read) => {
                    // SAFETY: the region is mapped, touched, aligned to a huge page, and holds
                    // `bytes` bytes, a multiple of 4096. No thread writes to the region while
                    // reading is measured.
                    let words =
                        unsafe { std::slice::from_raw_parts(source.cast::<u64>(), self.bytes / 8) };
                    std::hint::black_box(read(words));
                }
                Walk::Move(Routine::Fill(fill)) => {
                    // SAFETY: the region holds `bytes` bytes and belongs to this thread alone.
                    unsafe { fill(source, i32::from(FILL_BYTE), self.bytes) };
                }
                Walk::Move(Routine::Copy(copy)) => {
                    let target = source.wrapping_add(self.bytes);
                    // SAFETY: the region holds two buffers of `bytes` bytes, and belongs to this
                    // thread alone.
                    unsafe { copy(target, source, self.bytes) };
                }
                Walk::Move(Routine::InlineCopy | Routine::InlineMove | Routine::InlineFill) => {
                    unreachable!("a selection of kernels has no inlined function")
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_smaller_with_little_memory() {
        let caches = Caches::from_sizes(&[32 << 10, 1 << 20, 32 << 20]);
        for (threads, operation) in
            [1, 2].into_iter().flat_map(|threads| Operation::ALL.map(|it| (threads, it)))
        {
            let walk = Bandwidth::new(operation, threads, Extent::FULL, &caches, 64 << 20);
            assert!(walk.size_bytes * threads * 2 <= 64 << 20, "{walk:?}");
        }
    }

    #[test]
    fn fold_reads_every_word() {
        let mut words: Vec<u64> = (0..320).collect();
        let before = fold(&words);
        for index in 0..words.len() {
            words[index] ^= 1 << 40;
            assert_ne!(fold(&words), before, "word {index} is not read");
            for (_, walk) in reads() {
                let Walk::Read(read) = walk else { panic!("reads only") };
                assert_eq!(read(&words), fold(&words));
            }
            words[index] ^= 1 << 40;
        }
    }
}
