//! `haul report`: pages, tables, and files that are not records.

use std::fs;

use haul_model::{Comparison, Line, Record};

use crate::survey::on_a_small_disk;
use crate::{haul, run, run_with_input};

fn record_line(subject: &str) -> String {
    let mut record = Record::new("run", "copy.size", subject, "time", "ns")
        .with("function", "memcpy")
        .with("size_bytes", 4096)
        .with("level", "mixed")
        .with("threads", 1);
    record.machine = "m".into();
    record.time = "2026-01-31T12:00:00Z".into();
    record.samples = vec![50.0, 51.0];
    record.comparison = Some(Comparison {
        baseline: "libc".into(),
        ratio: 0.9,
        ratio_low: 0.89,
        ratio_high: 0.91,
        floor: 0.01,
    });
    Line::from(record).to_json()
}

#[test]
fn report_makes_page_table_or_records() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.jsonl");
    fs::write(&file, format!("{}\n\n{}\n", record_line("haul"), record_line("avx2"))).unwrap();
    let file = file.to_str().unwrap();
    let page = run(&mut haul(&["report", file])).expect(0).out;
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    let table = run(&mut haul(&["report", file, "--csv"])).expect(0).out;
    assert_eq!(table.lines().count(), 3, "{table}");
    let records = run(&mut haul(&["report", file, "--json"])).expect(0).records();
    assert_eq!(records.len(), 2);

    let out = folder.path().join("page.html");
    let ran = run(&mut haul(&["report", file, "--out-file", out.to_str().unwrap()])).expect(0);
    assert_eq!(ran.out, "");
    assert_eq!(fs::read_to_string(&out).unwrap().trim_end(), page.trim_end());
    // An output never replaces its own input, under any name.
    let other = folder.path().join("other.html");
    std::os::unix::fs::symlink(file, &other).unwrap();
    for out in [file, other.to_str().unwrap()] {
        run(&mut haul(&["report", file, "--out-file", out])).expect(2).says(&["would be lost"]);
        run(&mut haul(&["compare", file, file, "--out-file", out]))
            .expect(2)
            .says(&["would be lost"]);
    }
    assert!(fs::read_to_string(file).unwrap().starts_with('{'));
}

/// Compact, packed, and read again: the same medians and ratios in a hundredth of the size.
#[test]
fn compact_records_give_same_page_in_less_room() {
    let folder = tempfile::tempdir().unwrap();
    let full = folder.path().join("full.jsonl");
    let many: Vec<String> = (0..1001).map(|i| format!("{}.{i:04}", 50 + i * 7 % 11)).collect();
    let many = many.join(",");
    let lines =
        ["haul", "avx2"].map(|name| record_line(name).replace("50.0,51.0", &many)).join("\n");
    fs::write(&full, &lines).unwrap();
    let full = full.to_str().unwrap();
    let plain = run(&mut haul(&["report", full, "--compact"])).expect(0);
    let out = folder.path().join("small.jsonl.gz");
    let out = out.to_str().unwrap();
    run(&mut haul(&["report", full, "--compact", "--out-file", out])).expect(0);
    let packed = fs::read(out).unwrap();
    assert!(packed.len() * 20 < lines.len(), "{} of {} B", packed.len(), lines.len());
    let read = run(&mut haul(&["report", out, "--json"])).expect(0);
    assert_eq!(read.out, plain.out);
    let piped = run_with_input(&mut haul(&["report", "-", "--json"]), &packed).expect(0);
    assert_eq!(piped.out, plain.out);
    let records = read.records();
    let whole = run(&mut haul(&["report", full, "--json"])).expect(0).records();
    for (record, whole) in records.iter().zip(&whole) {
        assert_eq!((record.samples.len(), record.samples_count()), (5, 1001));
        assert_eq!((record.median(), &record.comparison), (whole.median(), &whole.comparison));
    }
    fs::write(out, &packed[..packed.len() / 2]).unwrap();
    run(&mut haul(&["report", out])).expect(1).says(&["cannot unpack", "small.jsonl.gz"]);
    run(&mut haul(&["report", full, "--compact", "--csv"])).expect(2);
}

#[test]
fn report_warns_of_records_without_sample() {
    let empty = record_line("haul").replace("[50.0,51.0]", "[]");
    assert!(empty.contains("\"samples\":[]"), "{empty}");
    let input = format!("{empty}\n{}\n", record_line("avx2"));
    let ran = run_with_input(&mut haul(&["report", "-", "--csv"]), input.as_bytes()).expect(0);
    ran.says(&["1 of 2 line", "without a sample"]);
}

#[test]
fn report_reads_standard_input() {
    let input = record_line("haul");
    let ran = run_with_input(&mut haul(&["report", "-"]), input.as_bytes()).expect(0);
    assert!(ran.out.starts_with("<!doctype html>"));
}

