//! The names and values of figures as text.

use std::collections::{BTreeMap, BTreeSet};

use haul_model::experiment::key;
use haul_model::units::three_digits;
use haul_model::{Bytes, Nanos, Record};

use crate::select::{bytes, field};
use crate::text;

/// Parameters whose value needs no name, in the order in which they are shown.
const PLAIN: [&str; 8] = [
    key::FUNCTION,
    key::DISTRIBUTION,
    key::SIZE_CLASS,
    key::TRACE,
    key::PROGRAM,
    key::OPERATION,
    key::LEVEL,
    key::TARGET,
];

/// Parameters of the comparison rather than of the figure, and those that differ from subject to
/// subject anyway.
const OWN: [&str; 18] = [
    key::VERSION,
    key::FILE,
    key::OF,
    key::UNIT,
    key::OLD,
    key::NEW,
    key::OLD_RUN,
    key::NEW_RUN,
    key::NEW_OVER_OLD,
    key::BESIDE,
    key::RATIO_LOW,
    key::RATIO_HIGH,
    key::NOISE,
    key::CHANGE,
    key::OLD_RUNS,
    key::NEW_RUNS,
    key::FIGURES,
    key::COUNTED,
];

/// A name for the figure of each record of `compare`: `copy.size memcpy 4 KiB L1`. Parameters that
/// are the same for all figures of an experiment are left out, except those in `PLAIN`.
#[must_use]
pub fn words(records: &[&Record]) -> Vec<String> {
    let mut values: BTreeMap<(String, &str), BTreeSet<String>> = BTreeMap::new();
    for record in records {
        for name in record.parameters.keys() {
            let value = field(record, name).unwrap_or_default();
            values.entry((experiment(record), name)).or_default().insert(value);
        }
    }
    let varies = |record: &Record, name: &str| {
        values.get(&(experiment(record), name)).is_some_and(|values| values.len() > 1)
    };
    records.iter().map(|record| of_record(record, |name| varies(record, name))).collect()
}

fn experiment(record: &Record) -> String {
    field(record, key::OF).unwrap_or_default()
}

fn of_record(record: &Record, varies: impl Fn(&str) -> bool) -> String {
    if let Some(figures) = field(record, key::FIGURES) {
        let function = field(record, key::FUNCTION).map(|it| format!(" {it}"));
        let part = experiment(record);
        return format!("all of {part}{}, {figures} figures", function.unwrap_or_default());
    }
    let mut parts = vec![experiment(record)];
    for name in PLAIN {
        parts.extend(field(record, name).map(|value| match name {
            key::LEVEL => text::level(&value),
            key::SIZE_CLASS => text::size_class(&value),
            _ => value,
        }));
    }
    parts.extend(bytes(record, key::SIZE_BYTES).map(|size| Bytes(size).to_string()));
    for name in record.parameters.keys().map(String::as_str) {
        let is_said = PLAIN.contains(&name) || OWN.contains(&name) || name == key::SIZE_BYTES;
        if !is_said && varies(name) {
            let value = field(record, name).unwrap_or_default();
            parts.push(format!("{} {value}", name.replace('_', " ")));
        }
    }
    // Two different versions are shown; a common version is not.
    parts.extend(
        field(record, key::VERSION)
            .filter(|version| version.contains(" to "))
            .map(|versions| format!("({versions})")),
    );
    if record.metric != "time" {
        parts.push(record.metric.replace('_', " "));
    }
    parts.join(" ")
}

/// The earlier and the later figure, with their unit.
#[must_use]
pub fn values(record: &Record) -> [String; 2] {
    let unit = field(record, key::UNIT).unwrap_or_default();
    [key::OLD, key::NEW].map(|name| {
        let value = record.number(name);
        value.map_or_else(String::new, |value| quantity(value, &unit))
    })
}

fn quantity(value: f64, unit: &str) -> String {
    match unit {
        "ns" => Nanos(value).to_string(),
        "ratio" => three_digits(value),
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a number of bytes, above 0"
        )]
        "B" => Bytes(value as u64).approximate(),
        _ => format!("{} {unit}", three_digits(value)),
    }
}
