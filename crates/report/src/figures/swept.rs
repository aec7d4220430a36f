//! The plot of a sweep: the setting with the most values is the axis, and each combination of the
//! others is a line.
//!
//! Only the records of a sweep name the settings that it varies, so that no [`super::Drawing`] can
//! list them.

use std::collections::BTreeSet;

use haul_model::experiment::{key, name};
use haul_model::{Bytes, Record};

use super::views::{empty, show_few, six_digits};
use super::{Mode, Plot, Role, Shape, View};
use crate::rerun;
use crate::select::{field, is_condition, parameter_names};
use crate::stats::quantile;
use crate::text;

/// An experiment that varies settings, with its metrics.
struct Sweep {
    experiment: &'static str,
    /// Each metric of its records, with the mode that shows it.
    metrics: &'static [(&'static str, Mode)],
    /// Whether the metrics are lines of one plot instead of modes of it, because they have one
    /// unit.
    is_together: bool,
    /// The setting on the axis; `None` for the number with the most values.
    axis: Option<&'static str>,
}

const fn mode(name: &'static str, label: &'static str, title: &'static str) -> Mode {
    Mode { name, label, title, log: false }
}

const BYTES_PER_S: Mode = mode("bytes_rate", "bytes/s", "bytes a second");

const SWEEPS: [Sweep; 4] = [
    Sweep {
        experiment: name::SIM_SWEEP,
        metrics: &[
            ("cycles_per_packet", mode("cycles_per_packet", "cycles a packet", "cycles a packet")),
            ("time", mode("cycles", "cycles", "cycles")),
            ("instructions", mode("instructions", "instructions", "instructions")),
        ],
        is_together: false,
        axis: None,
    },
    Sweep {
        experiment: name::SIM_WORKERS,
        metrics: &[
            ("time", mode("seconds", "s", "seconds")),
            ("efficiency", mode("efficiency", "of one worker’s", "efficiency")),
        ],
        is_together: false,
        axis: Some("workers"),
    },
    Sweep {
        experiment: name::PCIE_BANDWIDTH,
        metrics: &[("throughput", mode("gigabits", "Gb/s", "Gb/s of packet data"))],
        is_together: false,
        axis: Some(key::SIZE_BYTES),
    },
    Sweep {
        experiment: name::PCIE_ESTIMATE,
        metrics: &[
            ("inbound_read", BYTES_PER_S),
            ("inbound_write", BYTES_PER_S),
            ("outbound_write", BYTES_PER_S),
        ],
        is_together: true,
        axis: Some(key::SIZES_BYTES),
    },
];

/// Limits of an axis's values and of lines, beyond which a reader cannot use the plot; the table
/// has them all.
const PLACES_MAX: usize = 4096;
const LINES_MAX: usize = 64;

/// Parameters that describe a task and differ between tasks; they are not settings.
const NO_SETTINGS: [&str; 4] = [key::TASK, key::DIGEST, key::BINDS, key::HEADER_BYTES_PER_S];

/// A record with its position.
struct Point<'a> {
    mode: Mode,
    series: String,
    label: String,
    x: f64,
    record: &'a Record,
}

/// The plot of these records of one experiment; `None` if it is not a sweep, or nothing varies.
pub(super) fn plot(experiment: &str, records: &[&Record]) -> Option<Plot> {
    let sweep = SWEEPS.iter().find(|sweep| sweep.experiment == experiment)?;
    let own: Vec<&Record> =
        records.iter().copied().filter(|record| sweep.mode_of(record).is_some()).collect();
    let varied = varied(&own);
    let axis = sweep.axis_of(&own, &varied)?;
    let is_numeric = own.iter().all(|record| number(record, axis).is_some());
    let others: Vec<&str> = varied.into_iter().filter(|name| *name != axis).collect();
    let points: Vec<Point<'_>> =
        own.iter().filter_map(|record| sweep.point(record, axis, is_numeric, &others)).collect();
    let modes = sweep.modes(&own);
    let places = places(&points, is_numeric);
    let names = distinct(points.iter().map(|point| point.series.as_str()));
    if places.len() < 2 || places.len() > PLACES_MAX || names.len() > LINES_MAX {
        return None;
    }
    let shape = match (is_numeric, is_of_bytes(axis)) {
        (false, _) => Shape::Dots,
        (true, true) if places[0].0 > 0.0 => Shape::Sizes,
        (true, _) => Shape::Counts,
    };
    let mut series: Vec<_> =
        names.iter().map(|name| empty(name, Role::Other, modes.len(), places.len())).collect();
    for point in &points {
        let of_series = names.iter().position(|name| *name == point.series);
        let place = places.iter().position(|(_, label)| *label == point.label);
        let mode = modes.iter().position(|mode| *mode == point.mode);
        let (Some(of_series), Some(place), Some(mode)) = (of_series, place, mode) else { continue };
        let (series, samples) = (&mut series[of_series], &point.record.samples);
        series.kind = text::kind(point.record.kind);
        series.y[mode][place] = point.record.median().map(six_digits);
        series.low[mode][place] = quantile(samples, 0.25).map(six_digits);
        series.high[mode][place] = quantile(samples, 0.75).map(six_digits);
    }
    show_few(&mut series);
    let view = View {
        choice: Vec::new(),
        x: places.iter().map(|(x, _)| *x).collect(),
        labels: places.into_iter().map(|(_, label)| label).collect(),
        series,
        rerun: rerun_of(&own),
    };
    Some(Plot {
        shape,
        x_title: reader_name(axis),
        modes,
        guides: Vec::new(),
        controls: Vec::new(),
        views: vec![view],
    })
}

