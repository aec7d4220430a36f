//! A modelled NIC at increasing rates: the four metrics over the rate, counted and estimated, the
//! batches that polls returned at each rate, and the rate at which the curve breaks.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use haul_model::experiment::{key, name};
use haul_model::units::three_digits;
use haul_model::{BytesPerSecond, Record};

use crate::select::field;
use crate::text::{self, escape};

/// Dimensions of a chart in its own units.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 44.0;
const RIGHT: f64 = 16.0;
/// Dimensions of a histogram, and the largest number of drawn histograms, those at the break
/// included.
const CELL_WIDTH: f64 = 176.0;
const CELL_HEIGHT: f64 = 120.0;
const CELLS_MAX: usize = 12;
/// The largest number of bars in a histogram; larger batches share the last bar.
const BARS_MAX: usize = 12;

/// The drawn metrics with their titles.
const METRICS: [(&str, &str); 3] = [
    ("inbound_read", "Inbound read: the device reads descriptors and packets to send"),
    ("inbound_write", "Inbound write: the device writes packets and completions"),
    ("outbound_write", "Outbound write: doorbells"),
];

pub(crate) const TITLE: &str = "PCIe traffic over the packet rate";
pub(crate) const ABOUT: &str = "One core forwards from a modelled NIC, which counts every transaction that would cross \
    PCIe (dots). The line is the estimate from the batches that polls returned. Data without headers, as processors’ \
    counters show it.";

/// One rate.
struct Point<'a> {
    /// The forwarded rate in M packets/s.
    rate: f64,
    record: &'a Record,
    /// The counted and the estimated value of each metric.
    metrics: BTreeMap<&'a str, (f64, f64)>,
}

/// Draws the newest run of these records; `None` if they belong to another experiment.
pub(crate) fn html(experiment: &str, records: &[&Record]) -> Option<String> {
    let last = records.last().filter(|_| experiment == name::PCIE_SWEEP)?;
    let newest: Vec<&Record> =
        records.iter().filter(|record| record.run == last.run).copied().collect();
    let points = points(&newest);
    if points.len() < 2 {
        return None;
    }
    let found = newest.iter().find(|record| record.metric == "break");
    let at = found.and_then(|record| number_of_sample(record)).map(|rate| rate * 1e-6);
    let mut html = String::from("<div class=\"sim\">");
    let note = found.and_then(|record| field(record, key::NOTE));
    let text = note.unwrap_or_else(|| {
        "The curve of outbound writes has no break of 5% at these rates: the batches did not change.".into()
    });
    let _ = write!(html, "<p><b>{}</b></p>", escape(&text));
    let edge = at.and_then(|at| points.iter().position(|point| point.rate >= at * (1.0 - 1e-9)));
    // The break is between two rates.
    let between =
        edge.and_then(|edge| Some(f64::midpoint(points[edge].rate, points.get(edge + 1)?.rate)));
    for (metric, title) in METRICS.iter().rev() {
        let mark = between.filter(|_| *metric == "outbound_write");
        html.push_str(&chart(metric, title, &points, mark));
    }
    html.push_str("<p class=\"about\">Outbound reads: none, counted and estimated.</p>");
    html.push_str(&histograms(&points, edge));
    html.push_str(&deviation(&points));
    Some(html + "</div>")
}

fn number_of_sample(record: &Record) -> Option<f64> {
    record.samples.first().copied().filter(|value| value.is_finite() && (0.0..1e15).contains(value))
}

fn points<'a>(records: &[&'a Record]) -> Vec<Point<'a>> {
    let offered = |record: &Record| record.number(key::OFFERED_PACKETS_PER_S);
    let rates = records.iter().filter(|record| record.metric == "rate");
    let mut points: Vec<Point<'_>> = rates
        .filter_map(|record| {
            let mut metrics = BTreeMap::new();
            let same = records.iter().filter(|other| offered(other) == offered(record));
            for other in same {
                let Some(value) = number_of_sample(other) else { continue };
                let entry = metrics.entry(other.metric.as_str()).or_insert((0.0, 0.0));
                match field(other, key::BASIS).as_deref() {
                    Some("counted") => entry.0 = value,
                    Some("estimated") => entry.1 = value,
                    _ => {}
                }
            }
            Some(Point { rate: number_of_sample(record)? * 1e-6, record, metrics })
        })
        .collect();
    points.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    points
}

