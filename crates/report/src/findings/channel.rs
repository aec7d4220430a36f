//! The fastest mechanism to another process at each size, the reason, and the quality of haul's
//! choice.

use std::collections::BTreeMap;

use haul_model::experiment::{key, name};
use haul_model::units::three_digits;
use haul_model::{Bytes, Comparison, Record, Verdict};

use super::{Finding, Tone, finding, ranges};
use crate::select::{bytes, distinct, field, runs};
use crate::text;

pub(super) const CHOICE: &str = "haul:auto";

/// The suffix of haul's choice with a checksum: the same mechanism, at a higher cost.
const INTEGRITY: &str = "+integrity";

/// haul's choice counts as the best if no mechanism is faster by more: the project's own target.
const CLOSE: f64 = 0.05;

/// Subjects that are not transfers from private memory to private memory: a copy within a process,
/// a message that is built in the memory from which it is handed over, and a target that the sender
/// can access too.
pub(super) const OTHERS: [&str; 6] = [
    "memcpy",
    "2014:mymemcpy",
    "haul:sealed",
    "haul:sealed+untrusted",
    "haul:sealed+announced",
    "haul:lease",
];

/// The reason why a mechanism is fast.
const WHY: [(&str, &str); 12] = [
    ("haul:inline", "the message travels within its own descriptor"),
    ("haul:ring", "both copies overlap and stay in the cache"),
    ("haul:staged", "no handshake interrupts its two copies"),
    ("haul:pull", "each byte is copied once, by the kernel"),
    ("haul:double", "each byte is copied once, by both processes at a time"),
    ("haul:vmsplice", "pages pass through a pipe and are copied once"),
    ("pipe", "the kernel keeps what it buffers in the cache"),
    ("unix", "the kernel keeps what it buffers in the cache"),
    ("ucx", "it polls shared memory, or copies once by the kernel"),
    ("mpi", "it polls shared memory, or copies once by the kernel"),
    ("iceoryx2", "it polls, and hands over memory that both share"),
    ("2014:memcpy", "no handshake interrupts its two copies"),
];

/// GB/s by size and subject.
type Rates = BTreeMap<u64, BTreeMap<String, f64>>;

/// Whether samples are useful only in the order in which they were taken.
pub(crate) fn is_compared_by_sample(record: &Record) -> bool {
    record.experiment == name::CHANNEL_TRANSFER && record.metric == "throughput"
}

/// The load on the machine while records of transfers were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// Unknown: older records do not say whether other programs ran.
    Unknown,
    /// No load: each end had a free processor.
    Free,
    /// The bench kept one of the two processors busy on purpose.
    Busy,
    /// Other programs ran. The bench knows nothing else about these programs.
    Others,
}

impl Load {
    pub(super) const ALL: [Self; 4] = [Self::Free, Self::Unknown, Self::Busy, Self::Others];

    /// The load of a record. It covers all metrics of a size, because a disturbance of one metric
    /// may have disturbed each.
    pub(super) fn of(record: &Record) -> Self {
        let is_busy = field(record, key::BUSY_CORE).is_some_and(|busy| busy != "0");
        match record.others_processors() {
            _ if record.is_beside_others() => Self::Others,
            _ if is_busy => Self::Busy,
            Some(_) => Self::Free,
            None => Self::Unknown,
        }
    }

    /// The load as a suffix: `, one of two processors busy`.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Unknown => "",
            Self::Free => ", both processors free",
            Self::Busy => ", one of two processors busy",
            Self::Others => ", other programs running",
        }
    }
}

/// The fastest mechanism at each size and the reason, for each kind of target and each load.
pub(super) fn transfers(records: &[&Record]) -> Vec<Finding> {
    let own: Vec<&Record> = records
        .iter()
        .copied()
        .filter(|r| {
            r.experiment == name::CHANNEL_TRANSFER && r.metric == "throughput" && r.unit == "GB/s"
        })
        .filter(|r| !OTHERS.contains(&r.subject.as_str()) && !r.subject.ends_with(INTEGRITY))
        .collect();
    let mut findings = Vec::new();
    for target in distinct(&own, key::TARGET) {
        for load in Load::ALL {
            let is_it = |record: &&&Record| {
                field(record, key::TARGET).as_ref() == Some(&target) && Load::of(record) == load
            };
            let here: Vec<&Record> = own.iter().filter(is_it).copied().collect();
            // The newest run with a comparison. Figures of different runs are never compared.
            let runs = runs(&here);
            let compares = |run: &&Vec<&Record>| !rates(run.iter().copied()).is_empty();
            let here = runs.iter().find(compares).or(runs.first()).cloned().unwrap_or_default();
            let rates = rates(here.iter().copied());
            let place = match load {
                Load::Unknown => format!("to {target} memory"),
                Load::Free => format!("to {target} memory with both processors free"),
                Load::Busy => format!("to {target} memory with one of two processors busy"),
                Load::Others => format!("to {target} memory while other programs ran"),
            };
            findings.extend(winners(&rates, &place));
            findings.extend(choice(&here, &place));
            findings.extend(disturbed(&here, &place).filter(|_| target == "warm"));
        }
    }
    findings
}

