//! Only records of one machine and one run are compared.

use haul_model::Line;
use haul_report::{Tone, findings};

use crate::{distribution, growth, only, samples, size, transfer};

#[test]
fn newer_record_replaces_older_one_of_the_same_measurement() {
    let mut later = distribution("a", "l1", 0.6, 0.01);
    if let Line::Record(record) = &mut later {
        record.time = "2027-01-01T00:00:00Z".into();
        record.run = "later".into();
    }
    let findings = findings(&[later, distribution("a", "l1", 0.9, 0.01)]);
    assert!(findings[0].text.contains("saves 40%"), "{}", findings[0].text);
}

#[test]
fn each_machine_has_its_own_findings() {
    let mut lines = samples::survey("m1", "First");
    lines.extend(samples::survey("m2", "Second"));
    let findings = findings(&lines);
    let of = |id: &str| findings.iter().filter(|finding| finding.machine == id).count();
    assert_eq!(of("m1"), of("m2"));
    assert!(of("m1") >= 10, "{findings:#?}");
    assert_eq!(of("m1") * 2, findings.len());
    for finding in &findings {
        assert!(finding.text.ends_with('.') && !finding.text.contains("NaN"), "{}", finding.text);
    }
}

/// The record of another run, made later.
fn of_run(line: Line, run: &str) -> Line {
    let Line::Record(mut record) = line else { unreachable!("a record") };
    record.run = run.into();
    record.time = format!("2026-02-0{}T00:00:00Z", if run == "a" { 1 } else { 2 });
    record.into()
}

/// haul in one run and its peers in another are not comparable.
#[test]
fn no_ratio_is_made_across_runs() {
    let pair = |subject: &str, ns: f64| {
        let record = samples::record("m", "heap.pairs", subject);
        let mut record = record.with("size_bytes", 64).with("threads", 1);
        record.samples = vec![ns];
        Line::from(record)
    };
    let bandwidth = |rate: f64| {
        let mut record = samples::record("m", "memory.bandwidth", "avx2")
            .with("operation", "copy")
            .with("threads", 1);
        (record.metric, record.unit) = ("throughput".into(), "GB/s".into());
        record.samples = vec![rate];
        Line::from(record)
    };
    let fault = |pages: &str, cost: f64| {
        let record = samples::record("m", "memory.fault", "kernel").with("pages", pages);
        let mut record = record.with("mode", "write-touch");
        record.samples = vec![cost];
        Line::from(record)
    };
    let grown = |subject: &str| {
        vec![
            growth(subject, "alloc_time", Some(1), 40.0),
            growth(subject, "alloc_time", Some(5), 40.0),
            growth(subject, "growth", None, 1.0),
        ]
    };
    let cases: [(&str, Vec<Line>, Vec<Line>, &str); 6] = [
        ("pairs", vec![pair("haul", 11.0)], vec![pair("mimalloc", 10.0)], "mimalloc"),
        ("growth", grown("haul"), grown("mimalloc"), "mimalloc"),
        ("sizes", vec![size("haul", 4096, 90.0)], vec![size("libc", 4096, 80.0)], "within 3%"),
        (
            "memory",
            vec![size("haul", 1 << 30, f64::from(1 << 30) / 9.0)],
            vec![bandwidth(10.0)],
            "haul reaches",
        ),
        ("faults", vec![fault("4KiB", 400.0)], vec![fault("2MiB", 51_200.0)], "times less"),
        (
            "transfers",
            vec![transfer("haul:ring", 4096, 0, 9.0)],
            vec![transfer("pipe", 4096, 0, 1.0)],
            "fastest",
        ),
    ];
    for (what, first, second, part) in cases {
        let of = |run: &str, lines: &[Line]| -> Vec<Line> {
            lines.iter().map(|line| of_run(line.clone(), run)).collect()
        };
        let both = [of("a", &first), of("a", &second)].concat();
        assert!(findings(&both).iter().any(|f| f.text.contains(part)), "{what}: one run");
        for (one, other) in [("a", "b"), ("b", "a")] {
            let apart = [of(one, &first), of(other, &second)].concat();
            let found = findings(&apart);
            assert!(!found.iter().any(|f| f.text.contains(part)), "{what}: {found:#?}");
        }
    }
}

/// The newest run with a comparison is reported, not a newer one without.
#[test]
fn later_run_of_one_subject_keeps_the_comparison_of_an_earlier_run() {
    let of = |run: &str, subject: &str, ns: f64| {
        let record = samples::record("m", "heap.pairs", subject);
        let mut record = record.with("size_bytes", 64).with("threads", 1);
        record.samples = vec![ns];
        of_run(record.into(), run)
    };
    let lines = [of("a", "haul", 11.0), of("a", "libc", 20.0), of("b", "haul", 50.0)];
    let found = findings(&lines);
    assert!(only(&found, "and its free").text.contains("55% of what the fastest other, libc"));
    let sizes = [
        of_run(size("haul", 4096, 10.0), "a"),
        of_run(size("libc", 4096, 20.0), "a"),
        of_run(size("haul", 4096, 90.0), "b"),
    ];
    let found = findings(&sizes);
    assert_eq!(only(&found, "haul’s memcpy").tone, Tone::Better);
}
