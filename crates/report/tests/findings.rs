//! The sentences: right numbers, honest about the noise, and a remedy where there is one.

mod samples;

use haul_model::{Comparison, Line, Record};
use haul_report::{Finding, Tone, findings, shortlist};
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
fn the_headline_is_a_geometric_mean() {
    let lines = [distribution("a", "l1", 0.5, 0.01), distribution("b", "l1", 0.98, 0.01)];
    let findings = findings(&lines);
    // sqrt(0.5 * 0.98) = 0.7
    let headline = &findings[0];
    assert_eq!(headline.tone, Tone::Better);
    assert!(headline.text.contains("haul saves 30% of libc’s time in memcpy"), "{}", headline.text);
    assert!(headline.text.contains("(−50% to −2.0% over 2 distributions)"), "{}", headline.text);
    assert!(headline.text.contains("data in L1"), "{}", headline.text);
}

/// What is read right after is another question: its records are no part of a sentence about calls
/// alone, and those of older files, which say only whether the first bytes were read, are of the
/// same two kinds.
#[test]
fn a_sentence_joins_records_of_one_reader() {
    let read = |ratio: f64, how: serde_json::Value| match distribution("a", "l1", ratio, 0.01) {
        Line::Record(record) => Line::from(record.with("then_read", how)),
        Line::Machine(_) => unreachable!("a distribution is a record"),
    };
    for (nothing, first) in [("nothing".into(), "first".into()), (false.into(), true.into())] {
        let lines = [read(0.7, nothing), read(1.2, first)];
        let findings = findings(&lines);
        assert!(findings[0].text.contains("haul saves 30% of libc’s time"), "{}", findings[0].text);
        only(&findings, "beyond the noise in none of 1 comparison");
    }
    // The newer of two that say the same in other words counts.
    let lines = [read(0.7, false.into()), read(0.5, "nothing".into())];
    assert!(findings(&lines)[0].text.contains("haul saves 50%"), "{:?}", findings(&lines));
}

/// A survey says first what its haul.toml does, and what there is without it.
#[test]
fn the_headline_says_what_the_file_changes() {
    let of = |subject: &str, function: &str, ratio: f64| match distribution(
        "service", "l1", ratio, 0.01,
    ) {
        Line::Record(mut record) => {
            record.subject = subject.into();
            Line::from(record.with("function", function))
        }
        Line::Machine(_) => unreachable!("a distribution is a record"),
    };
    let mut lines = vec![of("haul", "memcpy", 0.5), of("haul", "memset", 0.8)];
    let text = |lines: &[Line]| findings(lines)[0].text.clone();
    assert!(!text(&lines).contains("haul.toml"), "{}", text(&lines));
    lines.extend([of("haul-untuned", "memcpy", 0.7), of("haul-untuned", "memset", 1.1)]);
    let found = text(&lines);
    assert_eq!(findings(&lines)[0].tone, Tone::Worse, "a loss without the file is told as well");
    for part in [
        "with the haul.toml of this survey haul saves 50% of libc’s time in memcpy",
        "it saves 20% of libc’s time in memset",
        "; without that file it saves 30% of libc’s time in memcpy",
        "takes 10% more time than libc in memset",
    ] {
        assert!(found.contains(part), "{part}: {found}");
    }
    assert_eq!(found.matches(". ").count(), 0, "one sentence: {found}");
}

#[test]
fn a_gain_below_the_floor_is_no_difference() {
    let lines = [distribution("a", "l1", 0.97, 0.05), distribution("b", "l1", 0.96, 0.05)];
    let findings = findings(&lines);
    assert_eq!(findings[0].tone, Tone::Same);
    assert!(
        findings[0].text.contains("haul is neither faster nor slower than libc"),
        "{}",
        findings[0].text
    );
    assert!(findings[0].text.contains("noise floor 5.0%"), "{}", findings[0].text);
    assert_eq!(only(&findings, "beyond the noise in none").tone, Tone::Better);
}

#[test]
fn a_mean_is_no_surer_than_its_noisiest_part() {
    let lines = [distribution("a", "l1", 0.95, 0.01), distribution("b", "l1", 0.95, 0.06)];
    let findings = findings(&lines);
    assert_eq!(findings[0].tone, Tone::Same, "{}", findings[0].text);
}

