//! Findings on copies: the headline, sizes, the effect of haul.toml, and tuning.

use haul_model::Line;
use haul_report::{Tone, findings};

use crate::{distribution, only, samples, size};

#[test]
fn headline_is_a_geometric_mean() {
    let lines = [distribution("a", "l1", 0.5, 0.01), distribution("b", "l1", 0.98, 0.01)];
    let findings = findings(&lines);
    // sqrt(0.5 * 0.98) = 0.7
    let headline = &findings[0];
    assert_eq!(headline.tone, Tone::Better);
    assert!(headline.text.contains("haul saves 30% of libc’s time in memcpy"), "{}", headline.text);
    assert!(headline.text.contains("(−50% to −2.0% over 2 distributions)"), "{}", headline.text);
    assert!(headline.text.contains("data in L1"), "{}", headline.text);
}

/// Records with a reader of the copied bytes must not count in a sentence about calls alone. The
/// records of older files, which only say whether the first bytes were read, fall into the same
/// two kinds.
#[test]
fn sentence_combines_records_of_one_reader_only() {
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
    // Of two records of one measurement the newer counts, even if it has the newer form of the
    // parameter.
    let lines = [read(0.7, false.into()), read(0.5, "nothing".into())];
    assert!(findings(&lines)[0].text.contains("haul saves 50%"), "{:?}", findings(&lines));
}