/// The three results of the 2014 experiment, memcpy against vmsplice, next to haul's result, if a
/// run has them.
pub(super) fn experiment_2014(records: &[&Record]) -> Option<Finding> {
    let mymemcpy = records.iter().copied().find(|record| record.subject == "2014:mymemcpy")?;
    let of = |subject: &str, metric: &str| {
        let is_it = |record: &&&Record| {
            record.experiment == name::CHANNEL_TRANSFER
                && record.subject == subject
                && record.metric == metric
                && record.run == mymemcpy.run
        };
        records.iter().find(is_it)?.median().filter(|median| *median > 0.0)
    };
    let said = |subject: &str| {
        let (rate, cpu) = (of(subject, "throughput")?, of(subject, "cpu")?);
        Some(format!("{} at {} s/GB", text::gigabytes(rate), three_digits(cpu)))
    };
    let times = of("2014:mymemcpy", "cpu")? / of("memcpy", "cpu")?;
    let text = format!(
        "The three results of the 2014 memcpy against vmsplice experiment, with {}: shared memory \
         and two copies {}, vmsplice both ways {}, and mymemcpy takes {times:.1} times memcpy’s \
         processor time. haul’s choice: {}.",
        Bytes(bytes(mymemcpy, key::SIZE_BYTES)?),
        said("2014:memcpy")?,
        said("2014:vmsplice")?,
        said(CHOICE)?
    );
    Some(finding(name::CHANNEL_TRANSFER, Tone::Fact, text))
}

/// The sizes at which several subjects can be compared.
fn rates<'a>(records: impl Iterator<Item = &'a Record>) -> Rates {
    let mut rates = Rates::new();
    for record in records {
        if let (Some(size), Some(rate)) = (bytes(record, key::SIZE_BYTES), record.median()) {
            rates.entry(size).or_default().insert(record.subject.clone(), rate);
        }
    }
    rates.retain(|_, subjects| subjects.len() > 1);
    rates
}

/// The fastest mechanism. haul's choice is left out, because it is one of the mechanisms.
fn fastest(subjects: &BTreeMap<String, f64>) -> Option<(&str, f64)> {
    let mechanisms = subjects.iter().filter(|(name, _)| *name != CHOICE);
    mechanisms.map(|(name, rate)| (name.as_str(), *rate)).max_by(|a, b| a.1.total_cmp(&b.1))
}

/// `... ring is the fastest from 8 KiB up (9.1 GB/s at 1 MiB): both copies overlap ...`
fn winners(rates: &Rates, place: &str) -> Option<Finding> {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in rates.values().filter_map(fastest) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let parts: Vec<String> = names.iter().filter_map(|name| winner(rates, name)).collect();
    let is_haul = names.iter().all(|name| name.starts_with("haul:"));
    let tone = if is_haul { Tone::Better } else { Tone::Fact };
    let text = format!("From process to process {place}: {}.", parts.join("; "));
    (!parts.is_empty()).then(|| finding(name::CHANNEL_TRANSFER, tone, text))
}

fn winner(rates: &Rates, name: &str) -> Option<String> {
    let wins = |subjects: &BTreeMap<String, f64>| fastest(subjects).is_some_and(|f| f.0 == name);
    let sizes: Vec<(u64, bool)> =
        rates.iter().map(|(size, subjects)| (*size, wins(subjects))).collect();
    let (size, rate) = rates
        .iter()
        .filter(|(_, subjects)| wins(subjects))
        .filter_map(|(size, subjects)| Some((*size, *subjects.get(name)?)))
        .max_by(|a, b| a.1.total_cmp(&b.1))?;
    let why = WHY.iter().find(|(known, _)| *known == name);
    let why = why.map_or(String::new(), |(_, why)| format!(", for {why}"));
    let won = sizes.iter().filter(|(_, is_won)| *is_won).count();
    let where_best = if won > 1 {
        format!(", {} at {}", text::gigabytes(rate), Bytes(size))
    } else {
        format!(", {}", text::gigabytes(rate))
    };
    Some(format!("{name} is the fastest {}{where_best}{why}", ranges::words(&sizes)))
}

