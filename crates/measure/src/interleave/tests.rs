//! Measures subjects of known cost: the run must find this cost.
//!
//! Other work shares the machine. Each claim about time must therefore hold in one of several
//! runs, with room for noise. An incorrect implementation fails in all of them.

use std::hint::black_box;
use std::sync::atomic::AtomicU64;

use super::*;

const ATTEMPTS: usize = 5;

/// A chain of dependent multiplications, `units` of them per operation.
struct Chain {
    name: &'static str,
    units: u64,
    calls: AtomicU64,
}

impl Chain {
    fn new(name: &'static str, units: u64) -> Self {
        Self { name, units, calls: AtomicU64::new(0) }
    }
}

impl Subject for Chain {
    fn name(&self) -> &str {
        self.name
    }

    fn run(&self, _: usize, iterations: u64) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let mut x = black_box(3u64);
        for _ in 0..iterations {
            for _ in 0..self.units {
                x = black_box(x.wrapping_mul(x).wrapping_add(1));
            }
        }
        black_box(x);
    }
}

fn measure(subjects: &[&dyn Subject], sampling: &Sampling) -> Result<Outcome, Error> {
    let stop = AtomicBool::new(false);
    run(subjects, 0, sampling, &mut Control { stop: &stop, progress: &mut |_| () })
}

fn sampling() -> Sampling {
    Sampling {
        sample: Duration::from_micros(100),
        budget: Duration::from_millis(60),
        rounds_min: 20,
        ..Sampling::default()
    }
}

#[test]
fn difference_of_ten_percent_is_found() {
    let (a, b) = (Chain::new("100", 100), Chain::new("110", 110));
    let mut seen = Vec::new();
    let found = (0..ATTEMPTS).any(|_| {
        let outcome = measure(&[&a, &b], &sampling()).unwrap();
        let comparison = outcome.subjects[1].comparison.clone().unwrap();
        let close = (comparison.ratio - 1.1).abs() < 0.02;
        let beyond_floor = comparison.ratio - 1.0 > comparison.floor;
        seen.push(comparison);
        close && beyond_floor
    });
    assert!(found, "{seen:?}");
}

#[test]
fn equal_subjects_show_no_difference() {
    let (a, b) = (Chain::new("a", 100), Chain::new("b", 100));
    let mut seen = Vec::new();
    let found = (0..ATTEMPTS).any(|_| {
        let outcome = measure(&[&a, &b], &sampling()).unwrap();
        let comparison = outcome.subjects[1].comparison.clone().unwrap();
        let close = (comparison.ratio - 1.0).abs() < 0.01 && comparison.floor < 0.02;
        seen.push(comparison);
        close
    });
    assert!(found, "{seen:?}");
}

#[test]
fn every_thread_runs_and_every_subject_has_its_samples() {
    let (a, b) = (Chain::new("a", 10), Chain::new("b", 10));
    let sampling = Sampling { threads: 2, rounds_min: 6, rounds_max: 6, ..sampling() };
    let outcome = measure(&[&a, &b], &sampling).unwrap();
    assert_eq!(outcome.rounds + outcome.rounds_discarded, 6);
    for subject in &outcome.subjects {
        assert_eq!(subject.samples_ns.len(), outcome.rounds);
        assert!(subject.samples_ns.iter().all(|&ns| ns > 0.0));
        assert_eq!(subject.account.operations, 2 * 6 * subject.iterations);
        assert!(subject.account.cpu > Duration::ZERO);
    }
    assert_eq!(outcome.baseline_again_ns.len(), outcome.rounds);
    assert_eq!(outcome.subjects[0].comparison.as_ref().unwrap().baseline, "a");
}

#[test]
fn slow_subject_does_not_use_the_time_of_the_fast() {
    let (fast, slow) = (Chain::new("fast", 1), Chain::new("slow", 200));
    let mut seen = Vec::new();
    let found = (0..ATTEMPTS).any(|_| {
        let sampling = Sampling { rounds_max: 20, ..sampling() };
        let outcome = measure(&[&fast, &slow], &sampling).unwrap();
        let [fast, slow] = &outcome.subjects[..] else { panic!("two subjects") };
        seen.push((slow.iterations, fast.iterations));
        slow.iterations < fast.iterations / 4
    });
    assert!(found, "{seen:?}");
}

#[test]
fn sample_too_short_for_the_timer_is_refused() {
    let short = Chain::new("short", 1);
    // A sample that another thread interrupts is long enough.
    let sampling = Sampling { iterations_max: 3, ..sampling() };
    let error = (0..ATTEMPTS).find_map(|_| measure(&[&short], &sampling).err()).unwrap();
    assert!(matches!(error, Error::SampleTooShort { iterations: 3, .. }), "{error}");
    assert!(error.to_string().contains("give it more work"), "{error}");
}

#[test]
fn stopped_run_keeps_its_rounds() {
    let a = Chain::new("a", 10);
    let stop = AtomicBool::new(false);
    let mut calls = 0;
    let mut progress = |progress: Progress| {
        calls += 1;
        assert!(progress.rounds > 0);
        stop.store(true, Ordering::Relaxed);
    };
    let sampling =
        Sampling { budget: Duration::from_secs(600), rounds_max: usize::MAX, ..sampling() };
    let outcome =
        run(&[&a], 0, &sampling, &mut Control { stop: &stop, progress: &mut progress }).unwrap();
    assert!(outcome.stopped && outcome.rounds > 0 && outcome.subjects[0].comparison.is_some());
    assert_eq!(calls, 1);
}

#[test]
fn run_stopped_before_it_began_is_empty() {
    let a = Chain::new("a", 10);
    let stop = AtomicBool::new(true);
    let outcome =
        run(&[&a], 0, &sampling(), &mut Control { stop: &stop, progress: &mut |_| () }).unwrap();
    assert!(outcome.stopped && outcome.rounds == 0 && outcome.subjects[0].comparison.is_none());
}

#[test]
fn run_ends_early_when_precise() {
    let (a, b) = (Chain::new("a", 100), Chain::new("b", 120));
    let early = (0..ATTEMPTS).any(|_| {
        let sampling =
            Sampling { precision: Some(0.2), budget: Duration::from_secs(5), ..sampling() };
        let started = Instant::now();
        let outcome = measure(&[&a, &b], &sampling).unwrap();
        outcome.rounds < 100 && started.elapsed() < Duration::from_secs(2)
    });
    assert!(early);
}

#[test]
fn panic_names_its_subject() {
    struct Broken;
    impl Subject for Broken {
        fn name(&self) -> &str {
            "broken"
        }
        fn run(&self, thread: usize, _: u64) {
            assert!(thread == 0, "no such thread");
        }
    }
    let error = measure(&[&Broken], &Sampling { threads: 2, ..sampling() }).unwrap_err();
    let Error::Panicked { subject, thread, message } = error else { panic!("{error}") };
    assert_eq!((subject.as_str(), thread, message.as_str()), ("broken", 1, "no such thread"));
}

#[test]
fn empty_plan_is_refused() {
    let a = Chain::new("a", 10);
    for (subjects, sampling) in [
        (vec![], sampling()),
        (vec![&a as &dyn Subject], Sampling { threads: 0, ..sampling() }),
        (vec![&a as &dyn Subject], Sampling { rounds_max: 0, ..sampling() }),
    ] {
        assert!(matches!(measure(&subjects, &sampling), Err(Error::Sampling { .. })));
    }
}