/// The headline of a survey reports haul with its haul.toml and without it.
#[test]
fn headline_reports_the_effect_of_haul_toml() {
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
    assert_eq!(
        findings(&lines)[0].tone,
        Tone::Worse,
        "a loss without the file is reported as well"
    );
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

fn stream(program: &str, ratio: f64) -> Line {
    let mut record = samples::record("m", "copy.stream", "haul")
        .with("stream", program)
        .with("about", "a load")
        .with("call", "inline");
    record.samples = vec![10.0 * ratio];
    record.comparison = Some(samples::against("libc", ratio, 0.004, 0.01));
    record.into()
}

/// A loss in one program is not hidden by the mean, and a single call site does not count.
#[test]
fn streams_are_the_first_sentence_and_name_the_worst_loss() {
    let site = match stream("git", 2.0) {
        Line::Record(record) => Line::from(record.with("site", "git+0x1")),
        Line::Machine(_) => unreachable!("a stream is a record"),
    };
    let gains = [distribution("a", "l1", 0.5, 0.01), stream("git", 0.5), stream("tar", 0.98), site];
    let found = findings(&gains);
    assert_eq!(found[0].tone, Tone::Better);
    let text = &found[0].text;
    assert!(text.starts_with("As your programs call (2 streams), haul saves 30%"), "{text}");
    assert!(!text.contains("slower"), "{text}");
    let verdict = |lines: &[Line]| {
        let all = haul_report::verdicts(lines);
        all.into_iter().find(|it| it.experiment == "copy.stream").unwrap()
    };
    assert_eq!(verdict(&gains).question, "as your programs call: 2 streams");
    assert_eq!(verdict(&gains).course, [0.5, 0.98]);
    let lines = [stream("git", 0.5), stream("tar", 1.2), stream("node", 1.1)];
    let found = findings(&lines);
    assert_eq!(found[0].tone, Tone::Worse);
    let losses = "slower in 2 of 3, the worst is tar: 20% more time than libc";
    assert!(found[0].text.contains(losses), "{}", found[0].text);
    let verdict = verdict(&lines);
    assert!(verdict.tone == Tone::Worse && verdict.text.contains(losses), "{verdict:?}");
    assert!(verdict.action.contains("haul copy advise"), "{verdict:?}");
    let page = haul_report::html(&lines);
    assert!(page.contains("Copies as your programs call"), "no figure");
}

/// Sizes that repeat and targets that are read are regimes of their own: they do not count in the
/// sentence about random sizes, and a verdict names the worst loss among them.
#[test]
fn regime_in_which_haul_loses_is_named() {
    let of =
        |ratio: f64, branches: &str, read: &str| match distribution("service", "l1", ratio, 0.01) {
            Line::Record(record) => {
                Line::from(record.with("branches", branches).with("then_read", read))
            }
            Line::Machine(_) => unreachable!("a distribution is a record"),
        };
    let mut lines = vec![
        of(0.5, "random", "nothing"),
        of(0.7, "repeating", "nothing"),
        of(0.6, "random", "first"),
    ];
    let lost = |lines: &[Line]| {
        let all = haul_report::verdicts(lines);
        all.into_iter().find(|verdict| verdict.text.starts_with("slower"))
    };
    assert!(findings(&lines)[0].text.contains("haul saves 50%"), "{:?}", findings(&lines)[0]);
    assert_eq!(lost(&lines), None);
    lines.push(of(1.4, "repeating", "first"));
    assert!(findings(&lines)[0].text.contains("haul saves 50%"), "{:?}", findings(&lines)[0]);
    let of_libc = |branches, read, time| match of(1.0, branches, read) {
        Line::Record(mut record) => {
            (record.subject, record.samples) = ("libc".into(), vec![time]);
            Line::from(record)
        }
        Line::Machine(_) => unreachable!("a distribution is a record"),
    };
    lines.insert(0, of_libc("repeating", "first", 3.0));
    lines.push(of_libc("random", "nothing", 9.0));
    let services = haul_report::verdicts(&lines);
    let services = services.iter().find(|it| it.question == "memcpy, sizes that services copy");
    assert_eq!(services.unwrap().text, "2.0 times as fast as libc (5.00 ns and 9.00 ns)");
    let verdict = lost(&lines).unwrap();
    let question = "memcpy, sizes of service that repeat, first 8 bytes read next";
    assert_eq!((verdict.question.as_str(), verdict.tone), (question, Tone::Worse));
    assert_eq!(verdict.text, "slower: 40% more time than libc");
}

#[test]
fn gain_below_the_floor_is_no_difference() {
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
fn mean_has_the_floor_of_its_noisiest_part() {
    let lines = [distribution("a", "l1", 0.95, 0.01), distribution("b", "l1", 0.95, 0.06)];
    let findings = findings(&lines);
    assert_eq!(findings[0].tone, Tone::Unknown, "{}", findings[0].text);
    assert!(findings[0].text.contains("a quieter machine would settle it"), "{}", findings[0].text);
}

#[test]
fn loss_is_reported_with_its_place_and_a_remedy() {
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
fn headline_reports_a_loss() {
    let findings = findings(&[distribution("a", "l1", 1.2, 0.01)]);
    assert_eq!(findings[0].tone, Tone::Worse);
    assert!(
        findings[0].text.contains("haul takes 20% more time than libc"),
        "{}",
        findings[0].text
    );
}

#[test]
fn best_by_size_is_reported_in_ranges() {
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

/// By the medians of different rounds, haul takes twice as long. Round by round it takes a tenth
/// longer, which is below the noise floor.
#[test]
fn difference_hidden_by_noise_is_not_called_worse() {
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
    let found = only(&hidden, "haul’s memcpy");
    assert!(found.text.contains("noise") && !found.text.contains("farthest"), "{}", found.text);
    assert!(found.action.is_none());
    let plain = of_floor(0.01);
    let found = only(&plain, "haul’s memcpy");
    assert!(found.text.contains("where libc takes 9.1% less"), "{}", found.text);
}

#[test]
fn inlined_haul_and_haul_called_through_c_are_separate_subjects() {
    let called = distribution("a", "l1", 0.5, 0.01);
    let mut inlined = distribution("b", "l1", 0.9, 0.01);
    if let Line::Record(record) = &mut inlined {
        *record = record.clone().with("call", "inline");
    }
    // The two kinds of records are neither averaged nor counted together.
    let both = findings(&[called.clone(), inlined.clone()]);
    assert!(both[0].text.contains("saves 10%"), "{}", both[0].text);
    only(&both, "in none of 1 comparison");
    // An old record without the parameter counts like a new one with `c`.
    let mut said = distribution("a", "l1", 0.7, 0.01);
    if let Line::Record(record) = &mut said {
        *record = record.clone().with("call", "c");
        record.time = "2027-01-01T00:00:00Z".into();
    }
    let again = findings(&[called, said]);
    assert!(again[0].text.contains("saves 30%"), "{}", again[0].text);
}

#[test]
fn memory_limit_is_reported_with_hauls_share_of_it() {
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
    // A copy inside the caches is not compared with memory.
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
fn tuning_counts_only_in_the_check_phase() {
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
fn tuning_with_a_loss_is_not_marked_as_better() {
    let tuned = |size: u64, ratio: f64| -> Line {
        let mut record = samples::record("m", "copy.tune", "tuned")
            .with("phase", "check")
            .with("size_bytes", size);
        record.samples = vec![1.0];
        record.comparison = Some(samples::against("default", ratio, 0.002, 0.01));
        record.into()
    };
    let found = findings(&[tuned(100, 0.7), tuned(200, 0.7), tuned(300, 1.2)]);
    let finding = only(&found, "better in 2, worse in 1 of 3 cases");
    assert_eq!(finding.tone, Tone::Worse);
    assert!(finding.action.as_deref().is_some_and(|action| action.contains("sizes")));
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
fn classes_and_levels_are_reported_for_every_function() {
    let class = |function: &str, class: &str, ratio: f64| {
        of_function("copy.size_class", ("size_class", class), function, ratio)
    };
    let found = findings(&[
        class("memcpy", "0-16", 0.6),
        class("memcpy", "17-64", 0.7),
        class("memset", "0-16", 1.47),
        class("memset", "17-64", 1.0),
    ]);
    let finding = only(&found, "by size class, data in L1");
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
    let found = findings(&[
        at("memcpy", "l1", 0.8),
        at("memcpy", "l2", 0.9),
        at("memset", "l1", 1.3),
        at("memset", "l2", 1.2),
    ]);
    let finding = only(&found, "By where the data lies");
    assert_eq!(
        finding.text,
        "By where the data lies, on the same sizes, one thread: in memcpy L1 −20% and L2 −10%; in memset \
         L1 +30% and L2 +20%."
    );
    assert_eq!(finding.tone, Tone::Worse);
}

#[test]
fn tone_follows_the_worst_part_of_its_sentence() {
    let service = |function: &str, ratio: f64| {
        of_function("copy.distribution", ("distribution", "service"), function, ratio)
    };
    let lost = findings(&[service("memcpy", 0.95), service("memset", 1.66)]);
    let headline = only(&lost, "sizes a service copies");
    assert!(headline.text.contains("takes 66% more time than libc in memset"), "{}", headline.text);
    assert_eq!(headline.tone, Tone::Worse);

    let won = findings(&[service("memcpy", 0.95), service("memset", 1.0)]);
    assert_eq!(only(&won, "sizes a service copies").tone, Tone::Better);

    // The mean gains; one of its distributions loses, and is reported.
    let spread =
        findings(&[distribution("a", "l1", 0.5, 0.01), distribution("b", "l1", 1.1, 0.01)]);
    let headline = only(&spread, "over 2 distributions");
    assert!(headline.text.contains("to +10%"), "{}", headline.text);
    assert_eq!(headline.tone, Tone::Worse);
}