#[test]
fn invalid_line_is_named_by_file_and_number() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.jsonl");
    let path = file.to_str().unwrap();
    let good = record_line("haul");
    for (text, line) in [
        (format!("{good}\n{{]\n").into_bytes(), 2),
        (format!("{good}\n\n{}\n{good}\n", &good[..40]).into_bytes(), 3),
        (format!("{}\n{}", &good[..40], &good[..40]).into_bytes(), 1),
        (good.as_bytes()[..40].to_vec(), 1),
        (b"{\"schema\":\"haul.record/9\"}".to_vec(), 1),
        (b"\xff\xfe".to_vec(), 1),
    ] {
        fs::write(&file, text).unwrap();
        run(&mut haul(&["report", path])).expect(1).says(&[&format!("{path}:{line}: ")]);
    }
    run_with_input(&mut haul(&["report", "-"]), b"nonsense").expect(1).says(&["-:1: "]);
}

#[test]
fn truncated_last_line_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.jsonl");
    let path = file.to_str().unwrap();
    let (good, other) = (record_line("haul"), record_line("libc"));
    for end in ["", "\n", "\n\n"] {
        fs::write(&file, format!("{good}\n\n{other}\n{}{end}", &good[..good.len() / 2])).unwrap();
        let ran = run(&mut haul(&["report", path, "--json"])).expect(0);
        assert_eq!(ran.records().len(), 2);
        assert_eq!(ran.err.matches("warning").count(), 1, "{ran:#?}");
        ran.says(&[&format!("{path}:4: "), "cut off", "the 2 lines before it"]);
    }
}

/// A disk is full at a byte, not at a character.
#[test]
fn last_line_truncated_within_a_character_is_ignored() {
    let good = record_line("µ");
    let within = good.find('µ').unwrap() + 1;
    let text = [good.as_bytes(), b"\n", &good.as_bytes()[..within]].concat();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.jsonl");
    fs::write(&file, &text).unwrap();
    for (path, input) in [(file.to_str().unwrap(), &b""[..]), ("-", &text)] {
        let ran = run_with_input(&mut haul(&["report", path, "--json"]), input).expect(0);
        assert_eq!(ran.records()[0].subject, "µ");
        ran.says(&[&format!("{path}:2: "), "cut off", "the 1 lines before it"]);
    }
}

#[test]
fn report_refuses_missing_files_and_files_without_records() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.jsonl");
    fs::write(&empty, "\n").unwrap();
    let report = |path: &std::path::Path| run(&mut haul(&["report", path.to_str().unwrap()]));
    report(&empty).expect(1).says(&["empty.jsonl", "holds no record"]);
    report(folder.path()).expect(1).says(&["is a directory"]);
    report(&folder.path().join("gone")).expect(1).says(&["gone", "check the path"]);
}

#[test]
fn report_refuses_unwritable_path() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.jsonl");
    fs::write(&file, record_line("haul")).unwrap();
    let out = folder.path().join("no/such/page.html");
    let arguments = ["report", file.to_str().unwrap(), "--out-file", out.to_str().unwrap()];
    run(&mut haul(&arguments)).expect(1).says(&["no/such", "create the folder"]);
}

/// The page is written as a shell's `>` writes: through links, and into devices.
#[test]
fn page_is_written_through_links_and_into_devices() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.jsonl");
    fs::write(&file, record_line("haul")).unwrap();
    let report = |out: &std::path::Path| {
        let arguments = ["report", file.to_str().unwrap(), "--out-file", out.to_str().unwrap()];
        run(&mut haul(&arguments)).expect(0)
    };
    let link = |name: &str, target: &str| {
        let link = folder.path().join(name);
        std::os::unix::fs::symlink(target, &link).unwrap();
        link
    };
    // All paths are links of this test: if one were replaced, no system file would be harmed.
    let null = link("null", "/dev/null");
    assert_eq!(report(&null).out, "");
    assert!(null.is_symlink());
    let output = link("output", "/dev/stdout");
    assert!(report(&output).out.starts_with("<!doctype html>"));
    assert!(output.is_symlink());
    let page = link("page.html", "real.html");
    report(&page);
    assert!(page.is_symlink());
    let real = fs::read_to_string(folder.path().join("real.html")).unwrap();
    assert!(real.starts_with("<!doctype html>"));
}

#[test]
fn page_needs_only_its_own_room() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.jsonl");
    fs::write(&file, record_line("haul")).unwrap();
    let script = format!("exec $HAUL report {} --out-file $DISK/page.html", file.display());
    let Some((ran, ..)) = on_a_small_disk(4 << 10, &script) else { return };
    ran.expect(0);
    let Some((ran, ..)) = on_a_small_disk(64, &script) else { return };
    ran.expect(1).says(&["page.html", "make room"]);
}
