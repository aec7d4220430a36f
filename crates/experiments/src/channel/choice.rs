//! From records to the table of `haul.toml` by which haul chooses a mechanism.

use std::collections::BTreeMap;

use haul::tuning::{ChannelTable, Choice};
use haul_model::Record;

use super::bench::EXPERIMENT;

/// Mechanisms that move any private bytes into any target, and whether both ends must trust each
/// other for it. `inline` is chosen by size alone, `sealed` and `lease` by what the program does, and
/// `vmsplice` is for comparisons.
const MECHANISMS: [(&str, bool); 4] =
    [("ring", false), ("staged", false), ("pull", true), ("double", true)];

/// A mechanism must be this much faster than the one of the size below to take its place: a table
/// that follows the noise has more entries and is worth no more.
const WORTHWHILE: f64 = 1.05;

/// What holds for messages of this size, beside which no last cache holds source and target, holds for all
/// that are longer.
const LONG_BYTES_MIN: u64 = 64 << 20;

/// What was measured of one mechanism, by size.
type Rates<'a> = BTreeMap<u64, BTreeMap<&'a str, &'a Record>>;

/// Whether a subject of this name is one of those that haul chooses from.
#[must_use]
pub fn is_one(name: &str) -> bool {
    MECHANISMS.iter().any(|(known, _)| name.strip_prefix("haul:") == Some(known))
}

/// The table, and the records that its entries stand on: warm targets only, with both processors
/// free and with one busy where that was measured. Empty where nothing of it was.
#[must_use]
pub fn table<'a>(records: impl Iterator<Item = &'a Record>) -> (ChannelTable, Vec<&'a Record>) {
    let records: Vec<&Record> = records.filter(|record| is_warm_throughput(record)).collect();
    let (mut choices, mut evidence, mut largest) = (Vec::new(), Vec::new(), None);
    for trusted in [false, true] {
        for idle in [true, false] {
            let rates = rates(&records, trusted, idle);
            largest = largest.max(rates.keys().next_back().copied());
            for (from, record) in turns(&rates) {
                let mechanism = record.subject.trim_start_matches("haul:").to_owned();
                let (trusted, idle) = (Some(trusted), Some(idle));
                choices.push(Choice { from, mechanism, trusted, idle });
                evidence.push(record);
            }
        }
    }
    evidence.dedup_by(|a, b| std::ptr::eq(*a, *b));
    let measured_max = largest
        .filter(|size| *size < LONG_BYTES_MIN)
        .map(|size| usize::try_from(size).unwrap_or(usize::MAX));
    (ChannelTable { sealed_dirty_max: None, measured_max, choices }, evidence)
}

fn is_warm_throughput(record: &Record) -> bool {
    record.experiment == EXPERIMENT
        && record.metric == "throughput"
        && record.parameters.get("target").is_some_and(|target| target == "warm")
}

fn rates<'a>(records: &[&'a Record], trusted: bool, idle: bool) -> Rates<'a> {
    let mut rates = Rates::new();
    for &record in records {
        let busy = record.parameters.get("busy_core").and_then(|busy| busy.as_u64());
        let Some(size) = record.parameters.get("size_bytes").and_then(|size| size.as_u64()) else {
            continue;
        };
        let known = MECHANISMS.iter().find(|(name, needs_trust)| {
            record.subject.strip_prefix("haul:") == Some(name) && (trusted || !needs_trust)
        });
        // What fell back to another way says nothing of its own.
        let took = record.parameters.get("mechanism").and_then(|took| took.as_str());
        let known = known.filter(|(name, _)| took.is_none_or(|took| took == *name));
        if let Some((name, _)) = known.filter(|_| busy == Some(u64::from(!idle))) {
            rates.entry(size).or_default().insert(*name, record);
        }
    }
    rates
}

/// From which size on which record's mechanism holds, ascending. Between two sizes of different ones the turn
/// is in the middle, by their ratio.
fn turns<'a>(rates: &Rates<'a>) -> Vec<(usize, &'a Record)> {
    let median = |record: &Record| record.median().unwrap_or(0.0);
    let mut turns: Vec<(usize, &Record)> = Vec::new();
    let mut below = 0;
    for (&size, by_name) in rates {
        let between = (below as f64 * size as f64).sqrt() as usize;
        below = size;
        let fastest = by_name.values().max_by(|a, b| median(a).total_cmp(&median(b)));
        let Some(&fastest) = fastest else { continue };
        let held = turns
            .last()
            .and_then(|(_, held)| by_name.values().find(|record| record.subject == held.subject));
        let is_worthwhile = held.is_none_or(|held| median(fastest) > WORTHWHILE * median(held));
        let from = if turns.is_empty() { 0 } else { between };
        if is_worthwhile {
            turns.push((from, fastest));
        }
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(subject: &str, size: u64, busy: u8, rate: f64) -> Record {
        let mut record = Record::new("", EXPERIMENT, subject, "throughput", "GB/s")
            .with("size_bytes", size)
            .with("target", "warm")
            .with("busy_core", busy);
        record.samples = vec![rate];
        record
    }

    #[test]
    fn each_size_has_its_fastest_by_trust_and_by_idle_processors() {
        let records = [
            record("haul:ring", 4096, 0, 3.0),
            record("haul:pull", 4096, 0, 1.0),
            record("haul:ring", 1 << 20, 0, 6.0),
            record("haul:double", 1 << 20, 0, 9.0),
            record("haul:staged", 1 << 20, 0, 2.0),
            record("haul:ring", 1 << 24, 0, 8.8),
            // Not worth a turn of its own.
            record("haul:double", 1 << 24, 0, 8.6),
            record("haul:ring", 1 << 20, 1, 2.0),
            record("haul:pull", 1 << 20, 1, 4.0),
            // What is no choice for any message.
            record("haul:sealed", 1 << 20, 0, 50.0),
            record("haul:lease", 1 << 20, 0, 20.0),
            record("haul:double", 4096, 0, 90.0).with("mechanism", "ring,fell-back"),
            record("pipe", 4096, 0, 70.0),
        ];
        let (table, evidence) = table(records.iter());
        let name = |size, trusted, idle| table.names(size, trusted, idle).next();
        assert_eq!(name(100, true, true), Some("ring"));
        assert_eq!(name((1 << 16) - 1, true, true), Some("ring"));
        assert_eq!(name(1 << 16, true, true), Some("double"), "half-way from 4 KiB to 1 MiB");
        assert_eq!(name(1 << 26, true, true), Some("double"));
        assert_eq!(name(1 << 26, false, true), Some("ring"));
        assert_eq!(name(1 << 26, true, false), Some("pull"));
        assert_eq!(name(1 << 26, false, false), Some("ring"));
        assert_eq!(evidence.len(), table.choices.len());
        assert_eq!(table.measured_max, Some(1 << 24));
    }

    #[test]
    fn what_is_measured_far_beyond_the_caches_holds_for_whatever_is_longer() {
        for (largest, measured_max) in [(32 << 20, Some(32 << 20)), (64 << 20, None)] {
            let records = [record("haul:ring", 4096, 0, 3.0), record("haul:ring", largest, 0, 2.0)];
            assert_eq!(table(records.iter()).0.measured_max, measured_max, "{largest}");
        }
    }

    #[test]
    fn nothing_measured_is_no_table() {
        assert_eq!(table([].into_iter()).0, ChannelTable::default());
        let cold = record("haul:ring", 4096, 0, 3.0).with("target", "cold");
        assert_eq!(table([&cold].into_iter()).0, ChannelTable::default());
    }
}
