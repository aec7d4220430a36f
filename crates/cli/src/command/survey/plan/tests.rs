use std::time::Instant;

use haul_experiments::copy::stream::{Recorded, Replay, recorded};
use haul_model::stream::{self, Call, Site};

use super::*;
use crate::command::steps::Schedule;

fn resources(processors: usize, available_bytes: u64) -> Resources {
    let caches = Caches::from_sizes(&[32 << 10, 1 << 20, 32 << 20]);
    Resources { caches, processors, available_bytes }
}

fn plan(quick: bool, resources: &Resources) -> Plan {
    let heap_driver = Program::new("haul");
    let end_driver = Launch { program: Program::new("haul"), starts_both: false };
    // As many heaps as possible.
    let heap = Found { peer: heap::Peer::Haul, library: None };
    let heaps = vec![heap; heap::Peer::ALL.len()];
    let subject = Subject { name: "haul:ring".into(), found: None };
    let subjects = vec![subject; SUBJECTS];
    let ends = (subjects.as_slice(), &end_driver);
    Plan::new(quick, resources, (&heaps, &heap_driver), ends, &Program::new("haul"))
}

/// haul's choice twice, its mechanisms, and three transports that every system has.
const SUBJECTS: usize = 2 + haul::channel::Mechanism::ALL.len() + 3;

#[test]
fn plan_measures_transfers_only_with_two_processors() {
    let alone = plan(false, &resources(1, 64 << 30));
    assert!(!alone.before.iter().any(|step| step.name().starts_with("transfer")));
    let plan = plan(true, &resources(2, 64 << 30));
    assert!(plan.before.iter().any(|step| step.name() == "transfer of 1 MiB, warm target"));
}

#[test]
fn plan_measures_engines_only_with_two_processors() {
    let engines = |quick, processors| {
        let plan = plan(quick, &resources(processors, 64 << 30));
        plan.before.iter().filter(|step| step.name().starts_with("engine")).count()
    };
    assert_eq!([engines(false, 1), engines(true, 1)], [0, 0]);
    assert_eq!(engines(true, 2), QUICK.engine_sizes.len());
    assert_eq!(engines(false, 2), FULL.engine_sizes.len() + FULL.engine_sizes_busy.len());
}

#[test]
fn full_plan_has_guest_flow_with_two_processors() {
    for (quick, processors, expected) in [(false, 2, true), (false, 1, false), (true, 2, false)] {
        let plan = plan(quick, &resources(processors, 64 << 30));
        let is_there = plan.before.iter().any(|step| step.name() == "forward pvp, 64 B");
        assert_eq!(is_there, expected, "{quick}, {processors}");
    }
}

/// Plans leave a part of the 30 s and of the 4 minutes for a machine that is slower than planned.
/// A step without room in the plan would be left out.
#[test]
fn plans_keep_their_time_on_small_and_large_machines() {
    for processors in [1, 2, 8, 128, 1024] {
        let resources = resources(processors, 64 << 30);
        for (quick, most) in [(true, 24), (false, 225)] {
            let time = plan(quick, &resources).time(&resources.caches);
            let whole = time.whole();
            assert!(whole <= Duration::from_secs(most), "{quick} on {processors}: {time:?}");
            assert!(whole < limit(quick), "{quick} on {processors}");
        }
    }
}

/// The largest cache that haul expects of a machine: a cold measurement walks a region twelve times
/// as large before its rounds.
#[test]
fn quick_plan_has_room_with_large_cache() {
    let caches = Caches::from_sizes(&[48 << 10, 2 << 20, 260 << 20]);
    let resources = Resources { caches, ..resources(2, 24 << 30) };
    let time = plan(true, &resources).time(&resources.caches);
    let room = limit(true).saturating_sub(time.whole());
    assert!(room >= Duration::from_secs(3), "{room:?} is left of {:?}: {time:?}", limit(true));
}

/// Even if every step needs half as much time again in addition to its rounds, no step is left
/// out.
#[test]
fn schedule_leaves_out_no_step_if_all_overrun() {
    for quick in [true, false] {
        let resources = resources(2, 64 << 30);
        let plan = plan(quick, &resources);
        let start = Instant::now();
        let (mut now, deadline) = (start, start + limit(quick));
        let mut schedule = Schedule::until(deadline, plan.time(&resources.caches));
        for step in plan.steps() {
            let time = step.time(&resources.caches);
            let rounds = schedule.next(time, now);
            let rounds = rounds.unwrap_or_else(|| panic!("{} is left out", step.name()));
            now += rounds + time.overhead * 3 / 2;
        }
    }
}

