//! `haul compare`: changes between two files of records, and its exit codes.

use std::fs;
use std::path::{Path, PathBuf};

use haul_model::{Comparison, Line, Record};

use crate::{haul, run, run_with_input};

/// A figure of haul, and libc's figure from the same run.
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

/// memcpy needs more than twice the time, memmove less than half; memset needs a tenth more, as
/// libc's does.
fn two_files(folder: &Path) -> [String; 2] {
    let old = [
        of("1", "memcpy", 50.0, 100.0),
        of("1", "memmove", 50.0, 100.0),
        of("1", "memset", 50.0, 100.0),
    ];
    let new = [
        of("2", "memcpy", 120.0, 100.0),
        of("2", "memmove", 20.0, 100.0),
        of("2", "memset", 55.0, 110.0),
    ];
    let path = |name, records: [Vec<Record>; 3]| {
        file(folder, name, records.concat()).to_str().unwrap().to_owned()
    };
    [path("old.jsonl", old), path("new.jsonl", new)]
}

#[test]
fn table_lists_slower_figures_first() {
    let folder = tempfile::tempdir().unwrap();
    let [old, new] = two_files(folder.path());
    let ran = run(&mut haul(&["compare", &old, &new])).expect(0);
    let line = |part: &str| {
        let found = ran.out.lines().position(|line| line.contains(part));
        found.unwrap_or_else(|| panic!("{part}: {ran:#?}"))
    };
    assert!(line("memcpy") < line("memmove"), "{ran:#?}");
    assert!(ran.out.lines().nth(line("memcpy")).unwrap().contains("2.400"), "{ran:#?}");
    assert!(ran.out.contains("1 of 3 figures became slower, 1 faster; 1 stayed."), "{ran:#?}");
    assert!(!ran.out.contains("memset"), "it stayed, and baselines are not counted: {ran:#?}");
    let all = run(&mut haul(&["compare", &old, &new, "--all"])).expect(0).out;
    assert!(all.lines().any(|line| line.contains("memset") && line.contains("stayed")), "{all}");
}

#[test]
fn export_has_every_counted_figure() {
    let folder = tempfile::tempdir().unwrap();
    let [old, new] = two_files(folder.path());
    let of = |format: &str| {
        let ran = run(&mut haul(&["compare", &old, &new, "--export", format])).expect(0);
        ran.says(&["1 of 3 figures became slower"]).out
    };
    let list: serde_json::Value = serde_json::from_str(&of("json")).unwrap();
    let slower: Vec<_> =
        list.as_array().unwrap().iter().filter(|row| row["verdict"] == "slower").collect();
    assert_eq!((list.as_array().unwrap().len(), slower.len()), (3, 1), "{list}");
    assert!(slower[0]["name"].as_str().unwrap().contains("memcpy"), "{list}");
    let bencher: serde_json::Value = serde_json::from_str(&of("bencher")).unwrap();
    assert_eq!(bencher.as_object().unwrap().len(), 3, "{bencher}");
    assert!(of("markdown").starts_with("| what | verdict |") && of("github").contains("ratio"));
}

#[test]
fn exit_code_follows_fail_on() {
    let folder = tempfile::tempdir().unwrap();
    let [old, new] = two_files(folder.path());
    let ran = run(&mut haul(&["compare", &old, &new, "--fail-on", "slower"])).expect(1);
    ran.says(&["1 figure became slower", "--fail-on slower"]);
    run(&mut haul(&["compare", &old, &new, "--fail-on", "changed"])).expect(1).says(&["2 figures"]);
    let large = ["compare", &old, &new, "--fail-on", "slower", "--threshold", "150"];
    run(&mut haul(&large)).expect(0);
    run(&mut haul(&["compare", &old, &old, "--fail-on", "changed,missing"])).expect(0);
    let fewer = file(folder.path(), "fewer.jsonl", of("2", "memcpy", 50.0, 100.0));
    let fewer = fewer.to_str().unwrap();
    run(&mut haul(&["compare", &old, fewer])).expect(0);
    let missing = ["compare", &old, fewer, "--fail-on", "slower,missing"];
    run(&mut haul(&missing)).expect(1).says(&["4 figures", "only in the old runs"]);
    run(&mut haul(&["compare", &old, &new, "--fail-on", "everything"])).expect(2);
    run(&mut haul(&["compare", &old, &new, "--threshold", "-1"])).expect(2);
    run(&mut haul(&["compare", &old])).expect(2);
}

