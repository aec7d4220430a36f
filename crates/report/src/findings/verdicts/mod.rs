//! What to do: one row per question with haul's figure, the best other's, and the action. It is the
//! first screen of the page and the end of a survey on a terminal.
//!
//! From the bottom up:
//!
//! - `copy`: copies, fills and their thresholds;
//! - `heap`: allocation;
//! - `channel`: transfers to another process;
//! - `forward`: packets of a virtual machine;
//! - `missing`: the comparisons that are missing, and the commands that make them.

mod copy;

mod heap;

mod channel;

mod forward;

mod missing;

use haul_model::{Comparison, Line, Settle};

use super::{Finding, Tone};
use crate::select::{self, Section};

pub use missing::{Missing, missing};
pub(crate) use missing::{is_survey, of_section as missing_of};

/// A question and the answer of the records.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The machine for which the verdict holds: [`haul_model::Machine::id`].
    pub machine: String,
    /// The experiment that has the figure: `copy.size`. Empty if the verdict is about all
    /// experiments.
    pub experiment: String,
    /// The question: `memcpy, service sizes`.
    pub question: String,
    /// The answer: `2.1 times as fast as libc`.
    pub text: String,
    /// The advice, with commands and names in back quotes.
    pub action: String,
    /// Whether the verdict is good news.
    pub tone: Tone,
    /// haul's time or cost divided by the best other's, position by position: below 1 is better.
    /// Empty if there is only one position.
    pub course: Vec<f64>,
}

/// The verdicts on all machines: losses first, then open verdicts, gains, equal results, and
/// facts. Within these groups they are in the order in which a reader asks.
///
/// ```
/// use haul_model::{Comparison, Line, Record};
/// let mut record = Record::new("run", "copy.distribution", "haul", "time", "ns")
///     .with("function", "memcpy").with("distribution", "service").with("level", "l1");
/// record.samples = vec![5.0];
/// record.comparison = Some(Comparison {
///     baseline: "libc".into(), ratio: 0.5, ratio_low: 0.49, ratio_high: 0.51, floor: 0.01,
/// });
/// let verdicts = haul_report::verdicts(&[Line::from(record)]);
/// assert_eq!(verdicts[0].question, "memcpy, sizes that services copy");
/// assert_eq!(verdicts[0].text, "2.0 times as fast as libc");
/// ```
#[must_use]
pub fn verdicts(lines: &[Line]) -> Vec<Verdict> {
    select::sections(lines).iter().flat_map(of_section).collect()
}

/// The verdicts on one machine.
pub(crate) fn of_section(section: &Section<'_>) -> Vec<Verdict> {
    let records = section.newest_measured();
    let by_run = section.measured_by_run();
    let runs = select::runs(&by_run);
    let mut rows = Vec::new();
    rows.extend(
        super::compare::changes(&section.of(haul_model::experiment::name::COMPARE))
            .into_iter()
            .map(|found| {
                from_finding("from the old runs to the new ones", found, "look at the table below")
            }),
    );
    let tests = super::field::tests(&records).into_iter();
    rows.extend(tests.map(|found| from_finding("a change of a program", found, "")));
    rows.extend(copy::programs(&records));
    rows.extend(copy::services(&records));
    rows.extend(copy::losses(&records));
    rows.extend(copy::regimes(&records));
    rows.extend(copy::by_size(&by_run));
    rows.extend(runs.iter().find_map(|run| heap::growth(run)));
    rows.extend(runs.iter().find_map(|run| heap::pairs(run)));
    rows.extend(
        super::heap::replays(&records, &by_run)
            .into_iter()
            .map(|found| from_finding("a recorded program on haul’s heap", found, "")),
    );
    rows.extend(
        runs.iter()
            .find_map(|run| super::engine::beside_the_cpu(run))
            .map(|found| from_finding("copies beside the CPU", found, "")),
    );
    rows.extend(channel::transfers(&by_run));
    rows.extend(forward::flows(&by_run));
    rows.extend(copy::tuned(&records));
    rows.extend(
        super::sim::reproduction(section)
            .map(|found| from_finding("the copy engines’ paper, simulated", found, "")),
    );
    let noise = [super::noise::floors(&records), super::noise::steal(&records)];
    let noise = noise.into_iter().flatten().filter(|found| found.tone == Tone::Worse);
    rows.extend(noise.map(|mut found| {
        let first = found.text.split(';').next().unwrap_or_default().trim_end_matches('.');
        found.text = first.replacen("Noise, from the baseline against itself:", "noise of", 1);
        found.action =
            Some("measure again on a quiet machine; `haul doctor` names what disturbs it".into());
        from_finding("whether to trust these figures", found, "")
    }));
    for row in &mut rows {
        row.machine = section.id.into();
    }
    rows.sort_by_key(|row| match row.tone {
        Tone::Worse => 0,
        Tone::Unknown => 1,
        Tone::Better => 2,
        Tone::Same => 3,
        Tone::Fact => 4,
    });
    rows
}

