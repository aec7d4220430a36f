//! Findings on heaps.

use haul_model::{Comparison, Line, Record};
use haul_report::{Tone, findings};

use crate::{growth, only, samples};

#[test]
fn growth_is_compared_with_the_worst_other_heap() {
    let mut lines = Vec::new();
    for (subject, first, last) in
        [("libc", 100.0, 110.0), ("dpdk", 15_000.0, 255_000.0), ("haul", 40.0, 40.4)]
    {
        lines.push(growth(subject, "alloc_time", Some(1), first));
        lines.push(growth(subject, "alloc_time", Some(5), last));
        lines.push(growth(subject, "growth", None, last / first));
    }
    let found = findings(&lines);
    let finding = only(&found, "Allocating blocks");
    assert_eq!(
        finding.text,
        "Allocating blocks of 4 KiB aligned to 4 KiB, haul’s heap takes 40.4 ns a block in round 5, \
         1.01 times round 1; dpdk takes 255 µs a block in round 5, 17.00 times round 1."
    );
    assert_eq!(finding.tone, Tone::Better);
    for (name, value, said) in [
        ("pages", "transparent huge pages; nothing", "when a block is first written to"),
        ("pages", "huge pages of 2 MiB; nothing", "The clearing of haul’s memory is in that time"),
        ("ready_bytes", "1", "was cleared before that time began"),
    ] {
        let with = |line: &Line| match line {
            Line::Record(record) => record.clone().with(name, value).into(),
            other => other.clone(),
        };
        let lines: Vec<Line> = lines.iter().map(with).collect();
        let found = findings(&lines);
        let text = &only(&found, "Allocating blocks").text;
        assert!(text.contains(said), "{text}");
    }
    lines.push(growth("haul", "growth", None, 1.5));
    let worse = findings(&lines[lines.len() - 4..]);
    assert_eq!(only(&worse, "Allocating blocks").tone, Tone::Worse);
}

#[test]
fn flat_but_slower_heap_is_not_marked_as_better() {
    let mut lines = Vec::new();
    for (subject, first, last) in [("other", 10.0, 20.0), ("haul", 40.0, 40.4)] {
        lines.push(growth(subject, "alloc_time", Some(1), first));
        lines.push(growth(subject, "alloc_time", Some(5), last));
        lines.push(growth(subject, "growth", None, last / first));
    }
    assert_eq!(only(&findings(&lines), "Allocating blocks").tone, Tone::Worse);
}

#[test]
fn block_and_free_are_compared_with_the_fastest_other_heap() {
    let pair = |subject: &str, ns: f64| {
        let record = samples::record("m", "heap.pairs", subject);
        let mut record = record.with("size_bytes", 64).with("threads", 1);
        record.samples = vec![ns; 3];
        Line::from(record)
    };
    let lines = [pair("libc", 20.0), pair("tcmalloc", 10.0), pair("haul", 11.0)];
    let found = findings(&lines);
    let finding = only(&found, "and its free");
    assert!(finding.text.contains("110% of what the fastest other, tcmalloc"), "{}", finding.text);
    assert_eq!(finding.tone, Tone::Same);
}

#[test]
fn replay_is_reported_in_time_and_in_memory() {
    let whole = |subject: &str, metric: &str, unit: &str, value: f64, ratio: f64| {
        let mut record = Record::new("run-1", "heap.replay", subject, metric, unit)
            .with("trace", "sort.trace")
            .with("program", "sort")
            .with("operations", 290)
            .with("threads", 1);
        record.samples = vec![value];
        record.comparison = Some(Comparison {
            baseline: "libc".into(),
            ratio,
            ratio_low: ratio - 0.01,
            ratio_high: ratio + 0.01,
            floor: 0.02,
        });
        Line::from(record)
    };
    let lines = [
        whole("libc", "time", "ns", 100.0, 1.0),
        whole("haul", "time", "ns", 80.0, 0.8),
        whole("libc", "footprint_peak", "MiB", 16.0, 1.0),
        whole("haul", "footprint_peak", "MiB", 18.0, 1.125),
    ];
    let findings = haul_report::findings(&lines);
    let finding = findings.iter().find(|f| f.experiment == "heap.replay").expect("a finding");
    assert_eq!(finding.tone, Tone::Worse, "less time is not all: it takes an eighth more memory");
    assert_eq!(
        finding.text,
        "On what sort allocated (290 operations), haul’s heap saves 20% of libc’s time; its memory \
         peaks at 18.0 MiB, libc’s at 16.0 MiB."
    );
    let mut lines = lines;
    lines[3] = whole("haul", "footprint_peak", "MiB", 16.2, 1.0125);
    let findings = haul_report::findings(&lines);
    let within_noise = findings.iter().find(|f| f.experiment == "heap.replay").expect("a finding");
    assert_eq!(within_noise.tone, Tone::Better, "{}", within_noise.text);
}

#[test]
fn map_is_reported_by_use_of_its_memory() {
    let whole = |metric: &str, mib: f64| {
        let mut record = Record::new("run-1", "heap.map", "haul", metric, "B")
            .with("by", "heap")
            .with("heap", "mine");
        record.samples = vec![mib * 1_048_576.0];
        Line::from(record)
    };
    let lines = [
        whole("ready", 8.0),
        whole("live", 6.0),
        whole("free_in_spans", 0.4),
        whole("rounding", 0.8),
    ];
    let findings = haul_report::findings(&lines);
    assert_eq!(
        findings[0].text,
        "Of shared heap “mine”: live blocks take 75% of the 8.00 MiB with memory, 10% of it by \
         rounding up to classes; 5.0% lies free in spans."
    );
    assert!(
        haul_report::findings(&[whole("ready", 0.0)]).iter().all(|f| f.experiment != "heap.map")
    );
}

/// The median is a tenth slower, but samples range from half to twice as much.
#[test]
fn heaps_with_overlapping_samples_are_not_distinguished() {
    let pair = |subject: &str, samples: [f64; 5]| {
        let record = samples::record("m", "heap.pairs", subject);
        let mut record = record.with("size_bytes", 64).with("threads", 1);
        record.samples = samples.to_vec();
        Line::from(record)
    };
    let lines =
        [pair("libc", [10.0, 12.0, 9.0, 11.0, 10.0]), pair("haul", [5.0, 13.0, 12.0, 22.0, 11.0])];
    let found = findings(&lines);
    let finding = only(&found, "and its free");
    assert_eq!(finding.tone, Tone::Unknown);
    assert!(finding.text.contains("cannot tell: 1.10 times, 0.500 to 2.00"), "{}", finding.text);
    assert!(finding.text.contains("more time would settle it"), "{}", finding.text);
    let verdicts = haul_report::verdicts(&lines);
    assert_eq!(verdicts[0].tone, Tone::Unknown, "{verdicts:?}");
    assert!(verdicts[0].action.contains("measure longer"), "{verdicts:?}");
}
