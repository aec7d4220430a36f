//! The sentences at the top of the page and on the command line. They are computed from measured
//! records, except for one that says that it describes a simulation, and they account for noise.
//!
//! From the bottom up:
//!
//! - `ranges`: ranges of sizes as text;
//! - `noise`: how far the figures can be trusted;
//! - `compare`: changes from one file of records to another;
//! - `memory`: the limits of the machine;
//! - `distribution`: what haul gains on the sizes that services copy;
//! - `stream`: what haul gains on the calls of recorded programs;
//! - `tune`: whether tuned thresholds beat the defaults;
//! - `size`: the best kernel at every size;
//! - `heap`: the cost of an allocation;
//! - `engine`: copies beside the CPU;
//! - `channel`: the fastest mechanism to another process;
//! - `burst`: the bursts of a running program;
//! - `forward`: the packet rate of a guest;
//! - `field`: what a change of a whole program does;
//! - `sim`: how close the simulated server comes to its paper;
//! - `verdicts`: what to do, one row per question.

mod burst;

mod channel;

mod compare;

mod distribution;

mod engine;

mod field;

mod forward;

mod heap;

mod memory;

mod noise;

mod ranges;

mod sim;

mod stream;

mod size;

mod tune;

pub(crate) mod verdicts;

use haul_model::experiment::name;
use haul_model::units::three_digits;
use haul_model::{Comparison, Line, Record, Verdict};

pub(crate) use channel::is_compared_by_sample;

use crate::select::{self, Section};
use crate::text;

/// One result of the records, as a sentence that a reader can act on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The machine for which the finding holds: [`haul_model::Machine::id`].
    pub machine: String,
    /// The experiment of the finding's records: `copy.size`. Empty if the finding is about all
    /// experiments.
    pub experiment: String,
    /// Whether the finding is good news.
    pub tone: Tone,
    /// The sentence, with its full stop.
    pub text: String,
    /// What to do about the finding: a sentence that names a command. `None` if there is nothing
    /// to do.
    pub action: Option<String>,
}

/// Whether a finding is good news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// haul is better than the compared subject.
    Better,
    /// No difference that would matter.
    Same,
    /// The run cannot tell whether haul is better or worse by a difference that would matter.
    Unknown,
    /// haul is worse, or the reader should act.
    Worse,
    /// A fact of the machine, neither good nor bad.
    Fact,
}

/// The findings of some records, the most important first, machine by machine in the order of the
/// file.
///
/// Of two records of the same measurement, the newer counts. A difference below the noise floor of
/// its own run counts as none; if the run cannot exclude a difference that would matter, the
/// finding says "cannot tell". Modelled figures are only counted, except those of the simulated
/// server, whose sentence says that they are modelled.
///
/// ```
/// use haul_model::{Comparison, Line, Record};
/// let mut record = Record::new("run", "copy.distribution", "haul", "time", "ns")
///     .with("function", "memcpy").with("distribution", "storage").with("level", "l1");
/// record.samples = vec![7.9];
/// record.comparison = Some(Comparison {
///     baseline: "libc".into(), ratio: 0.79, ratio_low: 0.78, ratio_high: 0.80, floor: 0.01,
/// });
/// let findings = haul_report::findings(&[Line::from(record)]);
/// assert!(findings[0].text.contains("saves 21%"), "{}", findings[0].text);
/// ```
#[must_use]
pub fn findings(lines: &[Line]) -> Vec<Finding> {
    select::sections(lines).iter().flat_map(of_section).collect()
}

/// The findings of one machine.
pub(crate) fn of_section(section: &Section<'_>) -> Vec<Finding> {
    let records = section.newest_measured();
    let by_run = section.measured_by_run();
    let runs = select::runs(&by_run);
    let mut findings = Vec::new();
    findings.extend(compare::changes(&section.of(name::COMPARE)));
    findings.extend(stream::headline(&records));
    findings.extend(distribution::headline(&records));
    findings.extend(size::libc_by_size(&by_run));
    findings.extend(size::haul_by_size(&by_run));
    findings.extend(distribution::classes(&records));
    findings.extend(distribution::levels(&records));
    findings.extend(distribution::losses(&records));
    findings.extend(size::fastest_by_size(&by_run));
    findings.extend(first_of(&runs, memory::limit));
    findings.extend(first_of(&runs, memory::faults));
    findings.extend(first_of(&runs, heap::growth));
    findings.extend(first_of(&runs, heap::pairs));
    findings.extend(heap::replays(&records, &by_run));
    findings.extend(heap::maps(&records));
    findings.extend(first_of(&runs, engine::beside_the_cpu));
    findings.extend(channel::transfers(&by_run));
    findings.extend(channel::experiment_2014(&by_run));
    findings.extend(first_of(&runs, forward::through_a_guest));
    let beside = runs.iter().map(|run| forward::beside_testpmd(run)).find(|it| !it.is_empty());
    findings.extend(beside.unwrap_or_default());
    findings.extend(field::tests(&records));
    findings.extend(burst::bursts(&by_run));
    findings.extend(sim::reproduction(section));
    findings.extend(tune::tuned(&records));
    findings.extend(noise::floors(&records));
    findings.extend(noise::steal(&records));
    findings.extend(noise::remarks(section));
    for finding in &mut findings {
        finding.machine = section.id.into();
    }
    findings
}

