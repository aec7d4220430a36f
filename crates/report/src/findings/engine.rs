//! What an engine hides of a copy, and the size from which it pays.

use haul_model::experiment::{ENGINE_WAIT_MOST, key, name};
use haul_model::{Bytes, Record, Verdict};

use super::{Finding, Tone, finding};
use crate::select::{bytes, field};
use crate::text;

/// The engine of the sentence: haul's choice by size.
const ENGINE: &str = "auto";

/// What a caller does while the engine copies, as records spell it.
const COMPUTES: &str = "computes";
const WAITS: &str = "waits";

/// From which size copies beside the CPU pay, on a machine with free processors and on a busy one,
/// and where they lose.
pub(super) fn beside_the_cpu(records: &[&Record]) -> Option<Finding> {
    let free = Load::of(records, 0)?;
    let busy = Load::of(records, 1);
    let mut text = format!("A copy beside computing: {}", free.words());
    if let Some(busy) = &busy {
        text.push_str(&format!(". With one processor busy: {}", busy.words()));
    }
    text.push('.');
    let breaks = |load: &Load<'_>| load.lost.is_some_and(|(_, ratio)| ratio > ENGINE_WAIT_MOST);
    let tone = match (breaks(&free) || busy.as_ref().is_some_and(breaks), free.from(COMPUTES)) {
        (true, _) => Tone::Worse,
        (false, Some(_)) => Tone::Better,
        (false, None) => Tone::Same,
    };
    let found = finding(name::ENGINE_OVERLAP, tone, text);
    Some(match free.from(COMPUTES) {
        Some(from) => found.action(&format!(
            "`haul::engine::Queue::auto` for copies of {} or more with something to compute meanwhile",
            Bytes(from)
        )),
        None => found.action("copy in place"),
    })
}

/// The figures with this number of busy processors.
struct Load<'a> {
    records: Vec<&'a Record>,
    /// The size of which the engine hides most, and the share.
    most: (u64, f64),
    /// The size at which a caller that waits loses most, and the ratio to a copy.
    lost: Option<(u64, f64)>,
}

impl<'a> Load<'a> {
    /// `None` without an overlap of the engine.
    fn of(records: &[&'a Record], busy: u64) -> Option<Self> {
        let is_own = |record: &&&Record| {
            record.subject == ENGINE && record.count(key::BUSY_CORE).unwrap_or(0) == busy
        };
        let records: Vec<&Record> = records.iter().filter(is_own).copied().collect();
        let of = |experiment: &'static str| {
            records.iter().filter(move |record| record.experiment == experiment)
        };
        let size = |record: &Record| bytes(record, key::SIZE_BYTES);
        let shares = of(name::ENGINE_OVERLAP)
            .filter_map(|record| Some((size(record)?, record.median()?)))
            .filter(|(_, share)| share.is_finite());
        let most = shares.max_by(|a, b| a.1.total_cmp(&b.1))?;
        let losses = of(name::ENGINE_LATENCY).filter_map(|record| {
            let comparison = record.comparison.as_ref()?;
            let is_lost = comparison.verdict() == Verdict::More;
            is_lost.then_some((size(record)?, comparison.ratio))
        });
        let lost = losses.max_by(|a, b| a.1.total_cmp(&b.1));
        Some(Self { most, lost, records })
    }

    /// The size from which the engine pays for such a caller.
    fn from(&self, caller: &str) -> Option<u64> {
        let is_it = |record: &&&Record| {
            record.experiment == name::ENGINE_BREAK_EVEN
                && field(record, key::CALLER).as_deref() == Some(caller)
        };
        let size = self.records.iter().find(is_it)?.median()?;
        format!("{size:.0}").parse().ok()
    }

    fn words(&self) -> String {
        let (size, share) = self.most;
        let mut words = match self.from(COMPUTES) {
            Some(from) => format!(
                "pays from {} with the engine {ENGINE}, which hides {} of {}",
                Bytes(from),
                text::percent(share.clamp(0.0, 1.0)),
                Bytes(size)
            ),
            None => {
                format!("the engine {ENGINE} hides nothing that this run could tell from noise")
            }
        };
        words.push_str(&match self.from(WAITS) {
            Some(from) => format!("; a caller that waits at once gains from {}", Bytes(from)),
            None => "; a caller that waits at once gains at no size".to_owned(),
        });
        if let Some((size, ratio)) = self.lost {
            let more = text::percent(ratio - 1.0);
            words.push_str(&format!(", and loses {more} at {}", Bytes(size)));
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use haul_model::Comparison;

    use super::*;

    fn record(experiment: &str, size: u64, value: f64) -> Record {
        let mut record = Record::new("r", experiment, ENGINE, "m", "u")
            .with(key::SIZE_BYTES, size)
            .with(key::BUSY_CORE, 0_u64);
        record.samples = vec![value];
        record
    }

    fn latency(size: u64, ratio: f64) -> Record {
        let mut record = record(name::ENGINE_LATENCY, size, 1.0);
        let (ratio_low, ratio_high) = (ratio - 0.01, ratio + 0.01);
        let (baseline, floor) = ("copy".into(), 0.01);
        record.comparison = Some(Comparison { baseline, ratio, ratio_low, ratio_high, floor });
        record
    }

    fn from(caller: &str, size: f64) -> Record {
        let mut record = Record::new("r", name::ENGINE_BREAK_EVEN, ENGINE, "size", "bytes")
            .with(key::BUSY_CORE, 0_u64)
            .with(key::CALLER, caller);
        record.samples = vec![size];
        record
    }

    fn found(records: &[Record]) -> Option<Finding> {
        beside_the_cpu(&records.iter().collect::<Vec<_>>())
    }

    #[test]
    fn sentence_names_both_break_evens_and_the_most_hidden_size() {
        let shares = [(4096, -0.1), (65_536, 0.8), (1 << 20, 0.97)];
        let mut records: Vec<Record> =
            shares.map(|(size, share)| record(name::ENGINE_OVERLAP, size, share)).into();
        records.extend([from(COMPUTES, 65_536.0), from(WAITS, 262_144.0), latency(65_536, 0.9)]);
        let named = found(&records).unwrap();
        for part in ["pays from 64 KiB", "97% of 1 MiB", "waits at once gains from 256 KiB"] {
            assert!(named.text.contains(part), "{part}: {}", named.text);
        }
        assert_eq!(named.tone, Tone::Better);
        records.push(latency(16_384, 1.03));
        let named = found(&records).unwrap();
        assert!(named.text.contains("loses 3.0% at 16 KiB"), "{}", named.text);
        assert_eq!(named.tone, Tone::Better, "as promised");
        records.push(latency(4096, 1.5));
        let named = found(&records).unwrap();
        assert!(named.text.contains("loses 50% at 4 KiB"), "{}", named.text);
        assert_eq!(named.tone, Tone::Worse);
    }

    #[test]
    fn engine_that_hides_nothing_is_no_gain_and_absent_records_say_nothing() {
        let named = found(&[record(name::ENGINE_OVERLAP, 4096, -0.2)]).unwrap();
        assert!(named.text.contains("hides nothing"), "{}", named.text);
        assert_eq!((named.tone, named.action.as_deref()), (Tone::Same, Some("copy in place")));
        assert_eq!(found(&[from(COMPUTES, 1.0)]), None);
    }
}
