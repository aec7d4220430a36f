//! `haul compare`: changes between two files of records, and what a script learns from it.

use std::fs;
use std::path::{Path, PathBuf};

use haul_model::{Comparison, Line, Record};

use crate::{haul, run, run_with_input};

/// A figure of haul and of libc beside it, as one run measured them.
fn of(run: &str, function: &str, haul_ns: f64, libc_ns: f64) -> Vec<Record> {
    let record = |subject: &str, median: f64, ratio: f64| {
        let mut record = Record::new(run, "copy.size", subject, "time", "ns")
            .with("function", function)
            .with("size_bytes", 4096)
            .with("version", run)
            .with("cpu_ns", median);
        record.machine = "m".into();
        record.time = "2026-01-31T12:00:00Z".into();
        record.samples = vec![median * 0.999, median, median * 1.001];
        let (ratio_low, ratio_high) = (ratio * 0.999, ratio * 1.001);
        let baseline = "libc".into();
        record.comparison =
            Some(Comparison { baseline, ratio, ratio_low, ratio_high, floor: 0.01 });
        record
    };
    vec![record("libc", libc_ns, 1.0), record("haul", haul_ns, haul_ns / libc_ns)]
}

fn file(folder: &Path, name: &str, records: Vec<Record>) -> PathBuf {
    let text: String =
        records.into_iter().map(|record| Line::from(record).to_json() + "\n").collect();
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path
}

/// memcpy became slower, memmove faster, and memset is 10% slower together with libc.
fn two_files(folder: &Path) -> [String; 2] {
    let old = [
        of("1", "memcpy", 50.0, 100.0),
        of("1", "memmove", 50.0, 100.0),
        of("1", "memset", 50.0, 100.0),
    ];
    let new = [
        of("2", "memcpy", 60.0, 100.0),
        of("2", "memmove", 40.0, 100.0),
        of("2", "memset", 55.0, 110.0),
    ];
    let path = |name, records: [Vec<Record>; 3]| {
        file(folder, name, records.concat()).to_str().unwrap().to_owned()
    };
    [path("old.jsonl", old), path("new.jsonl", new)]
}

#[test]
fn changes_are_told_losses_first() {
    let folder = tempfile::tempdir().unwrap();
    let [old, new] = two_files(folder.path());
    let ran = run(&mut haul(&["compare", &old, &new])).expect(0);
    let line = |part: &str| {
        let found = ran.out.lines().position(|line| line.contains(part));
        found.unwrap_or_else(|| panic!("{part}: {ran:#?}"))
    };
    assert!(line("memcpy") < line("memmove"), "{ran:#?}");
    assert!(ran.out.lines().nth(line("memcpy")).unwrap().contains("1.200"), "{ran:#?}");
    assert!(ran.out.contains("1 of 3 figures became slower, 1 faster; 1 stayed."), "{ran:#?}");
    let memset = ran.out.lines().find(|line| line.contains("memset"));
    assert!(memset.is_some_and(|line| line.contains("libc")), "of libc alone: {ran:#?}");
    let all = run(&mut haul(&["compare", &old, &new, "--all"])).expect(0).out;
    assert!(all.lines().any(|line| line.contains("memset") && line.contains("stayed")), "{all}");
}

#[test]
fn a_script_learns_by_the_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let [old, new] = two_files(folder.path());
    let ran = run(&mut haul(&["compare", &old, &new, "--fail-on", "slower"])).expect(1);
    ran.says(&["1 figure became slower", "--fail-on slower"]);
    run(&mut haul(&["compare", &old, &new, "--fail-on", "changed"])).expect(1).says(&["2 figures"]);
    let large = ["compare", &old, &new, "--fail-on", "slower", "--threshold", "25"];
    run(&mut haul(&large)).expect(0);
    run(&mut haul(&["compare", &old, &old, "--fail-on", "changed,missing"])).expect(0);
    let fewer = file(folder.path(), "fewer.jsonl", of("2", "memcpy", 50.0, 100.0));
    let fewer = fewer.to_str().unwrap();
    run(&mut haul(&["compare", &old, fewer])).expect(0);
    let missing = ["compare", &old, fewer, "--fail-on", "slower,missing"];
    run(&mut haul(&missing)).expect(1).says(&["4 figures", "old file alone"]);
    run(&mut haul(&["compare", &old, &new, "--fail-on", "everything"])).expect(2);
    run(&mut haul(&["compare", &old, &new, "--threshold", "-1"])).expect(2);
    run(&mut haul(&["compare", &old])).expect(2);
}