/// Counted values as dots, estimates as a line, and a mark at a rate.
fn chart(metric: &str, title: &str, points: &[Point<'_>], mark: Option<f64>) -> String {
    let of = |point: &Point<'_>| point.metrics.get(metric).copied().unwrap_or_default();
    let most = points.iter().map(|point| of(point).0.max(of(point).1)).fold(0.0, f64::max);
    let (first, last) = (points[0].rate, points[points.len() - 1].rate);
    if most <= 0.0 || last <= first {
        return String::new();
    }
    let (top, right) = (nice(most), nice(last));
    let x = |rate: f64| LEFT + (WIDTH - LEFT - RIGHT) * rate / right;
    let y = |value: f64| HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top;
    let mut svg = open(title, WIDTH, HEIGHT);
    grid(&mut svg, top, right);
    if let Some(at) = mark {
        let _ = write!(
            svg,
            "<line class=\"break\" x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{TOP}\" y2=\"{1:.1}\" \
             style=\"stroke:var(--worse);stroke-dasharray:5 3\"/>\
             <text x=\"{2:.1}\" y=\"{3:.1}\" text-anchor=\"end\" style=\"fill:var(--worse)\">the curve breaks</text>",
            x(at),
            HEIGHT - BOTTOM,
            x(at) - 5.0,
            TOP + 10.0
        );
    }
    let line: Vec<String> =
        points.iter().map(|p| format!("{:.1},{:.1}", x(p.rate), y(of(p).1))).collect();
    let _ = write!(
        svg,
        "<polyline points=\"{}\" style=\"fill:none;stroke:var(--s0);stroke-width:2\"/>",
        line.join(" ")
    );
    for point in points {
        let (counted, estimated) = of(point);
        let _ = write!(
            svg,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\" style=\"fill:var(--s1)\"><title>{:.2} M packets/s: {} counted, \
             {} estimated</title></circle>",
            x(point.rate),
            y(counted),
            point.rate,
            BytesPerSecond(counted),
            BytesPerSecond(estimated)
        );
    }
    format!(
        "<h3>{}</h3>{svg}</svg></div><p class=\"about\"><i style=\"background:var(--s1)\"></i>counted \
         <i style=\"background:var(--s0)\"></i>estimated</p>",
        escape(title)
    )
}

/// Lines at round values, with both axes.
fn grid(svg: &mut String, top: f64, right: f64) {
    for step in 0..=4 {
        let share = f64::from(step) / 4.0;
        let at = HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share;
        let _ = write!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" style=\"stroke:var(--rule)\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0,
            BytesPerSecond(top * share),
            LEFT + (WIDTH - LEFT - RIGHT) * share,
            HEIGHT - BOTTOM + 16.0,
            text::number(right * share)
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">M packets/s</text>",
        f64::midpoint(LEFT, WIDTH - RIGHT),
        HEIGHT - BOTTOM + 34.0
    );
}

/// The batches that polls returned at each rate, as shares of all polls.
fn histograms(points: &[Point<'_>], edge: Option<usize>) -> String {
    let each = points.len().div_ceil(CELLS_MAX);
    // The rates on both sides of the break are always drawn.
    let is_drawn = |place: usize| {
        place.is_multiple_of(each) || edge.is_some_and(|edge| [edge, edge + 1].contains(&place))
    };
    let cells: String = points
        .iter()
        .enumerate()
        .filter(|(place, _)| is_drawn(*place))
        .map(|(_, point)| histogram(point))
        .collect();
    format!(
        "<h3>Packets that polls returned, in percent of polls</h3><div class=\"cells\">{cells}</div>"
    )
}

fn histogram(point: &Point<'_>) -> String {
    let mut bars = batches(&field(point.record, key::RX_BATCHES).unwrap_or_default());
    let all: f64 = bars.iter().map(|(_, polls)| polls).sum();
    if all <= 0.0 {
        return String::new();
    }
    // The smallest batches that are frequent enough; the table has all.
    bars.retain(|(_, polls)| polls / all >= 0.001);
    let more = bars.len() > BARS_MAX;
    bars.truncate(BARS_MAX);
    let title = format!("{:.2} M packets/s", point.rate);
    let mut svg = format!(
        "<svg class=\"cell\" viewBox=\"0 0 {CELL_WIDTH} {CELL_HEIGHT}\" width=\"{CELL_WIDTH}\" height=\"{CELL_HEIGHT}\" \
         role=\"img\" font-size=\"10\" style=\"fill:var(--ink)\"><title>{title}</title><text x=\"4\" y=\"11\">{title}{}</text>",
        if more { " (cut)" } else { "" }
    );
    let step = (CELL_WIDTH - 8.0) / bars.len().max(6) as f64;
    let height = CELL_HEIGHT - 44.0;
    for (place, (batch, polls)) in bars.iter().enumerate() {
        let (share, x) = (polls / all, 4.0 + step * place as f64);
        let bar = height * share;
        let middle = x + step / 2.0;
        let _ = write!(
            svg,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{bar:.1}\" style=\"fill:var(--s0)\">\
             <title>{batch} packets: {}% of polls</title></rect>\
             <text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{batch}</text>",
            x + 1.0,
            CELL_HEIGHT - 16.0 - bar,
            step - 2.0,
            text::number(share * 100.0),
            CELL_HEIGHT - 4.0
        );
        if share >= 0.01 {
            let _ = write!(
                svg,
                "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"9\">{:.0}</text>",
                CELL_HEIGHT - 19.0 - bar,
                share * 100.0
            );
        }
    }
    svg + "</svg>"
}

/// Parses polls by batch, such as `0:5,4:10`; malformed parts are left out.
fn batches(text: &str) -> Vec<(u32, f64)> {
    let pairs = text.split(',').filter_map(|pair| pair.split_once(':'));
    let numbers = pairs.filter_map(|(batch, polls)| {
        let polls: f64 = polls.parse().ok()?;
        Some((batch.parse().ok()?, polls)).filter(|_| (0.0..1e18).contains(&polls))
    });
    numbers.collect()
}

/// The largest deviation of the estimate from the counter.
fn deviation(points: &[Point<'_>]) -> String {
    let off = points.iter().flat_map(|point| {
        // The records also contain transactions, which are of several kinds.
        let drawn = METRICS.iter().filter_map(|(metric, _)| point.metrics.get(metric));
        drawn.filter(|(counted, _)| *counted > 0.0).map(|(c, e)| (e / c - 1.0).abs())
    });
    let most = off.fold(0.0, f64::max);
    let most = match most {
        most if most < 1e-5 => "less than 0.001%".to_owned(),
        most => format!("at most {}%", three_digits(most * 100.0)),
    };
    format!(
        "<p class=\"about\">The estimate is {most} from what was counted, because at the start and the end of a rate the \
         driver holds buffers that it has not announced yet.</p>"
    )
}

/// The next round number that is at least the value.
fn nice(value: f64) -> f64 {
    let unit = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 1.6, 2.0, 4.0, 5.0, 8.0, 10.0];
    let top = steps.into_iter().map(|step| step * unit).find(|top| *top >= value * (1.0 - 1e-9));
    top.unwrap_or(value)
}

fn open(title: &str, width: f64, height: f64) -> String {
    format!(
        "<div class=\"wide\"><svg class=\"simchart\" viewBox=\"0 0 {width} {height}\" role=\"img\" font-size=\"11\">\
         <title>{}</title>",
        escape(title)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(offered: f64, metric: &str, basis: Option<&str>, sample: f64) -> Record {
        let mut record = Record::new("r", name::PCIE_SWEEP, "haul", metric, "bytes/s")
            .with(key::OFFERED_PACKETS_PER_S, offered)
            .with(key::RX_BATCHES, "0:5,4:10,8:<b>");
        if let Some(basis) = basis {
            record = record.with(key::BASIS, basis);
        }
        record.samples = vec![sample];
        record
    }

    fn sweep(rates: usize) -> Vec<Record> {
        let mut records = Vec::new();
        for rate in 1..=rates {
            let rate = rate as f64 * 1e6;
            records.push(record(rate, "rate", None, rate));
            for (metric, _) in METRICS {
                records.push(record(rate, metric, Some("counted"), rate * 4.0));
                records.push(record(rate, metric, Some("estimated"), rate * 4.04));
            }
            records.push(record(rate, "transaction", Some("counted"), rate));
            records.push(record(rate, "transaction", Some("estimated"), rate * 9.0));
        }
        let text = "breaks <here>";
        records.push(record(0.0, "break", None, 2e6).with(key::NOTE, text));
        records
    }

    fn drawn(records: &[Record]) -> Option<String> {
        html(name::PCIE_SWEEP, &records.iter().collect::<Vec<_>>())
    }

    #[test]
    fn every_rate_is_drawn_and_the_break_is_marked() {
        let html = drawn(&sweep(5)).unwrap();
        assert_eq!(html.matches("<circle").count(), 15);
        assert_eq!(html.matches("<polyline").count(), 3);
        assert_eq!(html.matches("class=\"break\"").count(), 1);
        assert_eq!(html.matches("class=\"cell\"").count(), 5);
        assert!(
            html.contains("4 packets: 66.7% of polls") && html.contains("1.00% from what"),
            "{html}"
        );
        assert!(html.contains("breaks &lt;here&gt;") && !html.contains("<b>\""), "{html}");
        assert!(drawn(&sweep(100)).unwrap().matches("class=\"cell\"").count() <= CELLS_MAX + 2);
    }

    #[test]
    fn malformed_batches_draw_nothing() {
        assert!(drawn(&[]).is_none());
        assert!(drawn(&sweep(1)).is_none());
        let mut records = sweep(3);
        records.iter_mut().for_each(|record| record.samples = vec![f64::NAN]);
        assert!(drawn(&records).is_none());
        assert!(html(name::PCIE_ESTIMATE, &sweep(3).iter().collect::<Vec<_>>()).is_none());
        assert_eq!(batches("0:5,x:1,4:y,4:-1,:,8:2"), [(0, 5.0), (8, 2.0)]);
    }
}
