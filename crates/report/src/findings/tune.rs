//! Whether tuned thresholds are better on sizes that the tuner has not used.

use haul_model::experiment::{key, name};
use haul_model::{Comparison, Record, Verdict};

use super::{Finding, Tone, finding, mean, open};
use crate::select::field;
use crate::text;

/// What to do with tuned thresholds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advice {
    Keep,
    /// The thresholds save time overall, but cost time at some sizes or distributions.
    KeepUnless,
    /// The thresholds save no time overall.
    LeaveUnless,
    /// The thresholds cost time overall, or save time nowhere and cost time somewhere.
    Leave,
    /// The tuner kept no threshold: the file has the defaults.
    Nothing,
}

impl Advice {
    fn text(self) -> &'static str {
        match self {
            Self::Keep => "Keep the haul.toml that `haul copy tune` wrote.",
            Self::KeepUnless => {
                "Keep the haul.toml that `haul copy tune` wrote, unless your sizes are among those that lose."
            }
            Self::LeaveUnless => "Keep the defaults, unless your sizes are among those that gain.",
            Self::Nothing => "Nothing: the tuner kept the defaults.",
            Self::Leave => {
                "Keep the defaults: remove haul.toml, or tune again on a quiet machine with `haul copy tune`."
            }
        }
    }
}

/// The tuner's gain in its check phase.
pub(super) fn tuned(records: &[&Record]) -> Option<Finding> {
    judged(records).map(|(found, advice)| found.action(advice.text()))
}

/// The tuner's gain with the advice that follows from it.
pub(super) fn judged(records: &[&Record]) -> Option<(Finding, Advice)> {
    let checked: Vec<(&Record, &Comparison)> = records
        .iter()
        .filter(|record| record.experiment == name::COPY_TUNE && record.subject == "tuned")
        .filter(|record| field(record, key::PHASE).is_none_or(|phase| phase == "check"))
        .filter_map(|record| record.comparison.as_ref().map(|comparison| (*record, comparison)))
        .collect();
    let kept = kept(records);
    let is_of_kept = |record: &Record| match (&kept, field(record, key::PART)) {
        (Some(kept), Some(part)) => kept.contains(&part),
        _ => true,
    };
    let checked: Vec<(&Record, &Comparison)> =
        checked.into_iter().filter(|(record, _)| is_of_kept(record)).collect();
    if kept.is_some_and(|kept| kept.is_empty()) {
        let text = "What was tuned beats the defaults nowhere that this run could tell; they stay.";
        return Some((finding(name::COPY_TUNE, Tone::Same, text.into()), Advice::Nothing));
    }
    let all = mean(&checked)?;
    let cases = text::count(checked.len(), "case");
    let lost = checked.iter().filter(|(_, c)| c.verdict() == Verdict::More).count();
    let won = checked.iter().filter(|(_, c)| c.verdict() == Verdict::Less).count();
    let counts = format!("better in {won}, worse in {lost} of {cases} it was not tuned on");
    // The text includes the counts, so the tone covers them too.
    let mark = |tone: Tone| if lost > 0 { Tone::Worse } else { tone };
    let advice = match all.verdict() {
        Verdict::Less if lost == 0 => Advice::Keep,
        Verdict::Less => Advice::KeepUnless,
        Verdict::NoDifference | Verdict::CannotTell if lost == 0 || won > 0 => Advice::LeaveUnless,
        Verdict::NoDifference | Verdict::CannotTell | Verdict::More => Advice::Leave,
    };
    let (tone, text) = match all.verdict() {
        Verdict::Less => (
            mark(Tone::Better),
            format!(
                "for this machine saves {} over what it was tuned from",
                text::percent(all.ratio - 1.0)
            ),
        ),
        Verdict::NoDifference => {
            (mark(Tone::Same), "is overall no better than what it was tuned from".to_owned())
        }
        Verdict::CannotTell => (
            mark(Tone::Unknown),
            format!("may be no better than what it was tuned from ({})", open(&all)),
        ),
        Verdict::More => (
            Tone::Worse,
            format!("costs {} over what it was tuned from", text::percent(all.ratio - 1.0)),
        ),
    };
    let text = format!("What was tuned {text}: {counts}.");
    Some((finding(name::COPY_TUNE, tone, text), advice))
}

/// The parts that the newest tuning kept; `None` if its records do not say so. Parts that it did
/// not keep are not in haul.toml and are not counted.
fn kept(records: &[&Record]) -> Option<Vec<String>> {
    let is_verdict =
        |record: &&&Record| record.experiment == name::COPY_TUNE && record.metric == "kept";
    let said: Vec<&&Record> = records.iter().filter(is_verdict).collect();
    let kept = said.iter().filter(|record| record.median() == Some(1.0));
    let kept = kept.filter_map(|record| field(record, key::PART)).collect();
    (!said.is_empty()).then_some(kept)
}
