//! The size from which an engine pays, while its caller computes and while its caller waits.

use std::collections::BTreeMap;

use haul_engine::{BreakEven, WAKE_MIN};
use haul_model::Record;
use haul_model::experiment::{ENGINE_WAIT_MOST, key, name};
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

/// The sizes for `haul.toml`, from the records of `worker`: the smallest measured size from which
/// on, in each larger size too, a caller that computes gains, and a caller that waits at once loses
/// at most 5%. `None` if nothing was measured with free processors, or only sizes so small that
/// larger ones may still pay. Records that the hypervisor disturbed do not count.
#[must_use]
pub fn sizes<'a>(records: impl Iterator<Item = &'a Record>) -> Option<BreakEven> {
    let mut by_size: [BTreeMap<u64, [Option<bool>; 2]>; 2] = Default::default();
    let worker = records.filter(|record| record.subject == Subject::Worker.name());
    for record in worker.filter(|record| !record.is_disturbed()) {
        let busy = usize::from(record.count(key::BUSY_CORE) == Some(1));
        let (Some(size), Some((caller, gains))) = (record.count(key::SIZE_BYTES), pays(record))
        else {
            continue;
        };
        let is_good = match &record.comparison {
            Some(comparison) if caller == WAITS => comparison.ratio <= ENGINE_WAIT_MOST,
            _ => gains,
        };
        by_size[busy].entry(size).or_default()[usize::from(caller == WAITS)] = Some(is_good);
    }
    let [idle, busy] = by_size.map(|measured| from(&measured));
    Some(BreakEven { idle: idle?, busy: busy.unwrap_or(BreakEven::default().busy) })
}

/// The smallest size from which on all measured sizes are good; [`usize::MAX`] if none is.
fn from(measured: &BTreeMap<u64, [Option<bool>; 2]>) -> Option<usize> {
    let all = measured.iter().rev().filter_map(|(size, [computes, waits])| {
        Some((usize::try_from(*size).ok()?, (*computes)? && (*waits)?))
    });
    let (largest, _) = all.clone().next()?;
    match all.take_while(|(_, is_good)| *is_good).last() {
        Some((size, _)) => Some(size),
        None => (largest >= WAKE_MIN).then_some(usize::MAX),
    }
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

    #[test]
    fn sizes_for_the_file_pay_both_callers_in_each_larger_size() {
        let worker = |size, hidden, ratio| {
            let mut waits = latency("worker", size, ratio, 0.02);
            waits.parameters.insert(key::BUSY_CORE.into(), 0.into());
            [share("worker", size, hidden, 0.05), waits]
        };
        let both = [worker(4096, 0.5, 3.0), worker(65_536, 0.5, 1.2), worker(1 << 20, 0.9, 1.04)];
        let idle = |records: &[Record]| sizes(records.iter()).map(|sizes| sizes.idle);
        assert_eq!(sizes(both.concat().iter()).unwrap().busy, usize::MAX, "it was not measured");
        assert_eq!(idle(&both.concat()), Some(1 << 20));
        assert_eq!(idle(&both[..2].concat()), None, "larger ones may pay");
        assert_eq!(idle(&worker(1 << 20, 0.0, 0.9)), Some(usize::MAX), "nothing is hidden");
        assert_eq!(idle(&[]), None);
        let mut busy: Vec<Record> = worker(4 << 20, 0.2, 1.0).into();
        busy.iter_mut().for_each(|record| {
            record.parameters.insert(key::BUSY_CORE.into(), 1.into());
        });
        assert_eq!(sizes(busy.iter()), None, "no processor was free");
        busy.extend(both.concat());
        assert_eq!(sizes(busy.iter()), Some(BreakEven { idle: 1 << 20, busy: 4 << 20 }));
    }
}
