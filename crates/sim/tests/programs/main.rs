//! Random programs on the timing core: every mode must give the interpreter's results, and copies,
//! loads and stores must be in an order that the program allows.

mod generate;
mod machines;
mod orders;
mod replay;

use generate::{DATA_BYTES, START, program};
use haul_sim::configuration::Issue;
use haul_sim::core::{Core, MemoryPort};
use haul_sim::isa::Operation::Add;
use haul_sim::isa::encode;
use haul_sim::memory::{Access, Completion, Copy, Kind, Passing, Tag};
use haul_sim::{Configuration, Cycle, Image, Interpreter, Job, MemorySystem, Outcome, Traffic};
use proptest::prelude::*;

/// A limit of instructions that no program here approaches.
const LIMIT: u64 = 1_000_000;
/// Every policy, and whether its engine lets younger loads pass.
const POLICIES: [(&str, bool); 4] =
    [("sync-nlb", false), ("sync-wlb", true), ("async", true), ("async-pipelined", true)];

fn configuration(policy: &str, issue: Issue, overlap: bool) -> Configuration {
    let mut configuration = Configuration::default();
    configuration.engine.policy = policy.into();
    configuration.engine.overlap = overlap;
    configuration.core.issue = issue;
    configuration
}

fn image(seed: u64) -> Image {
    Image::from_words(START, &program(seed, 150), DATA_BYTES).expect("a sound program")
}

fn interpreted(image: &Image) -> Interpreter {
    let mut machine = Interpreter::new(image, &[], Traffic::default()).expect("no traffic");
    machine.run(image, LIMIT).expect("the program ends itself");
    machine
}

fn timed(configuration: &Configuration, image: &Image) -> Outcome {
    let job = Job { instructions_max: LIMIT, trace_cycles: Some(0..Cycle::MAX), ..Job::default() };
    haul_sim::run(configuration, image, &job).expect("the program ends itself")
}

fn assert_same(seed: u64, wanted: &Interpreter, outcome: &Outcome) {
    let machine = &outcome.interpreter;
    assert_eq!(machine.registers, wanted.registers, "seed {seed}");
    assert_eq!(machine.memory, wanted.memory, "seed {seed}");
    assert_eq!(machine.executed, wanted.executed, "seed {seed}");
    assert_eq!(outcome.instructions, wanted.executed, "seed {seed}");
    let rows = &outcome.pipeline.as_ref().expect("a trace was requested").rows;
    // `ecall` ends the program before it enters the window.
    let committed = rows.iter().filter(|row| row.committed > 0).count() as u64;
    let dropped = rows.iter().filter(|row| row.is_wrong_path).count() as u64;
    let unfinished = wanted.executed - 1 - committed;
    assert_eq!(unfinished, 0, "seed {seed}: every instruction commits");
    assert_eq!(dropped, outcome.core.wrong_path_instructions, "seed {seed}");
}

/// Asserts that no copy, load or store was early or late, and that memory moved no stale data.
fn assert_in_order(
    image: &Image,
    configuration: &Configuration,
    outcome: Outcome,
    may_pass: bool,
    how: &str,
) {
    let line_bytes = configuration.memory.line_bytes;
    let pipeline = outcome.pipeline.expect("a trace was requested");
    let memory = outcome.transactions.expect("a trace was requested");
    assert_eq!(orders::violations(&pipeline, &memory, may_pass), [""; 0], "{how}");
    let wrong = replay::wrong_values(image, line_bytes, &pipeline, &memory);
    assert_eq!(wrong, [""; 0], "{how}");
    assert_eq!(replay::stale(line_bytes, &pipeline, &memory), [""; 0], "{how}");
}