#[test]
fn a_loss_is_said_first_hand_with_its_place_and_a_remedy() {
    let lines = [
        distribution("a", "l1", 0.8, 0.01),
        distribution("b", "cold", 1.08, 0.01),
        distribution("c", "cold", 1.02, 0.05),
    ];
    let findings = findings(&lines);
    let loss = only(&findings, "haul is slower than libc in 1 of 3 comparisons");
    assert!(loss.text.contains("memcpy, b, cold, 1 thread: 8.0% more time"), "{}", loss.text);
    assert_eq!(loss.tone, Tone::Worse);
    assert!(
        loss.action
            .as_deref()
            .is_some_and(|action| action.contains("`haul copy bench --distribution FILE`"))
    );
}

#[test]
fn a_headline_that_loses_says_so() {
    let findings = findings(&[distribution("a", "l1", 1.2, 0.01)]);
    assert_eq!(findings[0].tone, Tone::Worse);
    assert!(
        findings[0].text.contains("haul takes 20% more time than libc"),
        "{}",
        findings[0].text
    );
}

#[test]
fn the_best_by_size_is_told_in_ranges() {
    let mut lines = Vec::new();
    for (power, haul, libc, near, far) in [
        (10, 10.0, 14.0, 10.0, 40.0),
        (11, 20.0, 20.2, 20.0, 50.0),
        (12, 40.0, 40.5, 40.0, 40.1),
        (13, 90.0, 80.0, 95.0, 79.0),
    ] {
        for (subject, time) in [("haul", haul), ("libc", libc), ("near", near), ("far", far)] {
            lines.push(size(subject, 1 << power, time));
        }
    }
    let findings = findings(&lines);
    let libc = only(&findings, "libc’s memcpy");
    assert!(libc.text.ends_with("within 3% of the best of all from 2 KiB up."), "{}", libc.text);
    let haul = only(&findings, "haul’s memcpy");
    assert!(
        haul.text.contains("up to 4 KiB; it is farthest at 8 KiB, where far takes 12% less"),
        "{}",
        haul.text
    );
    assert!(haul.action.is_some());
    let fastest = only(&findings, "Fastest kernels");
    assert!(fastest.text.contains("near up to 4 KiB and far above"), "{}", fastest.text);
}

/// Medians of different rounds say haul takes twice as long; round by round it takes a tenth
/// longer, which the baseline's distance from itself hides.
#[test]
fn what_noise_hides_is_not_called_worse() {
    let compared = |subject: &str, time: f64, ratio: f64, floor: f64| -> Line {
        let Line::Record(mut record) = size(subject, 1 << 30, time) else { unreachable!() };
        record.comparison = Some(samples::against("libc", ratio, 0.004, floor));
        record.into()
    };
    let of_floor = |floor: f64| {
        findings(&[
            compared("libc", 100.0, 1.0, floor),
            compared("haul", 200.0, 1.1, floor),
            compared("far", 100.0, 1.02, floor),
        ])
    };
    let hidden = of_floor(0.2);
    let told = only(&hidden, "haul’s memcpy");
    assert!(told.text.contains("noise") && !told.text.contains("farthest"), "{}", told.text);
    assert!(told.action.is_none());
    let plain = of_floor(0.01);
    let told = only(&plain, "haul’s memcpy");
    assert!(told.text.contains("where libc takes 9.1% less"), "{}", told.text);
}

#[test]
fn newer_records_replace_older_ones_of_the_same_thing() {
    let mut later = distribution("a", "l1", 0.6, 0.01);
    if let Line::Record(record) = &mut later {
        record.time = "2027-01-01T00:00:00Z".into();
        record.run = "later".into();
    }
    let findings = findings(&[later, distribution("a", "l1", 0.9, 0.01)]);
    assert!(findings[0].text.contains("saves 40%"), "{}", findings[0].text);
}

