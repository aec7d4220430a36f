//! The steps of a survey, their order and their times.
//!
//! Every step has a time for its rounds and reports its further time ([`Experiment::overhead`]).
//! Tests check the sums on small and large machines: a quick survey plans at most 25 s of its
//! promised 30 s, a full survey at most 225 s of 4 minutes. If a step overruns, the rounds of the
//! other steps are shortened (`schedule`), so that no step is left out.

#[cfg(test)]
mod tests;

use std::time::Duration;

use haul_experiments::Experiment;
use haul_experiments::channel::{self, Launch, Subject, Target};
use haul_experiments::copy::drawn::Shape;
use haul_experiments::copy::stream::Programs;
use haul_experiments::copy::tune::Tune;
use haul_experiments::copy::workload::Branches;
use haul_experiments::copy::{Drawn, Function, Sizes, ThenRead};
use haul_experiments::drive::Program;
use haul_experiments::engine;
use haul_experiments::experiment::Time;
use haul_experiments::forward::{self, Buffers, Flow, Forwarder, Layout, Source};
use haul_experiments::heap::{self, Extent as HeapExtent, Found, Shape as Block, Test};
use haul_experiments::memory::fault::Touch;
use haul_experiments::memory::{Bandwidth, Extent as Walk, Fault, Operation};
use haul_machine::sys::Sys;
use haul_measure::distribution::built_in;
use haul_measure::{Caches, Level};
use haul_model::{Bytes, Machine, SizeClass};

use crate::command::steps::Steps;

/// The resources that a plan is made for.
#[derive(Clone, Debug)]
pub(super) struct Resources {
    /// Caches of one core.
    pub(super) caches: Caches,
    /// The number of processors that this process may run on.
    pub(super) processors: usize,
    /// Available memory, in bytes.
    pub(super) available_bytes: u64,
}

impl Resources {
    /// The present resources of this machine.
    pub(super) fn of(machine: &Machine) -> Self {
        Self {
            caches: Caches::from_sizes(&machine.caches_bytes),
            processors: machine.processors,
            available_bytes: Sys::new().memory().available_bytes,
        }
    }
}

/// Times and sizes of all steps.
struct Extent {
    bandwidth: Walk,
    fault: Duration,
    class: Duration,
    /// The calls of all recorded programs together.
    programs: Duration,
    drawn: Duration,
    size: Duration,
    /// The number of powers of two between adjacent sizes.
    octaves: usize,
    size_max_bytes: usize,
    distributions: &'static [&'static str],
    heap: Duration,
    engine: Duration,
    /// Sizes of copies beside the CPU, and the sizes that are also measured with a busy processor.
    engine_sizes: &'static [usize],
    engine_sizes_busy: &'static [usize],
    channel: Duration,
    /// Sizes of messages between two processes, and the sizes that are also measured with a busy
    /// processor.
    channel_sizes: &'static [usize],
    channel_sizes_busy: &'static [usize],
    /// Sizes that are measured only with haul's choice and its candidates, because all transports
    /// would need seconds each.
    channel_sizes_large: &'static [usize],
    /// The number of blocks per round of growth. DPDK's times grow with the square of this
    /// number.
    heap_count: usize,
}

/// The distribution that represents the copies of services.
const SERVICE: &str = "service";

/// The regimes of calls other than random sizes whose targets are not read. A quick survey has only
/// the first, in which masks lose most.
const REGIMES: [(Branches, ThenRead); 3] = [
    (Branches::Repeating, ThenRead::First),
    (Branches::Repeating, ThenRead::Nothing),
    (Branches::Random, ThenRead::First),
];

const QUICK: Extent = Extent {
    bandwidth: Walk::QUICK,
    fault: Duration::from_millis(200),
    class: Duration::from_millis(150),
    programs: Duration::from_millis(500),
    drawn: Duration::from_millis(200),
    size: Duration::from_millis(200),
    octaves: 3,
    size_max_bytes: 16 << 20,
    distributions: &[SERVICE],
    heap: Duration::from_millis(200),
    engine: Duration::from_millis(100),
    engine_sizes: &[64 << 10, 1 << 20],
    engine_sizes_busy: &[],
    channel: Duration::from_millis(200),
    channel_sizes: &[64, 4 << 10, 64 << 10, 1 << 20],
    channel_sizes_busy: &[],
    channel_sizes_large: &[],
    heap_count: 400,
};

