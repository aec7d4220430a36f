//! Rates as bars with intervals, a group for each size.

use std::fmt::Write as _;

use haul_model::experiment::key;
use haul_model::units::three_digits;
use haul_model::{Record, Verdict};

use super::run::{size, sizes, who};
use crate::select::field;
use crate::stats::quantile;
use crate::text::escape;

/// Units of the drawing.
const WIDTH: f64 = 960.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 350.0;
const ROW: f64 = 22.0;
const HEADING: f64 = 28.0;

/// The bars; nothing where there is no rate.
pub(super) fn html(records: &[&Record]) -> String {
    let rates: Vec<&Record> = records
        .iter()
        .copied()
        .filter(|record| record.metric.starts_with("rate_") && record.median().is_some())
        .collect();
    let high = |record: &&Record| quantile(&record.samples, 0.75).unwrap_or(0.0);
    let most = rates.iter().map(high).fold(0.0, f64::max);
    if most <= 0.0 {
        return String::new();
    }
    let groups = sizes(&rates);
    let height = HEADING * groups.len() as f64 + ROW * rates.len() as f64 + 8.0;
    let mut svg = format!(
        "<div class=\"wide\"><svg class=\"simchart\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\">\
         <title>Packets a second by size and by who forwards</title>"
    );
    let scale = |rate: f64| (WIDTH - LEFT - RIGHT) * rate / most;
    let mut y = 0.0;
    for group in groups {
        let _ = write!(
            svg,
            "<text x=\"0\" y=\"{:.1}\" font-weight=\"620\">{group} B</text>",
            y + HEADING - 8.0
        );
        y += HEADING;
        for record in rates.iter().filter(|record| size(record) == group) {
            bar(&mut svg, record, y, scale);
            y += ROW;
        }
    }
    svg + "</svg></div>"
}

fn bar(svg: &mut String, record: &Record, y: f64, scale: impl Fn(f64) -> f64) {
    let median = record.median().unwrap_or(0.0);
    let part = |share| quantile(&record.samples, share).unwrap_or(median);
    let (width, low, high) = (scale(median), scale(part(0.25)), scale(part(0.75)));
    let colour = match (record.subject.as_str(), field(record, key::COPY).as_deref()) {
        ("haul", Some("none" | "empty")) => "--limit",
        ("haul", Some("haul")) => "--haul",
        ("haul", Some("libc")) => "--s2",
        ("haul", _) => "--s3",
        _ => "--baseline",
    };
    let middle = y + ROW / 2.0;
    let kind = if record.metric == "rate_peak" { "" } else { " (no loss)" };
    let _ = write!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}{kind}</text>\
         <rect x=\"{LEFT}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{:.1}\" style=\"fill:var({colour})\"/>\
         <line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{middle:.1}\" y2=\"{middle:.1}\" style=\"stroke:var(--ink);stroke-width:2\"/>",
        LEFT - 8.0,
        middle + 4.0,
        escape(&who(record)),
        y + 3.0,
        ROW - 6.0,
        LEFT + low,
        LEFT + high,
    );
    let _ = write!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        LEFT + width.max(high) + 8.0,
        middle + 4.0,
        escape(&words(record, median))
    );
}

/// `12.3 Mpps, 1.12 times testpmd’s (1.08–1.16)`.
fn words(record: &Record, median: f64) -> String {
    let rate = format!("{} Mpps", three_digits(median / 1e6));
    let own = field(record, key::COPY).unwrap_or_default();
    let comparison =
        record.comparison.as_ref().filter(|it| it.baseline != record.subject && it.baseline != own);
    let Some(it) = comparison else { return rate };
    let same = if it.verdict() == Verdict::NoDifference { ", no difference" } else { "" };
    format!(
        "{rate}, {:.2} times {}’s ({:.2}–{:.2}){same}",
        it.ratio, it.baseline, it.ratio_low, it.ratio_high
    )
}