/// A row from a finding whose text is the answer.
fn from_finding(question: &str, found: Finding, otherwise: &str) -> Verdict {
    let action = found.action.unwrap_or_else(|| otherwise.into());
    let text = found.text.trim_end_matches('.').to_owned();
    row(&found.experiment, question, text, found.tone).act(&action)
}

fn row(experiment: &str, question: &str, text: String, tone: Tone) -> Verdict {
    Verdict {
        machine: String::new(),
        experiment: experiment.into(),
        question: question.into(),
        text,
        action: String::new(),
        tone,
        course: Vec::new(),
    }
}

impl Verdict {
    fn act(mut self, action: &str) -> Self {
        self.action = action.into();
        self
    }

    fn course(mut self, ratios: impl IntoIterator<Item = f64>) -> Self {
        let ratios = ratios.into_iter().filter(|ratio| ratio.is_finite() && *ratio > 0.0);
        self.course = ratios.collect();
        if self.course.len() < 2 {
            self.course.clear();
        }
        self
    }
}

/// `2.1 times as fast as libc`, `8.0% less time than libc`, `as fast as libc`, `4.0% more time than
/// libc`, given the ratio of the times.
fn speed(ratio: f64, other: &str) -> String {
    const TIMES: f64 = 1.5;
    match ratio {
        _ if ratio <= 1.0 / TIMES => format!("{} times as fast as {other}", times(1.0 / ratio)),
        _ if ratio < 1.0 => {
            format!("{} less time than {other}", crate::text::percent(1.0 - ratio))
        }
        _ if ratio >= TIMES => format!("{} times the time of {other}", times(ratio)),
        _ => format!("{} more time than {other}", crate::text::percent(ratio - 1.0)),
    }
}

/// A number with one decimal below 9.95, otherwise a whole number.
fn times(value: f64) -> String {
    if value < 9.95 { format!("{value:.1}") } else { format!("{value:.0}") }
}

/// The text of a comparison in time or cost: equal if the run excludes a difference that would
/// matter, and no claim if it does not.
fn speed_of(comparison: &Comparison) -> String {
    let baseline = &comparison.baseline;
    match super::tone(comparison) {
        Tone::Same | Tone::Fact => format!("as fast as {baseline}"),
        Tone::Unknown => format!("beside {baseline} {}", super::open(comparison)),
        Tone::Better | Tone::Worse => speed(comparison.ratio, baseline),
    }
}

/// The advice for a comparison that the run cannot decide.
fn settle(comparison: Option<&Comparison>, measure: &str) -> String {
    match comparison.and_then(Comparison::settle) {
        Some(Settle::Quiet) => {
            "measure again on a quieter machine; `haul doctor` names what disturbs it".into()
        }
        _ => format!("measure longer: `{measure}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_written_as_text() {
        assert_eq!(speed(0.5, "libc"), "2.0 times as fast as libc");
        assert_eq!(speed(0.01, "dpdk"), "100 times as fast as dpdk");
        assert_eq!(speed(0.92, "libc"), "8.0% less time than libc");
        assert_eq!(speed(1.04, "libc"), "4.0% more time than libc");
        assert_eq!(speed(3.0, "libc"), "3.0 times the time of libc");
    }
}
