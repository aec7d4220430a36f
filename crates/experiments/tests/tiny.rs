//! Every experiment in a tiny form: experiments that measure for minutes run here in
//! milliseconds, so that they keep working.

mod support;

use std::time::Duration;

use haul_experiments::copy::sizes::powers;
use haul_experiments::copy::workload::Branches;
use haul_experiments::copy::{
    Drawn, Function, Plain, Selection, Shape, Sizes, ThenRead, Tune, available, tune,
};
use haul_experiments::memory::fault::Touch;
use haul_experiments::memory::{Bandwidth, Fault, Operation};
use haul_experiments::{Context, Error, Experiment};
use haul_measure::{Distribution, Level};
use haul_model::{Record, SizeClass};

use support::{measured, stopped_after};

const TINY: Duration = Duration::from_millis(5);

fn records(measure: impl FnOnce(&mut Context<'_>) -> Result<(), Error>) -> Vec<Record> {
    let (done, found, warnings) = measured(measure);
    done.unwrap();
    assert_eq!(warnings, [""; 0]);
    for record in &found {
        check(record);
    }
    found
}

/// Checks the fields that every record of these tests must have.
fn check(record: &Record) {
    assert!(record.samples.iter().all(|&sample| sample > 0.0));
    let comparison = record.comparison.as_ref().unwrap();
    assert!(comparison.ratio_low <= comparison.ratio && comparison.ratio <= comparison.ratio_high);
    assert!(comparison.floor >= 0.0);
}

fn subjects(records: &[Record]) -> Vec<&str> {
    records.iter().map(|record| record.subject.as_str()).collect()
}

#[test]
fn distributions_are_measured_at_every_level_and_function() {
    for function in Function::ALL {
        let levels = if function == Function::Memcpy { &Level::ALL[..] } else { &[Level::L1] };
        for &level in levels {
            let service = Distribution::find("service").unwrap();
            let config =
                Drawn { level, budget: TINY, ..Drawn::new(function, Shape::Distribution(service)) };
            let found = records(|context| config.measure(context));
            assert_eq!(subjects(&found), ["libc", "haul", "haul-c"]);
            let calls = found.iter().map(|record| record.parameters["call"].as_str().unwrap());
            assert_eq!(calls.collect::<Vec<_>>(), ["c", "inline", "c"]);
            for record in &found {
                assert_eq!(record.experiment, "copy.distribution");
                assert_eq!(record.parameters["function"], function.name());
                assert_eq!(record.parameters["distribution"], "service");
                assert_eq!(record.parameters["level"], level.name());
                assert_eq!(record.parameters["threads"], 1);
                assert_eq!((record.metric.as_str(), record.unit.as_str()), ("time", "ns"));
                assert_eq!(record.comparison.as_ref().unwrap().baseline, "libc");
            }
            let note = found[0].shown("note").unwrap_or_default();
            assert_eq!(
                note.contains("do not fit"),
                level == Level::L1 || level == Level::L2,
                "{note}"
            );
        }
    }
}

#[test]
fn size_classes_are_measured_with_every_variant() {
    for (branches, then_read, threads) in [
        (Branches::Random, ThenRead::First, 1),
        (Branches::Repeating, ThenRead::Nothing, 1),
        (Branches::Repeating, ThenRead::All, 2),
        (Branches::Random, ThenRead::Last, 1),
    ] {
        let shape = Shape::SizeClass("17-64".parse::<SizeClass>().unwrap());
        let config = Drawn {
            branches,
            then_read,
            threads,
            subjects: Selection::Kernels,
            budget: TINY,
            ..Drawn::new(Function::Memcpy, shape)
        };
        let found = records(|context| config.measure(context));
        assert_eq!(
            found.len(),
            available(Function::Memcpy, Plain::C).len() - 2,
            "all but haul-c and -inline"
        );
        assert!(found.iter().all(|record| record.experiment == "copy.size_class"));
        assert!(found.iter().all(|record| record.parameters["size_class"] == "17-64"));
        assert!(found.iter().all(|record| record.parameters["then_read"] == then_read.name()));
    }
}

#[test]
fn sizes_are_measured_with_all_kernels() {
    for function in Function::ALL {
        let config =
            Sizes { budget: 3 * TINY, ..Sizes::new(function, powers(4096, 16384, 1).unwrap()) };
        let found = records(|context| config.measure(context));
        let each = available(function, Plain::C).len() - 2;
        assert_eq!(found.len(), 3 * each);
        assert_eq!(found[each].parameters["size_bytes"], 8192);
        assert_eq!(found[each].experiment, "copy.size");
        // Only haul is compared with the best of the other subjects.
        for record in &found {
            let has = ["best", "over_best", "over_best_low", "over_best_high"]
                .map(|name| record.parameters.contains_key(name));
            assert_eq!(has, [record.subject == "haul"; 4], "{record:?}");
        }
        let haul = found.iter().find(|record| record.subject == "haul").unwrap();
        let over = |name: &str| haul.parameters[name].as_f64().unwrap();
        assert!(over("over_best_low") <= over("over_best"), "{haul:?}");
        assert!(over("over_best") <= over("over_best_high"), "{haul:?}");
        assert_ne!(haul.parameters["best"], "haul");
    }
    let config = Sizes {
        level: Level::Cold,
        subjects: Selection::Named(vec!["haul".into()]),
        budget: 2 * TINY,
        ..Sizes::new(Function::Memcpy, vec![4096, 2 << 20])
    };
    let read = Sizes { then_read: ThenRead::Last, ..config.clone() };
    let found = records(|context| read.measure(context));
    assert!(found.iter().all(|record| record.parameters["then_read"] == "last"));
    let found = records(|context| config.measure(context));
    assert_eq!(subjects(&found), ["libc", "haul", "libc", "haul"]);
    let random = Sizes { branches: Branches::Random, level: Level::Nearest, ..config.clone() };
    let of_random = records(|context| random.measure(context));
    assert_eq!(subjects(&of_random), ["libc", "haul", "libc", "haul"]);
    assert!(of_random.iter().all(|record| record.parameters["branches"] == "random"));
    let note = |record: &Record| record.shown("note");
    for record in &found[..2] {
        assert_eq!(record.parameters["then_read"], "nothing");
        assert_eq!(record.parameters["branches"], "repeating");
        assert_eq!(record.parameters["level"], "cold");
        assert!(!note(record).unwrap_or_default().contains("was requested"), "{record:?}");
    }
    for record in &found[2..] {
        assert_eq!(record.parameters["level"], "nearest", "no level holds 2 MiB");
        assert!(note(record).unwrap().contains("level cold was requested"), "{record:?}");
    }
}

#[test]
fn size_above_memory_is_rejected_and_earlier_records_stay() {
    let config = Sizes {
        subjects: Selection::Named(vec!["haul".into()]),
        budget: 2 * TINY,
        ..Sizes::new(Function::Memcpy, vec![4096, 1 << 50])
    };
    let (done, found, warnings) = measured(|context| config.measure(context));
    assert_eq!(warnings, [""; 0]);
    let message = done.unwrap_err().to_string();
    assert!(message.contains("measure smaller sizes"), "{message}");
    assert_eq!(found.len(), 2);
}

#[test]
fn stopped_sweep_keeps_complete_sizes() {
    let config = Sizes { budget: 3 * TINY, ..Sizes::new(Function::Memcpy, vec![2048, 4096, 8192]) };
    let (done, found, warnings) = stopped_after(1, |context| config.measure(context));
    done.unwrap();
    assert_eq!(warnings, [""; 0]);
    assert!(
        !found.is_empty() && found.iter().all(|record| record.parameters["size_bytes"] == 2048)
    );
}

#[test]
fn bandwidth_is_measured_for_every_operation() {
    for operation in Operation::ALL {
        for threads in [1, 2] {
            let config = Bandwidth { operation, threads, size_bytes: 1 << 20, budget: TINY };
            let found = records(|context| config.measure(context));
            let first = if operation == Operation::Read { "loads" } else { "libc" };
            assert_eq!(found[0].subject, first);
            for record in &found {
                assert_eq!((record.metric.as_str(), record.unit.as_str()), ("throughput", "GB/s"));
                // The throughput must be between a kilobyte and ten terabytes per second, which
                // shows that the unit is right.
                assert!(record.samples.iter().all(|&rate| (1e-6..1e4).contains(&rate)));
            }
        }
    }
}

#[test]
fn faults_are_measured_for_both_kinds_of_pages() {
    for touch in [Touch::Write, Touch::Read] {
        let found = records(|context| Fault { touch, budget: 2 * TINY }.measure(context));
        assert_eq!(found.len(), 2);
        assert_eq!(found[1].parameters["pages"], "2MiB");
        assert_eq!(found[1].parameters["mode"], touch.name());
        let faults = found[0].parameters["page_faults"].as_u64().unwrap();
        let operations = found[0].parameters["operations_per_sample"].as_u64().unwrap();
        assert!(faults >= operations, "base pages fault once each: {faults} for {operations}");
    }
}

#[test]
fn tune_trains_and_decides() {
    let config = Tune { budget: TINY, size_max_bytes: Some(16 << 10), seed: 1, ..Tune::default() };
    let before = haul_copy::Policy::current();
    let mut tuned = None;
    let (done, found, warnings) = measured(|context| {
        tuned = Some(tune(&config, context)?);
        Ok::<(), Error>(())
    });
    done.unwrap();
    assert_eq!(warnings, [""; 0]);
    let tuned = tuned.unwrap();
    // The first records are the verdicts of the parts, which are not comparisons.
    let is_verdict = |record: &Record| record.parameters["phase"] == "verdict";
    let (decided, found): (Vec<_>, Vec<_>) = found.into_iter().partition(is_verdict);
    for (record, verdict) in decided.iter().zip(&tuned.verdicts) {
        assert_eq!(record.samples, [f64::from(u8::from(verdict.is_kept))], "{record:?}");
        assert_eq!(record.parameters["part"], verdict.part.name());
    }
    assert_eq!(decided.len(), tuned.verdicts.len());
    found.iter().for_each(check);
    assert_eq!(haul_copy::Policy::current(), before, "the policy is restored");
    assert!(!tuned.stopped);
    assert!(found.iter().all(|record| record.experiment == "copy.tune"));
    let of = |phase: &str| {
        found.iter().filter(|record| record.parameters["phase"] == phase).collect::<Vec<_>>()
    };
    // The methods of a copy are default, registers, string, string alike, stream and paged, at
    // four sizes with two readers. memset has neither paged nor alike.
    assert_eq!(of("train").len(), 2 * (4 * 6 + 4 * 4));
    for record in of("train").iter().chain(&of("choose")) {
        assert_eq!(record.comparison.as_ref().unwrap().baseline, "default");
    }
    for record in of("offsets") {
        assert_eq!(record.comparison.as_ref().unwrap().baseline, "registers");
        assert!(record.parameters["distance_bytes"].as_u64() > Some(4096), "{record:?}");
    }
    let is_checked = tuned.verdicts.iter().any(|verdict| verdict.ratio.is_some());
    assert_eq!(!of("check").is_empty(), is_checked);
    for verdict in &tuned.verdicts {
        assert_eq!(verdict.ratio.is_none(), verdict.found == verdict.base, "{verdict:?}");
        assert!(verdict.ratio.is_some() || !verdict.is_kept);
    }
    assert_eq!(tuned.verdicts.len(), 3);
    let last = tuned.verdicts.last().unwrap();
    assert_eq!(tuned.policy, if last.is_kept { last.found } else { last.base });
    stopped_tuning_keeps_the_defaults();
    one_of_a_run_has_the_default_policy();
}

/// This is not a separate test, because the policy belongs to the process, and tests run at the
/// same time.
fn stopped_tuning_keeps_the_defaults() {
    let (tuned, found, warnings) = stopped_after(0, |context| tune(&Tune::default(), context));
    let tuned = tuned.unwrap();
    assert!(found.is_empty() && warnings.is_empty(), "nothing was measured");
    assert!(tuned.stopped && tuned.verdicts.is_empty());
    assert_eq!(tuned.policy, haul_copy::Policy::for_this_processor().clamped());
}

/// This is not a separate test either, for the same reason.
fn one_of_a_run_has_the_default_policy() {
    let service = Shape::Distribution(Distribution::find("service").unwrap());
    let config = Drawn { untuned: true, budget: TINY, ..Drawn::new(Function::Memset, service) };
    let before = haul_copy::Policy::current();
    let found = records(|context| config.measure(context));
    assert_eq!(subjects(&found), ["libc", "haul", "haul-c", "haul-untuned"]);
    assert_eq!(found[3].parameters["call"], "inline");
    assert_eq!(haul_copy::Policy::current(), before, "the policy is restored");
}
