//! The records of one run, by what was measured.

use haul_model::Record;
use haul_model::experiment::key;

use crate::select::{bytes, field};

/// The records of the newest run: nothing is held against another run's.
pub(super) fn newest<'a>(records: &[&'a Record]) -> Vec<&'a Record> {
    let newest = records.iter().max_by_key(|record| (&record.time, &record.run));
    let Some(run) = newest.map(|record| &record.run) else { return Vec::new() };
    records.iter().copied().filter(|record| record.run == *run).collect()
}

/// Who a record is of: `haul, copy of libc`, `testpmd`.
pub(super) fn who(record: &Record) -> String {
    match field(record, key::COPY).as_deref() {
        Some("none") => format!("{}, copying nothing", record.subject),
        Some("empty") => format!("{}, copying no bytes", record.subject),
        Some(copy) if record.subject == "haul" => format!("haul, copy of {copy}"),
        _ => record.subject.clone(),
    }
}

/// Its size; 0 where it says none.
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
