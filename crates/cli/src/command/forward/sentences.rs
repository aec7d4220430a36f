//! A sentence for each comparison of `haul forward pvp`.

use haul_model::experiment::{key, name};
use haul_model::units::three_digits;
use haul_model::{Comparison, Record, Settle, Verdict};

/// An interval needs at least this number of restarts: restarts of the same program differ by
/// more than most compared subjects.
const RESTARTS_MIN: usize = 3;

/// The results in the records of the flows, a line each.
pub(super) fn of(records: &[&Record]) -> Vec<String> {
    let is_swept = |record: &&&Record| record.experiment == name::FORWARD_SWEEP;
    let mut lines = sweeps(&records.iter().copied().filter(|it| is_swept(&it)).collect::<Vec<_>>());
    let flows: Vec<&Record> = records.iter().copied().filter(|it| !is_swept(&it)).collect();
    lines.extend(of_flows(&flows));
    lines
}

/// A line for each copy of a sweep, from the smallest packets to the largest.
fn sweeps(records: &[&Record]) -> Vec<String> {
    let mut copies: Vec<String> = Vec::new();
    for copy in records.iter().map(|record| text(record, key::COPY)) {
        if !copies.contains(&copy) {
            copies.push(copy);
        }
    }
    let line = |copy: &String| {
        let own: Vec<&&Record> =
            records.iter().filter(|record| text(record, key::COPY) == *copy).collect();
        let at =
            |record: &Record| Some(format!("{} at {}", millions(record.median()?), size(record)));
        let (first, last) = (at(own.first()?)?, at(own.last()?)?);
        let flow = text(own[0], key::FLOW);
        Some(format!("{flow}, {} sizes, copy {copy}: {first}, {last}.", own.len()))
    };
    copies.iter().filter_map(line).collect()
}

fn of_flows(records: &[&Record]) -> Vec<String> {
    let rates = records.iter().filter(|record| record.metric == "rate_peak");
    let mut lines = Vec::new();
    for record in rates {
        let Some(median) = record.median() else { continue };
        let (what, rate) = (what(record), millions(median));
        let baseline = record.rate().filter(|it| it.baseline != own_name(record));
        lines.push(match baseline {
            Some(comparison) if record.samples.len() < RESTARTS_MIN => format!(
                "{what}: {rate}, {:.2} times that of {}, with too few restarts for an interval.",
                comparison.ratio, comparison.baseline
            ),
            Some(comparison) => format!("{what}: {rate}, {}.", against(&comparison)),
            None => format!("{what}: {rate}."),
        });
    }
    let goals =
        [("rate_ndr", "NDR"), ("rate_pdr", "PDR"), ("rate_rfc2544", "throughput by RFC 2544")];
    for record in records {
        let goal = goals.iter().find(|(metric, _)| record.metric == *metric);
        if let Some(((_, goal), rate)) = goal.zip(record.median()) {
            let other = record.rate().filter(|it| it.baseline != own_name(record));
            let other =
                other.filter(|_| record.samples.len() >= RESTARTS_MIN).map(|it| against(&it));
            let other = other.map_or(String::new(), |other| format!(", {other}"));
            lines.push(format!("{}: {goal} {}{other}.", what(record), millions(rate)));
        }
    }
    lines.extend(cycles(records));
    lines.extend(latencies(records));
    let gains = records.iter().filter(|record| record.metric == "copy_gain");
    for record in gains.filter(|record| record.samples.len() >= RESTARTS_MIN) {
        let Some(comparison) = record.rate() else { continue };
        let size = size(record);
        lines.push(match comparison.verdict() {
            Verdict::NoDifference => format!(
                "{size}: haul’s copy and libc’s forward equally ({}, the floor is {}).",
                interval(&comparison),
                percent(comparison.floor)
            ),
            Verdict::CannotTell => format!(
                "{size}: cannot tell which of haul’s copy and libc’s forwards more {}.",
                open(&comparison)
            ),
            _ => format!("{size}: haul’s copy forwards {}.", against(&comparison)),
        });
    }
    lines
}

/// A line for each subject with counted cycles.
fn cycles(records: &[&Record]) -> Vec<String> {
    let line = |record: &&Record| {
        let of = |metric: &str| {
            let is_it = |other: &&&Record| other.metric == metric && what(other) == what(record);
            records.iter().find(is_it)
        };
        let median = |metric: &str| of(metric).and_then(|record| record.median());
        let guest = median("cycles_guest")?;
        let most = millions(median("guest_ceiling")?);
        let ring = median("cycles_ring").map(|ring| {
            let copy = of("cycles_copy").map(|record| match record.above_zero() {
                Some(copy) => format!(" ({copy:.0} of them the copy’s)"),
                None => " (the copy’s share cannot be distinguished from 0)".to_owned(),
            });
            format!("{ring:.0} cycles at the ring{}, ", copy.unwrap_or_default())
        });
        Some(format!(
            "{}: a packet needs {}{guest:.0} cycles in the guest, which takes at most {most} from \
             any switch.",
            what(record),
            ring.unwrap_or_default(),
        ))
    };
    records.iter().filter(|record| record.metric == "rate_peak").filter_map(line).collect()
}

