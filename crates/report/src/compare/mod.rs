//! Compares earlier runs with later ones: which figures became faster or slower, which did not
//! change, and for which the runs cannot tell whether they changed.
//!
//! Only this module makes ratios across runs. Two runs of one program differ by more than their
//! intervals and floors say: the placement of code and buffers, and the state of the branch
//! predictor, change from process to process, and a machine is faster on one day than on the next.
//! So each figure is compared as a ratio to a baseline of the same run; with several runs of each
//! side, the spread between runs is measured; and all figures share the chance of a false alarm.
//!
//! From the bottom up:
//!
//! - `judge`: judges one figure of several earlier and later runs;
//! - `whole`: all of haul's figures of one part together;
//! - `words`: the names and values of figures as text;
//! - `picture`: all changes, as a table.

mod judge;

mod whole;

mod words;

mod picture;

use std::collections::{BTreeMap, BTreeSet};

use haul_model::experiment::{key, name};
use haul_model::{Kind, Line, Record, Verdict};

use self::judge::{Judged, Observed, Sides};
use self::whole::Whole;
use crate::select::{self, field};

pub(crate) use picture::html;
pub use words::{values, words};

/// Parameters that may differ between the two files for one and the same figure: versions of the
/// compared subjects, paths, and what the subject knew of the machine.
const MAY_DIFFER: [&str; 6] =
    [key::VERSION, key::FILE, key::PROGRAM_DIGEST, key::DIGEST, key::TABLE, key::TRIES];

/// The figures to compare, and the least change that counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Terms {
    /// Changes up to this share count as no change, whatever the floors are.
    pub least: f64,
    /// Whether a figure of one machine may be compared with the same figure of another machine.
    pub across_machines: bool,
    /// The experiments to compare, by whole name or first part (`copy`); empty for all.
    pub only: Vec<String>,
    /// The subjects to compare; empty for all that a program calls.
    pub subjects: Vec<String>,
}

/// The result of a comparison.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// A `compare` record for each whole (all figures of a part or function together), then one
    /// for each figure that both sides contain. The figures that became slower come first,
    /// beginning with the largest change. The caller adds run and time.
    pub records: Vec<Record>,
    /// The number of figures that only the earlier side has.
    pub only_old: usize,
    /// The number of figures that only the later side has.
    pub only_new: usize,
    /// The number of figures of both sides without a better direction, or without a number above
    /// 0.
    pub unjudged: usize,
    /// The number of figures of both sides that no program calls: kernels, and what the tuner
    /// tried.
    pub left_out: usize,
    /// Whether both sides have enough runs to measure the spread between runs.
    pub is_repeated: bool,
}

/// The runs of each figure, each with its newest record.
type Figures<'a> = BTreeMap<String, BTreeMap<&'a str, &'a Record>>;

