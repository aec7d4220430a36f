//! What a survey measures, in which order and for how long.
//!
//! The sums are checked by tests: a quick survey plans at most 22 s and a full one at most 195 s,
//! which leaves the rest of their 30 s and 4 minutes for placing buffers and proving bytes.

use std::time::Duration;

use haul::sys::Sys;
use haul_experiments::channel::{self, Launch, Subject, Target};
use haul_experiments::copy::drawn::Shape;
use haul_experiments::copy::tune::Tune;
use haul_experiments::copy::{Drawn, Function, Sizes};
use haul_experiments::heap::{self, Driver, Extent as HeapExtent, Found, Shape as Block, Test};
use haul_experiments::memory::fault::Touch;
use haul_experiments::memory::{Bandwidth, Fault, Operation};
use haul_measure::distribution::built_in;
use haul_measure::{Caches, Level};
use haul_model::{Bytes, SizeClass};

use super::stage::{Stage, Work};

/// What a plan is made for.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    /// Caches of one core.
    pub(super) caches: Caches,
    /// Processors that this process may run on.
    pub(super) processors: usize,
    /// Memory that can be used, in bytes.
    pub(super) available_bytes: u64,
}

impl Machine {
    /// The machine that this runs on.
    pub(super) fn of(machine: &haul_model::Machine) -> Self {
        Self {
            caches: Caches::from_sizes(&machine.caches_bytes),
            processors: machine.processors,
            available_bytes: Sys::new().memory().available_bytes,
        }
    }
}

/// How much of everything.
struct Extent {
    bandwidth: Duration,
    /// Memory is walked in buffers of so many last caches.
    bandwidth_caches: usize,
    fault: Duration,
    class: Duration,
    drawn: Duration,
    size: Duration,
    /// Sizes go up by this many powers of two at a time.
    octaves: usize,
    size_max_bytes: usize,
    distributions: &'static [&'static str],
    heap: Duration,
    channel: Duration,
    /// Sizes of messages between two processes, and those that are moved with a busy processor too.
    channel_sizes: &'static [usize],
    channel_sizes_busy: &'static [usize],
    /// Blocks of a round of growth. DPDK's times grow with the square of it.
    heap_count: usize,
}

const QUICK: Extent = Extent {
    bandwidth: Duration::from_millis(250),
    bandwidth_caches: 2,
    fault: Duration::from_millis(400),
    class: Duration::from_millis(350),
    drawn: Duration::from_millis(400),
    size: Duration::from_millis(450),
    octaves: 3,
    size_max_bytes: 16 << 20,
    distributions: &["service"],
    heap: Duration::from_millis(500),
    channel: Duration::from_millis(300),
    channel_sizes: &[64, 4 << 10, 64 << 10, 1 << 20],
    channel_sizes_busy: &[],
    heap_count: 500,
};

const FULL: Extent = Extent {
    bandwidth: Duration::from_millis(1000),
    bandwidth_caches: 4,
    fault: Duration::from_millis(1000),
    class: Duration::from_millis(1500),
    drawn: Duration::from_millis(1500),
    size: Duration::from_millis(1500),
    octaves: 1,
    size_max_bytes: 256 << 20,
    distributions: &["service", "packets", "messages", "storage"],
    heap: Duration::from_millis(500),
    channel: Duration::from_millis(300),
    channel_sizes: &[64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 16 << 20],
    channel_sizes_busy: &[64, 64 << 10, 1 << 20],
    heap_count: 2000,
};

/// When a survey begins no further step: what the command promises (30 s, 4 minutes), less what the
/// longest step takes on a busy machine (15 s for 256 MiB at a load of four to a processor) and a
/// second for the page.
pub(super) fn limit(quick: bool) -> Duration {
    Duration::from_secs(if quick { 26 } else { 223 })
}

/// How the thresholds are found.
pub(super) fn tuning(quick: bool) -> Tune {
    if quick {
        // Twice the last cache of most machines: enough to see where streaming wins.
        let size_max_bytes = Some(32 << 20);
        return Tune { budget: Duration::from_secs(7), size_max_bytes, ..Tune::default() };
    }
    Tune { budget: Duration::from_secs(50), ..Tune::default() }
}

/// What is measured before the thresholds are found: what they do not change.
pub(super) fn before_tuning(quick: bool, machine: &Machine) -> Vec<Stage> {
    let extent = if quick { QUICK } else { FULL };
    let mut plan = Vec::new();
    for threads in thread_counts(machine.processors, quick) {
        for operation in Operation::ALL {
            let size_bytes = bandwidth_bytes(extent.bandwidth_caches, machine, threads);
            let budget = extent.bandwidth;
            let work = Work::Bandwidth(Bandwidth { operation, threads, size_bytes, budget });
            plan.push(Stage::of(work, budget));
        }
    }
    for touch in [Touch::Write, Touch::Read] {
        let work = Work::Fault(Fault { touch, budget: extent.fault });
        plan.push(Stage::of(work, extent.fault));
    }
    for function in Function::ALL {
        for (first, last) in [(0, 16), (17, 64), (65, 256)] {
            let class = SizeClass { first: Bytes(first), last: Bytes(last) };
            let work = Drawn::new(function, Shape::SizeClass(class));
            plan.push(Stage::of(Work::Drawn(work), extent.class));
        }
    }
    plan
}

