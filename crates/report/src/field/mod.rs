//! Field tests: the verdict as a sentence, the intervals, and the runs in their order, drawn.
//!
//! From the bottom up:
//!
//! - `sentence`: the verdict, and the share of the copies, as sentences;
//! - `drawing`: the intervals and the runs as SVG.

mod drawing;
mod sentence;

use std::fmt::Write as _;

use haul_model::Record;
use haul_model::experiment::name;

use crate::select::Section;
use crate::text::escape;

pub use sentence::{copies, sentence, verdict};

pub(crate) const TITLE: &str = "A whole program with a change and without";
pub(crate) const ABOUT: &str = "In each round, the program ran without the change, with it, and without it again, each \
    time with a new start and in an order in which each takes each place equally often. The ratio is paired by round \
    and in cost: below 1 is better. The grey band is the noise floor: the distance from 1 of the farther end of the \
    interval of the program without the change to itself.";
pub(crate) const RUN_TITLE: &str = "What the program used, with the change and without";
pub(crate) const RUN_ABOUT: &str = "Time, processor time and largest memory of the same runs.";

/// Draws the newest test of a section: the intervals for the verdict, and the runs in their order.
/// `None` for other experiments.
pub(crate) fn html(experiment: &str, section: &Section<'_>) -> Option<String> {
    let of = |experiment: &str| section.of(experiment);
    let last = *of(name::FIELD_VERDICT).last().filter(|_| experiment == name::FIELD_VERDICT)?;
    let of_test = |record: &&Record| record.run == last.run;
    let beside: Vec<&Record> = of(name::FIELD_RUN).into_iter().filter(of_test).collect();
    let compared = beside.iter().copied().filter(|record| record.comparison.is_some());
    let rows: Vec<&Record> = [last].into_iter().chain(compared).collect();
    let mut html = String::from("<div class=\"bursts\">");
    if let Some(sentence) = sentence(last) {
        let _ = write!(html, "<p><b>{}</b></p>", escape(&sentence));
    }
    if let Some(copies) = copies(last) {
        let _ = write!(html, "<p>{}</p>", escape(&copies));
    }
    html.push_str(&drawing::intervals(&rows));
    let same = beside.into_iter().filter(|record| record.metric == last.metric);
    let series: Vec<&Record> = same.chain([last]).collect();
    html.push_str(&drawing::runs(&series));
    Some(html + "</div>")
}

#[cfg(test)]
mod tests;
