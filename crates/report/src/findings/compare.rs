//! Sentences on changes from earlier to later runs.

use haul_model::experiment::name;
use haul_model::{Record, Verdict};

use super::{Finding, Tone, finding};
use crate::compare::{change_name, change_of, is_counted, is_whole, with_change, words};
use crate::text;

/// Findings about wholes that changed, about the figures that became slower or faster (their
/// number and the largest change), and about the figures for which the runs do not show whether
/// they changed.
pub(super) fn changes(records: &[&Record]) -> Vec<Finding> {
    let all: Vec<&Record> =
        records.iter().copied().filter(|r| r.experiment == name::COMPARE).collect();
    if all.is_empty() {
        return Vec::new();
    }
    let names = words(&all);
    let name_of = |record: &Record| {
        let place = all.iter().position(|other| std::ptr::eq(*other, record));
        place.map_or("", |place| names[place].as_str())
    };
    let judged = all.iter().filter(|record| is_counted(record) && !is_whole(record)).count();
    let total = text::count(judged, "figure");
    let ratio = |record: &&Record| record.median().unwrap_or(1.0);
    let mut findings: Vec<Finding> =
        all.iter().filter_map(|record| whole(record, name_of(record))).collect();
    for (change, tone) in [(Verdict::More, Tone::Worse), (Verdict::Less, Tone::Better)] {
        let own = with_change(&all, change);
        let most =
            own.iter().copied().max_by(|a, b| ratio(a).ln().abs().total_cmp(&ratio(b).ln().abs()));
        let Some(most) = most else { continue };
        let text = format!(
            "{} of {total} became {}; most of all {} of {}, {:.2} times what it was in time or cost.",
            text::grouped(own.len()),
            change_name(change),
            name_of(most),
            most.subject,
            ratio(&most)
        );
        findings.push(finding(name::COMPARE, tone, text));
    }
    let unknown = with_change(&all, Verdict::CannotTell).len();
    if unknown > 0 {
        let text =
            format!("The runs cannot tell whether {} of {total} changed.", text::grouped(unknown));
        let action = "Measure both sides more often, three times at least: `haul compare --old A1 A2 A3 --new B1 B2 B3`.";
        findings.push(finding(name::COMPARE, Tone::Unknown, text).action(action));
    } else if findings.is_empty() {
        let text = format!("None of {total} changed.");
        findings.push(finding(name::COMPARE, Tone::Same, text));
    }
    findings
}

/// `Overall, haul became slower (...): 1.05 times ...`; `None` if the whole did not change or if
/// the runs cannot tell whether it changed.
fn whole(record: &Record, name: &str) -> Option<Finding> {
    let change = change_of(record).filter(|_| is_whole(record))?;
    let tone = match change {
        Verdict::More => Tone::Worse,
        Verdict::Less => Tone::Better,
        Verdict::NoDifference | Verdict::CannotTell => return None,
    };
    let text = format!(
        "Overall, haul became {} ({name}): {:.3} times what it was in time or cost.",
        change_name(change),
        record.median()?
    );
    Some(finding(name::COMPARE, tone, text))
}
