//! What changed from one file of records to another.

use haul_model::Record;
use haul_model::experiment::name;

use super::{Finding, Tone, finding};
use crate::compare::{Change, is_baseline, words};
use crate::text;

/// How many figures became slower and faster, and the most changed of each.
pub(super) fn changes(records: &[&Record]) -> Vec<Finding> {
    let all: Vec<&Record> =
        records.iter().copied().filter(|r| r.experiment == name::COMPARE).collect();
    let judged: Vec<&Record> = all.iter().copied().filter(|record| !is_baseline(record)).collect();
    if all.is_empty() {
        return Vec::new();
    }
    let names = words(&all);
    let name_of = |record: &Record| {
        let place = all.iter().position(|other| std::ptr::eq(*other, record));
        place.map_or("", |place| names[place].as_str())
    };
    let of = |change: Change| -> Vec<&Record> {
        judged.iter().copied().filter(|record| Change::of(record) == Some(change)).collect()
    };
    let total = text::count(judged.len(), "figure");
    let ratio = |record: &&Record| record.median().unwrap_or(1.0);
    let mut findings = Vec::new();
    for (change, tone) in [(Change::Slower, Tone::Worse), (Change::Faster, Tone::Better)] {
        let own = of(change);
        let most =
            own.iter().copied().max_by(|a, b| ratio(a).ln().abs().total_cmp(&ratio(b).ln().abs()));
        let Some(most) = most else { continue };
        let text = format!(
            "{} of {total} became {} beyond the noise of both runs; most of all {} of {}, {:.2} times \
             what it was in time or cost.",
            text::grouped(own.len()),
            change.name(),
            name_of(most),
            most.subject,
            ratio(&most)
        );
        findings.push(finding(name::COMPARE, tone, text));
    }
    if findings.is_empty() {
        let text = format!("None of {total} changed beyond the noise of both runs.");
        findings.push(finding(name::COMPARE, Tone::Same, text));
    }
    findings
}
