//! Rates as bars with intervals, a group for each size.

use std::fmt::Write as _;

use haul_model::experiment::key;
use haul_model::units::three_digits;
use haul_model::{Record, Verdict};

use super::run::{size, sizes, who};
use crate::select::field;
use crate::stats::quantile;
use crate::text::escape;

/// The bars; empty if there is no rate.
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
    let mut html = String::from("<div class=\"rates\">");
    for group in sizes(&rates) {
        let _ = write!(html, "<h4>{group} B</h4>");
        for record in rates.iter().filter(|record| size(record) == group) {
            bar(&mut html, record, most);
        }
    }
    html + "</div>"
}

fn bar(html: &mut String, record: &Record, most: f64) {
    let median = record.median().unwrap_or(0.0);
    let part = |share| quantile(&record.samples, share).unwrap_or(median);
    let percent = |rate: f64| 100.0 * (rate / most).clamp(0.0, 1.0);
    let (width, low, high) = (percent(median), percent(part(0.25)), percent(part(0.75)));
    let colour = match (record.subject.as_str(), field(record, key::COPY).as_deref()) {
        ("haul", Some("none" | "empty")) => "--limit",
        ("haul", Some("haul")) => "--haul",
        ("haul", Some("libc")) => "--s2",
        ("haul", _) => "--s3",
        _ => "--baseline",
    };
    let kind = if record.metric == "rate_peak" { "" } else { " (no loss)" };
    let _ = write!(
        html,
        "<div class=\"rate\"><span>{}{kind}</span><div><i style=\"width:{width:.1}%;background:var({colour})\"></i>\
         <b style=\"left:{low:.1}%;width:{:.1}%\"></b></div><span>{}</span></div>",
        escape(&who(record)),
        high - low,
        escape(&words(record, median))
    );
}

/// `12.3 Mpps, 1.12 times testpmd’s (1.08–1.16)`.
fn words(record: &Record, median: f64) -> String {
    let rate = format!("{} Mpps", three_digits(median / 1e6));
    let own = field(record, key::COPY).unwrap_or_default();
    let comparison = record.rate().filter(|it| it.baseline != record.subject && it.baseline != own);
    let Some(it) = comparison else { return rate };
    let same = match it.verdict() {
        verdict @ (Verdict::NoDifference | Verdict::CannotTell) => format!(", {}", verdict.name()),
        Verdict::Less | Verdict::More => String::new(),
    };
    format!(
        "{rate}, {:.2} times {}’s ({:.2}–{:.2}){same}",
        it.ratio, it.baseline, it.ratio_low, it.ratio_high
    )
}
