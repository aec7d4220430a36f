//! Computes the paper's figures from cycles.

use haul_model::experiment::{key, name};
use haul_model::{Comparison, Kind, Record};

use super::point::{Calibration, FIGURE_PAYLOAD, Results, issue, modes};
use crate::context::Context;
use crate::sim::paper::{COPY_SHARES, FIGURE_8, Mode, Row, TABLE_2};

/// A row of haul's Table 2, in percent: the overall reduction, the part due to faster copies, and
/// the part due to overlap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ours {
    pub(super) overall: f64,
    pub(super) faster_copies: f64,
    pub(super) overlap: f64,
}

/// haul's row for a row of the paper.
pub(super) fn ours(row: &Row, results: &Results) -> Option<Ours> {
    let cycles = |mode, overlap| results.row(row.payload_bytes, mode, row.in_order, overlap);
    let base = cycles(Mode::Base, true)?;
    let overall = reduction(base, cycles(row.mode, true)?);
    let faster_copies = reduction(base, cycles(row.mode, false)?);
    Some(Ours { overall, faster_copies, overlap: overall - faster_copies })
}

/// The reduction from the first value to the second, in percent.
pub(super) fn reduction(base: f64, cycles: f64) -> f64 {
    (1.0 - cycles / base) * 100.0
}

/// Execution time in Figure 8's unit: percent of BASE at 110 ns.
pub(super) fn figure_8(results: &Results, mode: Mode, latency_ns: u64) -> Option<f64> {
    let cycles = |mode, latency_ns| of_figures(results, mode, 2, latency_ns);
    Some(cycles(mode, latency_ns)? / cycles(Mode::Base, 110)? * 100.0)
}

/// Execution time in Figure 7's unit: percent of BASE at 3.2 GB/s.
pub(super) fn figure_7(results: &Results, mode: Mode, channels: u32) -> Option<f64> {
    let cycles = |mode, channels| of_figures(results, mode, channels, 80);
    Some(cycles(mode, channels)? / cycles(Mode::Base, 1)? * 100.0)
}

fn of_figures(results: &Results, mode: Mode, channels: u32, latency_ns: u64) -> Option<f64> {
    results.cycles(|point| {
        (point.payload_bytes, point.mode, point.in_order, point.overlap)
            == (FIGURE_PAYLOAD, mode, false, true)
            && (point.channels, point.latency_ns) == (channels, latency_ns)
    })
}

/// Emits the records of a calibration's table and figures.
pub(super) fn emit(
    calibration: Calibration,
    results: &Results,
    work: u64,
    context: &mut Context<'_>,
) {
    let work = if calibration == Calibration::None { 0 } else { work };
    let mut records = table_2(calibration, results);
    records.extend(figures(calibration, results));
    records.extend(copy_shares(calibration, results, work));
    records.into_iter().for_each(|record| context.emit(record));
}

fn record(
    calibration: Calibration,
    results: &Results,
    experiment: &str,
    (metric, unit): (&str, &str),
    value: f64,
) -> Record {
    let mut record = Record::new("", experiment, "haul", metric, unit)
        .with(key::CALIBRATION, calibration.name())
        .with(key::PACKETS, results.packets);
    record.samples = vec![value];
    record.kind = Kind::Modelled;
    record
}

fn table_2(calibration: Calibration, results: &Results) -> Vec<Record> {
    let cell_of = |metric: &str, unit: &str, value: f64| {
        record(calibration, results, name::SIM_TABLE2, (metric, unit), value)
    };
    let (mut errors, mut errors_faster) = (Vec::new(), Vec::new());
    let mut records = Vec::new();
    for row in &TABLE_2 {
        let Some(ours) = ours(row, results) else {
            continue;
        };
        if row.disputed.is_none() {
            errors.push((ours.overall - row.overall).abs());
            errors_faster.push((ours.faster_copies - row.faster_copies).abs());
        }
        for (metric, value, paper) in [
            ("overall", ours.overall, row.overall),
            ("faster_copies", ours.faster_copies, row.faster_copies),
            ("overlap", ours.overlap, row.overlap),
        ] {
            let cell = cell_of(metric, "%", value)
                .with(key::PAYLOAD_BYTES, row.payload_bytes)
                .with(key::MODE, row.mode.name())
                .with(key::CORE, issue(row.in_order).name());
            let cell = beside_paper(cell, value, paper);
            records.push(match row.disputed {
                Some(why) => cell.with(key::DISPUTED, why),
                None => cell,
            });
        }
    }
    let mean = |errors: &[f64]| errors.iter().sum::<f64>() / errors.len().max(1) as f64;
    for (metric, errors) in
        [("mean_absolute_error", &errors), ("mean_absolute_error_faster_copies", &errors_faster)]
    {
        records.push(cell_of(metric, "points", mean(errors)).with(key::ROWS, errors.len()));
    }
    records
}

fn figures(calibration: Calibration, results: &Results) -> Vec<Record> {
    let point = |experiment: &str, mode: Mode, value: f64| {
        let records = record(calibration, results, experiment, ("execution_time", "%"), value);
        records.with(key::MODE, mode.name())
    };
    let mut records = Vec::new();
    for mode in modes() {
        for (channels, gb_per_s) in [(1, 3.2), (2, 6.4)] {
            if let Some(value) = figure_7(results, mode, channels) {
                let record = point(name::SIM_FIGURE7, mode, value);
                records.push(record.with(key::BANDWIDTH_GB_PER_S, gb_per_s));
            }
        }
        for latency_ns in [80_u64, 95, 110] {
            let Some(value) = figure_8(results, mode, latency_ns) else {
                continue;
            };
            let record = point(name::SIM_FIGURE8, mode, value).with(key::LATENCY_NS, latency_ns);
            let is = |entry: &&(Mode, u64, f64)| (entry.0, entry.1) == (mode, latency_ns);
            records.push(match FIGURE_8.iter().find(is) {
                Some((_, _, reduction)) => beside_paper(record, value, 100.0 - reduction),
                None => record,
            });
        }
    }
    records
}

fn copy_shares(calibration: Calibration, results: &Results, work: u64) -> Vec<Record> {
    let Some(line) = results.base_line(work) else {
        return Vec::new();
    };
    let share = |(payload_bytes, paper): (u64, f64)| {
        let value = line.copy_share(payload_bytes, 0.0);
        let records =
            record(calibration, results, name::SIM_COPY_SHARE, ("copy_share", "%"), value)
                .with(key::PAYLOAD_BYTES, payload_bytes)
                .with(key::WORK, work)
                .with(key::COMPUTE_CYCLES, line.fixed.round())
                .with(key::CYCLES_PER_LINE, (line.per_byte * 640.0).round() / 10.0);
        beside_paper(records, value, paper)
    };
    COPY_SHARES.into_iter().map(share).collect()
}

/// A record compared with the paper's value: the value itself, the error in points, and the ratio,
/// which is 0 if the signs differ.
fn beside_paper(record: Record, value: f64, paper: f64) -> Record {
    let ratio = (value / paper).max(0.0);
    let ratio = if ratio.is_finite() { ratio } else { 0.0 };
    let rounded = |value: f64| (value * 1000.0).round() / 1000.0;
    let mut record =
        record.with(key::BASELINE_VALUE, paper).with(key::ERROR_POINTS, rounded(value - paper));
    record.comparison = Some(Comparison {
        baseline: "paper".into(),
        ratio,
        ratio_low: ratio,
        ratio_high: ratio,
        floor: 0.0,
    });
    record
}