/// Compares each figure of the newer runs with the same figure of the older ones. Each run of a
/// side counts once, with its newest record of the figure.
///
/// ```
/// use haul_model::{Line, Record};
/// use haul_report::{Terms, compare};
/// let of = |run: &str, ns: f64| {
///     let mut record = Record::new(run, "heap.pairs", "haul", "time", "ns");
///     record.samples = vec![ns; 9];
///     Line::from(record)
/// };
/// let old = [of("1", 50.0), of("2", 50.1), of("3", 49.8)];
/// let new = [of("4", 60.0), of("5", 60.2), of("6", 59.9)];
/// let changes = compare(&old, &new, &Terms { least: 0.02, ..Terms::default() });
/// assert_eq!(changes.records[0].parameters["change"], "slower");
/// // One run of each does not say how far runs are apart.
/// let changes = compare(&old[..1], &new[..1], &Terms { least: 0.02, ..Terms::default() });
/// assert_eq!(changes.records[0].parameters["change"], "cannot tell");
/// ```
#[must_use]
pub fn compare(old: &[Line], new: &[Line], terms: &Terms) -> Changes {
    let (old, new) = (figures(old, terms), figures(new, terms));
    let mut changes = Changes::default();
    let mut seen: Vec<(Sides<'_>, Observed)> = Vec::new();
    for (key, runs) in &new {
        let Some(earlier) = old.get(key) else {
            changes.only_new += 1;
            continue;
        };
        let [old, new] = [earlier, runs].map(newest_first);
        let sides = Sides { old, new };
        match Observed::of(&sides) {
            _ if is_left_out(sides.new[0], terms) => changes.left_out += 1,
            None => changes.unjudged += 1,
            Some(observed) => seen.push((sides, observed)),
        }
    }
    changes.only_old = old.keys().filter(|key| !new.contains_key(*key)).count();
    changes.is_repeated = seen.iter().any(|(_, observed)| observed.freedom().is_some());
    changes.records = records(&seen, terms);
    changes
}

/// Judges figures and wholes together, because each may be a false alarm. Baselines are judged
/// separately.
fn records(seen: &[(Sides<'_>, Observed)], terms: &Terms) -> Vec<Record> {
    let baselines: BTreeSet<&str> = seen
        .iter()
        .filter_map(|(sides, _)| Some(sides.new[0].comparison.as_ref()?.baseline.as_str()))
        .collect();
    let (of_baselines, counted): (Vec<_>, Vec<_>) =
        seen.iter().partition(|(sides, _)| baselines.contains(sides.new[0].subject.as_str()));
    let figures: Vec<(&Record, &Observed)> =
        counted.iter().map(|(sides, observed)| (sides.new[0], observed)).collect();
    let wholes = whole::wholes(&figures);
    let mut all: Vec<Observed> = counted.iter().map(|(_, observed)| observed.clone()).collect();
    let alone = all.len();
    all.extend(wholes.iter().map(|whole| whole.observed.clone()));
    let judged = judge::judge(&all, terms.least);
    let (judged, of_wholes) = judged.split_at(alone);
    let mut rows: Vec<(Judged, Record)> = counted
        .iter()
        .zip(judged)
        .map(|((sides, observed), judged)| (*judged, line(sides, observed, judged, true)))
        .collect();
    let apart: Vec<Observed> = of_baselines.iter().map(|(_, observed)| observed.clone()).collect();
    let apart = judge::judge(&apart, terms.least);
    rows.extend(
        of_baselines
            .iter()
            .zip(apart)
            .map(|((sides, observed), judged)| (judged, line(sides, observed, &judged, false))),
    );
    rows.sort_by(|a, b| a.0.place().cmp(&b.0.place()).then(b.0.ratio.total_cmp(&a.0.ratio)));
    let machine = figures.first().map_or("", |(record, _)| record.machine.as_str());
    let wholes = wholes.iter().zip(of_wholes).map(|(whole, judged)| {
        let judged = match whole.observed.freedom() {
            Some(_) => *judged,
            None => whole.of_single_runs(terms.least),
        };
        line_of_whole(whole, &judged, machine)
    });
    wholes.chain(rows.into_iter().map(|(_, record)| record)).collect()
}

/// The records of each figure, run by run.
fn figures<'a>(lines: &'a [Line], terms: &Terms) -> Figures<'a> {
    let mut figures = Figures::new();
    for line in lines {
        let Line::Record(record) = line else { continue };
        let is_compared = record.experiment == name::COMPARE;
        if record.samples.is_empty() || is_compared || !is_asked_for(record, terms) {
            continue;
        }
        let kind = if record.kind == Kind::Measured { "measured" } else { "modelled" };
        let machine = if terms.across_machines { "" } else { record.machine.as_str() };
        let identity = select::identity_without(record, &MAY_DIFFER);
        let key = [identity.as_str(), kind, &record.unit, machine].join("\u{1f}");
        let kept = figures.entry(key).or_default().entry(record.run.as_str()).or_insert(record);
        if kept.time <= record.time {
            *kept = record;
        }
    }
    figures
}

fn newest_first<'a>(runs: &BTreeMap<&'a str, &'a Record>) -> Vec<&'a Record> {
    let mut records: Vec<&Record> = runs.values().copied().collect();
    records.sort_by(|a, b| b.time.cmp(&a.time));
    records
}

fn is_asked_for(record: &Record, terms: &Terms) -> bool {
    let is_of = |only: &String| {
        record
            .experiment
            .strip_prefix(only.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    (terms.only.is_empty() || terms.only.iter().any(is_of))
        && (terms.subjects.is_empty() || terms.subjects.contains(&record.subject))
}

/// Whether no program calls the subject: a kernel, or what the tuner tried. A subject or experiment
/// that the caller named is never left out.
fn is_left_out(record: &Record, terms: &Terms) -> bool {
    if record.experiment == name::COPY_TUNE {
        return !terms.only.contains(&record.experiment);
    }
    let has_kernels =
        record.experiment.starts_with("copy.") || record.experiment == name::MEMORY_BANDWIDTH;
    let baseline = record.comparison.as_ref().map(|comparison| comparison.baseline.as_str());
    has_kernels
        && terms.subjects.is_empty()
        && !record.subject.starts_with("haul")
        && baseline.is_some_and(|baseline| baseline != record.subject)
}

fn line(sides: &Sides<'_>, observed: &Observed, judged: &Judged, is_counted: bool) -> Record {
    let (old, new) = (sides.old[0], sides.new[0]);
    let mut record = Record::new("", name::COMPARE, &new.subject, &new.metric, "ratio")
        .with(key::OF, new.experiment.as_str());
    record.kind = new.kind;
    record.machine.clone_from(&new.machine);
    let conditions = new.parameters.iter().filter(|(name, _)| select::is_condition(name));
    record.parameters.extend(conditions.map(|(name, value)| (name.clone(), value.clone())));
    let beside = match &new.comparison {
        Some(comparison) if judged.is_beside => comparison.baseline.as_str(),
        _ if !is_counted => BASELINE,
        _ => "",
    };
    let versions = [old, new].map(|record| field(record, key::VERSION));
    if let [Some(old), Some(new)] = versions
        && old != new
    {
        record = record.with(key::VERSION, format!("{old} to {new}"));
    }
    let medians = |records: &[&Record]| {
        let all: Vec<f64> = records.iter().filter_map(|record| record.median()).collect();
        haul_model::statistics::median(&all)
    };
    record = record
        .with(key::UNIT, new.unit.as_str())
        .with(key::OLD, medians(&sides.old))
        .with(key::NEW, medians(&sides.new))
        .with(key::OLD_RUN, old.run.as_str())
        .with(key::NEW_RUN, new.run.as_str())
        .with(key::OLD_RUNS, observed.old.len())
        .with(key::NEW_RUNS, observed.new.len())
        .with(key::NEW_OVER_OLD, judged.medians)
        .with(key::BESIDE, beside);
    with_verdict(record, judged, is_counted)
}

/// The text that stands for the baseline in a baseline's own record. If a baseline changed,
/// either the machine changed, or the baseline's library.
const BASELINE: &str = "it is the baseline";

fn line_of_whole(whole: &Whole, judged: &Judged, machine: &str) -> Record {
    let mut record = Record::new("", name::COMPARE, "haul", "time or cost", "ratio")
        .with(key::OF, whole.part.as_str())
        .with(key::FIGURES, whole.figures)
        .with(key::OLD_RUNS, whole.observed.old.len())
        .with(key::NEW_RUNS, whole.observed.new.len())
        .with(key::NEW_OVER_OLD, judged.medians);
    record.machine = machine.to_owned();
    if let Some(function) = &whole.function {
        record = record.with(key::FUNCTION, function.as_str());
    }
    with_verdict(record, judged, true)
}

fn with_verdict(mut record: Record, judged: &Judged, is_counted: bool) -> Record {
    record.samples = vec![judged.ratio];
    record
        .with(key::RATIO_LOW, judged.low)
        .with(key::RATIO_HIGH, judged.high)
        .with(key::NOISE, judged.noise)
        .with(key::CHANGE, change_name(judged.verdict))
        .with(key::COUNTED, is_counted)
}

impl Changes {
    /// The number of figures with this change. Baselines do not count, because they are not among
    /// the compared subjects.
    #[must_use]
    pub fn count(&self, change: Verdict) -> usize {
        let all: Vec<&Record> = self.records.iter().collect();
        with_change(&all, change).len()
    }

    /// The number of wholes with this change.
    #[must_use]
    pub fn wholes(&self, change: Verdict) -> usize {
        let of = |record: &&Record| change_of(record) == Some(change);
        self.records.iter().filter(|record| is_whole(record)).filter(of).count()
    }

    /// The number of records of baselines.
    #[must_use]
    pub fn baselines(&self) -> usize {
        self.records.iter().filter(|record| !is_counted(record)).count()
    }
}

/// The name of a change in a record of `compare`.
#[must_use]
pub fn change_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::NoDifference => "stayed",
        verdict => verdict.name(),
    }
}

/// The change in a record of `compare`; `None` for other records.
#[must_use]
pub fn change_of(record: &Record) -> Option<Verdict> {
    let said = field(record, key::CHANGE)?;
    [Verdict::Less, Verdict::More, Verdict::NoDifference, Verdict::CannotTell]
        .into_iter()
        .find(|verdict| change_name(*verdict) == said)
}

/// Whether a record of `compare` covers all of haul's figures of a part.
#[must_use]
pub fn is_whole(record: &Record) -> bool {
    record.parameters.contains_key(key::FIGURES)
}

/// Whether a record of `compare` counts as a change. A record of a baseline does not.
#[must_use]
pub fn is_counted(record: &Record) -> bool {
    let said = record.parameters.get(key::COUNTED).and_then(serde_json::Value::as_bool);
    said.unwrap_or_else(|| field(record, key::BESIDE).as_deref() != Some(BASELINE))
}

/// The figures that count and have this change. Counts, sentences and drawings all use this list.
pub(crate) fn with_change<'a>(records: &[&'a Record], change: Verdict) -> Vec<&'a Record> {
    let is_figure = |record: &&&Record| is_counted(record) && !is_whole(record);
    let of = records.iter().filter(is_figure).copied();
    of.filter(|record| change_of(record) == Some(change)).collect()
}
