//! Whether what was tuned is better where the tuner did not look.

use haul_model::experiment::{key, name};
use haul_model::{Comparison, Record, Verdict};

use super::{Finding, Tone, finding, mean};
use crate::select::field;
use crate::text;

const KEEP: &str = "Keep the haul.toml that `haul copy tune` wrote.";
const KEEP_UNLESS: &str =
    "Keep the haul.toml that `haul copy tune` wrote, unless your sizes are among those that lose.";

/// The tuner's gain in its check phase.
pub(super) fn tuned(records: &[&Record]) -> Option<Finding> {
    let checked: Vec<(&Record, &Comparison)> = records
        .iter()
        .filter(|record| record.experiment == name::COPY_TUNE && record.subject == "tuned")
        .filter(|record| field(record, key::PHASE).is_none_or(|phase| phase == "check"))
        .filter_map(|record| record.comparison.as_ref().map(|comparison| (*record, comparison)))
        .collect();
    let all = mean(&checked)?;
    let cases = text::count(checked.len(), "case");
    let lost = checked.iter().filter(|(_, c)| c.verdict() == Verdict::More).count();
    let won = checked.iter().filter(|(_, c)| c.verdict() == Verdict::Less).count();
    let counts = format!("better in {won}, worse in {lost} of {cases} it was not tuned on");
    // The counts are told as well, and the mark is of all that is told.
    let mark = |tone: Tone| if lost > 0 { Tone::Worse } else { tone };
    Some(match all.verdict() {
        Verdict::Less => finding(
            name::COPY_TUNE,
            mark(Tone::Better),
            format!("What was tuned for this machine saves {} over what it was tuned from: {counts}.", text::percent(all.ratio - 1.0)),
        )
        .action(if lost == 0 { KEEP } else { KEEP_UNLESS }),
        Verdict::NoDifference => finding(
            name::COPY_TUNE,
            mark(Tone::Same),
            format!("What was tuned is no better than what it was tuned from on the whole: {counts}."),
        )
        .action("Keep the defaults, unless your sizes are among those that gain."),
        Verdict::More => finding(
            name::COPY_TUNE,
            Tone::Worse,
            format!("What was tuned costs {} over what it was tuned from: {counts}.", text::percent(all.ratio - 1.0)),
        )
        .action("Keep the defaults: remove haul.toml, or tune again on a quiet machine with `haul copy tune`."),
    })
}
