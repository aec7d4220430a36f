//! The verdict of a field test, and the share of the copies, as sentences.

use haul_model::experiment::{key, name};
use haul_model::{Comparison, Record, Verdict};

use crate::select::field;
use crate::text;

/// The verdict of a field test: `faster`, `slower`, `no difference` or `cannot tell`. `None` if the
/// record is not one of a field test.
#[must_use]
pub fn verdict(record: &Record) -> Option<Verdict> {
    let said = record.text(key::VERDICT).filter(|_| record.experiment == name::FIELD_VERDICT)?;
    [Verdict::Less, Verdict::More, Verdict::NoDifference, Verdict::CannotTell]
        .into_iter()
        .find(|verdict| verdict.name() == said)
}

/// The verdict of a field test in a sentence. `None` if the record is not one of a field test, or
/// has no comparison.
///
/// ```
/// use haul_model::{Comparison, Record};
/// let mut record = Record::new("r", "field.verdict", "env:X=1", "wall", "s")
///     .with("program", "sort big").with("verdict", "faster").with("runs", 15);
/// let (ratio, ratio_low, ratio_high, floor) = (0.97, 0.96, 0.98, 0.01);
/// let baseline = "without".into();
/// record.comparison = Some(Comparison { baseline, ratio, ratio_low, ratio_high, floor });
/// assert_eq!(
///     haul_report::field::sentence(&record).unwrap(),
///     "sort big with env:X=1: faster by 3.0% (2.0% to 4.0%), by wall; 15 runs of each side, \
///      noise floor 1.0%."
/// );
/// ```
#[must_use]
pub fn sentence(record: &Record) -> Option<String> {
    let verdict = verdict(record)?;
    let it = record.cost()?;
    let finding = match verdict {
        Verdict::Less => {
            by(better(record), 1.0 - it.ratio, [1.0 - it.ratio_high, 1.0 - it.ratio_low])
        }
        Verdict::More => {
            by(worse(record), it.ratio - 1.0, [it.ratio_low - 1.0, it.ratio_high - 1.0])
        }
        Verdict::NoDifference => format!("no difference above {}", text::percent(bound(&it))),
        Verdict::CannotTell => undecided(record, &it),
    };
    let program = field(record, key::PROGRAM).unwrap_or_default();
    let floor = match it.floor < f64::MAX / 2.0 {
        true => format!("noise floor {}", text::percent(it.floor)),
        false => "noise floor unknown".to_owned(),
    };
    Some(format!(
        "{} with {}: {finding}, by {}; {}, {floor}.",
        shortened(&program),
        shortened(&record.subject),
        record.metric,
        sides(record),
    ))
}

/// What haul's copies can change, in a sentence: the share of the program's processor time in its
/// copies and fills. `None` if the test did not tell it.
///
/// ```
/// let record = haul_model::Record::new("r", "field.verdict", "copy", "wall", "s")
///     .with("copy_share", 0.031).with("copy_share_changed", 0.022);
/// assert_eq!(
///     haul_report::field::copies(&record).unwrap(),
///     "Copies and fills take about 3.1% of the program's processor time with libc's functions, \
///      and haul's save 0.9% of it."
/// );
/// ```
#[must_use]
pub fn copies(record: &Record) -> Option<String> {
    let share = record.number(key::COPY_SHARE)?;
    let saved = share - record.number(key::COPY_SHARE_CHANGED)?;
    let change = match saved {
        _ if !saved.is_finite() => return None,
        saved if saved.abs() < 0.000_5 => "haul's take the same time".to_owned(),
        saved if saved > 0.0 => format!("haul's save {} of it", percent(saved)),
        saved => format!("haul's take {} of it in addition", percent(-saved)),
    };
    Some(format!(
        "Copies and fills take about {} of the program's processor time with libc's functions, and {change}.",
        percent(share)
    ))
}

/// `faster by 3.1% (2.4% to 3.8%)`.
fn by(word: &str, change: f64, [low, high]: [f64; 2]) -> String {
    format!("{word} by {} ({} to {})", percent(change), percent(low.max(0.0)), percent(high))
}

/// The largest difference that the test does not exclude.
fn bound(it: &Comparison) -> f64 {
    [it.ratio_low, it.ratio_high].map(|end| (end - 1.0).abs()).into_iter().fold(it.floor, f64::max)
}

/// `cannot tell: between 4.2% faster and 6.0% slower; a quieter machine would settle it`.
fn undecided(record: &Record, it: &Comparison) -> String {
    let is_bounded = it.ratio_low > 0.0 && it.ratio_high < f64::MAX;
    if !is_bounded {
        return "cannot tell: too few rounds for an interval".to_owned();
    }
    let end = |ratio: f64| match ratio < 1.0 {
        true => format!("{} {}", percent(1.0 - ratio), better(record)),
        false => format!("{} {}", percent(ratio - 1.0), worse(record)),
    };
    let matters = record.number(key::MATTERS).unwrap_or(haul_model::MATTERS);
    let settle = match it.floor > matters {
        true => "a quieter machine, or more rounds, would settle it",
        false => "more rounds would settle it",
    };
    format!("cannot tell: between {} and {}; {settle}", end(it.ratio_low), end(it.ratio_high))
}

/// A share as a percentage. An interval that is not bounded has no end.
fn percent(share: f64) -> String {
    if share < 1e6 { text::percent(share) } else { "any".into() }
}

/// The words for a gain and a loss: of times and rates, or of another quantity.
fn better(record: &Record) -> &'static str {
    if is_speed(record) { "faster" } else { "better" }
}

fn worse(record: &Record) -> &'static str {
    if is_speed(record) { "slower" } else { "worse" }
}

fn is_speed(record: &Record) -> bool {
    let is_rate = record.parameters.get(key::HIGHER_IS_BETTER).and_then(serde_json::Value::as_bool);
    matches!(record.unit.as_str(), "s" | "ms" | "us" | "ns") || is_rate == Some(true)
}

fn sides(record: &Record) -> String {
    let runs = record.count(key::RUNS).map_or(record.samples.len(), |runs| runs as usize);
    format!("{} of each side", text::count(runs, "run"))
}

/// The beginning of a long command line.
pub(super) fn shortened(text: &str) -> String {
    const SHOWN: usize = 80;
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
