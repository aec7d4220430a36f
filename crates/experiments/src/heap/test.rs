//! The tests: the tasks of a driver in one repetition, and the figures of their results.

use std::str::FromStr;

use haul_model::experiment::name;

use super::protocol::{Repeated, Shape, Task};
use crate::error::Error;

/// A pattern of using a heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// Of ByteDance's rte_malloc test: rounds of allocations without a free.
    Growth,
    /// Like [`Growth`](Self::Growth), but blocks of the size and of twice the size alternate,
    /// each with its own alignment.
    Mixed,
    /// Rounds of allocations, each freed before the next.
    Regrow,
    /// Of ByteDance's rte_malloc test, "bulk": allocates many blocks, fills them, and frees them.
    Bulk,
    /// Of ByteDance's rte_malloc test, "no-bulk": allocates and frees one block at a time, with a
    /// pause.
    NoBulk,
    /// Of ByteDance's rte_malloc test, "realloc": doubles a block twice.
    Realloc,
    /// Repeatedly allocates a block and frees it.
    Pairs,
    /// Blocks of random sizes and lifetimes.
    Lifetimes,
    /// Blocks that another thread frees.
    Remote,
    /// Single allocations while the heap grows.
    Latency,
    /// Blocks of zeros, which the calling thread or an engine writes.
    Zeroed,
}

/// The extent of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The block's size and alignment.
    pub shape: Shape,
    /// The number of rounds per repetition, if the test has rounds.
    pub rounds: usize,
    /// The number of blocks per round and thread, if the test counts blocks.
    pub count: usize,
    /// The time of a pause, if the test has pauses, in ns.
    pub delay_ns: u64,
}

/// A figure of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Figure {
    pub(super) metric: &'static str,
    pub(super) unit: &'static str,
    /// The round of the figure, from 1; `None` for a figure of all rounds.
    pub(super) round: Option<usize>,
}

/// The pause between two allocations in ByteDance's rte_malloc test, in ns.
pub const SEED_DELAY_NS: u64 = 5000;

/// The number of bytes that haul's heap keeps ready for future allocations in [`Test::Latency`]:
/// 10 ms at a rate of 4 KiB per 5 us, in pages of 2 MiB.
const GROW_AHEAD_BYTES: usize = 8 << 20;

/// The number of tasks in a round of [`Test::Regrow`].
const REGROW_TASKS: usize = 4;

impl Test {
    /// All tests, in the order of the report page.
    pub const ALL: [Self; 11] = [
        Self::Growth,
        Self::Mixed,
        Self::Regrow,
        Self::Bulk,
        Self::NoBulk,
        Self::Realloc,
        Self::Pairs,
        Self::Lifetimes,
        Self::Remote,
        Self::Latency,
        Self::Zeroed,
    ];

