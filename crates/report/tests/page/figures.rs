//! Figures show the numbers of their records, with one line per subject and one mode per metric.

use haul_model::{Line, Record};
use haul_report::html;

use crate::{data, page_of, records, samples};

#[test]
fn plot_contains_the_numbers_of_its_records() {
    let lines = samples::survey("m1", "Sample CPU");
    let plots = data(&html(&lines), "plots");
    let plot = &plots["m0-0-copy-size"];
    assert_eq!(plot["guides"].as_array().map(Vec::len), Some(3), "three caches");
    let view = &plot["views"][0];
    assert_eq!(view["x"].as_array().map(Vec::len), Some(25));
    let series = |name: &str| {
        view["series"]
            .as_array()
            .expect("series")
            .iter()
            .find(|s| s["name"] == name)
            .expect(name)
            .clone()
    };
    for subject in ["haul", "libc", "avx2"] {
        let own = records(&lines).find(|r| {
            r.experiment == "copy.size"
                && r.subject == subject
                && r.parameters["size_bytes"] == 4096
        });
        let median = own.and_then(Record::median).expect("measured");
        let place =
            view["x"].as_array().expect("x").iter().position(|x| x == 4096.0).expect("4 KiB");
        let drawn = series(subject)["y"][1][place].as_f64().expect("a time");
        assert!((drawn / median - 1.0).abs() < 1e-5, "{subject}: {drawn} for {median}");
        let rate = series(subject)["y"][0][place].as_f64().expect("a rate");
        assert!((rate * median / 4096.0 - 1.0).abs() < 1e-5, "{subject}: {rate} GB/s");
    }
    let limit = records(&lines)
        .filter(|r| r.subject == "stream_avx2")
        .find(|r| r.text("operation") == Some("copy") && r.parameters["threads"] == 1)
        .and_then(Record::median)
        .expect("a limit");
    assert!(
        (series("memory limit")["y"][0][0].as_f64().expect("a limit") / limit - 1.0).abs() < 1e-5
    );
    let place = 24;
    let fastest = samples::KERNELS
        .iter()
        .filter_map(|kernel| series(kernel)["y"][1][place].as_f64())
        .fold(f64::INFINITY, f64::min);
    assert_eq!(series("best kernel")["y"][1][place].as_f64(), Some(fastest));
    assert_eq!(series("best kernel")["remark"][0][place], "stream_avx2");
}

#[test]
fn controls_separate_records_at_the_same_position() {
    let lines = samples::survey("m1", "Sample CPU");
    let plots = data(&html(&lines), "plots");
    let labels = |id: &str| -> Vec<String> {
        let controls = plots[id]["controls"].as_array().expect("controls");
        controls.iter().map(|c| c["label"].as_str().expect("a label").to_string()).collect()
    };
    assert_eq!(labels("m0-0-copy-size"), [""; 0]);
    assert_eq!(labels("m0-1-copy-distribution"), ["function", "threads"]);
    assert_eq!(labels("m0-5-copy-tune"), ["phase"]);
    assert_eq!(labels("m0-3-memory-bandwidth"), [""; 0], "the best of all ways");
    assert_eq!(
        plots["m0-3-memory-bandwidth"]["views"][0]["series"][0]["remark"][0][0],
        "stream_avx2"
    );
    let views = plots["m0-1-copy-distribution"]["views"].as_array().expect("views").len();
    assert_eq!(views, 6, "three functions with one and two threads");
}

#[test]
fn subject_with_two_calling_conventions_has_two_lines() {
    let mut lines = samples::survey("m1", "Sample CPU");
    let inlined: Vec<Line> = records(&lines)
        .filter(|record| record.experiment == "copy.distribution" && record.subject == "haul")
        .map(|record| Line::from(record.clone().with("call", "inline")))
        .collect();
    assert!(!inlined.is_empty());
    lines.extend(inlined);
    let plots = data(&html(&lines), "plots");
    let controls = plots["m0-1-copy-distribution"]["controls"].as_array().unwrap();
    let call = controls.iter().find(|control| control["label"] == "call").unwrap();
    assert_eq!(call["values"], serde_json::json!(["inline", "not said"]));
}

