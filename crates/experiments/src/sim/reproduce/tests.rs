//! Tests how cells, mean error and tiers follow from cycles, with hand-made runs that have the
//! paper's figures, and with the committed record.

use std::path::Path;

use haul_model::{Line, Record};

use super::*;
use crate::context::measured;
use crate::sim::paper::{COPY_SHARES, FIGURE_8, Row, TABLE_2};

/// BASE's cycles per packet at 80 ns. Only ratios count, so that any value can be used.
const BASE: f64 = 10_000.0;

fn point(payload_bytes: u64, mode: Mode, in_order: bool, overlap: bool) -> Point {
    Point { payload_bytes, in_order, overlap, ..Point::usual(mode, 0) }
}

fn simulated(cycles: f64) -> Simulated {
    Simulated { cycles_per_packet: Some(cycles), ..Simulated::default() }
}

/// `cycles` reduced by this many percent.
fn less(cycles: f64, percent: f64) -> f64 {
    cycles * (1.0 - percent / 100.0)
}

/// Runs with the paper's Table 2, changed by `moved` for each row in points, and with the figures
/// of the paper's text.
fn runs(moved: impl Fn(&Row) -> f64) -> Vec<(Point, f64)> {
    let mut runs = Vec::new();
    for row in &TABLE_2 {
        let at = |mode, overlap| point(row.payload_bytes, mode, row.in_order, overlap);
        runs.push((at(Mode::Base, true), BASE));
        runs.push((at(row.mode, true), less(BASE, row.overall + moved(row))));
        runs.push((at(row.mode, false), less(BASE, row.faster_copies)));
    }
    let slow = BASE / 0.82;
    for mode in Mode::ALL {
        let usual = Point::usual(mode, 0);
        let row = TABLE_2.iter().find(|row| {
            (row.payload_bytes, row.mode, row.in_order) == (usual.payload_bytes, mode, false)
        });
        let at_80 = less(BASE, row.map_or(0.0, |row| row.overall));
        runs.push((Point { channels: 1, ..usual.clone() }, at_80 * 1.4));
        for (latency_ns, more) in [(95, 0.1), (110, 0.2)] {
            let published = FIGURE_8.iter().find(|entry| (entry.0, entry.1) == (mode, latency_ns));
            let cycles = published.map_or(at_80 + slow * more / 100.0, |entry| less(slow, entry.2));
            runs.push((Point { latency_ns, ..usual.clone() }, cycles));
        }
    }
    runs
}

fn results(runs: Vec<(Point, f64)>) -> Results {
    let mut results = Results::new(1200, String::new());
    runs.into_iter().for_each(|(point, cycles)| results.add(point, simulated(cycles)));
    results
}

/// All records that follow from runs.
fn records_of(results: &Results) -> Vec<Record> {
    let ((), found, warnings) = measured(Vec::new(), |context| {
        derive::emit(Calibration::None, results, 0, context);
        tiers::emit(Calibration::None, results, context);
    });
    assert_eq!(warnings, [""; 0]);
    found
}

fn mean_error(records: &[Record]) -> f64 {
    let is_mean = |record: &&Record| record.metric == "mean_absolute_error";
    records.iter().find(is_mean).expect("there is one").samples[0]
}

/// The value of a cell of Table 2, and its error compared with the paper.
fn cell(records: &[Record], metric: &str, row: &Row) -> (f64, f64) {
    let found = records.iter().find(|record| {
        record.experiment == "sim.table2"
            && record.metric == metric
            && record.parameters["mode"] == row.mode.name()
            && record.parameters["payload_bytes"] == row.payload_bytes
            && (record.parameters["core"] == "in-order") == row.in_order
    });
    let found = found.expect("every cell has a record");
    (found.samples[0], found.parameters["error_points"].as_f64().expect("a number"))
}

/// The tiers that are reached, as `ABC`.
fn tiers_of(records: &[Record]) -> String {
    let holds = records.iter().filter(|record| record.metric == "tier" && record.samples[0] == 1.0);
    holds.filter_map(|record| record.parameters["tier"].as_str()).collect()
}

