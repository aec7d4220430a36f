//! Turns records into the table of `haul.toml` with which haul chooses a mechanism.

use std::collections::{BTreeMap, BTreeSet};

use haul_machine::tuning::{ChannelTable, Choice};
use haul_model::experiment::{key, name};
use haul_model::{Record, statistics};

/// Mechanisms that move any private bytes into any target, and whether a mechanism requires both
/// ends to trust each other. haul chooses `inline` by the size alone, and `sealed` and `lease` by
/// the program's calls.
const MECHANISMS: [(&str, bool); 4] =
    [("ring", false), ("staged", false), ("pull", true), ("double", true)];

/// A mechanism replaces the mechanism of the next smaller size only if it is faster by this
/// factor in the median of the repetitions, and is not slower in more than a quarter of them. A
/// table whose entries follow the noise is longer but not more useful.
const WORTHWHILE: f64 = 1.05;

/// A message of this size is so large that no last-level cache holds both its source and its
/// target. The mechanism for this size also applies to all larger messages.
const LONG_BYTES_MIN: u64 = 64 << 20;

/// The records of each mechanism, by size, except the records that the hypervisor or other
/// programs disturbed.
type Rates<'a> = BTreeMap<u64, BTreeMap<&'a str, &'a Record>>;

/// Whether the subject with this name is a mechanism that haul chooses from.
#[must_use]
pub fn is_one(name: &str) -> bool {
    MECHANISMS.iter().any(|(known, _)| name.strip_prefix("haul:") == Some(known))
}

/// The choice that follows from the records of haul's transports to another process.
#[derive(Debug, Default)]
pub struct Chosen<'a> {
    /// The table for `haul.toml`. The table is empty if no record is reliable.
    pub table: ChannelTable,
    /// The records from which the entries follow.
    pub evidence: Vec<&'a Record>,
    /// Sizes in bytes without an entry in the table: first the sizes measured with both
    /// processors free, then the sizes measured with one busy. Either the hypervisor disturbed
    /// the records of these sizes (see [`Record::is_disturbed`]), or other programs ran at the
    /// same time (see [`Record::is_beside_others`]). A disturbance delays two processes that wait
    /// for each other more than it delays a single process.
    pub disturbed: [BTreeSet<u64>; 2],
}

/// The table from the records of transfers to warm targets, with both processors free and, if
/// this was measured, with one processor busy.
#[must_use]
pub fn table<'a>(records: impl Iterator<Item = &'a Record>) -> Chosen<'a> {
    let records: Vec<&Record> = records.filter(|record| is_warm_throughput(record)).collect();
    let (mut chosen, mut largest) = (Chosen::default(), None);
    for trusted in [false, true] {
        for idle in [true, false] {
            let rates = rates(&records, trusted, idle);
            let (left_out, kept): (Vec<_>, Vec<_>) = rates.iter().partition(|(_, r)| r.is_empty());
            chosen.disturbed[usize::from(!idle)].extend(left_out.iter().map(|(size, _)| **size));
            largest = largest.max(kept.last().map(|(size, _)| **size));
            for (from, record) in turns(&rates) {
                let mechanism = record.subject.trim_start_matches("haul:").to_owned();
                let (trusted, idle) = (Some(trusted), Some(idle));
                chosen.table.choices.push(Choice { from, mechanism, trusted, idle });
                chosen.evidence.push(record);
            }
        }
    }
    chosen.evidence.dedup_by(|a, b| std::ptr::eq(*a, *b));
    chosen.table.measured_max = largest
        .filter(|size| *size < LONG_BYTES_MIN)
        .map(|size| usize::try_from(size).unwrap_or(usize::MAX));
    chosen
}

fn is_warm_throughput(record: &Record) -> bool {
    record.experiment == name::CHANNEL_TRANSFER
        && record.metric == "throughput"
        && record.text(key::TARGET) == Some("warm")
}

