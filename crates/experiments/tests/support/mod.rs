//! The code that the tests of this crate share: the run of an experiment, and its results.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use haul_experiments::Context;
use haul_measure::Caches;
use haul_model::{Line, Record};

/// Small caches, so that even the cold region is mapped and touched quickly.
pub(crate) const CACHES: Caches =
    Caches { l1_bytes: 32 << 10, l2_bytes: 128 << 10, llc_bytes: 1 << 20 };

/// Measures. Returns the result, the records, and the warnings.
pub(crate) fn measured<T>(
    measure: impl FnOnce(&mut Context<'_>) -> T,
) -> (T, Vec<Record>, Vec<String>) {
    stopped_after(usize::MAX, measure)
}

/// Like [`measured`], but the run is stopped at the record with this number.
pub(crate) fn stopped_after<T>(
    count: usize,
    measure: impl FnOnce(&mut Context<'_>) -> T,
) -> (T, Vec<Record>, Vec<String>) {
    let (mut records, mut warnings) = (Vec::new(), Vec::new());
    let stop = AtomicBool::new(count == 0);
    let mut context = Context {
        run: "run-tiny".into(),
        machine: "machine-tiny".into(),
        stop: &stop,
        caches: CACHES,
        cpus: Vec::new(),
        sink: &mut |record| {
            records.push(record);
            stop.store(records.len() >= count, Relaxed);
        },
        progress: &mut |_| (),
        warn: &mut |text| warnings.push(text.to_owned()),
    };
    let done = measure(&mut context);
    records.iter().for_each(check);
    (done, records, warnings)
}

/// Checks the fields of every record, and that it can be parsed again.
fn check(record: &Record) {
    assert_eq!((record.run.as_str(), record.machine.as_str()), ("run-tiny", "machine-tiny"));
    assert!(record.time.starts_with("20") && record.time.ends_with('Z'), "{}", record.time);
    record.check().unwrap();
    assert!(!record.samples.is_empty(), "{record:?}");
    let line = Line::from(record.clone());
    assert_eq!(Line::parse(&line.to_json()).unwrap(), line);
}