#[test]
fn heap_growth_is_drawn_by_round_and_block_with_free_by_size() {
    let mut lines = Vec::new();
    for (subject, step) in [("libc", 0.0), ("dpdk", 40_000.0), ("haul", 0.0)] {
        for round in 1..=5_u32 {
            let mut record = samples::record("m", "heap.growth", subject)
                .with("size_bytes", 4096)
                .with("round", round)
                .with("version", format!("of {subject}"));
            record.metric = "alloc_time".into();
            record.samples = vec![50.0 + step * f64::from(round)];
            lines.push(Line::from(record));
        }
        let mut pair = samples::record("m", "heap.pairs", subject).with("size_bytes", 64);
        pair.samples = vec![9.0, 10.0, 11.0];
        lines.push(pair.into());
    }
    let page = page_of("heap", &lines);
    assert!(page.contains("Allocation as the heap grows") && page.contains("A block and its free"));
    let plots = data(&page, "plots");
    let plot_of = |part: &str| {
        let plots = plots.as_object().expect("an object");
        let found = plots.iter().find(|(id, _)| id.contains(part)).expect("it is drawn");
        assert_eq!(found.1["controls"], serde_json::json!([]), "no reader has to choose");
        found.1["views"][0].clone()
    };
    let growth = plot_of("growth");
    assert_eq!(growth["x"], serde_json::json!([1.0, 2.0, 3.0, 4.0, 5.0]));
    assert_eq!(growth["labels"][1], "2 rounds");
    let dpdk = growth["series"].as_array().expect("series").iter().find(|s| s["name"] == "dpdk");
    assert_eq!(dpdk.expect("dpdk")["y"][0][4], 200_050.0);
    assert_eq!(plot_of("pairs")["labels"], serde_json::json!(["64 B"]));
}

#[test]
fn replay_has_one_line_per_heap_with_time_and_footprint_as_modes() {
    let mut lines = Vec::new();
    for subject in ["libc", "haul", "asked for"] {
        for (done, metric, unit) in [
            (10, "footprint", "MiB"),
            (10, "time", "ns"),
            (20, "footprint", "MiB"),
            (20, "time", "ns"),
        ] {
            let mut record = Record::new("run-1", "heap.replay", subject, metric, unit)
                .with("trace", "sort.trace")
                .with("threads", 1)
                .with("at_ms", done as f64 / 7.0)
                .with("operations_done", done);
            record.samples = vec![f64::from(done), f64::from(done) + 1.0];
            lines.push(Line::from(record));
        }
    }
    let page = page_of("replay", &lines);
    let plots = data(&page, "plots");
    let plot = plots.as_object().expect("an object").values().next().expect("a plot");
    assert_eq!(plot["controls"].as_array().expect("controls").len(), 0);
    assert_eq!(plot["modes"].as_array().expect("modes").len(), 2);
    let series = plot["views"][0]["series"].as_array().expect("series");
    let roles: Vec<&str> = series.iter().filter_map(|series| series["role"].as_str()).collect();
    assert_eq!(roles, ["haul", "baseline", "limit"]);
    for series in series {
        assert!(!series["y"].to_string().contains("null"), "{series}");
    }
}

#[test]
fn calibration_without_effect_is_not_drawn_again() {
    let bar = |calibration: &str, ours: f64| {
        let mut record = samples::record("m1", "sim.figure7", "haul")
            .with("calibration", calibration)
            .with("mode", "BASE")
            .with("bandwidth_gb_per_s", "3.2");
        (record.kind, record.samples) = (haul_model::Kind::Modelled, vec![ours]);
        Line::from(record)
    };
    let drawings = |knob: f64| {
        let page = html(&[bar("none", 100.0), bar("one-knob", knob)]);
        assert!(page.contains("A simulated server, by"));
        (page.matches("Execution time in percent").count(), page.contains("same as above"))
    };
    let (once, is_shared) = drawings(100.0);
    let (twice, is_shared_twice) = drawings(90.0);
    assert!(once < twice && is_shared && !is_shared_twice, "{once} and {twice}");
}

/// A figure of transfers: a mechanism with a quarter of the baseline's rate and a seventh of its
/// latency.
fn transfers_with_verdicts() -> Vec<Line> {
    let at = |size: u64, (metric, unit, value, ratio, floor): (&str, &str, f64, f64, f64)| {
        let mut record = Record::new("run-1", "channel.transfer", "haul:ring", metric, unit)
            .with("size_bytes", size)
            .with("target", "warm")
            .with("busy_core", 0);
        record.machine = "m1".into();
        record.samples = vec![value];
        record.comparison = Some(samples::against("pipe", ratio, 0.004, floor));
        Line::from(record)
    };
    let all = [
        ("throughput", "GB/s", 1.9, 0.22, 0.03),
        ("cpu", "s/GB", 0.9, 1.5, 0.02),
        ("latency", "ns", 800.0, 0.15, 0.01),
    ];
    [1 << 16, 1 << 17].into_iter().flat_map(|size| all.map(|figure| at(size, figure))).collect()
}

#[test]
fn each_mode_shows_the_verdict_of_its_own_metric() {
    let lines = transfers_with_verdicts();
    for lines in [lines.clone(), lines.into_iter().rev().collect()] {
        let plots = data(&page_of("verdicts", &lines), "plots");
        let series = &plots["m0-0-channel-transfer"]["views"][0]["series"][0];
        let remarks: Vec<&str> =
            (0..3).map(|mode| series["remark"][mode][0].as_str().expect("a verdict")).collect();
        assert_eq!(
            remarks,
            [
                "78% less throughput than pipe",
                "50% more cpu than pipe",
                "85% less latency than pipe"
            ]
        );
        let floors: Vec<f64> =
            (0..3).map(|mode| series["floor"][mode][0].as_f64().expect("a floor")).collect();
        assert_eq!(floors, [0.03, 0.02, 0.01]);
    }
}