fn rates<'a>(records: &[&'a Record], trusted: bool, idle: bool) -> Rates<'a> {
    let mut rates = Rates::new();
    for &record in records {
        let busy = record.count(key::BUSY_CORE);
        let Some(size) = record.count(key::SIZE_BYTES) else {
            continue;
        };
        let known = MECHANISMS.iter().find(|(name, needs_trust)| {
            record.subject.strip_prefix("haul:") == Some(name) && (trusted || !needs_trust)
        });
        // A transfer that fell back to another mechanism does not count as a record of the
        // requested mechanism.
        let used = record.text(key::MECHANISM);
        let known = known.filter(|(name, _)| used.is_none_or(|used| used == *name));
        if let Some((name, _)) = known.filter(|_| busy == Some(u64::from(!idle))) {
            let by_name = rates.entry(size).or_default();
            if !record.is_disturbed() && !record.is_beside_others() {
                by_name.insert(*name, record);
            }
        }
    }
    rates
}

/// The size at which the range of each record's mechanism begins, in ascending order. If two
/// neighbouring sizes have different mechanisms, the mechanism changes at their geometric mean. A
/// size without a record keeps the mechanism of the next smaller size.
fn turns<'a>(rates: &Rates<'a>) -> Vec<(usize, &'a Record)> {
    let mut turns: Vec<(usize, &Record)> = Vec::new();
    let mut below = 0;
    for (&size, by_name) in rates {
        let between = (below as f64 * size as f64).sqrt() as usize;
        below = size;
        let held = turns
            .last()
            .and_then(|(_, held)| by_name.values().find(|record| record.subject == held.subject));
        let better =
            by_name.values().filter(|record| held.is_none_or(|held| is_worthwhile(record, held)));
        if let Some(&fastest) = better.max_by(|a, b| median(a).total_cmp(&median(b))) {
            turns.push((between, fastest));
        }
    }
    turns
}

fn median(record: &Record) -> f64 {
    record.median().unwrap_or(0.0)
}

