//! What a survey measures, in which order and for how long.
//!
//! Every step has its time for rounds and what it takes beside them (`cost`). The sums are checked
//! by tests on small and large machines: a quick survey plans at most 27 s and a full one at most
//! 225 s, of the 30 s and 4 minutes that it promises. What a step takes more comes off the rounds
//! of the others (`schedule`), so that none is left out.

use std::time::Duration;

use haul::sys::Sys;
use haul_experiments::channel::{self, Launch, Subject, Target};
use haul_experiments::copy::drawn::Shape;
use haul_experiments::copy::tune::Tune;
use haul_experiments::copy::{Drawn, Function, Sizes};
use haul_experiments::drive::Program;
use haul_experiments::heap::{self, Extent as HeapExtent, Found, Shape as Block, Test};
use haul_experiments::memory::fault::Touch;
use haul_experiments::memory::{Bandwidth, Fault, Operation};
use haul_measure::distribution::built_in;
use haul_measure::{Caches, Level};
use haul_model::{Bytes, SizeClass};

use super::schedule::Time;
use super::stage::{Stage, Work, total};

/// What a plan is made for.
#[derive(Clone, Debug)]
pub(in crate::command) struct Machine {
    /// Caches of one core.
    pub(in crate::command) caches: Caches,
    /// Processors that this process may run on.
    pub(in crate::command) processors: usize,
    /// Memory that can be used, in bytes.
    pub(in crate::command) available_bytes: u64,
}

impl Machine {
    /// The machine that this runs on.
    pub(in crate::command) fn of(machine: &haul_model::Machine) -> Self {
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
    /// The most of all threads' buffers together, in bytes.
    bandwidth_bytes_max: usize,
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
    /// Sizes that are measured with haul's choice and what it chooses from alone: all ways would
    /// take seconds each.
    channel_sizes_large: &'static [usize],
    /// Blocks of a round of growth. DPDK's times grow with the square of it.
    heap_count: usize,
}

/// The distribution that stands for what services copy.
const SERVICE: &str = "service";

const QUICK: Extent = Extent {
    bandwidth: Duration::from_millis(250),
    bandwidth_caches: 2,
    bandwidth_bytes_max: 256 << 20,
    fault: Duration::from_millis(400),
    class: Duration::from_millis(300),
    drawn: Duration::from_millis(350),
    size: Duration::from_millis(400),
    octaves: 3,
    size_max_bytes: 16 << 20,
    distributions: &[SERVICE],
    heap: Duration::from_millis(300),
    channel: Duration::from_millis(300),
    channel_sizes: &[64, 4 << 10, 64 << 10, 1 << 20],
    channel_sizes_busy: &[],
    channel_sizes_large: &[],
    heap_count: 400,
};

const FULL: Extent = Extent {
    bandwidth: Duration::from_millis(700),
    bandwidth_caches: 4,
    bandwidth_bytes_max: 512 << 20,
    fault: Duration::from_millis(1000),
    class: Duration::from_millis(1100),
    drawn: Duration::from_millis(1300),
    size: Duration::from_millis(1300),
    octaves: 1,
    size_max_bytes: 256 << 20,
    distributions: &[SERVICE, "packets", "messages", "storage"],
    heap: Duration::from_millis(500),
    channel: Duration::from_millis(300),
    channel_sizes: &[64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 16 << 20],
    channel_sizes_busy: &[16 << 10, 64 << 10, 256 << 10, 1 << 20, 16 << 20],
    channel_sizes_large: &[64 << 20],
    heap_count: 2000,
};

/// How often transfers of a size are measured where the hypervisor disturbs them: the table of
/// channels stands on those that it left alone. Nothing is planned for it, for at a quiet time it
/// takes nothing.
const CHANNEL_TRIES: u32 = 2;

/// When a survey begins no further step, and what its steps are shortened to keep: what the command
/// promises (30 s, 4 minutes), less what the last step takes on a busy machine and a second for the
/// page.
pub(in crate::command) fn limit(quick: bool) -> Duration {
    Duration::from_secs(if quick { 28 } else { 230 })
}

/// How the policy of copies is found.
fn tuning(quick: bool) -> Tune {
    if quick {
        // Twice the last cache of most machines: enough to see where streaming wins.
        let size_max_bytes = Some(32 << 20);
        return Tune { budget: Duration::from_secs(5), size_max_bytes, ..Tune::default() };
    }
    Tune { budget: Duration::from_secs(40), ..Tune::default() }
}

/// What finding them takes: its budget holds all of it.
pub(in crate::command) fn tuning_time(tuning: &Tune) -> Time {
    Time { rounds: tuning.budget, ..Time::default() }
}

/// All that a survey does, in its order.
pub(in crate::command) struct Whole {
    /// What the policy of copies does not change, or what needs none.
    pub(in crate::command) before: Vec<Stage>,
    /// How the policy is found.
    pub(in crate::command) tuning: Tune,
    /// What is measured with what was found.
    pub(in crate::command) after: Vec<Stage>,
}

impl Whole {
    /// The time of all of it.
    pub(in crate::command) fn time(&self) -> Time {
        total(&self.before) + tuning_time(&self.tuning) + total(&self.after)
    }