    /// The test's name in commands.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.experiment().trim_start_matches(name::HEAP)
    }

    /// The test's name in records.
    #[must_use]
    pub fn experiment(self) -> &'static str {
        match self {
            Self::Growth => name::HEAP_GROWTH,
            Self::Mixed => name::HEAP_MIXED,
            Self::Regrow => name::HEAP_REGROW,
            Self::Bulk => name::HEAP_BULK,
            Self::NoBulk => name::HEAP_NO_BULK,
            Self::Realloc => name::HEAP_REALLOC,
            Self::Pairs => name::HEAP_PAIRS,
            Self::Lifetimes => name::HEAP_LIFETIMES,
            Self::Remote => name::HEAP_REMOTE,
            Self::Latency => name::HEAP_LATENCY,
            Self::Zeroed => name::HEAP_ZEROED,
        }
    }

    /// The default rounds and blocks: the values of ByteDance's rte_malloc test, if that test has
    /// such values. Random lifetimes have at most as many live blocks as fit into 64 MiB if each
    /// has 16 KiB.
    #[must_use]
    pub fn extent(self, shape: Shape) -> Extent {
        let (rounds, count) = match self {
            Self::Growth | Self::Mixed | Self::Regrow => (5, 2000),
            Self::Bulk | Self::NoBulk => (1, 1000),
            Self::Lifetimes => (1, 4000),
            Self::Latency => (1, 20_000),
            Self::Zeroed => (1, 4),
            Self::Realloc | Self::Pairs | Self::Remote => (1, 1),
        };
        Extent { shape, rounds, count, delay_ns: SEED_DELAY_NS }
    }

    /// The number of threads: the requested one, or the smallest one of the test.
    ///
    /// # Errors
    /// [`Error::OddThreads`] for a test that needs pairs of threads.
    pub fn threads(self, asked: Option<usize>) -> Result<usize, Error> {
        let least = if self == Self::Remote { 2 } else { 1 };
        let threads = asked.unwrap_or(least);
        if !threads.is_multiple_of(least) {
            return Err(Error::OddThreads { threads });
        }
        Ok(threads)
    }

    /// The default number of bytes that haul's heap keeps ready for future allocations.
    #[must_use]
    pub fn grow_ahead_bytes(self) -> usize {
        if self == Self::Latency { GROW_AHEAD_BYTES } else { 0 }
    }

    /// Whether every repetition begins with an unused heap.
    pub(super) fn is_fresh(self) -> bool {
        matches!(self, Self::Growth | Self::Mixed | Self::Regrow | Self::Latency)
    }

    /// The operation that the test repeats until it has lasted long enough to be timed.
    pub(super) fn repeated(self, extent: &Extent) -> Option<Repeated> {
        match self {
            Self::Pairs => Some(Repeated::Pairs),
            Self::Realloc => Some(Repeated::Realloc),
            Self::Lifetimes => Some(Repeated::Lifetimes { live: extent.count }),
            Self::Remote => Some(Repeated::Remote),
            _ => None,
        }
    }

    /// The largest number of blocks that a thread holds at the same time.
    pub(super) fn blocks_max(self, extent: &Extent) -> usize {
        match self {
            Self::Growth | Self::Mixed => extent.rounds.saturating_mul(extent.count),
            Self::Regrow | Self::Bulk | Self::Lifetimes | Self::Latency => extent.count,
            Self::NoBulk | Self::Realloc | Self::Pairs | Self::Remote | Self::Zeroed => 1,
        }
    }

    /// The size of a thread's largest block in bytes.
    pub(super) fn block_bytes_max(self, extent: &Extent) -> usize {
        let factor = match self {
            Self::Mixed => 2,
            Self::Realloc => 4,
            _ => 1,
        };
        extent.shape.size.max(extent.shape.align).saturating_mul(factor)
    }

    /// The tasks of a driver in one repetition, in their order. `iterations` is the number of
    /// operations of [`Task::Repeat`].
    pub(super) fn tasks(self, extent: &Extent, iterations: u64, seed: u64) -> Vec<Task> {
        let Extent { shape, rounds, count, delay_ns } = *extent;
        let grow = |shapes: &[Shape]| Task::Grow { count, shapes: shapes.to_vec() };
        let doubled = Shape { size: shape.size * 2, align: shape.align * 2 };
        match self {
            Self::Growth => with_footprint(vec![grow(&[shape]); rounds]),
            Self::Mixed => with_footprint(vec![grow(&[shape, doubled]); rounds]),
            Self::Regrow => {
                let round = [grow(&[shape]), Task::Footprint, Task::Release, Task::Residue];
                round.iter().cycle().take(REGROW_TASKS * rounds).cloned().collect()
            }
            Self::Bulk => vec![Task::Bulk { count, shape }],
            Self::NoBulk => vec![Task::NoBulk { count, shape, delay_ns }],
            Self::Latency => vec![Task::Latency { count, shape, delay_ns }],
            Self::Zeroed => vec![Task::Zeroed { count, shape }],
            Self::Realloc | Self::Pairs | Self::Lifetimes | Self::Remote => {
                let repeated = self.repeated(extent).map(|what| Task::Repeat {
                    what,
                    iterations,
                    shape,
                    seed,
                });
                let tasks = repeated.into_iter().collect();
                if self == Self::Lifetimes { with_footprint(tasks) } else { tasks }
            }
        }
    }

    /// The figures of a repetition, in the order of [`Test::figures_of`].
    pub(super) fn figures(self, extent: &Extent) -> Vec<Figure> {
        let ns = |metric, round| Figure { metric, unit: "ns", round };
        let ratio = |metric| Figure { metric, unit: "ratio", round: None };
        let by_round = |metric| (1..=extent.rounds).map(move |round| ns(metric, Some(round)));
        match self {
            Self::Growth | Self::Mixed => {
                let times = by_round("alloc_time");
                times.chain([ratio("growth"), ratio("footprint")]).collect()
            }
            Self::Regrow => {
                let times = by_round("alloc_time").chain(by_round("free_time"));
                times.chain([ratio("growth"), ratio("footprint"), ratio("residue")]).collect()
            }
            Self::Bulk => vec![ns("alloc_time", None), ns("free_time", None)],
            Self::NoBulk => {
                vec![ns("alloc_time", None), ns("free_time", None), ns("time", None)]
            }
            Self::Latency => ["p50", "p99", "p99.99", "longest", "wait_p99.99", "wait_longest"]
                .map(|metric| ns(metric, None))
                .into(),
            Self::Zeroed => {
                let times = ["time", "engine_time", "engine_start"].map(|metric| ns(metric, None));
                times.into_iter().chain([ratio("engine_overlap")]).collect()
            }
            Self::Lifetimes => vec![ns("time", None), ratio("footprint")],
            Self::Pairs => {
                let throughput = Figure { metric: "throughput", unit: "1/us", round: None };
                vec![ns("time", None), throughput, ns("cpu_time", None)]
            }
            Self::Realloc | Self::Remote => vec![ns("time", None)],
        }
    }

    /// The figures of a repetition from the results of its tasks. Threads that share CPUs
    /// (`crowded`) are timed together: each thread's own time would leave out the time in which
    /// the other threads ran.
    pub(super) fn figures_of(self, given: &[Vec<f64>], threads: usize, crowded: bool) -> Vec<f64> {
        let repeated = || if crowded { given[0][1] } else { given[0][0] };
        match self {
            Self::Growth | Self::Mixed => {
                let (footprint, rounds) =
                    given.split_last().map_or((&[][..], given), |(f, r)| (f, r));
                let times: Vec<f64> = rounds.iter().map(|round| round[0]).collect();
                let growth = growth(&times);
                times.iter().copied().chain([growth, footprint[0] / footprint[1]]).collect()
            }
            Self::Regrow => {
                let rounds: Vec<&[Vec<f64>]> = given.chunks_exact(REGROW_TASKS).collect();
                let allocating: Vec<f64> = rounds.iter().map(|round| round[0][0]).collect();
                let freeing = rounds.iter().map(|round| round[2][0]);
                let last = rounds[rounds.len() - 1];
                let payload = last[1][1];
                let whole = [growth(&allocating), last[1][0] / payload, last[3][0] / payload];
                allocating.iter().copied().chain(freeing).chain(whole).collect()
            }
            Self::Lifetimes => vec![repeated(), given[1][0] / given[1][1]],
            Self::Pairs => vec![repeated(), 1e3 * threads as f64 / repeated(), given[0][0]],
            Self::Realloc | Self::Remote => vec![repeated()],
            Self::Bulk | Self::NoBulk | Self::Latency | Self::Zeroed => given[0].clone(),
        }
    }
}