/// What is measured with the thresholds that were found.
pub(super) fn after_tuning(quick: bool, machine: &Machine) -> Vec<Stage> {
    let extent = if quick { QUICK } else { FULL };
    let mut plan = Vec::new();
    for (function, levels) in [
        (Function::Memcpy, &Level::ALL[..]),
        (Function::Memmove, &[Level::L1]),
        (Function::Memset, &[Level::L1]),
    ] {
        for name in extent.distributions {
            let distribution = built_in::get(name).expect("it ships with haul: a test holds that");
            for &level in levels {
                let shape = Shape::Distribution(distribution.clone());
                let work = Work::Drawn(Drawn { level, ..Drawn::new(function, shape) });
                plan.push(Stage::of(work, extent.drawn));
            }
        }
    }
    if machine.processors >= 2 && !quick {
        let distribution = built_in::get("service").expect("it ships with haul");
        for level in Level::ALL {
            let shape = Shape::Distribution(distribution.clone());
            let work = Drawn { level, threads: 2, ..Drawn::new(Function::Memcpy, shape) };
            plan.push(Stage::of(Work::Drawn(work), extent.drawn));
        }
    }
    for (function, share) in [(Function::Memcpy, 1), (Function::Memset, 2)] {
        for size in sizes_bytes(&extent, machine) {
            let work = Work::Sizes(Sizes::new(function, vec![size]));
            plan.push(Stage::of(work, extent.size / share));
        }
    }
    plan
}

/// Allocation beside these heaps, the baseline first: the seed's growth, and pairs on one processor
/// and on all.
pub(super) fn heaps(
    quick: bool,
    machine: &Machine,
    heaps: &[Found],
    driver: &Driver,
) -> Vec<Stage> {
    let extent = if quick { QUICK } else { FULL };
    let stage = |test: Test, block: Block, threads: usize| {
        let usual = test.extent(block);
        let work = Work::Heap(heap::Bench {
            test,
            extent: HeapExtent { count: extent.heap_count, ..usual },
            threads,
            shared: false,
            pool: true,
            grow_ahead_bytes: test.grow_ahead_bytes(),
            heaps: heaps.to_vec(),
            driver: driver.clone(),
            budget: extent.heap,
            seed: 1,
        });
        Stage::of(work, extent.heap)
    };
    let page = Block { size: 4096, align: 4096 };
    let small = Block { size: 64, align: 16 };
    let mut plan = vec![stage(Test::Growth, page, 1), stage(Test::Pairs, small, 1)];
    if !quick {
        plan.insert(1, stage(Test::Mixed, page, 1));
        if machine.processors > 1 {
            plan.push(stage(Test::Pairs, small, machine.processors));
        }
    }
    plan
}

/// Transfers to another process by every way of these, the baseline first; none where two processes
/// have not two processors.
pub(super) fn channels(
    quick: bool,
    machine: &Machine,
    subjects: &[Subject],
    driver: &Launch,
) -> Vec<Stage> {
    let extent = if quick { QUICK } else { FULL };
    let stage = |size: usize, is_busy: bool| {
        let work = Work::Channel(channel::Bench {
            size,
            target: Target::Warm,
            is_busy,
            subjects: subjects.to_vec(),
            driver: driver.clone(),
            left_out: Vec::new(),
            budget: extent.channel,
            seed: 1,
        });
        Stage::of(work, extent.channel)
    };
    if machine.processors < 2 {
        return Vec::new();
    }
    let free = extent.channel_sizes.iter().map(|&size| stage(size, false));
    free.chain(extent.channel_sizes_busy.iter().map(|&size| stage(size, true))).collect()
}

/// Powers of two up to what there are processors, and all of them.
fn thread_counts(processors: usize, quick: bool) -> Vec<usize> {
    if quick {
        return if processors > 1 { vec![1, processors] } else { vec![1] };
    }
    let mut counts: Vec<usize> =
        (0..usize::BITS).map(|bit| 1 << bit).take_while(|&count| count < processors).collect();
    counts.push(processors);
    counts
}

/// What memory allows a function on as many threads, as a quick survey measures it.
pub(super) fn memory_limit(function: Function, threads: usize, machine: &Machine) -> Stage {
    let operation = if function == Function::Memset { Operation::Write } else { Operation::Copy };
    let size_bytes = bandwidth_bytes(QUICK.bandwidth_caches, machine, threads);
    let budget = QUICK.bandwidth;
    Stage::of(Work::Bandwidth(Bandwidth { operation, threads, size_bytes, budget }), budget)
}