    /// How many steps it has: finding the thresholds is one.
    pub(in crate::command) fn steps(&self) -> usize {
        self.before.len() + 1 + self.after.len()
    }

    /// Every step with its time.
    pub(in crate::command) fn table(&self) -> impl Iterator<Item = (&str, Time)> {
        let of = |stage: &'static str, time| std::iter::once((stage, time));
        let [before, after] = [&self.before, &self.after]
            .map(|stages| stages.iter().map(|stage| (stage.what.as_str(), stage.time)));
        before.chain(of(TUNING, tuning_time(&self.tuning))).chain(after)
    }
}

/// The step that finds the policy of copies.
pub(in crate::command) const TUNING: &str = "tuning";

/// A survey of this machine, with these heaps and these ways to another process, the baseline first
/// in each.
pub(in crate::command) fn whole(
    quick: bool,
    machine: &Machine,
    heap: Heaps<'_>,
    channel: Ways<'_>,
) -> Whole {
    let mut before = before_tuning(quick, machine);
    before.extend(heaps(quick, machine, heap.0, heap.1));
    before.extend(channels(quick, machine, channel.0, channel.1));
    Whole { before, tuning: tuning(quick), after: after_tuning(quick, machine) }
}

/// Heaps and ways with the program that drives them.
pub(in crate::command) type Heaps<'a> = (&'a [Found], &'a Program);
pub(in crate::command) type Ways<'a> = (&'a [Subject], &'a Launch);

/// What is measured before the thresholds are found: what they do not change.
fn before_tuning(quick: bool, machine: &Machine) -> Vec<Stage> {
    let extent = if quick { QUICK } else { FULL };
    let mut plan = Vec::new();
    for threads in thread_counts(machine.processors, quick) {
        for operation in Operation::ALL {
            let size_bytes = bandwidth_bytes(&extent, machine, threads);
            let budget = extent.bandwidth;
            let work = Work::Bandwidth(Bandwidth { operation, threads, size_bytes, budget });
            plan.push(Stage::of(work, budget, &machine.caches));
        }
    }
    for touch in [Touch::Write, Touch::Read] {
        let work = Work::Fault(Fault { touch, budget: extent.fault });
        plan.push(Stage::of(work, extent.fault, &machine.caches));
    }
    for function in Function::ALL {
        for (first, last) in [(0, 16), (17, 64), (65, 256)] {
            let class = SizeClass { first: Bytes(first), last: Bytes(last) };
            let work = Drawn::new(function, Shape::SizeClass(class));
            plan.push(Stage::of(Work::Drawn(work), extent.class, &machine.caches));
        }
    }
    plan
}

/// What is measured with the thresholds that were found.
fn after_tuning(quick: bool, machine: &Machine) -> Vec<Stage> {
    let extent = if quick { QUICK } else { FULL };
    let mut plan = Vec::new();
    for (function, levels) in [
        (Function::Memcpy, &Level::ALL[..]),
        (Function::Memmove, &[Level::L1]),
        (Function::Memset, &[Level::L1]),
    ] {
        for &name in extent.distributions {
            let distribution = built_in::get(name).expect("it ships with haul: a test holds that");
            for &level in levels {
                let shape = Shape::Distribution(distribution.clone());
                // What the page's first sentence is about.
                let untuned = name == SERVICE && level == Level::L1;
                let work = Work::Drawn(Drawn { level, untuned, ..Drawn::new(function, shape) });
                plan.push(Stage::of(work, extent.drawn, &machine.caches));
            }
        }
    }
    if machine.processors >= 2 && !quick {
        let distribution = built_in::get(SERVICE).expect("it ships with haul");
        for level in Level::ALL {
            let shape = Shape::Distribution(distribution.clone());
            let work = Drawn { level, threads: 2, ..Drawn::new(Function::Memcpy, shape) };
            plan.push(Stage::of(Work::Drawn(work), extent.drawn, &machine.caches));
        }
    }
    for (function, share) in [(Function::Memcpy, 1), (Function::Memset, 2)] {
        for size in sizes_bytes(&extent, machine) {
            let work = Work::Sizes(Sizes::new(function, vec![size]));
            plan.push(Stage::of(work, extent.size / share, &machine.caches));
        }
    }
    plan
}

/// Allocation beside these heaps, the baseline first: the seed's growth, and pairs on one processor
/// and on all.
fn heaps(quick: bool, machine: &Machine, heaps: &[Found], driver: &Program) -> Vec<Stage> {
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
            ready_bytes: 0,
            heaps: heaps.to_vec(),
            driver: driver.clone(),
            budget: extent.heap,
            seed: 1,
        });
        Stage::of(work, extent.heap, &machine.caches)
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
fn channels(quick: bool, machine: &Machine, subjects: &[Subject], driver: &Launch) -> Vec<Stage> {
    let extent = if quick { QUICK } else { FULL };
    let stage = |size: usize, is_busy: bool, subjects: &[Subject]| {
        let work = Work::Channel(channel::Bench {
            size,
            target: Target::Warm,
            is_busy,
            subjects: subjects.to_vec(),
            driver: driver.clone(),
            left_out: Vec::new(),
            budget: extent.channel,
            tries: CHANNEL_TRIES,
            seed: 1,
        });
        Stage::of(work, extent.channel, &machine.caches)
    };
    if machine.processors < 2 {
        return Vec::new();
    }
    let few: Vec<Subject> = subjects.iter().filter(|way| is_chosen_from(way)).cloned().collect();
    let free = extent.channel_sizes.iter().map(|&size| stage(size, false, subjects));
    let large = extent.channel_sizes_large.iter().map(|&size| stage(size, false, &few));
    let busy = extent.channel_sizes_busy.iter().map(|&size| stage(size, true, &few));
    free.chain(large).chain(busy).collect()
}