/// Whether a mechanism is fast enough to replace the current one, compared repetition by
/// repetition: a disturbance affects all mechanisms of a repetition.
fn is_worthwhile(record: &Record, held: &Record) -> bool {
    let ratios: Vec<f64> =
        record.samples.iter().zip(&held.samples).map(|(new, held)| new / held).collect();
    let (middle, low) = (statistics::median(&ratios), statistics::quantile(&ratios, 0.25));
    middle.is_some_and(|ratio| ratio > WORTHWHILE) && low.is_some_and(|ratio| ratio >= 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(subject: &str, size: u64, busy: u8, rate: f64) -> Record {
        let mut record = Record::new("", name::CHANNEL_TRANSFER, subject, "throughput", "GB/s")
            .with("size_bytes", size)
            .with("target", "warm")
            .with("busy_core", busy);
        record.samples = vec![rate];
        record
    }

    #[test]
    fn table_has_fastest_mechanism_by_size_trust_and_idle_processors() {
        let records = [
            record("haul:ring", 4096, 0, 3.0),
            record("haul:pull", 4096, 0, 1.0),
            record("haul:ring", 1 << 20, 0, 6.0),
            record("haul:double", 1 << 20, 0, 9.0),
            record("haul:staged", 1 << 20, 0, 2.0),
            record("haul:ring", 1 << 24, 0, 8.8),
            // `double` is not faster by enough to replace another mechanism.
            record("haul:double", 1 << 24, 0, 8.6),
            record("haul:ring", 1 << 20, 1, 2.0),
            record("haul:pull", 1 << 20, 1, 4.0),
            // haul never chooses `sealed` and `lease` by size.
            record("haul:sealed", 1 << 20, 0, 50.0),
            record("haul:lease", 1 << 20, 0, 20.0),
            record("haul:double", 4096, 0, 90.0).with("mechanism", "ring,fell-back"),
            record("pipe", 4096, 0, 70.0),
        ];
        let Chosen { table, evidence, disturbed } = table(records.iter());
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
        assert_eq!(disturbed, [BTreeSet::new(), BTreeSet::new()]);
    }

    #[test]
    fn table_ignores_records_that_hypervisor_disturbed() {
        let stolen = |record: Record| record.with("steal_percent", 27.0);
        let records = [
            stolen(record("haul:pull", 64, 0, 9.0)),
            stolen(record("haul:ring", 64, 0, 1.0)),
            record("haul:ring", 4096, 0, 3.0).with("steal_percent", 4.9),
            record("haul:pull", 4096, 0, 1.0).with("steal_percent", 4.9),
            stolen(record("haul:pull", 1 << 16, 0, 3.0)),
            stolen(record("haul:ring", 1 << 16, 0, 1.0)),
            record("haul:double", 1 << 20, 0, 9.0),
            record("haul:ring", 1 << 20, 0, 6.0),
            stolen(record("haul:pull", 1 << 24, 0, 9.0)),
            stolen(record("haul:pull", 1 << 20, 1, 9.0)),
        ];
        let Chosen { table, disturbed, .. } = table(records.iter());
        let name = |size, idle| table.names(size, true, idle).next();
        assert_eq!(name(64, true), None, "below half of the way to 4 KiB nothing is known");
        assert_eq!(name(512, true), Some("ring"));
        assert_eq!(name(1 << 16, true), Some("ring"));
        assert_eq!(name(1 << 18, true), Some("double"));
        assert_eq!(name(1 << 20, false), None);
        assert_eq!(table.measured_max, Some(1 << 20));
        assert_eq!(disturbed, [BTreeSet::from([64, 1 << 16, 1 << 24]), BTreeSet::from([1 << 20])]);
    }

    /// `pull` is faster here only because one processor runs a program that the bench does not
    /// know about. On an otherwise idle machine, `pull` is not faster.
    #[test]
    fn table_ignores_records_beside_other_programs() {
        let beside = |record: Record, count: f64| record.with("others_processors", count);
        let records = [
            beside(record("haul:ring", 4096, 0, 3.0), 0.02),
            beside(record("haul:pull", 4096, 0, 1.0), 0.02),
            beside(record("haul:ring", 1 << 20, 0, 1.0), 0.97),
            beside(record("haul:pull", 1 << 20, 0, 9.0), 0.97),
        ];
        let Chosen { table, disturbed, .. } = table(records.iter());
        assert_eq!(table.names(1 << 20, true, true).next(), Some("ring"));
        assert_eq!(table.measured_max, Some(4096));
        assert_eq!(disturbed, [BTreeSet::from([1 << 20]), BTreeSet::new()]);
    }

    #[test]
    fn mechanism_changes_if_most_repetitions_are_faster() {
        let with = |subject: &str, size: u64, samples: &[f64]| {
            let mut record = record(subject, size, 0, 0.0);
            record.samples = samples.to_vec();
            record
        };
        // The ratio of the medians is 1.5, but two of the five repetitions are slower.
        for (pull, expected) in [
            (&[1.0, 6.0, 6.0, 1.0, 6.0], "ring"),
            // A machine that becomes half as fast slows down both mechanisms.
            (&[6.0, 6.0, 3.0, 3.0, 3.0], "pull"),
        ] {
            let slows: &[f64] =
                if expected == "pull" { &[4.0, 4.0, 2.0, 2.0, 2.0] } else { &[4.0; 5] };
            let records = [
                with("haul:ring", 64, &[4.0; 5]),
                with("haul:ring", 4096, slows),
                with("haul:pull", 4096, pull),
            ];
            let chosen = table(records.iter());
            assert_eq!(chosen.table.names(4096, true, true).next(), Some(expected));
        }
    }

    #[test]
    fn largest_measured_size_decides_all_larger_sizes() {
        for (largest, measured_max) in [(32 << 20, Some(32 << 20)), (64 << 20, None)] {
            let records = [record("haul:ring", 4096, 0, 3.0), record("haul:ring", largest, 0, 2.0)];
            assert_eq!(table(records.iter()).table.measured_max, measured_max, "{largest}");
        }
    }

    #[test]
    fn table_is_empty_without_records() {
        assert_eq!(table([].into_iter()).table, ChannelTable::default());
        let cold = record("haul:ring", 4096, 0, 3.0).with("target", "cold");
        assert_eq!(table([&cold].into_iter()).table, ChannelTable::default());
    }
}