/// The number of sizes at which haul's choice was as good as its best mechanism in hindsight.
fn choice(records: &[&Record], place: &str) -> Option<Finding> {
    let size_of = |record: &Record| bytes(record, key::SIZE_BYTES);
    let chosen = records.iter().filter(|record| record.subject == CHOICE);
    let close: BTreeMap<u64, bool> = chosen
        .filter_map(|chosen| {
            let size = size_of(chosen)?;
            let mechanisms = records
                .iter()
                .filter(|record| record.subject.starts_with("haul:") && record.subject != CHOICE)
                .filter(|record| size_of(record) == Some(size));
            Some((size, is_close(chosen, mechanisms.copied())?))
        })
        .collect();
    let close: Vec<(u64, bool)> = close.into_iter().collect();
    let good = close.iter().filter(|(_, is_close)| *is_close).count();
    if close.is_empty() {
        return None;
    }
    let text = format!(
        "haul’s own choice {place} is within {:.0}% of its best mechanism {}.",
        CLOSE * 100.0,
        ranges::words(&close)
    );
    let tone = if good == close.len() { Tone::Better } else { Tone::Fact };
    Some(finding(name::CHANNEL_TRANSFER, tone, text))
}

/// Whether no mechanism is faster than the choice by more than [`CLOSE`]; `None` without another
/// mechanism, or if the run cannot tell whether one is faster. A choice that used the fastest
/// mechanism counts as the fastest itself: only noise separates the two.
fn is_close<'a>(chosen: &Record, mechanisms: impl Iterator<Item = &'a Record>) -> Option<bool> {
    let median = |record: &Record| record.median().unwrap_or(0.0);
    let best = mechanisms.max_by(|a, b| median(a).total_cmp(&median(b)))?;
    let used = chosen.text(key::MECHANISM);
    if used.is_some() && used == best.subject.strip_prefix("haul:") {
        return Some(true);
    }
    let beside = Comparison::between(chosen, best)?;
    match beside.verdict() {
        _ if beside.ratio <= 1.0 + CLOSE => Some(true),
        Verdict::More => Some(false),
        _ => None,
    }
}

/// The sizes whose measurements are too disturbed for a choice.
fn disturbed(records: &[&Record], place: &str) -> Option<Finding> {
    let own = records.iter().filter(|record| record.subject.starts_with("haul:"));
    let mut sizes: BTreeMap<u64, bool> = BTreeMap::new();
    for record in own {
        let Some(size) = bytes(record, key::SIZE_BYTES) else { continue };
        *sizes.entry(size).or_default() |= record.is_disturbed();
    }
    let sizes: Vec<(u64, bool)> = sizes.into_iter().collect();
    if !sizes.iter().any(|(_, is_disturbed)| *is_disturbed) {
        return None;
    }
    let text = format!(
        "{place}, the hypervisor took more than {}% of the processors’ time {}: haul.toml’s table of channels \
         leaves that out.",
        Record::STEAL_PERCENT_MAX,
        ranges::words(&sizes)
    );
    let text = text.replacen("to ", "To ", 1);
    Some(
        finding(name::CHANNEL_TRANSFER, Tone::Fact, text)
            .action("Measure again at a quieter time."),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_disturbed_by_the_hypervisor_are_reported() {
        let at = |size: u64, percent: f64| {
            record("haul:ring", &[1.0]).with("size_bytes", size).with("steal_percent", percent)
        };
        let records = [at(64, 5.0), at(4096, 27.0), at(65536, 0.0)];
        let said = disturbed(&records.iter().collect::<Vec<_>>(), "to warm memory").unwrap();
        assert!(
            said.text.starts_with("To warm memory, the hypervisor took more than 5%"),
            "{}",
            said.text
        );
        assert!(said.text.contains("at 4 KiB"), "{}", said.text);
        assert!(disturbed(&[&records[0], &records[2]], "to warm memory").is_none());
    }

    fn record(subject: &str, samples: &[f64]) -> Record {
        let mut record = Record::new("", name::CHANNEL_TRANSFER, subject, "throughput", "GB/s");
        record.samples = samples.to_vec();
        record
    }

    #[test]
    fn choice_is_compared_repetition_by_repetition() {
        // The machine slowed down by half: the medians differ widely, the repetitions do not.
        let ring = record("haul:ring", &[8.0, 8.0, 8.0, 4.0, 4.0]);
        let chosen = record(CHOICE, &[8.0, 7.9, 3.9, 4.0, 4.0]);
        assert_eq!(is_close(&chosen, [&ring].into_iter()), Some(true));
        let behind = record(CHOICE, &[7.0, 7.0, 7.0, 3.5, 3.5]);
        assert_eq!(is_close(&behind, [&ring].into_iter()), Some(false));
        // Quantiles have no order, so that no two of them belong to one repetition.
        let mut quantiles = chosen.clone();
        quantiles.quantiles_of = std::num::NonZeroU64::new(1000);
        assert_eq!(is_close(&quantiles, [&ring].into_iter()), Some(false));
        let the_same = behind.with("mechanism", "ring");
        assert_eq!(is_close(&the_same, [&ring].into_iter()), Some(true));
        assert_eq!(is_close(&chosen, [].into_iter()), None);
    }
}
