//! The limit that no copy passes: bytes a second by reading, writing and copying, on 1..N threads.
//!
//! Each thread walks buffers of its own, larger than the caches. Writing and copying are tried in
//! every way that haul has, by registers and past the caches, beside libc: the limit is the best of
//! them, and each is a record of its own.

use std::time::Duration;

use haul::sys::Sys;
use haul_copy::Isa;
use haul_measure::memory::{Pages, Region, check_available};
use haul_measure::{Plan, Subject};

use crate::context::Context;
use crate::copy::Function;
use crate::copy::operations::FILL_BYTE;
use crate::copy::subjects::{self, Candidate, Plain, Routine, Selection};
use crate::error::Error;
use crate::outcome::{self, Metric, Template};

/// Rounds that every operation gets, whatever the budget.
const ROUNDS_MIN: usize = 7;

/// What is done with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// All of a buffer is loaded.
    Read,
    /// All of a buffer is stored to.
    Write,
    /// One buffer is copied to another; its bytes count once.
    Copy,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Copy];

    /// As records spell it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Copy => "copy",
        }
    }

    /// Buffers that each thread needs.
    fn buffers(self) -> usize {
        if self == Self::Copy { 2 } else { 1 }
    }
}

/// Bandwidth by operation and number of threads.
#[derive(Clone, Debug)]
pub struct Bandwidth {
    /// What is done.
    pub operation: Operation,
    /// How many threads do it at once.
    pub threads: usize,
    /// How large each thread's buffer is; larger than the caches to mean memory.
    pub size_bytes: usize,
    /// How long it may take; at least seven rounds are run.
    pub budget: Duration,
}

/// Measures, and emits one record for each way.
///
/// # Errors
/// The buffers are more than the machine has; see [`haul_measure::Error`].
pub fn measure_bandwidth(config: &Bandwidth, context: &mut Context<'_>) -> Result<(), Error> {
    let bytes = config.size_bytes.max(4096).next_multiple_of(4096);
    let buffers = config.operation.buffers();
    let total = (bytes as u64).saturating_mul((buffers * config.threads) as u64);
    check_available(total, &Sys::new())?;
    let lanes: Vec<Region> = (0..config.threads)
        .map(|_| Region::touched(bytes.saturating_mul(buffers), Pages::Huge))
        .collect::<Result<_, _>>()?;
    let ways = ways(config.operation)?;
    let streams: Vec<Stream<'_>> =
        ways.into_iter().map(|(name, way)| Stream { name, way, lanes: &lanes, bytes }).collect();
    let entrants: Vec<&dyn Subject> = streams.iter().map(|stream| stream as &dyn Subject).collect();
    let plan = Plan {
        budget: config.budget,
        rounds_min: ROUNDS_MIN,
        threads: config.threads,
        ..Plan::default()
    };
    let what = format!("memory {} on {} threads", config.operation.name(), config.threads);
    let outcome = outcome::measure(context, &what, &entrants, 0, &plan)?;
    let template = Template {
        experiment: "memory.bandwidth",
        parameters: vec![
            ("operation", config.operation.name().into()),
            ("threads", config.threads.into()),
            ("size_bytes", bytes.into()),
        ],
        metric: Metric::Throughput { bytes_per_operation: (bytes * config.threads) as f64 },
        notes: Vec::new(),
    };
    outcome::emit(context, &outcome, &template);
    Ok(())
}

/// How a buffer is walked.
#[derive(Clone, Copy, Debug)]
enum Way {
    Read(fn(&[u64]) -> u64),
    Move(Routine),
}

/// The ways to do it, the baseline first: libc, or for reading the plainest loop.
fn ways(operation: Operation) -> Result<Vec<(&'static str, Way)>, Error> {
    let function = match operation {
        Operation::Read => return Ok(reads()),
        Operation::Write => Function::Memset,
        Operation::Copy => Function::Memcpy,
    };
    let candidates = subjects::select(function, &Selection::Kernels, Plain::C)?;
    let way = |Candidate { name, routine }: Candidate| (name, Way::Move(routine));
    Ok(candidates.into_iter().map(way).collect())
}

fn reads() -> Vec<(&'static str, Way)> {
    let mut ways: Vec<(&'static str, Way)> = vec![("loads", Way::Read(fold))];
    #[cfg(target_arch = "x86_64")]
    if Isa::Avx2.is_available() {
        ways.push(("loads_avx2", Way::Read(x86_64::fold_avx2_checked)));
    }
    ways
}

/// All words folded into one. Eight chains: none waits for another, and the compiler takes them
/// for vectors.
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

    /// As a plain function pointer. Only named where AVX2 is available.
    pub(super) fn fold_avx2_checked(words: &[u64]) -> u64 {
        // SAFETY: `reads` names this function only after Isa::Avx2.is_available().
        unsafe { fold_avx2(words) }
    }
}

struct Stream<'a> {
    name: &'static str,
    way: Way,
    lanes: &'a [Region],
    bytes: usize,
}

impl Subject for Stream<'_> {
    fn name(&self) -> &str {
        self.name
    }

    fn run(&self, thread: usize, iterations: u64) {
        let source = self.lanes[thread].pointer();
        for _ in 0..iterations {
            match self.way {
                Way::Read(read) => {
                    // SAFETY: the region is mapped, touched, aligned to a huge page, holds `bytes`
                    // bytes, a multiple of 4096, and nobody writes to it while reading is measured.
                    let words =
                        unsafe { std::slice::from_raw_parts(source.cast::<u64>(), self.bytes / 8) };
                    std::hint::black_box(read(words));
                }
                Way::Move(Routine::Fill(fill)) => {
                    // SAFETY: the region holds `bytes` bytes and is this thread's alone.
                    unsafe { fill(source, i32::from(FILL_BYTE), self.bytes) };
                }
                Way::Move(Routine::Copy(copy)) => {
                    let target = source.wrapping_add(self.bytes);
                    // SAFETY: the region holds two buffers of `bytes` bytes, and is this thread's.
                    unsafe { copy(target, source, self.bytes) };
                }
                Way::Move(Routine::InlineCopy | Routine::InlineMove | Routine::InlineFill) => {
                    unreachable!("a selection of kernels holds no inlined function")
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_reads_every_word() {
        let mut words: Vec<u64> = (0..320).collect();
        let before = fold(&words);
        for index in 0..words.len() {
            words[index] ^= 1 << 40;
            assert_ne!(fold(&words), before, "word {index} is not read");
            for (_, way) in reads() {
                let Way::Read(read) = way else { panic!("reads only") };
                assert_eq!(read(&words), fold(&words));
            }
            words[index] ^= 1 << 40;
        }
    }
}
