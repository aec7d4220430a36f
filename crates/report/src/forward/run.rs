//! The records of one run.

use std::collections::BTreeMap;

use haul_model::Record;
use haul_model::experiment::key;

use crate::select::{bytes, field};

/// The records of each size's newest run, the smallest size first. Records of different runs are
/// never compared.
pub(super) fn newest<'a>(records: &[&'a Record]) -> Vec<&'a Record> {
    let mut runs: BTreeMap<u64, (&str, &str)> = BTreeMap::new();
    for record in records {
        let own = (record.time.as_str(), record.run.as_str());
        let newest = runs.entry(size(record)).or_insert(own);
        *newest = (*newest).max(own);
    }
    let is_newest = |record: &&Record| runs[&size(record)].1 == record.run;
    let mut newest: Vec<_> = records.iter().copied().filter(is_newest).collect();
    newest.sort_by_key(|record| size(record));
    newest
}

/// The subject of a record: `haul, copy of libc`, `testpmd`.
pub(super) fn who(record: &Record) -> String {
    match field(record, key::COPY).as_deref() {
        Some("none") => format!("{}, copying nothing", record.subject),
        Some("empty") => format!("{}, copying no bytes", record.subject),
        Some(copy) if record.subject == "haul" => format!("haul, copy of {copy}"),
        _ => record.subject.clone(),
    }
}

/// The packet size of a record; 0 if the record has no size.
pub(super) fn size(record: &Record) -> u64 {
    bytes(record, key::SIZE_BYTES).unwrap_or(0)
}

/// The sizes of some records, ascending.
pub(super) fn sizes(records: &[&Record]) -> Vec<u64> {
    let mut sizes: Vec<u64> = records.iter().map(|record| size(record)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}