/// Whether haul's choice, what it chooses from, or what these are compared with.
fn is_chosen_from(way: &Subject) -> bool {
    way.name == "pipe" || way.name == "haul:auto" || channel::choice::is_one(&way.name)
}

/// Powers of two up to what there are processors, at even distances where they are many, and all of
/// them.
fn thread_counts(processors: usize, quick: bool) -> Vec<usize> {
    if quick {
        return if processors > 1 { vec![1, processors] } else { vec![1] };
    }
    /// Doublings that are worth a step each.
    const COUNTS_MAX: usize = 4;
    let doublings: Vec<usize> =
        (0..usize::BITS).map(|bit| 1 << bit).take_while(|&count| count < processors).collect();
    let apart = doublings.len().div_ceil(COUNTS_MAX).max(1);
    let mut counts: Vec<usize> = doublings.into_iter().step_by(apart).collect();
    counts.push(processors);
    counts
}

/// What memory allows a function on as many threads, as a quick survey measures it.
pub(in crate::command) fn memory_limit(
    function: Function,
    threads: usize,
    machine: &Machine,
) -> Stage {
    let operation = if function == Function::Memset { Operation::Write } else { Operation::Copy };
    let size_bytes = bandwidth_bytes(&QUICK, machine, threads);
    let budget = QUICK.bandwidth;
    let work = Work::Bandwidth(Bandwidth { operation, threads, size_bytes, budget });
    Stage::of(work, budget, &machine.caches)
}

