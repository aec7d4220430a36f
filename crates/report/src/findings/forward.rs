//! The packet rate of a guest on this machine, and how much of it depends on the copy.

use haul_model::experiment::{key, name};
use haul_model::units::three_digits;
use haul_model::{Comparison, Record, Verdict};

use super::{Finding, Tone, finding, open, tone_of_all};
use crate::select::{bytes, field};
use crate::text;

const RATE: &str = "rate_peak";

/// The rate of the smallest packets through a guest, with haul's copy and with libc's.
pub(super) fn through_a_guest(records: &[&Record]) -> Option<Finding> {
    let of = |copy: &str, size: Option<u64>| {
        let is_it = |record: &&Record| {
            record.experiment == name::FORWARD_PVP
                && record.metric == RATE
                && record.subject == "haul"
                && field(record, key::COPY).as_deref() == Some(copy)
                && size.is_none_or(|size| bytes(record, key::SIZE_BYTES) == Some(size))
        };
        records.iter().copied().filter(is_it).min_by_key(|it| bytes(it, key::SIZE_BYTES))
    };
    let haul = of("haul", None)?;
    let size = bytes(haul, key::SIZE_BYTES)?;
    let rate = millions(haul)?;
    let libc = of("libc", Some(size)).and_then(millions);
    let libc = libc.map(|rate| format!("; with libc’s copy {rate}")).unwrap_or_default();
    let gain = records.iter().find(|record| {
        record.metric == "copy_gain"
            && record.experiment == name::FORWARD_PVP
            && bytes(record, key::SIZE_BYTES) == Some(size)
    });
    let gain = gain.and_then(|record| record.rate());
    let said = gain.as_ref().map(|it| format!(", {}", of_rates(it))).unwrap_or_default();
    let text =
        format!("A VM on this machine takes {rate} of {size} B through haul’s switch{libc}{said}.");
    Some(finding(name::FORWARD_PVP, gain.as_ref().map_or(Tone::Fact, tone), text))
}

/// haul compared with testpmd, size by size, flow by flow.
pub(super) fn beside_testpmd(records: &[&Record]) -> Vec<Finding> {
    let flows = [
        (name::FORWARD_PVP, "through a switch, a guest and back"),
        (name::FORWARD_ENQUEUE, "from a switch to a guest"),
        (name::FORWARD_DEQUEUE, "from a guest to a switch"),
        (name::FORWARD_LOOPBACK, "round and round between switch and guest"),
    ];
    flows.into_iter().filter_map(|(flow, way)| one_flow(records, flow, way)).collect()
}

fn one_flow(records: &[&Record], flow: &str, way: &str) -> Option<Finding> {
    let compared = |record: &&Record| {
        let comparison = record.rate()?;
        let is_it = record.experiment == flow
            && record.metric == RATE
            && record.subject == "haul"
            && comparison.baseline == "testpmd"
            && field(record, key::COPY).as_deref() == Some("haul");
        is_it.then(|| (bytes(record, key::SIZE_BYTES).unwrap_or(0), comparison))
    };
    let mut found: Vec<(u64, Comparison)> = records.iter().filter_map(compared).collect();
    found.sort_by_key(|(size, _)| *size);
    if found.is_empty() {
        return None;
    }
    let parts: Vec<String> =
        found.iter().map(|(size, it)| format!("{} at {size} B", of_rates(it))).collect();
    let text = format!("Packets {way}, haul beside testpmd: {}.", text::list(&parts));
    Some(finding(flow, tone_of_all(found.iter().map(|(_, it)| tone(it))), text))
}

/// A change of rates: `+12%`, `−4.0%`, `no difference`.
fn of_rates(comparison: &Comparison) -> String {
    let difference = text::percent(comparison.ratio - 1.0);
    match comparison.verdict() {
        Verdict::More => format!("+{difference}"),
        Verdict::Less => format!("−{difference}"),
        Verdict::NoDifference => "no difference".into(),
        Verdict::CannotTell => open(comparison),
    }
}

/// The tone of a comparison of rates, in which more is better.
fn tone(comparison: &Comparison) -> Tone {
    match comparison.verdict() {
        Verdict::More => Tone::Better,
        Verdict::Less => Tone::Worse,
        Verdict::NoDifference => Tone::Same,
        Verdict::CannotTell => Tone::Unknown,
    }
}

fn millions(record: &Record) -> Option<String> {
    Some(format!("{} Mpps", three_digits(record.median()? / 1e6)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(copy: &str, size: u64, rate: f64, ratio: f64, baseline: &str) -> Record {
        let mut record = Record::new("run", name::FORWARD_PVP, "haul", RATE, "packets/s")
            .with(key::SIZE_BYTES, size)
            .with(key::COPY, copy);
        record.samples = vec![rate];
        let (ratio_low, ratio_high, floor) = (ratio - 0.02, ratio + 0.02, 0.01);
        let baseline = baseline.to_owned();
        record.comparison = Some(Comparison { baseline, ratio, ratio_low, ratio_high, floor });
        record
    }

    #[test]
    fn higher_packet_rate_is_better() {
        let gain = Record { metric: "copy_gain".into(), ..rate("haul", 64, 1.1, 1.1, "libc") };
        let records = [
            rate("haul", 64, 11e6, 1.3, "testpmd"),
            rate("libc", 64, 10e6, 1.2, "testpmd"),
            rate("haul", 1500, 4e6, 0.9, "testpmd"),
            gain,
        ];
        let records: Vec<&Record> = records.iter().collect();
        let first = through_a_guest(&records).unwrap();
        assert_eq!(
            (first.tone, first.text.as_str()),
            (
                Tone::Better,
                "A VM on this machine takes 11.0 Mpps of 64 B through haul’s switch; with libc’s \
                 copy 10.0 Mpps, +10%."
            )
        );
        let beside = beside_testpmd(&records);
        assert_eq!(beside.len(), 1);
        assert_eq!(beside[0].tone, Tone::Worse);
        assert!(beside[0].text.ends_with("haul beside testpmd: +30% at 64 B and −10% at 1500 B."));
        assert!(through_a_guest(&[]).is_none() && beside_testpmd(&[]).is_empty());
    }
}
