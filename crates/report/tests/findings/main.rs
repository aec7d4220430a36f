//! The sentences have right numbers, are honest about the noise, and name a remedy if there is
//! one.

mod channel;
mod copy;
mod heap;
mod noise;
mod runs;
#[path = "../samples/mod.rs"]
mod samples;
mod verdicts;

use haul_model::{Line, Record};
use haul_report::{Finding, findings};
use proptest::prelude::*;

fn distribution(name: &str, level: &str, ratio: f64, floor: f64) -> Line {
    let mut record = samples::record("m", "copy.distribution", "haul")
        .with("function", "memcpy")
        .with("distribution", name)
        .with("level", level)
        .with("threads", 1);
    record.samples = vec![10.0 * ratio];
    record.comparison = Some(samples::against("libc", ratio, 0.004, floor));
    record.into()
}

fn size(subject: &str, size: u64, time: f64) -> Line {
    let mut record = samples::record("m", "copy.size", subject)
        .with("function", "memcpy")
        .with("size_bytes", size);
    record.samples = vec![time];
    record.into()
}

fn only<'a>(findings: &'a [Finding], part: &str) -> &'a Finding {
    let found: Vec<&Finding> =
        findings.iter().filter(|finding| finding.text.contains(part)).collect();
    assert_eq!(found.len(), 1, "{part:?} in {findings:#?}");
    found[0]
}

#[test]
fn no_records_give_no_findings() {
    assert!(findings(&[]).is_empty());
    assert!(findings(&[Line::from(samples::machine("m", "CPU"))]).is_empty());
}

prop_compose! {
    fn any_record()(
        experiment in prop::sample::select(vec!["copy.size", "copy.distribution", "copy.size_class", "memory.bandwidth", "memory.fault", "copy.tune", "copy.stream", "copy.advise", "other"]),
        subject in prop::sample::select(vec!["haul", "libc", "avx2", "tuned", "default"]),
        unit in prop::sample::select(vec![("time", "ns"), ("throughput", "GB/s"), ("faults", "count")]),
        parameters in prop::collection::btree_map(
            prop::sample::select(vec!["function", "level", "threads", "size_bytes", "distribution", "size_class", "operation", "pages", "mode", "phase", "stream", "site", "branches", "note", "rerun", "steal_percent"]),
            prop::sample::select(vec![serde_json::json!("memcpy"), serde_json::json!("l1"), serde_json::json!(1), serde_json::json!(0), serde_json::json!(4096), serde_json::json!("4KiB"), serde_json::json!("0-16"), serde_json::json!("copy"), serde_json::json!(null), serde_json::json!(-3.5), serde_json::json!("check")]),
            0..8,
        ),
        samples in prop::collection::vec(prop_oneof![Just(0.0), Just(-1.0), Just(f64::MAX), Just(f64::MIN_POSITIVE), Just(f64::NAN), 0.1..1e6], 0..4),
        ratios in prop::option::of(prop::collection::vec(prop_oneof![Just(0.0), Just(f64::MAX), Just(f64::NAN), 0.5..2.0], 4)),
    ) -> Record {
        let mut record = samples::record("m", experiment, subject);
        (record.metric, record.unit) = (unit.0.into(), unit.1.into());
        record.parameters = parameters.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
        record.samples = samples;
        record.comparison = ratios.map(|r| haul_model::Comparison {
            baseline: "libc".into(), ratio: r[0], ratio_low: r[1], ratio_high: r[2], floor: r[3],
        });
        record
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn no_record_breaks_the_page(records in prop::collection::vec(any_record(), 0..24)) {
        let count = records.len();
        let lines: Vec<Line> = records.into_iter().map(Line::from).collect();
        let page = haul_report::html(&lines);
        prop_assert_eq!(page.matches("<th scope=\"row\">").count(), count);
        for (_, svg) in haul_report::svg(&lines) {
            prop_assert!(!svg.contains("NaN") && !svg.contains("inf"), "{}", svg);
        }
        prop_assert_eq!(haul_report::csv(&lines).lines().count(), count + 1);
    }
}

fn growth(subject: &str, metric: &str, round: Option<u64>, value: f64) -> Line {
    let mut record = samples::record("m", "heap.growth", subject)
        .with("size_bytes", 4096)
        .with("align_bytes", 4096)
        .with("count", 2000)
        .with("threads", 1);
    record.metric = metric.into();
    if let Some(round) = round {
        record = record.with("round", round);
    }
    record.samples = vec![value; 3];
    record.into()
}

fn transfer(subject: &str, size: u64, busy: u8, rate: f64) -> Line {
    let mut record = Record::new("run-1", "channel.transfer", subject, "throughput", "GB/s")
        .with("size_bytes", size)
        .with("target", "warm")
        .with("busy_core", busy);
    record.machine = "m".into();
    record.samples = vec![rate; 3];
    Line::from(record)
}
