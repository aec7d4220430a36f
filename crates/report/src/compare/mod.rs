//! What became faster, slower or stayed from one file of records to another.
//!
//! The one place that makes a ratio across runs. Two runs differ by more than their noise floors
//! say: a machine is quicker on one day than on the next. A figure that was compared with a
//! baseline is therefore judged by what that baseline did as well: it changed only where its own
//! median and its ratio to the baseline changed, both in the same direction and both by more than
//! the floors of the two runs together.
//!
//! From the bottom up:
//!
//! - `judge`: one figure, then and now;
//! - `words`: what a figure is called;
//! - `picture`: all of them, as a table.

mod judge;

mod words;

mod picture;

use std::collections::{BTreeMap, BTreeSet};

use haul_model::experiment::{key, name};
use haul_model::{Kind, Line, Record};

use self::judge::Judged;
use crate::select;

pub use judge::Change;
pub(crate) use picture::html;
pub use words::{values, words};

/// Parameters that may differ between the two files without making it another figure: versions of
/// what is compared, paths, and what the subject knew of the machine.
const MAY_DIFFER: [&str; 6] =
    [key::VERSION, key::FILE, key::PROGRAM_DIGEST, key::DIGEST, key::TABLE, key::TRIES];

/// What counts as a change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// Changes up to this share count as none, whatever the floors are.
    pub least: f64,
    /// Whether a figure of one machine may be held against that of another.
    pub across_machines: bool,
}

/// What two files of records say together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// A record of `compare` for each figure that both have, the slowest first. They lack a run and
    /// a time, which whoever writes them adds.
    pub records: Vec<Record>,
    /// How many figures the earlier file alone has.
    pub only_old: usize,
    /// How many figures the later file alone has.
    pub only_new: usize,
    /// How many both have of which no direction is better, or that hold no number above 0.
    pub unjudged: usize,
}

/// Each figure of the newer file beside the same of the older one; where a file has a figure
/// several times, its newest.
///
/// ```
/// use haul_model::{Line, Record};
/// use haul_report::{Terms, compare};
/// let of = |ns: f64| {
///     let mut record = Record::new("run", "copy.size", "haul", "time", "ns");
///     record.samples = vec![ns; 9];
///     [Line::from(record)]
/// };
/// let changes = compare(&of(50.0), &of(60.0), Terms { least: 0.02, across_machines: false });
/// assert_eq!(changes.records[0].samples, [1.2]);
/// assert_eq!(changes.records[0].parameters["change"], "slower");
/// ```
#[must_use]
pub fn compare(old: &[Line], new: &[Line], terms: Terms) -> Changes {
    let (old, new) = (figures(old, terms), figures(new, terms));
    let baselines: BTreeSet<&str> = new
        .values()
        .filter_map(|record| Some(record.comparison.as_ref()?.baseline.as_str()))
        .collect();
    let mut changes = Changes::default();
    let mut judged: Vec<(Judged, Record)> = Vec::new();
    for (key, record) in &new {
        let Some(earlier) = old.get(key) else {
            changes.only_new += 1;
            continue;
        };
        match Judged::of(earlier, record, terms.least) {
            None => changes.unjudged += 1,
            Some(own) => judged.push((own, line(earlier, record, &own, &baselines))),
        }
    }
    changes.only_old = old.keys().filter(|key| !new.contains_key(*key)).count();
    judged.sort_by(|a, b| a.0.place().cmp(&b.0.place()).then(b.0.ratio.total_cmp(&a.0.ratio)));
    changes.records = judged.into_iter().map(|(_, record)| record).collect();
    changes
}

/// The newest record of each figure.
fn figures(lines: &[Line], terms: Terms) -> BTreeMap<String, &Record> {
    let mut figures: BTreeMap<String, &Record> = BTreeMap::new();
    for line in lines {
        let Line::Record(record) = line else { continue };
        if record.samples.is_empty() || record.experiment == name::COMPARE {
            continue;
        }
        let kind = if record.kind == Kind::Measured { "measured" } else { "modelled" };
        let machine = if terms.across_machines { "" } else { record.machine.as_str() };
        let identity = select::identity_without(record, &MAY_DIFFER);
        let key = [identity.as_str(), kind, &record.unit, machine].join("\u{1f}");
        let kept = figures.entry(key).or_insert(record);
        if kept.time <= record.time {
            *kept = record;
        }
    }
    figures
}

fn line(old: &Record, new: &Record, judged: &Judged, baselines: &BTreeSet<&str>) -> Record {
    let mut record = Record::new("", name::COMPARE, &new.subject, &new.metric, "ratio")
        .with(key::OF, new.experiment.as_str());
    record.kind = new.kind;
    record.machine.clone_from(&new.machine);
    record.samples = vec![judged.ratio];
    let conditions = new.parameters.iter().filter(|(name, _)| select::is_condition(name));
    record.parameters.extend(conditions.map(|(name, value)| (name.clone(), value.clone())));
    let beside = match &new.comparison {
        Some(comparison) if judged.is_beside => comparison.baseline.as_str(),
        _ if baselines.contains(new.subject.as_str()) => BASELINE,
        _ => "",
    };
    let versions = [old, new].map(|record| select::field(record, key::VERSION));
    if let [Some(old), Some(new)] = versions
        && old != new
    {
        record = record.with(key::VERSION, format!("{old} to {new}"));
    }
    record
        .with(key::UNIT, new.unit.as_str())
        .with(key::OLD, old.median())
        .with(key::NEW, new.median())
        .with(key::OLD_RUN, old.run.as_str())
        .with(key::NEW_RUN, new.run.as_str())
        .with(key::NEW_OVER_OLD, judged.medians)
        .with(key::BESIDE, beside)
        .with(key::RATIO_LOW, judged.low)
        .with(key::RATIO_HIGH, judged.high)
        .with(key::NOISE, judged.noise)
        .with(key::CHANGE, judged.change.name())
}

/// What stands for the baseline of a baseline: its change is the machine's, or the library's that
/// it belongs to.
const BASELINE: &str = "it is the baseline";

impl Changes {
    /// How many figures changed so. Baselines are not counted where others are held against them:
    /// nothing of what is compared changed by their change.
    #[must_use]
    pub fn count(&self, change: Change) -> usize {
        self.records
            .iter()
            .filter(|record| Change::of(record) == Some(change))
            .filter(|record| !is_baseline(record))
            .count()
    }
}

/// Whether a record of `compare` is of a baseline.
pub(crate) fn is_baseline(record: &Record) -> bool {
    select::field(record, key::BESIDE).as_deref() == Some(BASELINE)
}