impl FromStr for Test {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|test| test.name() == text);
        found.ok_or_else(|| Error::UnknownTest {
            name: text.into(),
            known: Self::ALL.map(Self::name).join(", "),
        })
    }
}

/// The time of the last round divided by the time of the first.
fn growth(times: &[f64]) -> f64 {
    match (times.first(), times.last()) {
        (Some(first), Some(last)) => last / first,
        _ => 1.0,
    }
}

fn with_footprint(mut tasks: Vec<Task>) -> Vec<Task> {
    tasks.push(Task::Footprint);
    tasks
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { size: 4096, align: 4096 };

    #[test]
    fn test_names_parse_and_unknown_name_lists_tests() {
        for test in Test::ALL {
            assert_eq!(test.name().parse::<Test>().unwrap(), test);
        }
        let message = "shrink".parse::<Test>().unwrap_err().to_string();
        assert!(message.contains("growth, mixed, regrow, bulk, no-bulk"), "{message}");
    }

    #[test]
    fn tasks_give_as_many_figures_as_test_has() {
        for test in Test::ALL {
            let extent = Extent { rounds: 3, ..test.extent(SHAPE) };
            let given: Vec<Vec<f64>> = test
                .tasks(&extent, 1, 1)
                .iter()
                .map(|task| match task {
                    Task::Latency { .. } => vec![1.0; 6],
                    Task::Zeroed { .. } => vec![1.0; 4],
                    Task::NoBulk { .. } => vec![1.0; 3],
                    Task::Footprint | Task::Bulk { .. } | Task::Repeat { .. } => vec![1.0; 2],
                    _ => vec![1.0],
                })
                .collect();
            let figures = test.figures_of(&given, 1, false);
            assert_eq!(figures.len(), test.figures(&extent).len(), "{}", test.name());
        }
    }

    #[test]
    fn growth_and_footprint_are_ratios() {
        let given = vec![vec![10.0], vec![20.0], vec![40.0], vec![500.0, 400.0]];
        assert_eq!(Test::Growth.figures_of(&given, 1, false), [10.0, 20.0, 40.0, 4.0, 1.25]);
        // Four threads, each of which performs a pair in 8 ns. All together perform half a pair
        // per nanosecond.
        assert_eq!(Test::Pairs.figures_of(&[vec![8.0, 9.0]], 4, false), [8.0, 500.0, 8.0]);
        // The same rate if the four threads alternate: each thread runs for about 2 ns of the 8
        // ns.
        assert_eq!(Test::Pairs.figures_of(&[vec![2.0, 8.0]], 4, true), [8.0, 500.0, 2.0]);
        let round = |allocating: f64, left: f64| {
            [vec![allocating], vec![800.0, 400.0], vec![allocating / 2.0], vec![left]]
        };
        let given = [round(10.0, 400.0), round(30.0, 100.0)].concat();
        assert_eq!(
            Test::Regrow.figures_of(&given, 1, false),
            [10.0, 30.0, 5.0, 15.0, 3.0, 2.0, 0.25]
        );
    }
}