/// Some last caches for each thread, or what memory there is: a quarter for everybody.
fn bandwidth_bytes(extent: &Extent, machine: &Machine, threads: usize) -> usize {
    const BUFFERS: usize = 2;
    let wanted = machine.caches.llc_bytes.saturating_mul(extent.bandwidth_caches);
    let wanted =
        wanted.clamp(64 << 20, 512 << 20).min(extent.bandwidth_bytes_max / threads / BUFFERS);
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
    use std::time::Instant;

    use super::super::schedule::Schedule;
    use super::*;

    fn machine(processors: usize, available_bytes: u64) -> Machine {
        Machine {
            caches: Caches::from_sizes(&[32 << 10, 1 << 20, 32 << 20]),
            processors,
            available_bytes,
        }
    }

    fn whole_plan(quick: bool, machine: &Machine) -> Whole {
        let heap_driver = Program::new("haul");
        let way_driver = Launch { program: Program::new("haul"), starts_both: false };
        // As many as there can be.
        let heap = Found { peer: heap::Peer::Haul, library: None };
        let heaps = vec![heap; heap::Peer::ALL.len()];
        let way = Subject { name: "haul:ring".into(), found: None };
        let ways = vec![way; WAYS];
        whole(quick, machine, (&heaps, &heap_driver), (&ways, &way_driver))
    }

    /// haul's choice twice, its mechanisms, and three that every system has.
    const WAYS: usize = 2 + haul::channel::Mechanism::ALL.len() + 3;

    #[test]
    fn two_ends_want_two_processors() {
        let alone = whole_plan(false, &machine(1, 64 << 30));
        assert!(!alone.before.iter().any(|stage| stage.what.starts_with("transfer")));
        let plan = whole_plan(true, &machine(2, 64 << 30));
        assert!(plan.before.iter().any(|stage| stage.what == "transfer of 1 MiB, warm target"));
    }

    /// Of 30 s and 4 minutes: what is left over is for a machine that is slower than the plan says.
    #[test]
    fn plans_keep_within_their_promise_on_small_and_large_machines() {
        for processors in [1, 2, 8, 128, 1024] {
            let machine = machine(processors, 64 << 30);
            for (quick, most) in [(true, 27), (false, 225)] {
                let time = whole_plan(quick, &machine).time();
                let whole = time.whole();
                assert!(whole <= Duration::from_secs(most), "{quick} on {processors}: {time:?}");
                assert!(whole < limit(quick), "{quick} on {processors}");
            }
        }
    }

    /// Late by a quarter of its time at the first step already, none is left out.
    #[test]
    fn no_step_is_left_out_where_all_of_them_take_longer_than_they_say() {
        for quick in [true, false] {
            let whole = whole_plan(quick, &machine(2, 64 << 30));
            let start = Instant::now();
            let (mut now, deadline) = (start, start + limit(quick));
            let mut schedule = Schedule::until(deadline, whole.time());
            for (what, time) in whole.table() {
                let rounds = schedule.next(time, now);
                now += rounds.unwrap_or_else(|| panic!("{what} is left out")) + time.beside * 3 / 2;
            }
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
        let plan = whole_plan(false, &machine(2, 64 << 30)).before;
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
        assert_eq!(thread_counts(128, false), [1, 4, 16, 64, 128]);
        assert_eq!(thread_counts(8, true), [1, 8]);
        assert_eq!(thread_counts(1, true), [1]);
    }
}