impl Sweep {
    /// The index of a record's metric, if it can be drawn.
    fn mode_of(&self, record: &Record) -> Option<usize> {
        record.median().filter(|median| median.is_finite())?;
        self.metrics.iter().position(|(metric, _)| record.metric == *metric)
    }

    /// The metrics of the records as modes; a single mode if all are lines of one plot.
    fn modes(&self, records: &[&Record]) -> Vec<Mode> {
        let has = |metric: &str| records.iter().any(|record| record.metric == metric);
        let modes = self.metrics.iter().filter(|(metric, _)| has(metric)).map(|(_, mode)| *mode);
        if self.is_together { modes.take(1).collect() } else { modes.collect() }
    }

    /// The setting on the axis: the setting that the experiment prescribes, or else the number
    /// with the most values, or else any setting that varies.
    fn axis_of<'a>(&self, records: &[&Record], varied: &[&'a str]) -> Option<&'a str> {
        if let Some(axis) = self.axis {
            return varied.iter().copied().find(|name| *name == axis);
        }
        let values = |name: &str| distinct_values(records, name);
        let is_number = |name: &&str| records.iter().all(|record| number(record, name).is_some());
        let numbers = varied.iter().copied().filter(is_number);
        // Of two settings with equally many values, the first one: `max_by_key` returns the last.
        let most = numbers.rev().max_by_key(|name| values(name));
        most.or_else(|| varied.iter().copied().rev().max_by_key(|name| values(name)))
    }

    fn point<'a>(
        &self,
        record: &'a Record,
        axis: &str,
        is_numeric: bool,
        others: &[&str],
    ) -> Option<Point<'a>> {
        let (_, mode) = self.metrics[self.mode_of(record)?];
        let said = |name: &&str| {
            let value = field(record, name)?;
            Some(if others.len() == 1 { value } else { format!("{} {value}", reader_name(name)) })
        };
        let mut parts: Vec<String> = others.iter().filter_map(said).collect();
        if self.is_together {
            parts.insert(0, record.metric.replace('_', " "));
        }
        if parts.is_empty() {
            parts.push(record.subject.clone());
        }
        let x = if is_numeric { number(record, axis)? } else { 0.0 };
        let label = match (is_numeric, is_of_bytes(axis)) {
            (true, true) => Bytes(whole(x)?).to_string(),
            (true, false) => format!("{} {x}", reader_name(axis)),
            (false, _) => field(record, axis)?,
        };
        Some(Point { mode, series: parts.join(", "), label, x, record })
    }
}

/// Settings that differ between records.
fn varied<'a>(records: &[&'a Record]) -> Vec<&'a str> {
    let is_setting = |name: &str| is_condition(name) && !NO_SETTINGS.contains(&name);
    let mut names = parameter_names(records.iter().copied(), is_setting);
    names.retain(|name| distinct_values(records, name) > 1);
    names
}

/// The command that repeats the sweep, if the records name it. A survey does not include sweeps.
fn rerun_of(records: &[&Record]) -> String {
    let says = records.iter().any(|record| record.parameters.contains_key(key::RERUN));
    if says { rerun::command_of_all(records) } else { String::new() }
}

/// The title and description of a sweep's plot, unless another module has them.
pub(super) fn heading(experiment: &str) -> Option<(&'static str, &'static str)> {
    match experiment {
        name::PCIE_ESTIMATE => Some((
            "PCIe traffic by packet size",
            "The data that packets of each size move across the link, by the rules of the NIC’s driver: \
             from the device (inbound writes), to it (inbound reads), and by the processor \
             (outbound writes). Headers and every term are in the table.",
        )),
        name::PCIE_BANDWIDTH => Some((
            "Packet data that a link carries, by size",
            "The upper limit by the public model of pcie-bench, for each of its NICs.",
        )),
        _ => None,
    }
}

fn distinct_values(records: &[&Record], name: &str) -> usize {
    records.iter().map(|record| field(record, name)).collect::<BTreeSet<_>>().len()
}

/// The values of an axis, ascending. Rows keep the order of the records, at 0, 1 and so on.
fn places(points: &[Point<'_>], is_numeric: bool) -> Vec<(f64, String)> {
    let mut seen = BTreeSet::new();
    let new = points.iter().filter(|point| seen.insert(point.label.as_str()));
    let mut places: Vec<(f64, String)> = new.map(|point| (point.x, point.label.clone())).collect();
    if is_numeric {
        places.sort_by(|a, b| a.0.total_cmp(&b.0));
    } else {
        #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 rows")]
        places.iter_mut().enumerate().for_each(|(row, place)| place.0 = row as f64);
    }
    places
}

fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    names.filter(|name| seen.insert(*name)).map(str::to_owned).collect()
}