const FULL: Extent = Extent {
    bandwidth: Walk::FULL,
    fault: Duration::from_millis(1000),
    class: Duration::from_millis(1100),
    programs: Duration::from_millis(7500),
    drawn: Duration::from_millis(1050),
    size: Duration::from_millis(1150),
    octaves: 1,
    size_max_bytes: 256 << 20,
    distributions: &[SERVICE, "packets", "messages", "storage"],
    heap: Duration::from_millis(500),
    engine: Duration::from_millis(300),
    engine_sizes: &[4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20],
    engine_sizes_busy: &[64 << 10, 256 << 10, 1 << 20, 4 << 20],
    channel: Duration::from_millis(300),
    channel_sizes: &[64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 16 << 20],
    channel_sizes_busy: &[16 << 10, 64 << 10, 256 << 10, 1 << 20, 16 << 20],
    channel_sizes_large: &[64 << 20],
    heap_count: 2000,
};

/// How often transfers of a size are measured if the hypervisor disturbs them: the table of
/// channels uses undisturbed measurements. The plan has no time for repetitions, because a quiet
/// machine needs none.
const CHANNEL_TRIES: u32 = 2;

/// The number of restarts of a flow through a guest, and the measured time per restart: enough
/// for a sentence, which may be that no difference is known. `haul forward pvp` measures more.
const FLOW_RESTARTS: usize = 3;
const FLOW_WINDOW: Duration = Duration::from_millis(150);

/// The time after which a survey begins no step, and to which its steps are shortened: the promise
/// of the command (30 s, 4 minutes) less the last step on a busy machine and a second for the page.
pub(super) fn limit(quick: bool) -> Duration {
    Duration::from_secs(if quick { 28 } else { 230 })
}

/// The search for the policy of copies.
fn tuning(quick: bool) -> Tune {
    if quick {
        // Twice the last cache of most machines: enough to show where streaming wins.
        let size_max_bytes = Some(32 << 20);
        return Tune { budget: Duration::from_millis(3000), size_max_bytes, ..Tune::default() };
    }
    Tune { budget: Duration::from_secs(28), ..Tune::default() }
}

/// All steps of a survey, in order.
pub(super) struct Plan {
    /// Steps whose results do not depend on the policy of copies.
    pub(super) before: Steps,
    /// The search for the policy.
    pub(super) tuning: Tune,
    /// Steps that measure with the policy that was found.
    pub(super) after: Steps,
}

impl Plan {
    /// A survey with these resources, these heaps and these transports to another process; each
    /// list begins with the baseline.
    pub(super) fn new(
        quick: bool,
        resources: &Resources,
        heap: Heaps<'_>,
        channel: Transports<'_>,
        forward: &Program,
    ) -> Self {
        let mut before = before_tuning(quick, resources);
        before.extend(heaps(quick, resources, heap.0, heap.1));
        before.extend(engines(quick, resources));
        before.extend(channels(quick, resources, channel.0, channel.1));
        before.extend(flow(quick, resources, forward));
        Self { before, tuning: tuning(quick), after: after_tuning(quick, resources, true) }
    }

    /// Every step.
    pub(super) fn steps(&self) -> impl Iterator<Item = &dyn Experiment> {
        let [before, after] = [&self.before, &self.after].map(|steps| steps.iter().map(|it| &**it));
        before.chain(std::iter::once(&self.tuning as &dyn Experiment)).chain(after)
    }

    /// The time of all steps.
    pub(super) fn time(&self, caches: &Caches) -> Time {
        self.steps().map(|step| step.time(caches)).sum()
    }
}

/// Heaps and transports, with the program that drives them.
pub(super) type Heaps<'a> = (&'a [Found], &'a Program);
pub(super) type Transports<'a> = (&'a [Subject], &'a Launch);