#[test]
fn page_table_and_records_agree() {
    let folder = tempfile::tempdir().unwrap();
    let [old, new] = two_files(folder.path());
    let packed = folder.path().join("old.jsonl.gz");
    let packed = packed.to_str().unwrap();
    run(&mut haul(&["report", &old, "--json", "--out-file", packed])).expect(0);
    let (page, table) = (folder.path().join("page.html"), folder.path().join("table.md"));
    let arguments = [
        "compare",
        packed,
        &new,
        "--json",
        "--out-file",
        page.to_str().unwrap(),
        "--export-markdown",
        table.to_str().unwrap(),
    ];
    let ran = run(&mut haul(&arguments)).expect(0);
    let records = ran.records();
    let changed = |change: &str| {
        records.iter().filter(|record| record.parameters["change"] == change).count()
    };
    // libc's memset also needs longer, but a baseline's loss is not counted.
    let counts = ["slower", "faster", "stayed", "cannot tell"].map(changed);
    assert_eq!((records.len(), counts), (6, [1, 1, 3, 1]), "{ran:#?}");
    let slower = records.iter().find(|record| record.subject == "haul").unwrap();
    assert_eq!(slower.parameters["function"], "memcpy");
    assert!((slower.median().unwrap() - 2.4).abs() < 1e-9);
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
fn compare_refuses_incomparable_files_with_reason() {
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
    // The counts of an estimate have no better direction, even compared with themselves.
    let terms = text.replace("\"time\",\"unit\":\"ns\"", "\"transaction\",\"unit\":\"bytes/s\"");
    fs::write(other, terms.replace("copy.size", "pcie.estimate")).unwrap();
    let ran = run(&mut haul(&["compare", other, other])).expect(1);
    ran.says(&["none of the 6 figures", "better direction", "haul pcie explain"]);
    run(&mut haul(&["compare", &old, "/nonexistent/x"])).expect(1);
    fs::write(other, "nonsense").unwrap();
    run(&mut haul(&["compare", &old, other])).expect(1).says(&["other.jsonl:1: "]);
}

/// A page of two files shows both, without a ratio between them.
#[test]
fn report_makes_no_ratio_across_runs() {
    let folder = tempfile::tempdir().unwrap();
    // Within each run there is no comparison: one run has haul, the other run has libc.
    let alone = |run: &str, index: usize| {
        let mut record = of(run, "memcpy", 50.0, 100.0).remove(index);
        record.comparison = None;
        vec![record]
    };
    let paths = [("a.jsonl", alone("1", 1)), ("b.jsonl", alone("2", 0))]
        .map(|(name, records)| file(folder.path(), name, records).to_str().unwrap().to_owned());
    let page = run(&mut haul(&["report", &paths[0], &paths[1]])).expect(0).out;
    assert!(page.contains("contain no comparison"), "a sentence joins two runs");
    // Within one run, the two subjects are compared.
    let records = [alone("1", 1), alone("1", 0)].concat();
    let path = file(folder.path(), "c.jsonl", records);
    let page = run(&mut haul(&["report", path.to_str().unwrap()])).expect(0).out;
    assert!(page.contains("within 3% of the best"), "nothing was compared within one run");
}

/// Three runs on each side with small differences; `longer` scales haul's time in the new runs.
fn three_of_each(folder: &Path, longer: f64) -> [Vec<String>; 2] {
    let side = |name: &str, longer: f64| -> Vec<String> {
        let runs = [0.997, 1.0, 1.004].into_iter().enumerate();
        let write = |(number, by): (usize, f64)| {
            let run = format!("{name}-{number}");
            let own = |function| of(&run, function, 50.0 * by * longer, 100.0);
            let records = ["memcpy", "memmove", "memset"].map(own).concat();
            file(folder, &format!("{run}.jsonl"), records).to_str().unwrap().to_owned()
        };
        runs.map(write).collect()
    };
    [side("old", 1.0), side("new", longer)]
}

fn compare_runs(sides: &[Vec<String>; 2], more: &[&str]) -> crate::Ran {
    let mut arguments = vec!["compare", "--old"];
    arguments.extend(sides[0].iter().map(String::as_str));
    arguments.push("--new");
    arguments.extend(sides[1].iter().map(String::as_str));
    run(haul(&arguments).args(more))
}

#[test]
fn three_runs_per_side_detect_five_percent() {
    let folder = tempfile::tempdir().unwrap();
    let sides = three_of_each(folder.path(), 1.05);
    let ran = compare_runs(&sides, &[]).expect(0);
    assert!(ran.out.contains("3 of 3 figures became slower, 0 faster; 0 stayed."), "{ran:#?}");
    compare_runs(&sides, &["--fail-on", "slower"]).expect(1).says(&["3 figures became slower"]);
    let same = three_of_each(folder.path(), 1.0);
    let ran = compare_runs(&same, &["--fail-on", "changed,cannot-tell"]).expect(0);
    assert!(ran.out.contains("0 of 3 figures became slower, 0 faster; 3 stayed."), "{ran:#?}");
    // One run on one side and three on the other side: the three runs give the spread.
    run(haul(&["compare", "--old", &sides[0][0], "--new"]).args(&sides[1])).expect(0);
    // The two ways to name files cannot be mixed, and one side alone is an error.
    run(haul(&["compare", &sides[0][0], "--new"]).args(&sides[1])).expect(2);
    run(haul(&["compare", "--old"]).args(&sides[0])).expect(2);
}

#[test]
fn single_runs_cannot_tell_five_percent_and_name_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let [old, new] = three_of_each(folder.path(), 1.10);
    let ran = run(&mut haul(&["compare", &old[1], &new[1], "--fail-on", "slower"])).expect(0);
    let expected = "0 of 3 figures became slower, 0 faster; 0 stayed, for 3 the runs cannot tell: three \
                    or more runs on both sides would decide them (--old A1 A2 A3 --new B1 B2 B3).";
    assert!(ran.out.contains(expected), "{ran:#?}");
    let of_it = ["compare", &old[1], &new[1], "--fail-on", "cannot-tell"];
    run(&mut haul(&of_it)).expect(1).says(&["3 figures are undecided"]);
}