#[test]
fn an_inlined_haul_is_another_subject_than_one_called_through_c() {
    let called = distribution("a", "l1", 0.5, 0.01);
    let mut inlined = distribution("b", "l1", 0.9, 0.01);
    if let Line::Record(record) = &mut inlined {
        *record = record.clone().with("call", "inline");
    }
    // No mean of the two, and none of them counted with the other.
    let both = findings(&[called.clone(), inlined.clone()]);
    assert!(both[0].text.contains("saves 10%"), "{}", both[0].text);
    only(&both, "in none of 1 comparison");
    // An old record that does not say its call is as new ones that say `c`.
    let mut said = distribution("a", "l1", 0.7, 0.01);
    if let Line::Record(record) = &mut said {
        *record = record.clone().with("call", "c");
        record.time = "2027-01-01T00:00:00Z".into();
    }
    let again = findings(&[called, said]);
    assert!(again[0].text.contains("saves 30%"), "{}", again[0].text);
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
fn a_reproduction_is_told_as_simulated() {
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
    let told = only(&findings, "Simulated, not measured");
    assert_eq!(told.tone, Tone::Fact);
    let end = "within 2.5 points in the mean of 16 undisputed rows; tiers A and B are held; tier C is missed.";
    assert!(told.text.ends_with(end), "{}", told.text);
}

#[test]
fn a_noisy_run_asks_to_be_repeated() {
    let findings = findings(&[distribution("a", "l1", 0.5, 0.09)]);
    let noise = only(&findings, "Noise");
    assert_eq!(noise.tone, Tone::Worse);
    assert!(noise.action.as_deref().is_some_and(|action| action.contains("quiet machine")));
}

/// Figures that lost so much to the hypervisor, in percent.
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
fn what_the_hypervisor_took_is_told_once_and_only_what_lost_much_is_marked() {
    let lines = stolen((0..999).map(|n| if n < 31 { 5.0 + f64::from(n + 1) * 0.3 } else { 0.8 }));
    let told = findings(&lines);
    let sentence = only(&told, "The hypervisor took");
    let expected = "The hypervisor took 0.8% of the processors’ time in the median of 999 figures, 14% at \
                    worst; 31 lost more than 5%, which the tables mark.";
    assert_eq!((sentence.text.as_str(), sentence.tone), (expected, Tone::Fact));
    assert!(!told.iter().any(|finding| finding.text.contains("a note")), "{told:#?}");
    let page = haul_report::html(&lines);
    assert_eq!(page.matches("<td class=\"t\">the hypervisor took ").count(), 31);
}

#[test]
fn a_host_that_takes_much_asks_for_another_time_and_one_that_takes_nothing_is_not_spoken_of() {
    let much = findings(&stolen([4.0, 6.0, 50.0]));
    let sentence = only(&much, "2 lost more than 5%");
    assert_eq!(sentence.tone, Tone::Worse);
    assert!(sentence.action.as_deref().is_some_and(|action| action.contains("quieter time")));

    let little = findings(&stolen([0.0, 0.0, 5.0]));
    assert!(only(&little, "The hypervisor took 0.0%").text.ends_with("none lost more than 5%."));
    let one = findings(&stolen([0.0, 5.1]));
    assert!(only(&one, "The hypervisor took").text.contains("; 1 lost more than 5%"));

    // Nothing, unknown, and what no share can be.
    for percents in [vec![0.0, 0.0], vec![-3.0], vec![f64::MAX]] {
        let told = findings(&stolen(percents));
        assert!(!told.iter().any(|finding| finding.text.contains("hypervisor")), "{told:#?}");
    }
}

#[test]
fn memory_is_told_with_what_haul_reaches() {
    let mut lines = vec![size("haul", 1 << 30, f64::from(1 << 30) / 9.0)];
    for (threads, rate) in [(1, 10.0), (2, 19.5), (4, 20.0)] {
        let mut record = samples::record("m", "memory.bandwidth", "haul")
            .with("operation", "copy")
            .with("threads", threads);
        record.metric = "throughput".into();
        record.unit = "GB/s".into();
        record.samples = vec![rate];
        lines.push(record.into());
    }
    for (pages, cost) in [("4KiB", 400.0), ("2MiB", 51_200.0)] {
        let mut record = samples::record("m", "memory.fault", "kernel")
            .with("pages", pages)
            .with("mode", "write-touch");
        record.samples = vec![cost];
        lines.push(record.into());
    }
    let findings = findings(&lines);
    let limit = only(&findings, "Memory lets one thread copy 10.0 GB/s");
    assert!(limit.text.contains("haul reaches 90% of that with copies of 1 GiB"), "{}", limit.text);
    assert!(limit.text.contains("copy 20.0 GB/s (2 threads)"), "{}", limit.text);
    let fault = only(&findings, "first touch of a 4 KiB page costs 400 ns");
    assert!(fault.text.contains("2 MiB pages cost 4.0 times less"), "{}", fault.text);
    // What a cache holds says nothing of memory.
    lines[0] = size("haul", 8 << 20, f64::from(8 << 20) / 14.6);
    let findings = self::findings(&lines);
    let limit = only(&findings, "Memory lets one thread copy 10.0 GB/s");
    assert!(
        limit.text.contains("copies of 8 MiB reach 14.6 GB/s, so caches hold"),
        "{}",
        limit.text
    );
}

#[test]
fn tuning_counts_only_where_it_was_checked() {
    let tuned = |phase: &str, size: u64, ratio: f64| -> Line {
        let mut record = samples::record("m", "copy.tune", "tuned")
            .with("phase", phase)
            .with("size_bytes", size);
        record.samples = vec![1.0];
        record.comparison = Some(samples::against("default", ratio, 0.002, 0.01));
        record.into()
    };
    let lost =
        findings(&[tuned("train", 64, 0.5), tuned("check", 100, 1.0), tuned("check", 200, 1.003)]);
    let finding = only(&lost, "no better than what it was tuned from");
    assert_eq!(finding.tone, Tone::Same);
    let won = findings(&[tuned("train", 64, 1.5), tuned("check", 100, 0.9)]);
    assert!(
        only(&won, "saves 10% over what it was tuned from")
            .text
            .contains("better in 1, worse in 0 of 1 case")
    );
}

#[test]
fn each_machine_has_its_own() {
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

#[test]
fn nothing_gives_nothing() {
    assert!(findings(&[]).is_empty());
    assert!(findings(&[Line::from(samples::machine("m", "CPU"))]).is_empty());
}

prop_compose! {
    fn any_record()(
        experiment in prop::sample::select(vec!["copy.size", "copy.distribution", "copy.size_class", "memory.bandwidth", "memory.fault", "copy.tune", "other"]),
        subject in prop::sample::select(vec!["haul", "libc", "avx2", "tuned", "default"]),
        unit in prop::sample::select(vec![("time", "ns"), ("throughput", "GB/s"), ("faults", "count")]),
        parameters in prop::collection::btree_map(
            prop::sample::select(vec!["function", "level", "threads", "size_bytes", "distribution", "size_class", "operation", "pages", "mode", "phase", "note", "rerun", "steal_percent"]),
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
    record.samples = vec![value];
    record.into()
}

#[test]
fn a_heap_that_grows_slower_stands_beside_the_worst_of_the_others() {
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
fn pairs_are_held_against_the_fastest_other_heap() {
    let pair = |subject: &str, ns: f64| {
        let record = samples::record("m", "heap.pairs", subject);
        let mut record = record.with("size_bytes", 64).with("threads", 1);
        record.samples = vec![ns];
        Line::from(record)
    };
    let lines = [pair("libc", 20.0), pair("tcmalloc", 10.0), pair("haul", 11.0)];
    let found = findings(&lines);
    let finding = only(&found, "and its free");
    assert!(finding.text.contains("110% of what the fastest other, tcmalloc"), "{}", finding.text);
    assert_eq!(finding.tone, Tone::Same);
}

#[test]
fn a_replay_is_told_in_time_and_in_memory() {
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
fn a_map_is_told_by_what_becomes_of_its_memory() {
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

#[test]
fn a_shortlist_has_something_of_each_part() {
    let finding = |(index, experiment): (usize, &str)| Finding {
        machine: String::new(),
        experiment: experiment.into(),
        tone: Tone::Fact,
        text: index.to_string(),
        action: None,
    };
    let parts =
        ["copy.size", "copy.size", "copy.tune", "memory.fault", "heap.growth", "", "heap.pairs"];
    let all = || parts.into_iter().enumerate().map(finding).collect::<Vec<_>>();
    let texts = |count| {
        shortlist(all(), count).into_iter().map(|finding| finding.text).collect::<Vec<_>>().join("")
    };
    assert_eq!(texts(4), "0345");
    assert_eq!(texts(6), "013456");
    assert_eq!(texts(9), "0123456");

    // A warning about all figures is not crowded out by the calm sentence before it.
    let mut warned = all();
    warned.push(Finding { tone: Tone::Worse, ..finding((7, "")) });
    let chosen: String = shortlist(warned, 5).into_iter().map(|found| found.text).collect();
    assert_eq!(chosen, "03457");
}

fn transfer(subject: &str, size: u64, busy: u8, rate: f64) -> Line {
    let mut record = Record::new("run-1", "channel.transfer", subject, "throughput", "GB/s")
        .with("size_bytes", size)
        .with("target", "warm")
        .with("busy_core", busy);
    record.machine = "m".into();
    record.samples = vec![rate];
    Line::from(record)
}

#[test]
fn the_fastest_way_to_another_process_is_told_by_size_and_with_its_reason() {
    let lines = [
        transfer("pipe", 64, 0, 0.3),
        transfer("haul:inline", 64, 0, 0.5),
        transfer("haul:auto", 64, 0, 0.49),
        transfer("pipe", 1 << 20, 0, 2.0),
        transfer("haul:double", 1 << 20, 0, 9.5),
        transfer("haul:ring", 1 << 20, 0, 8.0),
        transfer("haul:auto", 1 << 20, 0, 8.0),
        // No transfer between two private memories: it takes no part.
        transfer("memcpy", 1 << 20, 0, 12.0),
        transfer("haul:sealed", 1 << 20, 0, 50.0),
        transfer("haul:lease", 1 << 20, 0, 11.0),
        transfer("pipe", 64, 1, 0.3),
        transfer("haul:inline", 64, 1, 0.2),
    ];
    let findings = haul_report::findings(&lines);
    let free = only(&findings, "to warm memory: ");
    assert_eq!(
        free.text,
        "From process to process to warm memory: haul:inline is the fastest at 64 B, 0.500 \
         GB/s, for the message travels within its own descriptor; haul:double is the fastest at \
         1 MiB, 9.50 GB/s, for each byte is copied once, by both processes at a time."
    );
    assert_eq!(free.tone, Tone::Better);
    let busy = only(&findings, "one of two processors busy: ");
    assert!(busy.text.contains("pipe is the fastest at 64 B"), "{}", busy.text);
    assert_eq!(busy.tone, Tone::Fact);
    let choice = only(&findings, "own choice to warm memory is");
    assert!(choice.text.contains("within 5% of its best mechanism at 64 B."), "{}", choice.text);
}

#[test]
fn the_seeds_three_results_stand_beside_hauls() {
    let of = |subject: &str, rate: f64, cpu: f64| {
        let mut of_cpu = Record::new("run-1", "channel.transfer", subject, "cpu", "s/GB")
            .with("size_bytes", 1000 << 20)
            .with("target", "warm")
            .with("busy_core", 0);
        of_cpu.machine = "m".into();
        of_cpu.samples = vec![cpu];
        [transfer(subject, 1000 << 20, 0, rate), Line::from(of_cpu)]
    };
    let lines = [
        of("seed:memcpy", 4.0, 0.18),
        of("seed:vmsplice", 1.0, 0.8),
        of("memcpy", 10.0, 0.08),
        of("seed:mymemcpy", 5.0, 0.2),
        of("haul:auto", 9.0, 0.17),
    ]
    .concat();
    let findings = haul_report::findings(&lines);
    assert_eq!(
        only(&findings, "three results").text,
        "The three results of the 2014 memcpy against vmsplice experiment, with 1000 MiB: shared \
         memory and two copies 4.00 GB/s at 0.180 s/GB, vmsplice both ways 1.00 GB/s at 0.800 s/GB, \
         and mymemcpy takes 2.5 times memcpy’s processor time. haul’s choice: 9.00 GB/s at 0.170 s/GB."
    );
}

/// A comparison of `function` in a row of `experiment`, data in L1, one thread.
fn of_function(experiment: &str, row: (&str, &str), function: &str, ratio: f64) -> Line {
    let mut record = samples::record("m", experiment, "haul")
        .with("function", function)
        .with(row.0, row.1)
        .with("level", "l1")
        .with("threads", 1);
    record.samples = vec![10.0 * ratio];
    record.comparison = Some(samples::against("libc", ratio, 0.004, 0.01));
    record.into()
}

#[test]
fn a_mark_follows_the_worst_that_its_sentence_says() {
    let service = |function: &str, ratio: f64| {
        of_function("copy.distribution", ("distribution", "service"), function, ratio)
    };
    let lost = findings(&[service("memcpy", 0.95), service("memset", 1.66)]);
    let headline = only(&lost, "sizes a service copies");
    assert!(headline.text.contains("takes 66% more time than libc in memset"), "{}", headline.text);
    assert_eq!(headline.tone, Tone::Worse);

    let won = findings(&[service("memcpy", 0.95), service("memset", 1.0)]);
    assert_eq!(only(&won, "sizes a service copies").tone, Tone::Better);

    // A mean that gains, over a distribution that loses and is told.
    let spread =
        findings(&[distribution("a", "l1", 0.5, 0.01), distribution("b", "l1", 1.1, 0.01)]);
    let headline = only(&spread, "over 2 distributions");
    assert!(headline.text.contains("to +10%"), "{}", headline.text);
    assert_eq!(headline.tone, Tone::Worse);
}

#[test]
fn classes_and_levels_are_told_of_every_function() {
    let class = |function: &str, class: &str, ratio: f64| {
        of_function("copy.size_class", ("size_class", class), function, ratio)
    };
    let told = findings(&[
        class("memcpy", "0-16", 0.6),
        class("memcpy", "17-64", 0.7),
        class("memset", "0-16", 1.47),
        class("memset", "17-64", 1.0),
    ]);
    let finding = only(&told, "by size class, data in L1");
    assert_eq!(
        finding.text,
        "Against libc by size class, data in L1, one thread: in memcpy 0–16 B −40% and 17–64 B −30%; \
         in memset 0–16 B +47% and 17–64 B no difference."
    );
    assert_eq!(finding.tone, Tone::Worse);

    let at = |function: &str, level: &str, ratio: f64| -> Line {
        let Line::Record(record) =
            of_function("copy.distribution", ("distribution", "service"), function, ratio)
        else {
            unreachable!("a record")
        };
        record.with("level", level).into()
    };
    let told = findings(&[
        at("memcpy", "l1", 0.8),
        at("memcpy", "l2", 0.9),
        at("memset", "l1", 1.3),
        at("memset", "l2", 1.2),
    ]);
    let finding = only(&told, "By where the data lies");
    assert_eq!(
        finding.text,
        "By where the data lies, on the same sizes, one thread: in memcpy L1 −20% and L2 −10%; in memset \
         L1 +30% and L2 +20%."
    );
    assert_eq!(finding.tone, Tone::Worse);
}

#[test]
fn tuning_that_loses_somewhere_is_not_marked_as_better() {
    let tuned = |size: u64, ratio: f64| -> Line {
        let mut record = samples::record("m", "copy.tune", "tuned")
            .with("phase", "check")
            .with("size_bytes", size);
        record.samples = vec![1.0];
        record.comparison = Some(samples::against("default", ratio, 0.002, 0.01));
        record.into()
    };
    let told = findings(&[tuned(100, 0.7), tuned(200, 0.7), tuned(300, 1.2)]);
    let finding = only(&told, "better in 2, worse in 1 of 3 cases");
    assert_eq!(finding.tone, Tone::Worse);
    assert!(finding.action.as_deref().is_some_and(|action| action.contains("sizes")));
}

#[test]
fn a_heap_that_is_flat_and_slower_is_not_marked_as_better() {
    let mut lines = Vec::new();
    for (subject, first, last) in [("other", 10.0, 20.0), ("haul", 40.0, 40.4)] {
        lines.push(growth(subject, "alloc_time", Some(1), first));
        lines.push(growth(subject, "alloc_time", Some(5), last));
        lines.push(growth(subject, "growth", None, last / first));
    }
    assert_eq!(only(&findings(&lines), "Allocating blocks").tone, Tone::Worse);
}

/// The record of another run, made later.
fn of_run(line: Line, run: &str) -> Line {
    let Line::Record(mut record) = line else { unreachable!("a record") };
    record.run = run.into();
    record.time = format!("2026-02-0{}T00:00:00Z", if run == "a" { 1 } else { 2 });
    record.into()
}

/// haul in one run and its peers in another: nothing was compared with anything.
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
            let told = findings(&apart);
            assert!(!told.iter().any(|f| f.text.contains(part)), "{what}: {told:#?}");
        }
    }
}

/// The newest run that compares is told, not a newer one that compares nothing.
#[test]
fn a_later_run_of_one_subject_leaves_the_comparison_of_an_earlier_one() {
    let of = |run: &str, subject: &str, ns: f64| {
        let record = samples::record("m", "heap.pairs", subject);
        let mut record = record.with("size_bytes", 64).with("threads", 1);
        record.samples = vec![ns];
        of_run(record.into(), run)
    };
    let lines = [of("a", "haul", 11.0), of("a", "libc", 20.0), of("b", "haul", 50.0)];
    let told = findings(&lines);
    assert!(only(&told, "and its free").text.contains("55% of what the fastest other, libc"));
    let sizes = [
        of_run(size("haul", 4096, 10.0), "a"),
        of_run(size("libc", 4096, 20.0), "a"),
        of_run(size("haul", 4096, 90.0), "b"),
    ];
    let told = findings(&sizes);
    assert_eq!(only(&told, "haul’s memcpy").tone, Tone::Better);
}