/// The finding of the newest run with a finding. A sentence never combines two runs.
fn first_of(
    runs: &[Vec<&Record>],
    find: impl Fn(&[&Record]) -> Option<Finding>,
) -> Option<Finding> {
    runs.iter().find_map(|run| find(run))
}

fn finding(experiment: &str, tone: Tone, text: String) -> Finding {
    Finding { machine: String::new(), experiment: experiment.into(), tone, text, action: None }
}

impl Finding {
    fn action(mut self, action: &str) -> Self {
        self.action = Some(action.into());
        self
    }
}

/// Records of one experiment that compare haul with a baseline, all with one calling convention,
/// one reader of the copied bytes, and one kind of branches.
fn of_haul<'a>(records: &[&'a Record], experiment: &str) -> Vec<(&'a Record, &'a Comparison)> {
    let all = records
        .iter()
        .filter(|record| record.experiment == experiment && record.subject == "haul")
        .filter_map(|record| record.comparison.as_ref().map(|comparison| (*record, comparison)))
        .filter(|(_, comparison)| comparison.ratio > 0.0);
    let read = select::of_one_reader(all.collect(), |(record, _)| record);
    let read = select::of_one_kind_of_branches(read, |(record, _)| record);
    select::of_one_call(read, |(record, _)| record)
}

/// Whether a parameter has this value or is absent.
fn is(record: &Record, name: &str, value: &str) -> bool {
    select::field(record, name).is_none_or(|own| own == value)
}

/// The values of a field in some comparisons, in the order for a reader.
fn values(compared: &[(&Record, &Comparison)], name: &str) -> Vec<String> {
    let records: Vec<&Record> = compared.iter().map(|(record, _)| *record).collect();
    select::distinct(&records, name)
}

/// The geometric mean of comparisons.
fn mean(compared: &[(&Record, &Comparison)]) -> Option<Comparison> {
    Comparison::mean(&compared.iter().map(|(_, comparison)| *comparison).collect::<Vec<_>>())
}

/// `saves 21% of libc’s time`, `takes 4% more time than libc`, `is neither faster nor slower than
/// libc`.
fn verb(comparison: &Comparison) -> String {
    let difference = text::percent(comparison.ratio - 1.0);
    let baseline = &comparison.baseline;
    match comparison.verdict() {
        Verdict::Less => format!("saves {difference} of {baseline}’s time"),
        Verdict::More => format!("takes {difference} more time than {baseline}"),
        Verdict::NoDifference => format!("is neither faster nor slower than {baseline}"),
        Verdict::CannotTell => {
            format!("may be faster or slower than {baseline} ({})", open(comparison))
        }
    }
}

/// A change for lists: `−21%`, `+4%`, `no difference`.
fn change(comparison: &Comparison) -> String {
    let difference = text::percent(comparison.ratio - 1.0);
    match comparison.verdict() {
        Verdict::Less => format!("−{difference}"),
        Verdict::More => format!("+{difference}"),
        Verdict::NoDifference | Verdict::CannotTell => comparison.verdict().name().into(),
    }
}

/// `cannot tell: 0.76 times, 0.25 to 3.12, floor 280%; a quieter machine would settle it`; empty
/// if the run shows whether there is a difference.
pub(crate) fn open(comparison: &Comparison) -> String {
    let Some(settle) = comparison.settle() else { return String::new() };
    let interval = match comparison.ratio_low > 0.0 && comparison.ratio_high < f64::MAX {
        true => format!(
            "{} times, {} to {}, floor {}",
            three_digits(comparison.ratio),
            three_digits(comparison.ratio_low),
            three_digits(comparison.ratio_high),
            text::percent(comparison.floor)
        ),
        false => format!("{} times, of too few samples", three_digits(comparison.ratio)),
    };
    format!("cannot tell: {interval}; {}", settle.text())
}

fn tone(comparison: &Comparison) -> Tone {
    match comparison.verdict() {
        Verdict::Less => Tone::Better,
        Verdict::More => Tone::Worse,
        Verdict::NoDifference => Tone::Same,
        Verdict::CannotTell => Tone::Unknown,
    }
}

/// The tone of a sentence with several parts: a loss in any part outweighs all gains.
fn tone_of_all(parts: impl IntoIterator<Item = Tone>) -> Tone {
    parts.into_iter().fold(Tone::Same, |all, part| match (all, part) {
        (Tone::Worse, _) | (_, Tone::Worse) => Tone::Worse,
        (Tone::Better, _) | (_, Tone::Better) => Tone::Better,
        (Tone::Unknown, _) | (_, Tone::Unknown) => Tone::Unknown,
        _ => Tone::Same,
    })
}