#[test]
fn little_memory_reduces_sizes() {
    let sizes = sizes_bytes(&FULL, &resources(2, 64 << 20));
    assert!(!sizes.is_empty() && sizes.iter().all(|size| *size <= 16 << 20), "{sizes:?}");
}

#[test]
fn full_plan_covers_figures_of_page() {
    let names = |steps: &Steps| -> Vec<String> { steps.iter().map(|it| it.name()).collect() };
    let plan_of_two = plan(false, &resources(2, 64 << 30));
    let after = names(&plan_of_two.after);
    for what in [
        "memcpy, service, cold",
        "memset, storage, l1",
        "memcpy, 256 MiB",
        "memset, 2 KiB",
        "memcpy, service, mixed, 2 threads",
        "memcpy, service, l1, repeating",
        "memcpy, service, l1, then read first",
        "memcpy, service, l1, repeating, then read first",
    ] {
        assert!(after.iter().any(|name| name == what), "{what}: {after:?}");
    }
    let before = names(&plan_of_two.before);
    for what in
        ["heap growth, 4 KiB aligned to 4 KiB", "heap pairs, 64 B aligned to 16 B, 2 threads"]
    {
        assert!(before.iter().any(|name| name == what), "{what}: {before:?}");
    }
    let alone = names(&plan(false, &resources(1, 64 << 30)).after);
    assert!(!alone.iter().any(|name| name.contains("threads")), "{alone:?}");
}

/// A survey has room for thirteen programs of 20,000 calls in 8 MiB each.
#[test]
fn plans_have_room_for_streams() {
    let large = Caches::from_sizes(&[48 << 10, 2 << 20, 260 << 20]);
    let large = Resources { caches: large, ..resources(2, 24 << 30) };
    let small = [1, 2, 8, 128, 1024].map(|processors| resources(processors, 64 << 30));
    let full = small.iter().map(|resources| (false, resources, 225));
    for (quick, resources, most) in full.chain([(true, &large, 25)]) {
        let own = recorded::built_in().into_iter().map(Replay::new).collect();
        let mut programs = Programs { replays: own };
        let extent = if quick { QUICK } else { FULL };
        programs.set_budget(extent.programs);
        let others = plan(quick, resources).time(&resources.caches).whole()
            - programs.time(&resources.caches).whole();
        programs.replays = vec![Replay::new(recorded()); 13];
        programs.set_budget(extent.programs);
        let whole = others + programs.time(&resources.caches).whole();
        let processors = resources.processors;
        assert!(whole <= Duration::from_secs(most), "{quick}, {processors}: {whole:?}");
    }
}

fn recorded() -> Recorded {
    let site = Site { module: "m".into(), offset: 0, symbol: None, sampled: 0, read_soon: 0 };
    let call = Call {
        function: stream::Function::Memset { zero: true },
        site: 0,
        size: 300,
        target: 0,
        source: None,
        since: stream::TimeClass::default(),
        read: stream::Read::Unknown,
    };
    let text = String::new;
    let header = stream::Header {
        program: "m".into(),
        about: text(),
        time: text(),
        machine: text(),
        libc: text(),
        thread: 0,
        process_calls: 20_000,
        thread_calls: 20_000,
        skipped: 0,
        left_out: 0,
        reads_by: stream::ReadsBy::Breakpoint,
        pages: 2048,
    };
    let stream = stream::Stream { header, sites: vec![site], calls: vec![call; 20_000] };
    Recorded::new("m", stream, None).unwrap()
}

/// Streams are the first copies that a survey measures, if haul contains any.
#[test]
fn streams_precede_other_copies() {
    let count = recorded::names().count();
    for quick in [true, false] {
        let plan = plan(quick, &resources(2, 64 << 30));
        let first = plan.after.first().unwrap().name();
        let is_first = first.starts_with(&format!("copies as your programs call: {count} stream"));
        assert_eq!(is_first, count > 0, "{first}");
    }
}

#[test]
fn thread_counts_double_up_to_all_processors() {
    assert_eq!(thread_counts(1, false), [1]);
    assert_eq!(thread_counts(6, false), [1, 2, 4, 6]);
    assert_eq!(thread_counts(8, false), [1, 2, 4, 8]);
    assert_eq!(thread_counts(128, false), [1, 4, 16, 64, 128]);
    assert_eq!(thread_counts(8, true), [1, 8]);
    assert_eq!(thread_counts(1, true), [1]);
}