/// Steps before the thresholds are found. The results of these steps do not depend on the
/// thresholds.
fn before_tuning(quick: bool, resources: &Resources) -> Steps {
    let extent = if quick { QUICK } else { FULL };
    let mut steps: Steps = Vec::new();
    for threads in thread_counts(resources.processors, quick) {
        for operation in Operation::ALL {
            let Resources { caches, available_bytes, .. } = resources;
            let walk = extent.bandwidth;
            let bandwidth = Bandwidth::new(operation, threads, walk, caches, *available_bytes);
            steps.push(Box::new(bandwidth));
        }
    }
    for touch in [Touch::Write, Touch::Read] {
        steps.push(Box::new(Fault { touch, budget: extent.fault }));
    }
    for function in Function::ALL {
        for (first, last) in [(0, 16), (17, 64), (65, 256)] {
            let class = SizeClass { first: Bytes(first), last: Bytes(last) };
            let drawn = Drawn::new(function, Shape::SizeClass(class));
            steps.push(Box::new(Drawn { budget: extent.class, ..drawn }));
        }
    }
    steps
}

/// Steps that measure with the thresholds that were found. Without a haul.toml, haul under the
/// default policy is not a separate subject, because the policy in use is the default.
pub(super) fn after_tuning(quick: bool, resources: &Resources, is_tuned: bool) -> Steps {
    let extent = if quick { QUICK } else { FULL };
    let drawn = |function, name: &str| {
        let distribution = built_in::get(name).expect("a test checks that haul contains it");
        let drawn = Drawn::new(function, Shape::Distribution(distribution.clone()));
        Drawn { budget: extent.drawn, ..drawn }
    };
    let mut steps: Steps = Vec::new();
    if let Some(programs) = Programs::built_in(extent.programs) {
        steps.push(Box::new(programs));
    }
    for &(branches, then_read) in &REGIMES[..if quick { 1 } else { REGIMES.len() }] {
        let of_service = drawn(Function::Memcpy, SERVICE);
        steps.push(Box::new(Drawn { branches, then_read, ..of_service }));
    }
    for (function, levels) in [
        (Function::Memcpy, &Level::ALL[..]),
        (Function::Memmove, &[Level::L1]),
        (Function::Memset, &[Level::L1]),
    ] {
        for &name in extent.distributions {
            for &level in levels {
                // The page's first sentence is about this distribution.
                let untuned = is_tuned && name == SERVICE && level == Level::L1;
                steps.push(Box::new(Drawn { level, untuned, ..drawn(function, name) }));
            }
        }
    }
    if resources.processors >= 2 && !quick {
        for level in Level::ALL {
            let of_one = drawn(Function::Memcpy, SERVICE);
            steps.push(Box::new(Drawn { level, threads: 2, ..of_one }));
        }
    }
    for (function, share) in [(Function::Memcpy, 1), (Function::Memset, 2)] {
        for size in sizes_bytes(&extent, resources) {
            let budget = extent.size / share;
            steps.push(Box::new(Sizes { budget, ..Sizes::new(function, vec![size]) }));
        }
    }
    steps
}

/// Allocation on these heaps, of which the first is the baseline: growth in ByteDance's test, and
/// allocations with their frees on one processor and on all processors.
fn heaps(quick: bool, resources: &Resources, heaps: &[Found], driver: &Program) -> Steps {
    let extent = if quick { QUICK } else { FULL };
    let step = |test: Test, block: Block, threads: usize| -> Box<dyn Experiment> {
        let default = test.extent(block);
        Box::new(heap::Bench {
            test,
            extent: HeapExtent { count: extent.heap_count, ..default },
            threads,
            shared: false,
            pool: true,
            grow_ahead_bytes: test.grow_ahead_bytes(),
            ready_bytes: 0,
            engine: "auto".to_owned(),
            heaps: heaps.to_vec(),
            driver: driver.clone(),
            budget: extent.heap,
            seed: 1,
        })
    };
    let page = Block { size: 4096, align: 4096 };
    let small = Block { size: 64, align: 16 };
    let mut steps = vec![step(Test::Growth, page, 1), step(Test::Pairs, small, 1)];
    if !quick {
        steps.insert(1, step(Test::Mixed, page, 1));
        if resources.processors > 1 {
            steps.push(step(Test::Pairs, small, resources.processors));
        }
    }
    steps
}

