//! The intervals of a field test, and its runs in their order, as SVG.

use std::fmt::Write as _;

use haul_model::units::three_digits;
use haul_model::{Comparison, Record};

use super::sentence::shortened;
use crate::text::{self, escape};

/// Dimensions of a drawing in its own units.
const WIDTH: f64 = 720.0;
const LEFT: f64 = 130.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 34.0;
/// The height of a row with an interval, and of the drawing of the runs.
const ROW: f64 = 30.0;
const RUNS_HEIGHT: f64 = 240.0;
/// The number of ticks of an axis.
const TICKS: usize = 5;
/// A row for each quantity: its ratio, its interval and its floor.
pub(super) fn intervals(rows: &[&Record]) -> String {
    let rows: Vec<(&Record, Comparison)> = rows
        .iter()
        .filter_map(|record| Some((*record, record.cost()?)))
        .filter(|(_, it)| it.ratio_low > 0.0 && it.ratio_high < 1e6 && it.floor < 1e6)
        .collect();
    // The axis is logarithmic, so that twice and half are equally far from 1.
    let ends = rows.iter().flat_map(|(_, it)| [it.ratio_low, it.ratio_high, 1.0 + it.floor]);
    let far = ends.map(|end| end.ln().abs()).fold(0.005, f64::max) * 1.1;
    if rows.is_empty() {
        return String::new();
    }
    let at = |ratio: f64| LEFT + (WIDTH - LEFT - RIGHT) * (ratio.ln() + far) / (2.0 * far);
    let height = TOP + ROW * rows.len() as f64 + BOTTOM;
    let mut svg = open("Ratio with the change over without, in cost", height);
    for tick in 0..TICKS {
        let ratio = (2.0 * far * tick as f64 / (TICKS - 1) as f64 - far).exp();
        let label = if tick == TICKS / 2 { "1".into() } else { format!("{ratio:.3}") };
        let _ = write!(
            svg,
            "<line x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{TOP}\" y2=\"{1:.1}\" style=\"stroke:var(--rule)\"/>\
             <text x=\"{0:.1}\" y=\"{2:.1}\" text-anchor=\"middle\">{label}</text>",
            at(ratio),
            height - BOTTOM,
            height - BOTTOM + 16.0
        );
    }
    for (row, (record, it)) in rows.iter().enumerate() {
        let y = TOP + ROW * (row as f64 + 0.5);
        let _ = write!(
            svg,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" style=\"fill:var(--band)\"/>\
             <line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" style=\"stroke:var(--s0);stroke-width:2\"/>\
             <circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"4.5\" style=\"fill:var(--s0)\"><title>{} ({} to {})</title></circle>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            at(1.0 / (1.0 + it.floor)),
            y - ROW * 0.35,
            at(1.0 + it.floor) - at(1.0 / (1.0 + it.floor)),
            ROW * 0.7,
            at(it.ratio_low),
            at(it.ratio_high),
            at(it.ratio),
            three_digits(it.ratio),
            three_digits(it.ratio_low),
            three_digits(it.ratio_high),
            LEFT - 10.0,
            y + 4.0,
            escape(&label(&record.metric)),
        );
    }
    close(svg, "Ratio with the change over without, in cost")
}

/// The metric's name, if it fits beside the drawing.
fn label(metric: &str) -> String {
    const FITTING: usize = 18;
    match metric.char_indices().nth(FITTING) {
        Some((at, _)) => format!("{}…", &metric[..at]),
        None => metric.to_owned(),
    }
}

/// The values of the runs, round by round.
pub(super) fn runs(series: &[&Record]) -> String {
    let values = || series.iter().flat_map(|record| &record.samples).copied();
    let (low, high) = values()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), it| (low.min(it), high.max(it)));
    let rounds = series.iter().map(|record| record.samples.len()).max().unwrap_or(0);
    if rounds < 2 || !low.is_finite() || !high.is_finite() || high > 1e300 {
        return String::new();
    }
    let margin = ((high - low) * 0.08).max(high.abs() * 1e-3);
    let (low, high) = (low - margin, high + margin);
    let y = |value: f64| TOP + (RUNS_HEIGHT - TOP - BOTTOM) * (high - value) / (high - low);
    let x = |round: usize| LEFT + (WIDTH - LEFT - RIGHT) * round as f64 / (rounds - 1) as f64;
    let unit = series.first().map_or("", |record| record.unit.as_str());
    // A figure that a program prints without a unit has this one.
    let title = match unit {
        "" | "value" => "Each run, round by round".to_owned(),
        unit => format!("Each run, round by round, in {unit}"),
    };
    let mut svg = open(&title, RUNS_HEIGHT);
    for tick in 0..TICKS {
        let value = low + (high - low) * tick as f64 / (TICKS - 1) as f64;
        let _ = write!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{1:.1}\" y2=\"{1:.1}\" style=\"stroke:var(--rule)\"/>\
             <text x=\"{2:.1}\" y=\"{3:.1}\" text-anchor=\"end\">{4}</text>",
            WIDTH - RIGHT,
            y(value),
            LEFT - 8.0,
            y(value) + 4.0,
            escape(&text::number(value)),
        );
    }
    for (colour, record) in series.iter().enumerate() {
        let at = |(round, value): (usize, &f64)| format!("{:.1},{:.1}", x(round), y(*value));
        let points: Vec<String> = record.samples.iter().enumerate().map(at).collect();
        let dash = if colour == 1 { ";stroke-dasharray:5 3" } else { "" };
        let _ = write!(
            svg,
            "<polyline points=\"{}\" style=\"fill:none;stroke:var(--{});stroke-width:1.5{dash}\">\
             <title>{}</title></polyline>",
            points.join(" "),
            colour_of(colour),
            escape(&record.subject),
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{LEFT}\" y=\"{0:.1}\">first round</text>\
         <text x=\"{1:.1}\" y=\"{0:.1}\" text-anchor=\"end\">last round</text>",
        RUNS_HEIGHT - BOTTOM + 18.0,
        WIDTH - RIGHT
    );
    let legend: String = series
        .iter()
        .enumerate()
        .map(|(colour, record)| {
            let name = escape(&shortened(&record.subject));
            format!("<i style=\"background:var(--{})\"></i>{name} ", colour_of(colour))
        })
        .collect();
    close(svg, &title) + &format!("<p class=\"about\">{legend}</p>")
}

/// The program without the change, again without it, and with it.
fn colour_of(series: usize) -> &'static str {
    ["s1", "soft", "s0"].get(series).copied().unwrap_or("s2")
}

fn open(title: &str, height: f64) -> String {
    format!(
        "<div class=\"wide\"><svg class=\"simchart\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" font-size=\"11\">\
         <title>{}</title>",
        escape(title)
    )
}

fn close(svg: String, title: &str) -> String {
    format!("<p class=\"about\"><b>{}</b></p>{svg}</svg></div>", escape(title))
}