/// A setting as a number. Sizes of the form `64:1` are one size.
fn number(record: &Record, name: &str) -> Option<f64> {
    let value = record.parameters.get(name)?;
    let number = match (name, value.as_str()) {
        (key::SIZES_BYTES, Some(text)) => text.strip_suffix(":1")?.parse().ok(),
        _ => value.as_f64(),
    };
    number.filter(|number| number.is_finite())
}

fn is_of_bytes(name: &str) -> bool {
    name.ends_with("_bytes")
}

fn whole(value: f64) -> Option<u64> {
    format!("{value:.0}").parse().ok()
}

/// The name of a setting for the reader: `engine.share_percent` becomes `engine.share percent`.
fn reader_name(name: &str) -> String {
    match name {
        key::SIZE_BYTES | key::SIZES_BYTES => "size".into(),
        _ => name.replace('_', " "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(metric: &str, settings: &[(&str, serde_json::Value)], value: f64) -> Record {
        let mut record = Record::new("r", name::SIM_SWEEP, "haul", metric, "cycles");
        for (name, value) in settings {
            record = record.with(name, value.clone());
        }
        record.samples = vec![value];
        record
    }

    fn drawn(experiment: &str, records: &[Record]) -> Option<Plot> {
        plot(experiment, &records.iter().collect::<Vec<_>>())
    }

    #[test]
    fn number_with_most_values_is_the_axis_and_other_settings_are_lines() {
        let mut records = Vec::new();
        for (task, share) in [20, 5, 10].into_iter().enumerate() {
            for issue in ["in-order", "out-of-order"] {
                let settings = [
                    ("engine.share_percent", share.into()),
                    ("core.issue", issue.into()),
                    (key::TASK, task.into()),
                ];
                records.push(record("cycles_per_packet", &settings, 100.0 + f64::from(share)));
                records.push(record("instructions", &settings, 7.0));
            }
        }
        let plot = drawn(name::SIM_SWEEP, &records).unwrap();
        assert_eq!((plot.shape, plot.x_title.as_str()), (Shape::Counts, "engine.share percent"));
        assert_eq!(plot.modes.len(), 2);
        let view = &plot.views[0];
        assert_eq!(view.x, [5.0, 10.0, 20.0]);
        let names: Vec<&str> = view.series.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names, ["in-order", "out-of-order"]);
        assert_eq!(view.series[0].y[0], [Some(105.0), Some(110.0), Some(120.0)]);
        assert_eq!(view.series[1].y[1], [Some(7.0); 3]);
    }

    #[test]
    fn text_setting_is_shown_as_rows() {
        let records: Vec<Record> = ["sync", "async", "both"]
            .into_iter()
            .map(|policy| record("time", &[("engine.policy", policy.into())], 5.0))
            .collect();
        let plot = drawn(name::SIM_SWEEP, &records).unwrap();
        assert_eq!(plot.shape, Shape::Dots);
        assert_eq!(plot.views[0].labels, ["sync", "async", "both"]);
        assert_eq!(plot.views[0].x, [0.0, 1.0, 2.0]);
        assert_eq!(plot.views[0].series[0].name, "haul");
    }

    #[test]
    fn sizes_of_an_estimate_are_an_axis_of_bytes() {
        let mut records = Vec::new();
        for size in [64, 65, 128] {
            for metric in ["inbound_read", "outbound_write", "rate_max"] {
                let settings = [(key::SIZES_BYTES, format!("{size}:1").into())];
                records.push(record(metric, &settings, f64::from(size)));
            }
        }
        let plot = drawn(name::PCIE_ESTIMATE, &records).unwrap();
        assert_eq!(
            (plot.shape, plot.x_title.as_str(), plot.modes.len()),
            (Shape::Sizes, "size", 1)
        );
        assert_eq!(plot.views[0].labels, ["64 B", "65 B", "128 B"]);
        let names: Vec<&str> =
            plot.views[0].series.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names, ["inbound read", "outbound write"]);
        // A mix has no position on an axis, and one size is not a sweep.
        assert!(drawn(name::PCIE_ESTIMATE, &records[..3]).is_none());
    }

    #[test]
    fn records_without_variation_or_numbers_draw_nothing() {
        assert!(drawn(name::SIM_SWEEP, &[]).is_none());
        assert!(drawn(name::COPY_SIZE, &[record("time", &[], 1.0)]).is_none());
        let same = record("time", &[("x", 1.into())], f64::NAN);
        assert!(drawn(name::SIM_SWEEP, &[same.clone(), same]).is_none());
        let many: Vec<Record> =
            (0..5000).map(|n| record("time", &[("x", n.into())], 1.0)).collect();
        assert!(drawn(name::SIM_SWEEP, &many).is_none());
    }
}
