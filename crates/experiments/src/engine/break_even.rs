//! The size from which an engine pays, while its caller computes and while its caller waits.

use std::collections::BTreeMap;

use haul_model::Record;
use haul_model::experiment::{key, name};
use haul_model::statistics::median_interval;

use super::subject::Subject;

/// The value of [`key::CALLER`] for a caller that computes meanwhile.
pub const COMPUTES: &str = "computes";
/// The value of [`key::CALLER`] for a caller that waits at once.
pub const WAITS: &str = "waits";

/// The subject, the busy processors, and what the caller does.
type Case<'a> = (&'a str, u64, &'static str);

/// For each subject but a copy by the caller itself, the smallest measured size from which on it
/// pays, in each larger size too. None for a subject that never does.
///
/// For a caller that computes, it pays if the interval of its median share lies above what both
/// entrants of the baseline seem to hide. For a caller that waits at once, it pays if the interval
/// of its latency's ratio to the baseline lies below 1 by more than the noise floor.
#[must_use]
pub fn break_even(records: &[Record]) -> Vec<Record> {
    let mut cases: BTreeMap<Case<'_>, Vec<(u64, bool)>> = BTreeMap::new();
    let own = [Subject::Copy.name(), Subject::Inline.name()];
    for record in records.iter().filter(|record| !own.contains(&record.subject.as_str())) {
        let count = |key| record.parameters.get(key).and_then(serde_json::Value::as_u64);
        let (Some(size), Some((caller, pays))) = (count(key::SIZE_BYTES), pays(record)) else {
            continue;
        };
        let case = (record.subject.as_str(), count(key::BUSY_CORE).unwrap_or(0), caller);
        cases.entry(case).or_default().push((size, pays));
    }
    let found = cases.into_iter().filter_map(|((subject, busy, caller), mut sizes)| {
        sizes.sort_unstable();
        let (size, _) = sizes.iter().rev().take_while(|(_, pays)| *pays).last()?;
        let mut record = Record::new("", name::ENGINE_BREAK_EVEN, subject, "size", "bytes")
            .with(key::BUSY_CORE, busy)
            .with(key::CALLER, caller);
        record.samples = vec![*size as f64];
        Some(record)
    });
    found.collect()
}

/// What the caller of the record does, and whether the subject pays there.
fn pays(record: &Record) -> Option<(&'static str, bool)> {
    match record.experiment.as_str() {
        name::ENGINE_OVERLAP => {
            let floor = record.parameters.get(key::SHARE_FLOOR)?.as_f64()?;
            let low = median_interval(&record.samples).map(|interval| interval[0]);
            Some((COMPUTES, low.is_some_and(|low| low > floor)))
        }
        name::ENGINE_LATENCY => {
            let comparison = record.comparison.as_ref()?;
            Some((WAITS, comparison.ratio_high < 1.0 - comparison.floor))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use haul_model::Comparison;

    use super::*;

    fn share(subject: &str, size: u64, low: f64, floor: f64) -> Record {
        let mut record = Record::new("", name::ENGINE_OVERLAP, subject, "share", "share")
            .with(key::SIZE_BYTES, size)
            .with(key::SHARE_FLOOR, floor);
        record.samples = vec![low, low + 0.1, low + 0.2];
        record
    }

    fn latency(subject: &str, size: u64, ratio: f64, floor: f64) -> Record {
        let mut record = Record::new("", name::ENGINE_LATENCY, subject, "time", "s")
            .with(key::SIZE_BYTES, size)
            .with(key::BUSY_CORE, 1_u64);
        record.samples = vec![1.0];
        let (ratio_low, ratio_high) = (ratio - 0.01, ratio + 0.01);
        let baseline = "copy".into();
        record.comparison = Some(Comparison { baseline, ratio, ratio_low, ratio_high, floor });
        record
    }

    #[test]
    fn break_even_is_the_size_from_which_all_gain_more_than_the_baseline() {
        let records = [
            share("worker", 64, 0.1, 0.05),
            share("worker", 65_536, 0.5, 0.25),
            share("worker", 4096, 0.2, 0.25),
            share("worker", 1 << 20, 0.9, 0.1),
            share("auto", 4096, 0.3, 0.3),
            share("inline", 4096, 0.3, 0.1),
            latency("worker", 4096, 0.98, 0.02),
            latency("worker", 65_536, 0.6, 0.02),
            latency("thread", 65_536, 1.6, 0.02),
        ];
        let found: Vec<_> = break_even(&records)
            .iter()
            .map(|record| {
                let of = |key| record.parameters[key].clone();
                (record.subject.clone(), of(key::CALLER), of(key::BUSY_CORE), record.samples[0])
            })
            .collect();
        let worker =
            |caller: &str, busy: u64| ("worker".into(), caller.into(), busy.into(), 65_536.0);
        assert_eq!(found, [worker(COMPUTES, 0), worker(WAITS, 1)]);
    }
}