/// A line for each load at which latency was measured.
fn latencies(records: &[&Record]) -> Vec<String> {
    let of = |record: &Record, quantile: &str| {
        let is_it = |other: &&&Record| {
            other.metric == "latency"
                && text(other, key::QUANTILE) == quantile
                && what(other) == what(record)
                && text(other, key::LOAD_PERCENT) == text(record, key::LOAD_PERCENT)
        };
        records.iter().find(is_it).and_then(|other| other.median())
    };
    let medians = records
        .iter()
        .filter(|record| record.metric == "latency" && text(record, key::QUANTILE) == "0.5");
    let line = |record: &&Record| {
        let us = |quantile: &str| Some(format!("{} us", three_digits(of(record, quantile)? / 1e3)));
        let load = text(record, key::LOAD_PERCENT);
        let (half, most) = (us("0.5")?, us("0.99")?);
        Some(format!(
            "{} at {load}% of that load: {half} at the median, {most} at 99%.",
            what(record)
        ))
    };
    medians.filter_map(line).collect()
}

/// `64 B through haul, its copy by haul`.
fn what(record: &Record) -> String {
    let through = match record.experiment.as_str() {
        name::FORWARD_PVP => "switch, guest and back through",
        name::FORWARD_ENQUEUE => "to the guest through",
        name::FORWARD_DEQUEUE => "from the guest through",
        name::FORWARD_RETURN => "from the guest and back through",
        _ => "circulating through",
    };
    let copy = match text(record, key::COPY).as_str() {
        "none" => ", copying nothing (the ceiling)".to_owned(),
        "empty" => ", copying no bytes of each (a ceiling)".to_owned(),
        "rte_memcpy" | "" => String::new(),
        // The name of the switch names the library that copies.
        _ if !text(record, key::LIBRARY).is_empty() => match text(record, key::SERVED).as_str() {
            "false" => ", whose library served no packet".to_owned(),
            _ => String::new(),
        },
        copy => format!(" with the copy of {copy}"),
    };
    let queues = match text(record, key::QUEUES).as_str() {
        "" => String::new(),
        queues => format!(", {queues} queues"),
    };
    format!("{}{queues}, {through} {}{copy}", size(record), record.subject)
}

/// The subject's name in the comparisons of its run.
fn own_name(record: &Record) -> String {
    match record.subject.as_str() {
        "haul" => text(record, key::COPY),
        other => other.to_owned(),
    }
}

fn against(comparison: &Comparison) -> String {
    let baseline = match comparison.baseline.as_str() {
        "libc" => "libc’s copy",
        other => other,
    };
    match comparison.verdict() {
        Verdict::NoDifference => {
            format!("no difference from {baseline} ({})", interval(comparison))
        }
        Verdict::CannotTell => {
            format!("cannot tell whether more or less than {baseline} {}", open(comparison))
        }
        Verdict::More => format!(
            "{} more than {baseline} ({})",
            percent(comparison.ratio - 1.0),
            interval(comparison)
        ),
        Verdict::Less => format!(
            "{} less than {baseline} ({})",
            percent(1.0 - comparison.ratio),
            interval(comparison)
        ),
    }
}

/// Why the restarts do not decide the comparison, and the remedy.
fn open(comparison: &Comparison) -> String {
    let remedy = match comparison.settle() {
        Some(Settle::Quiet) => Settle::Quiet.text(),
        _ => "more --restarts would decide it",
    };
    let (interval, floor) = (interval(comparison), percent(comparison.floor));
    format!("({interval}, the floor is {floor}: {remedy})")
}

fn interval(comparison: &Comparison) -> String {
    format!(
        "{:.2} times its rate, {:.2}-{:.2}",
        comparison.ratio, comparison.ratio_low, comparison.ratio_high
    )
}

fn percent(share: f64) -> String {
    format!("{:.1}%", 100.0 * share)
}

fn millions(rate: f64) -> String {
    format!("{} Mpps", three_digits(rate / 1e6))
}

fn size(record: &Record) -> String {
    format!("{} B", text(record, key::SIZE_BYTES))
}

fn text(record: &Record, name: &str) -> String {
    record.shown(name).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(copy: &str, ratio: f64) -> Record {
        let mut record = Record::new("r", name::FORWARD_PVP, "haul", "rate_peak", "packets/s")
            .with(key::SIZE_BYTES, 64)
            .with(key::COPY, copy);
        record.samples = vec![12_300_000.0; 3];
        let (ratio_low, ratio_high, floor) = (ratio - 0.01, ratio + 0.01, 0.02);
        let baseline = "libc".to_owned();
        record.comparison = Some(Comparison { baseline, ratio, ratio_low, ratio_high, floor });
        record
    }

    #[test]
    fn comparisons_become_sentences() {
        let gain = Record { metric: "copy_gain".into(), ..rate("haul", 1.1) };
        let records = [rate("haul", 1.1), rate("libc", 1.0), rate("none", 0.5), gain];
        let lines = of(&records.iter().collect::<Vec<_>>());
        assert_eq!(
            lines,
            [
                "64 B, switch, guest and back through haul with the copy of haul: 12.3 Mpps, 10.0% \
                 more than libc’s copy (1.10 times its rate, 1.09-1.11).",
                "64 B, switch, guest and back through haul with the copy of libc: 12.3 Mpps.",
                "64 B, switch, guest and back through haul, copying nothing (the ceiling): 12.3 \
                 Mpps, 50.0% less than libc’s copy (0.50 times its rate, 0.49-0.51).",
                "64 B: haul’s copy forwards 10.0% more than libc’s copy (1.10 times its rate, 1.09-1.11).",
            ]
        );
        let same = Record { metric: "copy_gain".into(), ..rate("haul", 1.01) };
        assert!(of(&[&same])[0].contains("forward equally"));
        let mut few = rate("haul", 1.1);
        few.samples.pop();
        assert!(
            of(&[&few])[0]
                .ends_with("1.10 times that of libc, with too few restarts for an interval.")
        );
    }
}
