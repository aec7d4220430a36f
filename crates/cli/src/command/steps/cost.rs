//! What a step takes beside its rounds: buffers are placed, processes started, bytes proved, and
//! every experiment takes a few rounds however long they are.
//!
//! Every figure is what the step took of a quiet 2-processor Zen 4 (32 MiB of last-level cache)
//! beyond its budget, rounded up. They need not be right elsewhere: what a step takes more comes
//! off the rounds of those that follow, see `schedule`.

use std::time::Duration;

use haul_experiments::channel::{self, Target};
use haul_experiments::copy::{Sizes, tune};
use haul_experiments::heap;
use haul_experiments::memory::{Bandwidth, Operation};
use haul_measure::{Caches, Level};

use super::stage::Work;

/// Calibrating, and proving some bytes.
const SMALL: Duration = Duration::from_millis(50);

/// For each byte of the last-level cache, cold sizes being multiples of it: placing and touching
/// them, and rounds that each visit all of them.
const COLD_NS_PER_CACHE_BYTE: f64 = 40.0;

/// For each byte of all buffers: seven rounds of every kernel that copies, and of other operations.
const COPYING_NS_PER_BYTE: f64 = 3.5;
const WALKING_NS_PER_BYTE: f64 = 1.0;

/// For each byte of a copy or a fill of one size: a few rounds of every kernel, and a proof of
/// each.
const SIZE_NS_PER_BYTE: f64 = 20.0;

/// For each byte of the largest size that tuning measures: the fewest rounds of all sizes up to it,
/// of copies and of fills, with their memory and their proofs (8 s for 128 MiB).
const TUNING_NS_PER_BYTE: f64 = 60.0;

/// For each heap and 1000 blocks of a round of growth, three times in a process of its own; and for
/// each heap of the other tests, once in one.
const GROWING_HEAP: Duration = Duration::from_millis(400);
const HEAP: Duration = Duration::from_millis(70);

/// For each way to another process to be opened and to take a few turns in both directions, by
/// messages of which a sample has many, and by larger ones; and for each byte of the messages of
/// them.
const WAY_OF_SMALL: Duration = Duration::from_millis(60);
const SMALL_BYTES_MAX: usize = 16 << 10;
const WAY: Duration = Duration::from_millis(12);
const TRANSFER_NS_PER_BYTE: f64 = 6.0;
/// How much longer transfers with a busy processor take than those without: a way waits for a time
/// slice of the other program now and then.
const BUSY_MULTIPLE: u32 = 4;
/// How much longer memory takes that is new each time.
const COLD_MULTIPLE: u32 = 2;

impl Work {
    /// What this takes beside its rounds, on a machine with these caches.
    pub(in crate::command) fn beside(&self, caches: &Caches) -> Duration {
        match self {
            Self::Drawn(drawn) if drawn.level == Level::Cold => {
                SMALL + nanoseconds(COLD_NS_PER_CACHE_BYTE, caches.llc_bytes * drawn.threads)
            }
            Self::Drawn(_) | Self::Fault(_) => SMALL,
            Self::Sizes(sizes) => SMALL + sizes_beside(sizes),
            Self::Bandwidth(bandwidth) => SMALL + bandwidth_beside(bandwidth),
            Self::Heap(bench) => heap_beside(bench),
            Self::Channel(bench) => channel_beside(bench),
        }
    }
}

/// The least that tuning takes on a machine with these caches, whatever its budget.
pub(in crate::command) fn tuning_least(caches: &Caches) -> Duration {
    nanoseconds(TUNING_NS_PER_BYTE, tune::size_uncached_bytes(caches))
}

fn nanoseconds(each: f64, count: usize) -> Duration {
    Duration::from_nanos((each * count as f64) as u64)
}

fn sizes_beside(sizes: &Sizes) -> Duration {
    nanoseconds(SIZE_NS_PER_BYTE, sizes.sizes_bytes.iter().sum::<usize>() * sizes.threads)
}

fn bandwidth_beside(bandwidth: &Bandwidth) -> Duration {
    // A machine of more processors has more channels to its memory: about one for four of them.
    let bytes = bandwidth.size_bytes * bandwidth.threads / (bandwidth.threads / 4).clamp(1, 8);
    match bandwidth.operation {
        Operation::Copy => nanoseconds(COPYING_NS_PER_BYTE, 2 * bytes),
        Operation::Read | Operation::Write => nanoseconds(WALKING_NS_PER_BYTE, bytes),
    }
}

/// The baseline is there twice.
fn heap_beside(bench: &heap::Bench) -> Duration {
    let heaps = u32::try_from(bench.heaps.len() + 1).unwrap_or(u32::MAX);
    match bench.test {
        heap::Test::Growth | heap::Test::Mixed | heap::Test::Regrow => {
            GROWING_HEAP.mul_f64(bench.extent.count as f64 / 1000.0) * heaps
        }
        _ => HEAP * heaps,
    }
}

fn channel_beside(bench: &channel::Bench) -> Duration {
    let ways = bench.subjects.len() + 1;
    let way = if bench.size <= SMALL_BYTES_MAX { WAY_OF_SMALL } else { WAY };
    let each = way + nanoseconds(TRANSFER_NS_PER_BYTE, bench.size);
    let all = each * u32::try_from(ways).unwrap_or(u32::MAX);
    let all = if bench.is_busy { all * BUSY_MULTIPLE } else { all };
    if bench.target == Target::Cold { all * COLD_MULTIPLE } else { all }
}