#[test]
fn a_page_a_table_and_records_say_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let [old, new] = two_files(folder.path());
    let packed = folder.path().join("old.jsonl.gz");
    let packed = packed.to_str().unwrap();
    run(&mut haul(&["report", &old, "--json", "--out", packed])).expect(0);
    let (page, table) = (folder.path().join("page.html"), folder.path().join("table.md"));
    let arguments = [
        "compare",
        packed,
        &new,
        "--json",
        "--out",
        page.to_str().unwrap(),
        "--export-markdown",
        table.to_str().unwrap(),
    ];
    let ran = run(&mut haul(&arguments)).expect(0);
    let records = ran.records();
    let changed = |change: &str| {
        records.iter().filter(|record| record.parameters["change"] == change).count()
    };
    // libc beside memset is slower as well, and no loss of what is compared.
    assert_eq!((records.len(), changed("slower"), changed("faster")), (6, 2, 1), "{ran:#?}");
    let slower = records.iter().find(|record| record.subject == "haul").unwrap();
    assert_eq!(slower.parameters["function"], "memcpy");
    assert!((slower.median().unwrap() - 1.2).abs() < 1e-9);
    assert_eq!(slower.parameters["old"], 50.0);
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("What changed") && page.contains("1 of 3 figures became slower"));
    let table = fs::read_to_string(table).unwrap();
    assert!(table.starts_with("| figure | subject |") && table.contains("| slower |"), "{table}");
    // The records alone make the page again.
    let again = run_with_input(&mut haul(&["report", "-"]), ran.out.as_bytes()).expect(0).out;
    assert!(again.contains("1 of 3 figures became slower"));
}

#[test]
fn files_that_cannot_be_compared_are_told_why() {
    let folder = tempfile::tempdir().unwrap();
    let [old, new] = two_files(folder.path());
    let text = fs::read_to_string(&new).unwrap();
    let elsewhere = folder.path().join("elsewhere.jsonl");
    fs::write(&elsewhere, text.replace("\"machine\":\"m\"", "\"machine\":\"n\"")).unwrap();
    let elsewhere = elsewhere.to_str().unwrap();
    run(&mut haul(&["compare", &old, elsewhere])).expect(1).says(&["--across-machines"]);
    run(&mut haul(&["compare", &old, elsewhere, "--across-machines"])).expect(0);
    let other = folder.path().join("other.jsonl");
    fs::write(&other, text.replace("copy.size", "copy.other")).unwrap();
    let other = other.to_str().unwrap();
    run(&mut haul(&["compare", &old, other])).expect(1).says(&["no figure is in both"]);
    // What an estimate counts is neither better nor worse, also beside itself.
    let terms = text.replace("\"time\",\"unit\":\"ns\"", "\"transaction\",\"unit\":\"bytes/s\"");
    fs::write(other, terms.replace("copy.size", "pcie.estimate")).unwrap();
    let ran = run(&mut haul(&["compare", other, other])).expect(1);
    ran.says(&["none of the 6 figures", "better or worse", "haul pcie explain"]);
    run(&mut haul(&["compare", &old, "/nonexistent/x"])).expect(1);
    fs::write(other, "nonsense").unwrap();
    run(&mut haul(&["compare", &old, other])).expect(1).says(&["other.jsonl:1: "]);
}

/// A page of two files shows both, and holds nothing of one against the other.
#[test]
fn a_report_makes_no_ratio_across_runs() {
    let folder = tempfile::tempdir().unwrap();
    // In each run alone nothing is compared: one has haul, the other has libc.
    let alone = |run: &str, index: usize| {
        let mut record = of(run, "memcpy", 50.0, 100.0).remove(index);
        record.comparison = None;
        vec![record]
    };
    let paths = [("a.jsonl", alone("1", 1)), ("b.jsonl", alone("2", 0))]
        .map(|(name, records)| file(folder.path(), name, records).to_str().unwrap().to_owned());
    let page = run(&mut haul(&["report", &paths[0], &paths[1]])).expect(0).out;
    assert!(page.contains("compared with anything"), "a sentence joins two runs");
    // Both in one run are compared.
    let records = [alone("1", 1), alone("1", 0)].concat();
    let path = file(folder.path(), "c.jsonl", records);
    let page = run(&mut haul(&["report", path.to_str().unwrap()])).expect(0).out;
    assert!(page.contains("within 3% of the best"), "nothing was compared within one run");
}