/// `caches` times the last cache for each thread, or what memory there is: a quarter for everybody.
fn bandwidth_bytes(caches: usize, machine: &Machine, threads: usize) -> usize {
    const BUFFERS: usize = 2;
    let wanted = machine.caches.llc_bytes.saturating_mul(caches);
    let wanted = wanted.clamp(64 << 20, 512 << 20);
    let fair = machine.available_bytes / 4 / (threads * BUFFERS) as u64;
    wanted.min(usize::try_from(fair).unwrap_or(usize::MAX)).max(1 << 20)
}

fn sizes_bytes(extent: &Extent, machine: &Machine) -> Vec<usize> {
    /// From here on haul chooses between kernels.
    const FIRST: usize = 2 << 10;
    let fits = |size: &usize| *size as u64 <= machine.available_bytes / 4;
    let all = (FIRST.ilog2()..=extent.size_max_bytes.ilog2()).map(|bit| 1 << bit);
    all.step_by(extent.octaves).filter(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::super::stage::total;
    use super::*;

    fn machine(processors: usize, available_bytes: u64) -> Machine {
        Machine {
            caches: Caches::from_sizes(&[32 << 10, 1 << 20, 32 << 20]),
            processors,
            available_bytes,
        }
    }

    fn seconds(quick: bool, machine: &Machine) -> u64 {
        let plan = total(&before_tuning(quick, machine)) + total(&after_tuning(quick, machine));
        let beside = total(&heap_plan(quick, machine)) + total(&channel_plan(quick, machine));
        (plan + beside + tuning(quick).budget).as_secs()
    }

    fn channel_plan(quick: bool, machine: &Machine) -> Vec<Stage> {
        let driver = Launch {
            program: "haul".into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            starts_both: false,
        };
        let ring = Subject { name: "haul:ring".into(), found: None };
        channels(quick, machine, &[ring], &driver)
    }

    #[test]
    fn two_ends_want_two_processors() {
        assert!(channel_plan(false, &machine(1, 64 << 30)).is_empty());
        let stages = channel_plan(true, &machine(2, 64 << 30));
        assert!(stages.iter().any(|stage| stage.what == "transfer of 1 MiB, warm target"));
    }

    fn heap_plan(quick: bool, machine: &Machine) -> Vec<Stage> {
        let driver =
            Driver { program: "haul".into(), arguments: Vec::new(), environment: Vec::new() };
        heaps(quick, machine, &[Found { peer: heap::Peer::Haul, library: None }], &driver)
    }

    #[test]
    fn plans_keep_within_their_promise_on_small_and_large_machines() {
        for processors in [1, 2, 8, 128, 1024] {
            let machine = machine(processors, 64 << 30);
            let (quick, full) = (seconds(true, &machine), seconds(false, &machine));
            assert!(quick <= 22, "quick on {processors}: {quick} s");
            assert!(full <= 195, "full on {processors}: {full} s");
        }
    }

    #[test]
    fn little_memory_means_smaller_sizes_and_no_error() {
        let machine = machine(2, 64 << 20);
        for stage in before_tuning(false, &machine).iter().chain(&after_tuning(false, &machine)) {
            match &stage.work {
                Work::Bandwidth(b) => {
                    assert!(b.size_bytes * b.threads * 2 <= 64 << 20, "{}", stage.what);
                }
                Work::Sizes(s) => assert!(s.sizes_bytes[0] <= 16 << 20, "{}", stage.what),
                _ => {}
            }
        }
    }

    #[test]
    fn a_full_plan_covers_what_the_page_speaks_of() {
        let plan = after_tuning(false, &machine(2, 64 << 30));
        let has = |what: &str| plan.iter().any(|stage| stage.what == what);
        for what in
            ["memcpy, service, cold", "memset, storage, l1", "memcpy, 256 MiB", "memset, 2 KiB"]
        {
            assert!(has(what), "{what}");
        }
        assert!(has("memcpy, service, mixed, 2 threads"));
        let plan = heap_plan(false, &machine(2, 64 << 30));
        let has = |what: &str| plan.iter().any(|stage| stage.what == what);
        assert!(has("heap growth, 4 KiB aligned to 4 KiB"));
        assert!(has("heap pairs, 64 B aligned to 16 B, 2 threads"));
        assert!(
            !after_tuning(false, &machine(1, 64 << 30)).iter().any(|s| s.what.contains("threads"))
        );
    }

    #[test]
    fn threads_double_up_to_all_processors() {
        assert_eq!(thread_counts(1, false), [1]);
        assert_eq!(thread_counts(6, false), [1, 2, 4, 6]);
        assert_eq!(thread_counts(8, false), [1, 2, 4, 8]);
        assert_eq!(thread_counts(8, true), [1, 8]);
        assert_eq!(thread_counts(1, true), [1]);
    }
}
