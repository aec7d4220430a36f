//! Histograms of calls by the number of packets that they moved.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use haul_model::Record;
use haul_model::experiment::key;
use haul_model::units::three_digits;

use super::run::{size, who};
use crate::select::field;
use crate::text::{self, escape};

/// Dimensions of a histogram in its own units.
const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 150.0;
const BOTTOM: f64 = 20.0;

/// The largest number of drawn histograms; the table has all.
const DRAWN_MAX: usize = 24;

/// The largest number of bars in a histogram; larger batches share the last bar.
const SIZES_MAX: usize = 64;

/// A histogram for each port, queue and direction of each subject; empty if there is none.
pub(super) fn html(records: &[&Record]) -> String {
    let mut all: Vec<(String, BTreeMap<usize, f64>)> = Vec::new();
    for record in records.iter().filter(|record| record.metric == "batches") {
        let number = record.count(key::SIZE);
        let Some((number, count)) = number.zip(record.median()) else { continue };
        let number = usize::try_from(number).unwrap_or(SIZES_MAX).min(SIZES_MAX);
        let title = title(record);
        let place = all.iter().position(|(other, _)| *other == title).unwrap_or_else(|| {
            all.push((title, BTreeMap::new()));
            all.len() - 1
        });
        *all[place].1.entry(number).or_default() += count;
    }
    // A port that never received a packet, or was never polled, has nothing to show.
    all.retain(|(_, counts)| counts.iter().any(|(number, count)| *number > 0 && *count > 0.0));
    if all.is_empty() {
        return String::new();
    }
    let rates = records.iter().filter(|record| record.metric == "rate");
    let rates: BTreeMap<_, _> =
        rates.filter_map(|record| Some((title(record), record.median()?))).collect();
    let drawn = |(title, counts): &(String, _)| one(title, counts, rates.get(title).copied());
    let drawn: String = all.iter().take(DRAWN_MAX).map(drawn).collect();
    format!("<h3>Packets of a call</h3><div class=\"histograms\">{drawn}</div>")
}

fn title(record: &Record) -> String {
    let text = |name: &str| field(record, name).unwrap_or_default();
    let port = format!("{} {}, queue {}", text(key::PORT), text(key::DIRECTION), text(key::QUEUE));
    match size(record) {
        0 => port,
        size => format!("{size} B, {}: {port}", who(record)),
    }
}

/// One histogram, with the packet rate if it was measured.
fn one(title: &str, counts: &BTreeMap<usize, f64>, rate: Option<f64>) -> String {
    let all: f64 = counts.values().sum();
    // Usually so many calls are empty that no other bar would be visible next to theirs. So the
    // bar of empty calls shows their share of all calls, and each other bar is drawn relative to
    // the largest of these other bars.
    let others = counts.iter().filter(|(number, _)| **number > 0).map(|(_, count)| *count);
    let most = others.fold(0.0, f64::max);
    let last = counts.keys().copied().max().unwrap_or(0).max(32);
    let step = WIDTH / (last + 1) as f64;
    let mut svg = format!(
        "<figure><figcaption>{}</figcaption><svg class=\"simchart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\
         <title>{}: calls by their packets</title>",
        escape(title),
        escape(title)
    );
    for (&number, &count) in counts {
        let of = if number == 0 { all } else { most };
        let height = (HEIGHT - BOTTOM - 4.0) * count / of.max(1.0);
        let colour = if number == 0 { "--limit" } else { "--haul" };
        let _ = write!(
            svg,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" style=\"fill:var({colour})\">\
             <title>{number} packets: {} of all calls</title></rect>",
            step * number as f64 + 1.0,
            HEIGHT - BOTTOM - height,
            (step - 2.0).max(1.0),
            height.max(0.5),
            text::percent(count / all.max(1.0))
        );
    }
    for number in (0..=last).step_by(if last > 32 { 16 } else { 8 }) {
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{number}</text>",
            step * (number as f64 + 0.5),
            HEIGHT - 5.0
        );
    }
    let empty = counts.get(&0).copied().unwrap_or(0.0) / all.max(1.0);
    let packets: f64 = counts.iter().map(|(number, count)| *number as f64 * count).sum();
    let calls = all - counts.get(&0).copied().unwrap_or(0.0);
    let empty = match empty {
        0.0 => "No call was empty".to_owned(),
        empty => format!("{} of all calls were empty (grey)", text::percent(empty)),
    };
    let rate = rate.map(|rate| format!("{} Mpps. ", three_digits(rate / 1e6)));
    let _ = write!(
        svg,
        "</svg><p class=\"about\">{}{empty}; {:.1} packets in each other call.</p></figure>",
        rate.unwrap_or_default(),
        packets / calls.max(1.0)
    );
    svg
}