/// The checks that failed, with their values.
fn failures(records: &[Record]) -> Vec<(String, f64)> {
    let failed =
        records.iter().filter(|record| record.metric == "check" && record.samples[0] == 0.0);
    let what = |record: &Record| record.parameters["what"].as_str().map(str::to_owned);
    failed
        .map(|record| {
            (what(record).expect("a name"), record.parameters["value"].as_f64().expect("a value"))
        })
        .collect()
}

fn is(row: &Row, payload_bytes: u64, mode: Mode, in_order: bool) -> bool {
    (row.payload_bytes, row.mode, row.in_order) == (payload_bytes, mode, in_order)
}

#[test]
fn paper_cycles_give_its_table_and_pass_every_tier() {
    let records = records_of(&results(runs(|_| 0.0)));
    for row in TABLE_2.iter().filter(|row| row.disputed.is_none()) {
        let (overall, error) = cell(&records, "overall", row);
        assert!((overall - row.overall).abs() < 1e-9 && error.abs() < 1e-9, "{row:?}");
        let (faster, _) = cell(&records, "faster_copies", row);
        assert!((faster - row.faster_copies).abs() < 1e-9, "{row:?}: {faster}");
        let (overlap, _) = cell(&records, "overlap", row);
        assert!((overlap - (row.overall - row.faster_copies)).abs() < 1e-9, "{row:?}: {overlap}");
    }
    assert!(mean_error(&records) < 1e-9);
    assert_eq!(tiers_of(&records), "ABC", "{:?}", failures(&records));
}

#[test]
fn error_is_own_value_minus_paper_value() {
    let base = derive::reduction(200.0, 150.0);
    assert!((base - 25.0).abs() < 1e-9, "a quarter less, not more: {base}");
    for moved in [-4.9, 4.9] {
        let records = records_of(&results(runs(|row| {
            if is(row, 1400, Mode::SyncNlb, true) { moved } else { 0.0 }
        })));
        let row = TABLE_2.iter().find(|row| is(row, 1400, Mode::SyncNlb, true)).expect("a row");
        let (overall, error) = cell(&records, "overall", row);
        assert!((overall - row.overall - moved).abs() < 1e-9 && (error - moved).abs() < 1e-3);
        assert!((mean_error(&records) - 4.9 / 16.0).abs() < 1e-9, "errors do not cancel");
    }
}

#[test]
fn tier_b_checks_each_row_and_the_mean() {
    let moved = |in_order: bool, points: f64| {
        let here = move |row: &Row| if is(row, 1400, Mode::Async, in_order) { points } else { 0.0 };
        records_of(&results(runs(here)))
    };
    for (in_order, limit) in [(true, 5.0), (false, 8.0)] {
        for sign in [-1.0, 1.0] {
            let within = moved(in_order, sign * (limit - 0.1));
            assert!(tiers_of(&within).contains('B'), "{:?}", failures(&within));
            let beyond = moved(in_order, sign * (limit + 0.1));
            assert!(!tiers_of(&beyond).contains('B'));
            let failed: Vec<f64> = failures(&beyond)
                .into_iter()
                .filter(|(what, _)| what.starts_with("1400 B ASYNC") && what.contains("within"))
                .map(|(_, value)| value)
                .collect();
            assert_eq!(failed, [sign * (limit + 0.1)], "in order: {in_order}");
        }
    }
    let records = records_of(&results(runs(|_| 4.1)));
    assert!(!tiers_of(&records).contains('B'), "every row is within its limit, the mean is not");
    let named = ("mean absolute error at most 4 points".to_owned(), 4.1);
    assert!(failures(&records).contains(&named), "{:?}", failures(&records));
    assert!(!failures(&records).iter().any(|(what, _)| what.contains("within")));
    assert!(tiers_of(&records_of(&results(runs(|_| -3.9)))).contains('B'));
}