fn check(seed: u64) {
    let image = image(seed);
    let wanted = interpreted(&image);
    for (policy, may_pass) in POLICIES {
        for issue in [Issue::InOrder, Issue::OutOfOrder] {
            for overlap in [true, false] {
                let configuration = configuration(policy, issue, overlap);
                let outcome = timed(&configuration, &image);
                assert_same(seed, &wanted, &outcome);
                let how = format!("seed {seed}, {policy}, {issue:?}, overlap {overlap}");
                assert_in_order(&image, &configuration, outcome, may_pass && overlap, &how);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Each case makes sixteen runs: thousands of programs in every mode.
    #[test]
    fn every_mode_gives_the_interpreters_results(seed in any::<u64>()) {
        check(seed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    /// With random caches, bus, memory and engines.
    #[test]
    fn every_machine_gives_the_interpreters_results(seed in any::<u64>()) {
        let image = image(seed);
        let wanted = interpreted(&image);
        let (configuration, may_pass) = machines::random(seed);
        let outcome = timed(&configuration, &image);
        assert_same(seed, &wanted, &outcome);
        let how = format!("seed {seed}, {configuration:?}");
        assert_in_order(&image, &configuration, outcome, may_pass, &how);
    }

    /// With random processors.
    #[test]
    fn every_processor_gives_the_interpreters_results(
        seed in any::<u64>(),
        width in 1u32..9,
        window in 9u32..300,
        entries in 1u32..70,
        ports in 1u32..4,
        units in 1u32..5,
        wrong_path in any::<bool>(),
    ) {
        let image = image(seed);
        let wanted = interpreted(&image);
        let mut configuration = configuration("async", Issue::OutOfOrder, true);
        configuration.core.width = width;
        configuration.core.window_entries = window;
        configuration.core.load_store_entries = entries;
        configuration.core.memory_ports = ports;
        configuration.core.integer_units = units;
        configuration.core.wrong_path = wrong_path;
        assert_same(seed, &wanted, &timed(&configuration, &image));
    }
}

/// A program with one copy of `bytes`. `source` and `target` are offsets in a page of data.
fn one_copy(source: i32, target: i32, bytes: i32) -> Image {
    let mut words = vec![
        encode::add_upper(20, 4096),
        encode::immediate(Add, 28, 20, source),
        encode::immediate(Add, 29, 20, target),
        encode::immediate(Add, 30, 0, bytes),
    ];
    words.extend(encode::copy(28, 29, 30));
    words.extend([encode::immediate(Add, 17, 0, 93), encode::ECALL]);
    Image::from_words(START, &words, 4096).expect("a sound program")
}

#[test]
fn invalid_copy_fails_in_every_mode_as_in_the_interpreter() {
    // Overlapping by a byte or entirely; endless; from and to unmapped memory, and into the
    // program.
    let refused = [(0, 0, 64), (0, 63, 64), (63, 0, 64), (8, 15, 8), (0, 2000, -1), (-1, 0, 64)];
    for (source, target, bytes) in refused.into_iter().chain([(0, 2047, 2050), (0, -1, 1)]) {
        let image = one_copy(source, target, bytes);
        let mut machine = Interpreter::new(&image, &[], Traffic::default()).expect("no traffic");
        let wanted = machine.run(&image, LIMIT);
        // The page before the data is the program's: it is readable, not writable.
        assert!(wanted.is_err() || source < 0, "{source} {target} {bytes}");
        for (policy, _) in POLICIES {
            for issue in [Issue::InOrder, Issue::OutOfOrder] {
                let configuration = configuration(policy, issue, true);
                let job = Job { instructions_max: LIMIT, ..Job::default() };
                let found = haul_sim::run(&configuration, &image, &job);
                let found = found.err().map(|failure| failure.error);
                assert_eq!(found, wanted.clone().err(), "{policy} {issue:?} {bytes}");
            }
        }
    }
}

#[test]
fn empty_and_adjacent_copies_succeed() {
    for (source, target, bytes) in [(0, 0, 0), (0, 64, 64), (64, 0, 64), (7, 8, 1), (0, -1, 0)] {
        let image = one_copy(source, target, bytes);
        let wanted = interpreted(&image);
        for (policy, may_pass) in POLICIES {
            let configuration = configuration(policy, Issue::OutOfOrder, true);
            let outcome = timed(&configuration, &image);
            assert_same(0, &wanted, &outcome);
            assert_in_order(&image, &configuration, outcome, may_pass, policy);
        }
    }
}

#[test]
fn repeated_runs_are_identical() {
    let image = image(7);
    let configuration = configuration("async", Issue::OutOfOrder, true);
    let first = timed(&configuration, &image);
    let on_threads: Vec<Outcome> = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..4).map(|_| scope.spawn(|| timed(&configuration, &image))).collect();
        runs.into_iter().map(|run| run.join().expect("it does not panic")).collect()
    });
    for other in on_threads {
        assert_eq!(first.cycles, other.cycles);
        assert_eq!(first.core, other.core);
        assert_eq!(first.memory, other.memory);
        assert_eq!(first.pipeline, other.pipeline);
        assert_eq!(first.transactions, other.transactions);
    }
}

/// A memory system that never consults its pending copy table.
struct Careless(MemorySystem);

impl MemoryPort for Careless {
    fn access(&mut self, now: Cycle, kind: Kind, address: u64, tag: Tag) -> Access {
        self.0.access(now, kind, address, tag)
    }
    fn copy(&mut self, now: Cycle, copy: Copy) -> Access {
        self.0.copy(now, copy)
    }
    fn blocks(&mut self, _kind: Kind, _address: u64, _bytes: u64) -> bool {
        false
    }
    fn passing(&self) -> Passing {
        self.0.passing()
    }
    fn dma_write(&mut self, now: Cycle, address: u64, bytes: u32) {
        self.0.dma_write(now, address, bytes.into());
    }
    fn advance(&mut self, now: Cycle, completions: &mut Vec<Completion>) {
        self.0.advance(now, completions);
    }
    fn next_event(&self) -> Option<Cycle> {
        self.0.next_event()
    }
}

#[test]
fn order_check_finds_a_pending_copy_table_that_is_not_consulted() {
    let configuration = configuration("async", Issue::OutOfOrder, true);
    let found = (0..20).filter(|seed| {
        let image = image(*seed);
        let machine = Interpreter::new(&image, &[], Traffic::default()).expect("no traffic");
        let mut memory = MemorySystem::new(&configuration).expect("a sound configuration");
        memory.record(0..Cycle::MAX);
        let mut core = Core::new(&configuration, &image, machine, Careless(memory));
        core.trace_cycles(0..Cycle::MAX);
        core.run(LIMIT, |_| false).expect("the program ends itself");
        let (_, Careless(mut memory), pipeline) = core.into_parts();
        memory.advance(Cycle::MAX, &mut Vec::new());
        let trace = memory.trace().expect("a trace was requested");
        !orders::violations(&pipeline.expect("a trace was requested"), trace, true).is_empty()
    });
    assert!(found.count() > 0, "no violation was found in twenty programs");
}