/// Copies beside the CPU by haul's engines. Empty if this process may not use two processors.
fn engines(quick: bool, resources: &Resources) -> Steps {
    let extent = if quick { QUICK } else { FULL };
    let step = |size: usize, is_busy: bool| -> Box<dyn Experiment> {
        let subjects = [engine::Subject::Copy, engine::Subject::Worker, engine::Subject::Auto];
        let (depth, batch, is_only_pending) = (engine::Bench::DEPTH, 1, false);
        let (subjects, budget) = (subjects.into(), extent.engine);
        Box::new(engine::Bench { size, depth, batch, is_only_pending, subjects, is_busy, budget })
    };
    if resources.processors < 2 {
        return Vec::new();
    }
    let free = extent.engine_sizes.iter().map(|&size| step(size, false));
    let busy = extent.engine_sizes_busy.iter().map(|&size| step(size, true));
    free.chain(busy).collect()
}

/// Transfers to another process through each of these transports, of which the first is the
/// baseline. Empty if this process may not use two processors.
fn channels(quick: bool, resources: &Resources, subjects: &[Subject], driver: &Launch) -> Steps {
    let extent = if quick { QUICK } else { FULL };
    let step = |size: usize, is_busy: bool, subjects: &[Subject]| -> Box<dyn Experiment> {
        Box::new(channel::Bench {
            size,
            target: Target::Warm,
            is_busy,
            subjects: subjects.to_vec(),
            driver: driver.clone(),
            left_out: Vec::new(),
            budget: extent.channel,
            tries: CHANNEL_TRIES,
            seed: 1,
        })
    };
    if resources.processors < 2 {
        return Vec::new();
    }
    let few: Vec<Subject> = subjects.iter().filter(|it| is_chosen_from(it)).cloned().collect();
    let free = extent.channel_sizes.iter().map(|&size| step(size, false, subjects));
    let large = extent.channel_sizes_large.iter().map(|&size| step(size, false, &few));
    let busy = extent.channel_sizes_busy.iter().map(|&size| step(size, true, &few));
    free.chain(large).chain(busy).collect()
}

/// The smallest packets through a guest and back, copied by haul and by libc. `None` if switch and
/// guest cannot have a processor each.
fn flow(quick: bool, resources: &Resources, driver: &Program) -> Option<Box<dyn Experiment>> {
    let subject = |copy: &str| forward::Subject { switch: Forwarder::Haul, copy: copy.to_owned() };
    let bench = forward::Bench {
        flow: Flow::Pvp,
        layout: Layout::Split,
        queues: 1,
        size_bytes: 64,
        subjects: ["haul", "libc"].map(subject).into(),
        guest: Forwarder::Haul,
        buffers: Buffers::of(Layout::Split),
        source: Source::Generator,
        is_huge: false,
        driver: driver.clone(),
        left_out: Vec::new(),
        restarts: (FLOW_RESTARTS, FLOW_RESTARTS),
        window: FLOW_WINDOW,
        budget: Duration::ZERO,
        searches: Vec::new(),
        searches_each: 1,
        latency: false,
        sweep: Vec::new(),
        seed: 1,
    };
    let is_measured = !quick && resources.processors >= 2;
    is_measured.then(|| Box::new(bench) as Box<dyn Experiment>)
}

/// Whether the subject is haul's choice, one of its candidates, or their baseline.
fn is_chosen_from(subject: &Subject) -> bool {
    let name = &subject.name;
    name == "pipe" || name == "haul:auto" || channel::choice::is_one(name)
}

/// Powers of two below the number of processors, evenly thinned out if there are many, and that
/// number itself.
fn thread_counts(processors: usize, quick: bool) -> Vec<usize> {
    if quick {
        return if processors > 1 { vec![1, processors] } else { vec![1] };
    }
    /// The largest number of doublings with a separate step.
    const COUNTS_MAX: usize = 4;
    let doublings: Vec<usize> =
        (0..usize::BITS).map(|bit| 1 << bit).take_while(|&count| count < processors).collect();
    let apart = doublings.len().div_ceil(COUNTS_MAX).max(1);
    let mut counts: Vec<usize> = doublings.into_iter().step_by(apart).collect();
    counts.push(processors);
    counts
}

fn sizes_bytes(extent: &Extent, resources: &Resources) -> Vec<usize> {
    /// From this size on, haul chooses between kernels.
    const FIRST: usize = 2 << 10;
    let fits = |size: &usize| *size as u64 <= resources.available_bytes / 4;
    let all = (FIRST.ilog2()..=extent.size_max_bytes.ilog2()).map(|bit| 1 << bit);
    all.step_by(extent.octaves).filter(fits).collect()
}