#[test]
fn tier_c_checks_figure_8_with_its_sign() {
    for (percent, value) in [(13.0, 3.0), (7.0, -3.0)] {
        let mut runs = runs(|_| 0.0);
        let is_it = |point: &Point| {
            point.mode == Mode::Base && (point.latency_ns, point.channels) == (95, 2)
        };
        let run = runs.iter_mut().find(|(point, _)| is_it(point)).expect("BASE at 95 ns");
        run.1 = less(BASE / 0.82, percent);
        let records = records_of(&results(runs));
        assert_eq!(tiers_of(&records), "AB");
        let named = "BASE at 95 ns: 10% less than BASE at 110".to_owned();
        assert_eq!(failures(&records), [(named, value)]);
    }
}

#[test]
fn tier_a_fails_for_wrong_ordering_and_missing_run() {
    // These runs are slower with bypass than without.
    let swapped = |row: &Row| match row.mode {
        Mode::SyncWlb if row.payload_bytes == 1024 && row.in_order => -7.0,
        _ => 0.0,
    };
    let records = records_of(&results(runs(swapped)));
    assert!(!tiers_of(&records).contains('A'));
    let named = ("1024 B in order: bypass is better than none".to_owned(), -0.6);
    assert!(failures(&records).contains(&named), "{:?}", failures(&records));
    let without = runs(|_| 0.0).into_iter().filter(|(point, _)| point.channels == 2).collect();
    let records = records_of(&results(without));
    assert_eq!(tiers_of(&records), "BC", "Figure 7 was not run");
    assert_eq!(tiers_of(&records_of(&results(Vec::new()))), "");
}

/// The committed record of the quick form, without measured figures.
fn recorded() -> Vec<Record> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../bench/record/2026-11-22-sim-paper/quick.jsonl");
    let lines = haul_model::parse(&std::fs::read_to_string(path).expect("it exists"));
    let records = lines.expect("records").into_iter().filter_map(|line| match line {
        Line::Record(record) if record.kind == Kind::Modelled => Some(record),
        _ => None,
    });
    records.collect()
}

/// A recorded run's machine.
fn point_of(record: &Record) -> Point {
    let number = |name: &str| record.parameters[name].as_u64().expect("a number");
    let mode = Mode::ALL.into_iter().find(|mode| record.parameters["mode"] == mode.name());
    Point {
        payload_bytes: number("payload_bytes"),
        mode: mode.expect("a mode"),
        in_order: record.parameters["core"] == "in-order",
        overlap: record.parameters["overlap"] == true,
        channels: u32::try_from(number("channels")).expect("few"),
        latency_ns: number("latency_ns"),
        work: number("work"),
    }
}

#[test]
fn record_follows_from_runs_with_documented_accuracy() {
    let recorded = recorded();
    // Runs with work belong to the runs with the knob, and to the runs that probed it.
    let is_run =
        |record: &&Record| record.experiment == "sim.run" && record.parameters["work"] == 0;
    let runs = recorded.iter().filter(is_run).map(|run| (point_of(run), run.samples[0]));
    let again = records_of(&results(runs.collect()));
    let is_none = |record: &&Record| {
        record.experiment != "sim.run" && record.parameters["calibration"] == "none"
    };
    let wanted: Vec<&Record> = recorded.iter().filter(is_none).collect();
    assert_eq!(again.len(), wanted.len());
    for (record, wanted) in again.iter().zip(wanted) {
        let what = |record: &Record| (record.experiment.clone(), record.metric.clone());
        assert_eq!(what(record), what(wanted));
        assert_eq!(record.parameters, wanted.parameters);
        assert_eq!(record.samples, wanted.samples, "{:?}", wanted.parameters);
        assert_eq!(record.comparison, wanted.comparison);
    }
    assert!(mean_error(&again) < 4.0, "{}", mean_error(&again));
    assert_eq!((tiers_of(&again).as_str(), failures(&again)), ("ABC", Vec::new()));
    assert_eq!(COPY_SHARES.len(), again.iter().filter(|r| r.metric == "copy_share").count());
}
