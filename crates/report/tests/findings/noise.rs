//! Findings on noise, steal time and modelled figures.

use haul_model::Line;
use haul_report::{Tone, findings};

use crate::{distribution, only, samples};

#[test]
fn noisy_run_advises_to_repeat_it() {
    let findings = findings(&[distribution("a", "l1", 0.5, 0.09)]);
    let noise = only(&findings, "Noise");
    assert_eq!(noise.tone, Tone::Worse);
    assert!(noise.action.as_deref().is_some_and(|action| action.contains("quiet machine")));
}

/// Figures with these shares of steal time, in percent.
fn stolen(percents: impl IntoIterator<Item = f64>) -> Vec<Line> {
    let lost = |(place, percent): (u64, f64)| {
        let record = samples::record("m", "copy.size", "haul").with("size_bytes", place);
        let mut record = record.with("steal_percent", percent);
        record.samples = vec![1.0];
        Line::from(record)
    };
    (1..).zip(percents).map(lost).collect()
}

#[test]
fn steal_time_is_reported_once_and_marked_only_where_large() {
    let lines = stolen((0..999).map(|n| if n < 31 { 5.0 + f64::from(n + 1) * 0.3 } else { 0.8 }));
    let found = findings(&lines);
    let sentence = only(&found, "The hypervisor took");
    let expected = "The hypervisor took 0.8% of the processors’ time in the median of 999 figures, 14% at \
                    worst; 31 lost more than 5%, which the tables mark.";
    assert_eq!((sentence.text.as_str(), sentence.tone), (expected, Tone::Fact));
    assert!(!found.iter().any(|finding| finding.text.contains("a note")), "{found:#?}");
    let page = haul_report::html(&lines);
    assert_eq!(page.matches("<td class=\"t\">the hypervisor took ").count(), 31);
}

#[test]
fn large_steal_time_advises_another_time_and_none_is_not_mentioned() {
    let much = findings(&stolen([4.0, 6.0, 50.0]));
    let sentence = only(&much, "2 lost more than 5%");
    assert_eq!(sentence.tone, Tone::Worse);
    assert!(sentence.action.as_deref().is_some_and(|action| action.contains("quieter time")));

    let little = findings(&stolen([0.0, 0.0, 5.0]));
    assert!(only(&little, "The hypervisor took 0.0%").text.ends_with("none lost more than 5%."));
    let one = findings(&stolen([0.0, 5.1]));
    assert!(only(&one, "The hypervisor took").text.contains("; 1 lost more than 5%"));

    // No steal time, and two impossible shares.
    for percents in [vec![0.0, 0.0], vec![-3.0], vec![f64::MAX]] {
        let found = findings(&stolen(percents));
        assert!(!found.iter().any(|finding| finding.text.contains("hypervisor")), "{found:#?}");
    }
}

#[test]
fn modelled_figures_are_counted_and_not_used() {
    let Line::Record(mut record) = distribution("a", "l1", 0.5, 0.01) else {
        unreachable!("a record")
    };
    record.kind = haul_model::Kind::Modelled;
    let findings = findings(&[record.into()]);
    assert_eq!(findings.len(), 1);
    assert!(findings[0].text.starts_with("1 figure is modelled"), "{}", findings[0].text);
}

#[test]
fn reproduction_is_reported_as_simulated() {
    let of = |experiment: &str, metric: &str, value: f64| {
        let mut record = samples::record("m", experiment, "haul").with("calibration", "none");
        (record.metric, record.samples) = (metric.into(), vec![value]);
        record.kind = haul_model::Kind::Modelled;
        record
    };
    let tier = |name: &str, holds: f64| of("sim.tiers", "tier", holds).with("tier", name).into();
    let error = of("sim.table2", "mean_absolute_error", 2.549).with("rows", 16).into();
    let other = of("sim.table2", "mean_absolute_error", 9.0).with("calibration", "one-knob").into();
    let findings = findings(&[error, other, tier("A", 1.0), tier("B", 1.0), tier("C", 0.0)]);
    let found = only(&findings, "Simulated, not measured");
    assert_eq!(found.tone, Tone::Fact);
    let end = "within 2.5 points in the mean of 16 undisputed rows; tiers A and B are held; tier C is missed.";
    assert!(found.text.ends_with(end), "{}", found.text);
}
