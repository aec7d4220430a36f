//! The rows of the first screen: question, answer, action, losses first.

use haul_model::{Line, Record};
use haul_report::{Tone, missing, verdicts};

use crate::samples;

/// A comparison of haul with libc on the sizes that services copy.
fn service(function: &str, ratio: f64) -> Line {
    let mut record = samples::record("m", "copy.distribution", "haul")
        .with("function", function)
        .with("distribution", "service")
        .with("level", "l1")
        .with("threads", 1);
    record.samples = vec![10.0 * ratio];
    record.comparison = Some(samples::against("libc", ratio, 0.01, 0.02));
    record.into()
}

fn heap(subject: &str, metric: &str, round: Option<u64>, value: f64) -> Line {
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

fn transfer(subject: &str, size: u64, rate: f64) -> Line {
    let mut record = Record::new("run", "channel.transfer", subject, "throughput", "GB/s")
        .with("size_bytes", size)
        .with("target", "warm")
        .with("busy_core", 0);
    record.machine = "m".into();
    record.samples = vec![rate; 3];
    record.into()
}

/// A transfer while the bench keeps `busy` processors busy, and other programs `others`.
fn transfer_beside(subject: &str, rate: f64, busy: u8, others: f64) -> Line {
    let Line::Record(record) = transfer(subject, 64, rate) else { panic!("a record") };
    record.with("busy_core", busy).with("others_processors", others).into()
}

#[test]
fn transfer_names_its_load_and_other_programs_give_no_advice() {
    let cases = [
        (0, 0.01, ", both processors free", "pipe at these sizes"),
        (
            1,
            0.01,
            ", one of two processors busy",
            "pipe at these sizes, where a processor stays busy",
        ),
        (0, 0.97, ", other programs running", "measure again while nothing else runs"),
        (1, 0.97, ", other programs running", "measure again while nothing else runs"),
    ];
    for (busy, others, case, action) in cases {
        let lines = [("haul:auto", 0.1), ("pipe", 0.23)]
            .map(|(subject, rate)| transfer_beside(subject, rate, busy, others));
        let rows = verdicts(&lines);
        assert!(rows[0].text.contains("2.3 times the time of pipe"), "{}", rows[0].text);
        assert!(rows[0].question.ends_with(case), "{}", rows[0].question);
        assert!(rows[0].action.starts_with(action), "{}", rows[0].action);
        assert_eq!(rows[0].action.contains("pipe"), others < 0.5, "{}", rows[0].action);
    }
}

#[test]
fn sizes_of_one_run_under_different_loads_are_separate_rows() {
    let mut lines: Vec<Line> = Vec::new();
    for (subject, rate) in [("haul:auto", 1.0), ("pipe", 0.5)] {
        lines.push(transfer_beside(subject, rate, 0, 0.0));
    }
    for (subject, rate) in [("haul:auto", 0.1), ("pipe", 0.23)] {
        let Line::Record(record) = transfer_beside(subject, rate, 0, 0.9) else { panic!() };
        lines.push(record.with("size_bytes", 4096).into());
    }
    let rows = verdicts(&lines);
    let questions: Vec<&str> = rows.iter().map(|row| row.question.as_str()).collect();
    let free = "messages to another process of 64 B, both processors free";
    assert!(questions.contains(&free), "{questions:?}");
    let beside = "messages to another process of 4 KiB, into warm memory, other programs running";
    assert!(questions.contains(&beside), "{questions:?}");
}

#[test]
fn losses_come_first_and_are_marked_as_losses() {
    let lines = [service("memcpy", 0.5), service("memmove", 1.0), service("memset", 1.25)];
    let rows = verdicts(&lines);
    let texts: Vec<(&str, &str, Tone)> =
        rows.iter().map(|row| (row.question.as_str(), row.text.as_str(), row.tone)).collect();
    let sizes = "sizes that services copy";
    assert_eq!(texts[0].0, format!("memset, {sizes}"), "{texts:?}");
    assert_eq!((texts[0].1, texts[0].2), ("25% more time than libc", Tone::Worse));
    assert_eq!(rows[0].action, "keep libc’s memset");
    // The worst of all comparisons, as its own row.
    assert!(texts[1].0.contains("lose") && texts[1].2 == Tone::Worse, "{texts:?}");
    assert_eq!(texts[2].0, format!("memcpy, {sizes}"));
    assert_eq!((texts[2].1, texts[2].2), ("2.0 times as fast as libc", Tone::Better));
    assert!(rows[2].action.contains("`haul_memcpy`"), "{}", rows[2].action);
    assert_eq!((texts[3].1, texts[3].2), ("as fast as libc", Tone::Same));
    assert_eq!(rows[3].action, "nothing");
}

#[test]
fn heap_is_compared_with_the_fastest_other_and_growth_is_a_loss() {
    let of = |grown: f64| {
        let rounds = [(1, 20.0), (2, 20.0 * grown)];
        let mut lines: Vec<Line> = rounds
            .iter()
            .map(|(round, time)| heap("haul", "alloc_time", Some(*round), *time))
            .collect();
        lines.push(heap("haul", "growth", None, grown));
        for (subject, time) in [("libc", 200.0), ("dpdk", 2000.0)] {
            lines.push(heap(subject, "alloc_time", Some(2), time));
            lines.push(heap(subject, "growth", None, 1.0));
        }
        verdicts(&lines).remove(0)
    };
    let flat = of(1.0);
    assert_eq!(flat.question, "blocks of 4 KiB aligned to 4 KiB");
    assert_eq!(flat.text, "20.0 ns a block: 10 times as fast as libc, 100 times as fast as dpdk");
    assert_eq!((flat.tone, flat.course), (Tone::Better, vec![0.1, 0.1]));
    let grown = of(4.0);
    assert_eq!(grown.tone, Tone::Worse);
    assert!(grown.text.ends_with("4.00 times as long in the last round as in the first"));
}

#[test]
fn transfers_are_compared_only_with_the_best_other_transfer() {
    let lines = [
        transfer("haul:auto", 64, 1.0),
        transfer("pipe", 64, 0.5),
        transfer("haul:auto", 1 << 20, 12.0),
        transfer("haul:ring", 1 << 20, 13.0),
        transfer("mpi", 1 << 20, 6.0),
        transfer("pipe", 1 << 20, 3.0),
        transfer("memcpy", 1 << 20, 20.0),
        transfer("haul:auto", 1 << 24, 4.0),
        transfer("mpi", 1 << 24, 5.0),
    ];
    let rows = verdicts(&lines);
    assert_eq!(rows[0].question, "bulk data to another process of 1 MiB to 16 MiB");
    let text =
        "12.0 GB/s at 1 MiB, 2.0 times as fast as mpi; slower at 16 MiB: 25% more time than mpi";
    assert_eq!((rows[0].text.as_str(), rows[0].tone), (text, Tone::Worse));
    assert_eq!(rows[1].text, "1.00 GB/s at 64 B, 2.0 times as fast as pipe");
    assert_eq!(rows[1].tone, Tone::Better);
    // None of haul's mechanisms is better at these sizes.
    assert_eq!(rows[0].action, "mpi at these sizes");
}

#[test]
fn lost_transfer_names_the_winning_mechanism() {
    let mut lines = vec![
        transfer("haul:auto", 1 << 20, 4.0),
        transfer("haul:pull", 1 << 20, 6.0),
        transfer("haul:lease", 1 << 20, 9.0),
        transfer("mpi", 1 << 20, 5.0),
    ];
    let action = |lines: &[Line]| verdicts(lines).remove(0).action;
    let otherwise = "`haul survey`: its haul.toml chooses by size (here pull)";
    assert_eq!(action(&lines), otherwise);
    lines.push(samples::record("m", "memory.bandwidth", "haul").into());
    let Some(Line::Record(last)) = lines.last_mut() else { unreachable!() };
    last.samples = vec![10.0];
    assert_eq!(action(&lines), "`Settings::mechanism` at these sizes: pull");
}

/// haul's or another switch's rate in a flow, compared with testpmd's.
fn forwarded(run: &str, subject: &str, metric: &str, size: u64, rate: f64) -> Record {
    let copy = if subject == "haul" { "haul" } else { "rte_memcpy" };
    let mut record = Record::new(run, "forward.pvp", subject, metric, "packets/s")
        .with("size_bytes", size)
        .with("layout", "split")
        .with("copy", copy);
    record.machine = "m".into();
    record.samples = vec![rate];
    record
}

#[test]
fn vm_packets_are_compared_with_the_fastest_other_switch() {
    let mut own = forwarded("r1", "haul", "rate_peak", 64, 11e6);
    own.comparison = Some(samples::against("testpmd", 1.2, 0.01, 0.02));
    let mut large = forwarded("r2", "haul", "rate_peak", 1500, 4e6);
    large.comparison = Some(samples::against("testpmd", 0.8, 0.01, 0.02));
    let ndr = forwarded("r1", "haul", "rate_ndr", 64, 9e6);
    let others = [
        forwarded("r1", "testpmd", "rate_peak", 64, 9.2e6),
        forwarded("r1", "ovs", "rate_peak", 64, 6e6),
        forwarded("r2", "testpmd", "rate_peak", 1500, 5e6),
    ];
    let all = |own: &[&Record]| -> Vec<Line> {
        own.iter().copied().chain(&others).cloned().map(Line::from).collect()
    };
    let row = verdicts(&all(&[&own, &ndr])).remove(0);
    assert_eq!(row.question, "a VM’s packets, 64 B");
    assert_eq!(
        (row.text.as_str(), row.tone),
        (
            "11.0 Mpps at 64 B, 1.20 times as fast as testpmd; 9.00 Mpps without loss (NDR)",
            Tone::Better
        )
    );
    assert!(row.action.contains("`haul forward --port vhost"), "{}", row.action);
    let row = verdicts(&all(&[&own, &large])).remove(0);
    assert_eq!((row.question.as_str(), row.tone), ("a VM’s packets, 64 to 1500 B", Tone::Worse));
    assert!(row.text.ends_with("testpmd; 20% slower than testpmd at 1500 B"), "{}", row.text);
    assert_eq!(row.action, "stay with testpmd at the sizes that lose");
    assert_eq!(row.course, [1.0 / 1.2, 1.25]);
}

#[test]
fn vm_packets_without_other_switch_are_compared_with_libcs_copy() {
    let own = forwarded("r", "haul", "rate_peak", 64, 11e6);
    let mut gain = forwarded("r", "haul", "copy_gain", 64, 1.0);
    gain.comparison = Some(samples::against("libc", 1.005, 0.01, 0.02));
    let mut lines = [Line::from(own), gain.into()];
    let row = verdicts(&lines).remove(0);
    let text = "11.0 Mpps at 64 B, as fast as with libc’s copy";
    assert_eq!((row.text.as_str(), row.tone), (text, Tone::Same));
    let command = "haul forward pvp --switch haul,testpmd --guest testpmd";
    assert!(row.action.contains(command), "{}", row.action);
    let remedy = |lines: &[Line]| -> &str {
        let testpmd = missing(lines).into_iter().find(|each| each.what == "testpmd");
        testpmd.expect("it is missing").command
    };
    assert_eq!(remedy(&lines), format!("apt-get install dpdk-dev; {command}"));
    let Line::Record(record) = &mut lines[0] else { unreachable!() };
    record.parameters.insert("installed".into(), "testpmd".into());
    assert_eq!(remedy(&lines), command, "it is there");
}

#[test]
fn missing_comparison_is_named_with_its_command() {
    let of = |lines: &[Line]| -> Vec<&str> {
        missing(lines).into_iter().map(|each| each.what).collect()
    };
    let mut lines = vec![heap("haul", "growth", None, 1.0), heap("dpdk", "growth", None, 1.0)];
    assert_eq!(of(&lines), ["mimalloc", "jemalloc", "tcmalloc"]);
    lines.extend(["mimalloc", "jemalloc", "tcmalloc"].map(|name| heap(name, "growth", None, 1.0)));
    assert_eq!(of(&lines), [""; 0]);
    let survey = samples::survey("m1", "Sample CPU");
    let command = |what: &str| {
        missing(&survey).into_iter().find(|each| each.what == what).map(|each| each.command)
    };
    assert_eq!(command("what a program of yours allocates"), Some("haul heap record -- CMD"));
    let field = command("whether haul’s copies make a program of yours faster");
    assert_eq!(field, Some("haul field --change copy -- CMD"));
    assert_eq!(command("transfers to another process"), Some("haul channel bench"));
    assert_eq!(of(&[]), [""; 0]);
}

#[test]
fn noise_that_hides_differences_has_a_row() {
    let mut lines = vec![service("memcpy", 0.5)];
    let Line::Record(record) = &mut lines[0] else { unreachable!() };
    record.comparison = Some(samples::against("libc", 0.5, 0.01, 0.08));
    let rows = verdicts(&lines);
    assert_eq!(rows[0].question, "whether to trust these figures");
    assert!(rows[0].text.starts_with("noise of 8.0%"), "{}", rows[0].text);
    assert!(rows[0].action.contains("`haul doctor`"));
}

/// A haul.toml with gains and losses is not reported as worse than the defaults.
#[test]
fn haul_toml_is_to_be_removed_only_if_it_costs() {
    let action = |ratios: &[f64]| {
        let lines: Vec<Line> = ratios
            .iter()
            .zip(0..)
            .map(|(&ratio, index)| {
                let mut record = samples::record("m", "copy.tune", "tuned")
                    .with("phase", "check")
                    .with("size_bytes", 100_u64 << index);
                record.samples = vec![1.0];
                record.comparison = Some(samples::against("default", ratio, 0.002, 0.01));
                record.into()
            })
            .collect();
        verdicts(&lines).remove(0).action
    };
    assert!(action(&[0.9, 0.9]).contains("cp haul.toml"));
    assert!(action(&[0.8, 1.1]).starts_with("keep it if"));
    assert!(action(&[0.952, 1.05]).contains("unless your sizes are among those that gain"));
    for losing in [[1.1, 1.1], [1.0, 1.02]] {
        assert_eq!(action(&losing), "remove it: the defaults are better", "{losing:?}");
    }
}
