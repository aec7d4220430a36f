//! What haul gains or loses on the calls of recorded programs.

use haul_model::experiment::{key, name};
use haul_model::{Comparison, Record, Verdict};

use super::distribution::Compared;
use super::{Finding, Tone, finding, mean, of_haul, tone as tone_of, verb};
use crate::select::field;
use crate::text;

/// The comparisons of whole streams. Those of single call sites do not count.
pub(super) fn compared<'a>(records: &[&'a Record]) -> Vec<Compared<'a>> {
    let mut all = of_haul(records, name::COPY_STREAM);
    all.retain(|(record, _)| !record.parameters.contains_key(key::SITE));
    all
}

/// "As programs call, over 12 streams, haul saves 8.0% of libc’s time; ...".
pub(super) fn headline(records: &[&Record]) -> Option<Finding> {
    let all = compared(records);
    let mean = mean(&all)?;
    let count = text::count(all.len(), "stream");
    let (verb, losses, floor) = (verb(&mean), losses(&all), text::percent(mean.floor));
    let sentence =
        format!("As your programs call ({count}), haul {verb}{losses}; noise floor {floor}.");
    Some(finding(name::COPY_STREAM, tone(&all, &mean), sentence))
}

/// `; slower in 2 of 12, the worst is git: 3.0% more time`; empty without a loss.
pub(super) fn losses(all: &[Compared<'_>]) -> String {
    let mut lost: Vec<&Compared<'_>> = all.iter().filter(|(_, c)| is_lost(c)).collect();
    lost.sort_by(|a, b| b.1.ratio.total_cmp(&a.1.ratio));
    let Some((worst, comparison)) = lost.first() else { return String::new() };
    format!(
        "; slower in {} of {}, the worst is {}: {} more time than {}",
        lost.len(),
        all.len(),
        field(worst, key::STREAM).unwrap_or_default(),
        text::percent(comparison.ratio - 1.0),
        comparison.baseline
    )
}

/// A loss in any stream outweighs a gain in the mean.
pub(super) fn tone(all: &[Compared<'_>], mean: &Comparison) -> Tone {
    match all.iter().any(|(_, comparison)| is_lost(comparison)) {
        true => Tone::Worse,
        false => tone_of(mean),
    }
}

fn is_lost(comparison: &Comparison) -> bool {
    comparison.verdict() == Verdict::More
}
