//! How far the figures can be trusted.

use haul_model::experiment::{key, name};
use haul_model::{Kind, Record};

use super::{Finding, Tone, finding};
use crate::select::Section;
use crate::stats::{largest, quantile};
use crate::text;

/// A median floor above this hides differences that a reader would act on, such as the 3% within
/// which two kernels count as equal.
const NOISY: f64 = 0.03;

/// The A/A floors of all comparisons except those of field tests, whose sentences name their own.
pub(super) fn floors(records: &[&Record]) -> Option<Finding> {
    let records = records.iter().filter(|record| !record.experiment.starts_with(name::FIELD));
    let floors: Vec<f64> = records.filter_map(|r| r.comparison.as_ref()).map(|c| c.floor).collect();
    let median = quantile(&floors, 0.5)?;
    let sentence = format!(
        "Noise, from the baseline against itself: {} in the median of {}, {} at worst; smaller differences do not \
         count.",
        text::percent(median),
        text::count(floors.len(), "comparison"),
        text::percent(largest(floors.iter().copied())?),
    );
    if median <= NOISY {
        return Some(finding("", Tone::Fact, sentence));
    }
    let action = "Measure again on a quiet machine: stop other work, and run `haul doctor` for what disturbs it.";
    Some(finding("", Tone::Worse, sentence).action(action))
}

/// The share of the processors' time that the hypervisor took while figures were taken; `None` if
/// it took nothing.
pub(super) fn steal(records: &[&Record]) -> Option<Finding> {
    let shares: Vec<f64> = records.iter().filter_map(|record| record.steal_percent()).collect();
    let median = quantile(&shares, 0.5)?;
    let worst = largest(shares.iter().copied()).filter(|worst| *worst > 0.0)?;
    let limit = format!("{}%", Record::STEAL_PERCENT_MAX);
    let disturbed = records.iter().filter(|record| record.is_disturbed()).count();
    let marked = match disturbed {
        0 => format!("none lost more than {limit}"),
        1 => format!("1 lost more than {limit}, which the tables mark"),
        many => format!("{} lost more than {limit}, which the tables mark", text::grouped(many)),
    };
    let sentence = format!(
        "The hypervisor took {} of the processors’ time in the median of {}, {} at worst; {marked}.",
        text::percent(median / 100.0),
        text::count(shares.len(), "figure"),
        text::percent(worst / 100.0),
    );
    if median <= Record::STEAL_PERCENT_MAX {
        return Some(finding("", Tone::Fact, sentence));
    }
    let action = "Measure again at a quieter time, or on a dedicated host: `haul survey`.";
    Some(finding("", Tone::Worse, sentence).action(action))
}

/// Notes for a reader before trusting a number: modelled figures, and figures with a note.
pub(super) fn remarks(section: &Section<'_>) -> Option<Finding> {
    let modelled = section.records.iter().filter(|record| record.kind == Kind::Modelled).count();
    let noted =
        section.records.iter().filter(|record| record.parameters.contains_key(key::NOTE)).count();
    let be = if modelled == 1 { "is" } else { "are" };
    let carry = if noted == 1 { "carries" } else { "carry" };
    let modelled = (modelled > 0).then(|| {
        format!(
            "{} {be} modelled, not measured: no sentence counts them as measured",
            text::count(modelled, "figure")
        )
    });
    let noted = (noted > 0)
        .then(|| format!("{} {carry} a note, which the tables show", text::count(noted, "figure")));
    let parts: Vec<String> = modelled.into_iter().chain(noted).collect();
    (!parts.is_empty()).then(|| finding("", Tone::Fact, parts.join("; ") + "."))
}