/// Subjects that no program calls are compared if they are named.
#[test]
fn compare_leaves_out_kernels_and_tuner_unless_named() {
    let folder = tempfile::tempdir().unwrap();
    let with_more = |name: &str, longer: f64| -> String {
        let mut records = of(name, "memcpy", 50.0, 100.0);
        let mut kernel = records[1].clone();
        kernel.subject = "avx2".into();
        kernel.samples.iter_mut().for_each(|sample| *sample *= longer);
        let ratio = &mut kernel.comparison.as_mut().unwrap();
        (ratio.ratio, ratio.ratio_low) = (ratio.ratio * longer, ratio.ratio_low * longer);
        ratio.ratio_high *= longer;
        let mut tried = Record { experiment: "copy.tune".into(), ..kernel.clone() };
        tried.subject = "tuned".into();
        records.extend([kernel, tried]);
        file(folder.path(), name, records).to_str().unwrap().to_owned()
    };
    let (old, new) = (with_more("a.jsonl", 1.0), with_more("b.jsonl", 3.0));
    let of = |more: &[&str]| run(haul(&["compare", &old, &new]).args(more)).expect(0).out;
    let all = of(&[]);
    assert!(all.contains("0 of 1 figures became slower, 0 faster; 1 stayed."), "{all}");
    assert!(all.contains("2 are of subjects that no program calls and are left out"), "{all}");
    assert!(of(&["--subject", "avx2"]).contains("1 of 1 figures became slower"));
    assert!(of(&["--only", "copy.tune"]).contains("1 of 1 figures became slower"));
    assert!(of(&["--only", "copy"]).contains("0 of 1 figures became slower"));
    let nothing = ["compare", &old, &new, "--only", "heap"];
    run(&mut haul(&nothing)).expect(1).says(&["no figure is in both"]);
}

/// The page has the counts of the terminal, and the judgement of all of haul's copies.
#[test]
fn single_runs_judge_whole_part_on_page_and_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let side = |name: &str, longer: f64| -> String {
        let of_size = |size: u64| {
            let mut records = of(name, "memcpy", 50.0 * longer, 100.0);
            for record in &mut records {
                record.parameters.insert("size_bytes".into(), size.into());
            }
            records
        };
        let records = (1..=8).flat_map(of_size).collect();
        file(folder.path(), name, records).to_str().unwrap().to_owned()
    };
    let (old, new) = (side("a.jsonl", 1.0), side("b.jsonl", 1.05));
    let page = folder.path().join("page.html");
    let arguments = ["compare", &old, &new, "--out-file", page.to_str().unwrap()];
    let ran = run(&mut haul(&arguments)).expect(0);
    assert!(ran.out.contains("All of copy, 8 figures: slower, 1.050"), "{ran:#?}");
    let counts = "0 of 8 figures became slower, 0 faster; 0 stayed, for 8 the runs cannot tell";
    assert!(ran.out.contains(counts), "{ran:#?}");
    let page = fs::read_to_string(&page).unwrap();
    assert!(page.contains("Cannot tell: 8<") && page.contains("Baselines, not counted: 8<"));
    assert!(page.contains("Overall, haul became slower (all of copy, 8 figures): 1.050 times"));
    assert!(!page.contains("<h3>Slower:"), "no single figure is called slower");
    run(haul(&arguments).args(["--fail-on", "slower"])).expect(1);
    run(&mut haul(&["compare", &old, &old, "--fail-on", "changed"])).expect(0);
}
