//! The records of a test: the verdict, and what each side used.

use haul_measure::rounds::placed::{self, AGAIN, BASELINE, CHANGED, Compared};
use haul_model::experiment::{key, name};
use haul_model::{Comparison, RatioOf, Record};

use super::copies::Copies;
use super::state::Test;
use super::trial::Sample;

/// The subject of the program as it is, and of its second runs.
const WITHOUT: &str = "without";
const WITHOUT_AGAIN: &str = "without, again";

/// A quantity that is known of every run: its metric, its unit, and its value.
type Quantity = (&'static str, &'static str, fn(&Sample) -> f64);

/// The quantities that are recorded in addition to the test's metric.
const BESIDE: [Quantity; 3] = [
    ("wall", "s", |sample| sample.wall_s),
    ("cpu", "s", |sample| sample.cpu_s),
    ("max-rss", "B", |sample| sample.resident_bytes),
];

/// The records, the verdict first. There are none without a complete round.
pub(super) fn of(test: &Test<'_>, copies: Option<Copies>) -> Vec<Record> {
    let Some(found) = test.compared() else { return Vec::new() };
    let metric = test.field.metric.to_string();
    let unit = test.unit.as_deref().unwrap_or("value");
    let value = |sample: &Sample| sample.figure.value;
    let record = Record::new("", name::FIELD_VERDICT, subject(test, CHANGED), &metric, unit);
    let record = completed(test, record, CHANGED, Some(&found), &value);
    let record = with_verdict(test, record, &found);
    let mut records = vec![match copies {
        Some(copies) => copies.on(record),
        None => record,
    }];
    for entrant in [BASELINE, AGAIN] {
        let record = Record::new("", name::FIELD_RUN, subject(test, entrant), &metric, unit);
        records.push(completed(test, record, entrant, None, &value));
    }
    for (other, unit, value) in BESIDE.into_iter().filter(|(other, ..)| *other != metric) {
        let compared = test.compared_by(&|sample| value(sample));
        for entrant in [BASELINE, CHANGED] {
            let record = Record::new("", name::FIELD_RUN, subject(test, entrant), other, unit);
            let compared = compared.filter(|_| entrant == CHANGED);
            records.push(completed(test, record, entrant, compared.as_ref(), &value));
        }
    }
    records
}

fn subject<'a>(test: &'a Test<'_>, entrant: usize) -> &'a str {
    match entrant {
        BASELINE => WITHOUT,
        AGAIN => WITHOUT_AGAIN,
        _ => &test.subject,
    }
}

/// A record with its samples, its comparison and the parameters of all records of the test.
fn completed(
    test: &Test<'_>,
    mut record: Record,
    entrant: usize,
    compared: Option<&Compared>,
    value: &dyn Fn(&Sample) -> f64,
) -> Record {
    record.samples = test.rounds.iter().map(|round| value(&round.samples[entrant])).collect();
    let is_rate = test.field.is_higher_better && record.metric == test.field.metric.to_string();
    if let Some(found) = compared {
        record.ratio_of = is_rate.then_some(RatioOf::Cost);
        record.comparison = Some(Comparison {
            baseline: WITHOUT.into(),
            ratio: found.ratio,
            ratio_low: found.low,
            ratio_high: found.high,
            floor: found.floor,
        });
    }
    let mut record = record
        .with(key::PROGRAM, test.field.command.shown())
        .with(key::HIGHER_IS_BETTER, is_rate)
        .with(key::RERUN, test.field.rerun.clone());
    if let Some(load) = &test.field.load {
        record = record.with(key::LOAD, load.command.shown());
    }
    record
}

fn with_verdict(test: &Test<'_>, record: Record, found: &Compared) -> Record {
    let rounded = |value: f64| (1e6 * value).round() / 1e6;
    let noise = placed::noise(&test.placed(&|sample| sample.figure.value));
    let places: Vec<f64> = found.places.iter().map(|it| rounded(*it)).collect();
    let mut record = record
        .with(key::VERDICT, test.verdict(found).name())
        .with(key::EFFECT_SIZE, rounded(found.effect))
        .with(key::PLACES, places)
        .with(key::MATTERS, test.field.matters)
        .with(key::RUNS, test.rounds.len())
        .with(key::ROUNDS_DISCARDED, found.discarded)
        .with(key::ANALYSES, test.analyses.len());
    if let Some(noise) = noise {
        record = record.with(key::RUN_NOISE, rounded(noise));
    }
    record
}
