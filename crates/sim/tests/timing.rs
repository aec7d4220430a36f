//! Compares the timing core with closed forms. The cost of a step is the slope between a program
//! with `SHORT` and one with `LONG` steps, on a memory with constant latency.

use haul_sim::configuration::Issue;
use haul_sim::core::{Core, MemoryPort};
use haul_sim::isa::Operation::{Add, Beq, Div, Jalr, Ld, Mul, Sd};
use haul_sim::isa::encode;
use haul_sim::memory::{Access, Completion, Copy, Kind, Passing, Tag};
use haul_sim::{Configuration, Cycle, Error, Image, Interpreter, Job, Traffic};

const START: u64 = 0x8000_0000;
const SHORT: usize = 200;
const LONG: usize = 400;

/// Instructions are always available; data takes `data` cycles, copies take `copy`.
struct Fixed {
    data: Cycle,
    copy: Cycle,
    passing: Passing,
    due: Vec<Completion>,
}

impl MemoryPort for Fixed {
    fn access(&mut self, now: Cycle, kind: Kind, _address: u64, tag: Tag) -> Access {
        if kind == Kind::Load && self.data > 20 {
            self.due.push(Completion { tag, at: now + self.data });
            return Access::Pending;
        }
        Access::Hit { ready: now + if kind == Kind::Load { self.data } else { 0 } }
    }
    fn copy(&mut self, now: Cycle, copy: Copy) -> Access {
        self.due.push(Completion { tag: copy.tag, at: now + self.copy });
        Access::Pending
    }
    fn blocks(&mut self, _kind: Kind, _address: u64, _bytes: u64) -> bool {
        false
    }
    fn passing(&self) -> Passing {
        self.passing
    }
    fn dma_write(&mut self, _now: Cycle, _address: u64, _bytes: u32) {}
    fn advance(&mut self, now: Cycle, completions: &mut Vec<Completion>) {
        self.due.sort_by_key(|completion| completion.at);
        let count = self.due.iter().take_while(|completion| completion.at <= now).count();
        completions.extend(self.due.drain(..count));
    }
    fn next_event(&self) -> Option<Cycle> {
        self.due.iter().map(|completion| completion.at).min()
    }
}

fn memory(data: Cycle, passing: Passing) -> Fixed {
    Fixed { data, copy: 1000, passing, due: Vec::new() }
}

/// Cycles of a program in which x20 points to the data and x21 points 1024 bytes further.
fn cycles(configuration: &Configuration, memory: Fixed, body: &[u32]) -> Cycle {
    let data = (4 * (body.len() as u32 + 5)).next_multiple_of(4096);
    let mut words = vec![
        encode::add_upper(20, data),
        encode::immediate(Add, 21, 20, 1024),
        encode::store(Sd, 20, 20, 0),
    ];
    words.extend(body);
    words.extend([encode::immediate(Add, 17, 0, 93), encode::ECALL]);
    let image = Image::from_words(START, &words, 8192).expect("a sound program");
    let machine = Interpreter::new(&image, &[], Traffic::default()).expect("no traffic");
    let mut core = Core::new(configuration, &image, machine, memory);
    core.run(1_000_000, |_| false).expect("the program ends itself");
    core.now()
}

/// Cycles of one additional `step`.
fn slope(configuration: &Configuration, data: Cycle, step: &[u32]) -> f64 {
    let of =
        |count: usize| cycles(configuration, memory(data, Passing::Memory), &step.repeat(count));
    (of(LONG) - of(SHORT)) as f64 / (LONG - SHORT) as f64
}

#[track_caller]
fn assert_slope(what: &str, found: f64, expected: f64, tolerance: f64) {
    let deviation = found - expected;
    eprintln!("{what}: {found:.3} cycles, closed form {expected:.3}, deviation {deviation:+.3}");
    assert!(deviation.abs() <= tolerance, "{what}: {found} cycles, expected {expected}");
}

fn in_order() -> Configuration {
    let mut configuration = Configuration::default();
    configuration.core.issue = Issue::InOrder;
    configuration
}

#[test]
fn arithmetic_takes_its_latency_or_its_share_of_the_units() {
    let machine = Configuration::default();
    let chain = |operation| [encode::register(operation, 5, 5, 5)];
    assert_slope("a chain of additions", slope(&machine, 2, &chain(Add)), 1.0, 0.0);
    assert_slope("a chain of multiplications", slope(&machine, 2, &chain(Mul)), 3.0, 0.0);
    assert_slope("a chain of divisions", slope(&machine, 2, &chain(Div)), 20.0, 0.0);
    let free = |operation| [5, 6, 7, 8].map(|rd| encode::register(operation, rd, 20, 20));
    assert_slope("four additions on two units", slope(&machine, 2, &free(Add)), 2.0, 0.02);
    assert_slope("four multiplications on one unit", slope(&machine, 2, &free(Mul)), 4.0, 0.02);
    assert_slope("four divisions, one at a time", slope(&machine, 2, &free(Div)), 80.0, 0.5);
    let mixed = [encode::register(Div, 5, 20, 20), encode::register(Mul, 6, 20, 20)];
    assert_slope("a division and a multiplication", slope(&machine, 2, &mixed), 21.0, 0.1);
    let mut wide = Configuration::default();
    wide.core.multiply_units = 2;
    assert_slope("four divisions on two units", slope(&wide, 2, &free(Div)), 40.0, 0.5);
    wide.core.integer_units = 4;
    assert_slope("four additions on four units", slope(&wide, 2, &free(Add)), 1.0, 0.02);
    wide.core.width = 2;
    assert_slope("four additions, two a cycle", slope(&wide, 2, &free(Add)), 2.0, 0.02);
}

