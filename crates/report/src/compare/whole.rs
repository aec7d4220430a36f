//! Judges all of haul's figures of one part together. A single run of each side is enough for
//! this.
//!
//! In a comparison of two runs one figure may differ by a quarter without any change, but most
//! figures do not differ, and the others differ in both directions. So the median figure shows a
//! change of all figures.

use std::collections::BTreeMap;

use haul_model::statistics::median;
use haul_model::{Record, Verdict};

use super::judge::{Judged, Observed, part};

/// The least number of figures that make a whole.
const FIGURES_MIN: usize = 5;

/// The parts of haul. An experiment's name begins with its part, up to the first dot.
const PARTS: [&str; 4] = ["copy", "heap", "channel", "forward"];

/// The wholes to which a figure belongs: its part, and its part and function.
pub(super) fn wholes_of(record: &Record) -> Vec<(String, Option<String>)> {
    let part = part(record);
    if !record.subject.starts_with("haul") || !PARTS.contains(&part) {
        return Vec::new();
    }
    let function = crate::select::field(record, haul_model::experiment::key::FUNCTION);
    let mut wholes = vec![(part.to_owned(), None)];
    wholes.extend(function.map(|function| (part.to_owned(), Some(function))));
    wholes
}

/// A whole: its part and function, its figures, and the difference of the runs in their mean.
pub(super) struct Whole {
    pub part: String,
    pub function: Option<String>,
    pub figures: usize,
    pub observed: Observed,
    /// The change of each figure.
    moved: Vec<f64>,
}

/// The wholes of figures that have a baseline. The whole of a function is left out if the part has
/// no other function.
pub(super) fn wholes(figures: &[(&Record, &Observed)]) -> Vec<Whole> {
    let mut by_name: BTreeMap<(String, Option<String>), Vec<&Observed>> = BTreeMap::new();
    for (record, observed) in figures.iter().filter(|(_, observed)| observed.is_beside) {
        for name in wholes_of(record) {
            by_name.entry(name).or_default().push(observed);
        }
    }
    let sizes: BTreeMap<String, usize> = by_name
        .iter()
        .filter(|((_, function), _)| function.is_none())
        .map(|((part, _), all)| (part.clone(), all.len()))
        .collect();
    by_name
        .into_iter()
        .filter(|(_, all)| all.len() >= FIGURES_MIN)
        .filter(|((part, function), all)| function.is_none() || sizes[part] > all.len())
        .filter_map(|((part, function), all)| {
            let figures = all.len();
            let moved = all.iter().map(|it| it.moved()).collect();
            Some(Whole { part, function, figures, observed: together(&all)?, moved })
        })
        .collect()
}

/// The mean of figures, run by run; `None` if the figures are of different runs.
fn together(all: &[&Observed]) -> Option<Observed> {
    let first = all.first()?;
    let runs = |it: &Observed| (it.old.len(), it.new.len());
    if all.iter().any(|it| runs(it) != runs(first)) {
        return None;
    }
    let count = all.len() as f64;
    let mean = |of: &dyn Fn(&Observed) -> f64| all.iter().map(|it| of(it)).sum::<f64>() / count;
    let floors: Vec<f64> = all.iter().map(|it| it.floor).collect();
    Some(Observed {
        kind: format!("all of {}", first.kind),
        old: (0..first.old.len()).map(|run| mean(&|it| it.old[run])).collect(),
        new: (0..first.new.len()).map(|run| mean(&|it| it.new[run])).collect(),
        medians: mean(&|it| it.medians),
        is_baseline_moved: all.iter().all(|it| it.is_baseline_moved),
        within: all.iter().map(|it| it.within * it.within).sum::<f64>().sqrt() / count,
        floor: median(&floors)?,
        is_beside: true,
    })
}

impl Whole {
    /// Judges one run of each side by the median figure and by the order of the other figures.
    /// Almost all figures must have moved in one direction; for any number of figures, one of
    /// them may have moved in the other direction.
    pub(super) fn of_single_runs(&self, least: f64) -> Judged {
        let mut moved = self.moved.clone();
        moved.sort_by(f64::total_cmp);
        let count = moved.len() as f64;
        // The interval that contains the median of the underlying distribution in 80 of 100 cases.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "2 to half")]
        let below = (count / 2.0 - 0.64 * count.sqrt()).floor().max(2.0) as usize - 1;
        let ends = [moved[below], moved[moved.len() - 1 - below]].map(f64::exp);
        let ratio = median(&moved).unwrap_or(0.0).exp();
        let noise = self.observed.floor.max(least);
        let matters = haul_model::MATTERS.max(least);
        let verdict = Verdict::decide(ratio, ends, ends, noise, matters);
        let (low, high, medians) = (ends[0], ends[1], self.observed.medians.exp());
        Judged { ratio, low, high, medians, noise, is_beside: true, verdict }
    }
}