#[test]
fn loads_take_an_address_and_an_access() {
    // x20 points to itself: a chain of loads.
    let chain = [encode::immediate(Ld, 20, 20, 0)];
    for machine in [Configuration::default(), in_order()] {
        // The store that created the chain provides the first value. It has committed before the
        // second load.
        assert_slope("a chain of hits", slope(&machine, 2, &chain), 3.0, 0.05);
        assert_slope("a chain of misses", slope(&machine, 200, &chain), 201.0, 2.5);
    }
    let free = [encode::immediate(Ld, 5, 20, 64)];
    let machine = Configuration::default();
    assert_slope("independent misses, 64 at once", slope(&machine, 200, &free), 201.0 / 64.0, 0.1);
    let mut small = Configuration::default();
    small.core.load_store_entries = 8;
    assert_slope("independent misses, 8 at once", slope(&small, 200, &free), 201.0 / 8.0, 0.3);
    let used = [encode::immediate(Ld, 5, 20, 64), encode::register(Add, 6, 5, 5)];
    assert_slope("in order, each miss used", slope(&in_order(), 200, &used), 202.0, 3.0);
}

#[test]
fn store_forwards_its_value_to_a_load() {
    // A value goes through memory: address, forward, add.
    let step = [
        encode::store(Sd, 5, 20, 64),
        encode::immediate(Ld, 5, 20, 64),
        encode::register(Add, 5, 5, 5),
    ];
    let found = slope(&Configuration::default(), 100, &step);
    assert_slope("through a store", found, 2.0, 1.0);
}

#[test]
fn predicted_branch_is_free_and_mispredicted_one_costs_a_refill() {
    let machine = Configuration::default();
    let never = [encode::register(Add, 5, 5, 5), encode::branch(Beq, 20, 0, 8)];
    assert_slope("a branch never taken", slope(&machine, 2, &never), 1.0, 0.05);
    // The first execution of an indirect jump is predicted to the next instruction.
    let jump = [
        encode::add_upper(6, 0),
        encode::immediate(Jalr, 7, 6, 16),
        encode::FENCE,
        encode::FENCE,
        encode::FENCE,
    ];
    let refill = f64::from(machine.core.mispredict_cycles);
    let found = slope(&machine, 2, &jump);
    // The address, the jump, then fetch, dispatch and issue again.
    assert_slope("a mispredicted jump", found, refill + 4.0, 1.5);
}

#[test]
fn copy_is_passed_as_the_policy_allows() {
    let mut body = encode::copy(20, 21, 22).to_vec();
    body.insert(0, encode::immediate(Add, 22, 0, 512));
    body.extend([encode::register(Mul, 5, 20, 20); 20]);
    body.extend([encode::immediate(Ld, 6, 20, 0); 20]);
    let time = |passing| cycles(&Configuration::default(), memory(300, passing), &body);
    let [nothing, computation, everything] =
        [Passing::Nothing, Passing::Computation, Passing::Memory].map(time);
    eprintln!("nothing passes {nothing}, computation {computation}, memory {everything} cycles");
    assert!(nothing > 1000 + 300 && computation > 1000 + 300, "loads wait for the copy");
    assert!(nothing >= computation && computation > everything + 250);
}

#[test]
fn full_window_stalls_dispatch() {
    // One miss, then arithmetic: only the instructions in the window execute during the miss.
    let mut body = vec![encode::immediate(Ld, 5, 20, 64)];
    body.extend([encode::register(Add, 6, 20, 20); 300]);
    let time = |window| {
        let mut configuration = Configuration::default();
        configuration.core.window_entries = window;
        cycles(&configuration, memory(500, Passing::Memory), &body)
    };
    let (narrow, wide) = (time(64), time(512));
    let difference = (narrow - wide) as f64;
    // Instructions that are left after the miss execute at two per cycle. Instructions that were
    // executed during the miss commit at four per cycle.
    let expected = (300.0 - 63.0) / 2.0 - 300.0 / 4.0;
    assert_slope("instructions behind a miss", difference, expected, 4.0);
}

#[test]
fn faulty_program_ends_with_its_error() {
    let run = |words: &[u32], limit| {
        let image = Image::from_words(START, words, 4096).expect("a sound program");
        let job = Job { instructions_max: limit, ..Job::default() };
        haul_sim::run(&Configuration::default(), &image, &job).expect_err("a fault").error
    };
    assert!(matches!(run(&[encode::jump(0, 0)], 1000), Error::InstructionLimit { .. }));
    assert!(matches!(run(&[0], 10), Error::IllegalInstruction { at: START, word: 0 }));
    assert!(matches!(run(&[encode::jump(0, 4096)], 10), Error::NoCode { .. }));
    assert!(matches!(run(&[encode::immediate(Ld, 5, 0, 0)], 10), Error::Unmapped { .. }));
    let mut copy = vec![encode::add_upper(20, 4096), encode::immediate(Add, 22, 0, 64)];
    copy.extend(encode::copy(20, 20, 22));
    assert!(matches!(run(&copy, 10), Error::CopyOverlaps { bytes: 64, .. }));
}
