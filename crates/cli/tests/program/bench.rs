//! `haul copy bench`: the names that checks rely on, and every wrong argument.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use haul_model::Record;
use haul_report::limit;

use crate::{Ran, haul, public_folder, run, run_with_input, unprivileged};

fn bench(arguments: &[&str]) -> Ran {
    let mut all = vec!["copy", "bench", "--json", "--budget", "0.2"];
    all.extend(arguments);
    run(&mut haul(&all))
}

#[track_caller]
fn record_of<'a>(records: &'a [Record], experiment: &str, subject: &str) -> &'a Record {
    let found = records.iter().find(|r| r.experiment == experiment && r.subject == subject);
    found.unwrap_or_else(|| panic!("no {experiment} of {subject}: {records:#?}"))
}

#[track_caller]
fn check_comparison(record: &Record) {
    assert_eq!((record.metric.as_str(), record.unit.as_str()), ("time", "ns"));
    let comparison = record.comparison.as_ref().unwrap();
    assert_eq!(comparison.baseline, "libc");
    assert!(comparison.ratio > 0.0 && comparison.floor >= 0.0);
    assert!(!record.samples.is_empty() && !record.run.is_empty() && !record.machine.is_empty());
}

#[test]
fn bench_records_distribution_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.csv");
    fs::write(&file, "0.25,0.25,0.0,0.5\n").unwrap();
    let ran = bench(&["--distribution", file.to_str().unwrap(), "--level", "l1"]).expect(0);
    ran.machine();
    let records = ran.records();
    let record = record_of(&records, "copy.distribution", "haul");
    check_comparison(record);
    assert_eq!(record.parameters["distribution"], "mine");
    assert_eq!(record.parameters["file"], file.to_str().unwrap());
    assert_eq!(record.parameters["level"], "l1");
    assert_eq!(record.parameters["threads"], 1);
    assert_eq!(record.parameters["function"], "memcpy");
    assert_eq!(record.parameters["call"], "inline");
    let called = record_of(&records, "copy.distribution", "haul-c");
    check_comparison(called);
    assert_eq!(called.parameters["call"], "c");
}

#[test]
fn bench_records_size_classes_and_sizes() {
    let ran = bench(&["--size-class", "0-16", "--function", "memset"]).expect(0);
    let records = ran.records();
    let record = record_of(&records, "copy.size_class", "haul");
    check_comparison(record);
    assert_eq!(record.parameters["size_class"], "0-16");
    assert_eq!(record.parameters["call"], "c");
    let inlined = record_of(&records, "copy.size_class", "haul-inline");
    assert_eq!(inlined.parameters["call"], "inline");

    let ran = bench(&["--sizes", "2KiB..4KiB"]).expect(0);
    let records = ran.records();
    for subject in ["haul", "scalar"] {
        check_comparison(record_of(&records, "copy.size", subject));
    }
    let sizes: Vec<u64> =
        records.iter().filter_map(|r| r.parameters["size_bytes"].as_u64()).collect();
    assert!(sizes.contains(&2048) && sizes.contains(&4096), "{sizes:?}");
}

#[test]
fn bench_hands_messages_to_another_processor() {
    let ran = bench(&["--handed", "--sizes", "4KiB,64KiB"]);
    if haul_machine::sys::Sys::new().topology().allowed.len() < 2 {
        ran.expect(2).says(&["2 threads"]);
        return;
    }
    let records = ran.expect(0).records();
    for size in [4096, 65_536] {
        let of_size: Vec<Record> =
            records.iter().filter(|r| r.parameters["size_bytes"] == size).cloned().collect();
        for subject in ["haul", "haul-inline"] {
            let record = record_of(&of_size, "copy.handed", subject);
            check_comparison(record);
            assert_eq!(record.parameters["level"], "other processor");
        }
    }
}

/// A size beyond a distribution's largest fits no level, so five levels are one measurement.
#[test]
fn bench_measures_large_size_once_and_only_named_kernels() {
    let ran = bench(&["--sizes", "2MiB", "--level", "all", "--kernel", "scalar"]).expect(0);
    let records = ran.records();
    let of_size: Vec<&Record> = records.iter().filter(|r| r.experiment == "copy.size").collect();
    let mut subjects: Vec<&str> = of_size.iter().map(|record| &*record.subject).collect();
    subjects.sort_unstable();
    assert_eq!(subjects, ["libc", "scalar"], "{records:#?}");
    assert!(of_size.iter().all(|record| record.parameters["level"] == "nearest"), "{records:#?}");
}

/// A user's file with the name of a built-in distribution is measured again as that file.
#[test]
fn bench_prefers_file_to_built_in_name() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("service.csv"), "0.5,0.5\n").unwrap();
    let arguments = ["copy", "bench", "--json", "--budget", "0.2", "--distribution", "service.csv"];
    let ran = run(haul(&arguments).current_dir(&folder)).expect(0);
    let page = run_with_input(&mut haul(&["report", "-"]), ran.out.as_bytes()).expect(0).out;
    assert!(page.contains("--distribution service.csv --level l1"), "no command to run it again");
    assert!(!page.contains("--distribution service --level"));
    assert!(!page.contains("On the sizes a service copies"));
}

/// Properties of calls other than their sizes can be named, and are recorded if they differ from
/// the default.
#[test]
fn bench_measures_branches_alignment_overlap_and_reading() {
    let default = ["--size-class", "17-64", "--function", "memmove"];
    let ran = bench(&default).expect(0);
    let record = record_of(&ran.records(), "copy.size_class", "haul").clone();
    assert_eq!(record.parameters["branches"], "random");
    assert!(!record.parameters.contains_key("misaligned"));
    let own = [
        "--branches",
        "repeating",
        "--then-read",
        "first",
        "--misaligned",
        "0.75",
        "--overlap",
        "0.5",
    ];
    let ran = bench(&[&default[..], &own].concat()).expect(0);
    let record = record_of(&ran.records(), "copy.size_class", "haul").clone();
    assert_eq!(record.parameters["branches"], "repeating");
    assert_eq!(record.parameters["then_read"], "first");
    assert_eq!(record.parameters["misaligned"], 0.75);
    assert_eq!(record.parameters["overlap"], 0.5);
    let page = run_with_input(&mut haul(&["report", "-"]), ran.out.as_bytes()).expect(0).out;
    assert!(
        page.contains("--branches repeating --then-read first --misaligned 0.75 --overlap 0.5")
    );
    for share in ["-0.1", "1.1", "NaN", "x"] {
        bench(&[&format!("--overlap={share}")]).expect(2).says(&["from 0 to 1"]);
    }
}

/// A single size takes branches and readers as drawn sizes do, at every level. The records name
/// both, and the page's command repeats them.
#[test]
fn bench_of_one_size_takes_branches_and_readers() {
    for branches in ["random", "repeating"] {
        // One run, because each run measures the memory limit for seconds.
        let own = ["--sizes", "8,128", "--then-read", "nothing,first", "--kernel", "haul"];
        let how = ["--branches", branches, "--level", "nearest,l1,cold"];
        let ran = bench(&[&own[..], &how].concat()).expect(0);
        let records = ran.records();
        for level in ["nearest", "l1", "cold"] {
            let is_of_level =
                |r: &&Record| r.experiment == "copy.size" && r.parameters["level"] == level;
            let sizes: Vec<&Record> = records.iter().filter(is_of_level).collect();
            assert_eq!(sizes.len(), 8, "two sizes, readers and subjects: {level}: {records:#?}");
            assert!(sizes.iter().all(|r| r.parameters["branches"] == branches), "{records:#?}");
        }
        let page = run_with_input(&mut haul(&["report", "-"]), ran.out.as_bytes()).expect(0).out;
        let shown = page.split("haul copy bench ").skip(1);
        let shown: Vec<&str> = shown.map(|rest| rest.split("--json").next().unwrap()).collect();
        for level in ["nearest", "l1", "cold"] {
            let is_it = |command: &str| {
                command.contains(&format!("--level {level} "))
                    && command.contains("--branches repeating --then-read first")
            };
            assert_eq!(shown.iter().any(|it| is_it(it)), branches == "repeating", "{shown:#?}");
        }
    }
    bench(&["--sizes", "64", "--branches", "none"]).expect(2).says(&["random or repeating"]);
}

/// Each named reader gives one comparison, both for drawn sizes and for single ones. The table
/// names the reader.
#[test]
fn bench_compares_several_readers() {
    let readers = ["--then-read", "nothing,first", "--then-read", "last,all,first"];
    for sizes in [["--size-class", "17-64"], ["--sizes", "2KiB"]] {
        let ran = bench(&[&sizes[..], &readers, &["--kernel", "scalar"]].concat()).expect(0);
        let records = ran.records().into_iter();
        let of_scalar =
            records.filter(|r| r.subject == "scalar" && r.experiment != "memory.bandwidth");
        let found: Vec<String> =
            of_scalar.map(|r| r.shown("then_read").unwrap_or_default()).collect();
        assert_eq!(found, ["nothing", "first", "last", "all"]);
    }
    let arguments = ["copy", "bench", "--budget", "0.1", "--then-read", "last"];
    let table = run(&mut haul(&arguments)).expect(0).out;
    assert!(table.contains("then read") && table.contains(" last "), "{table}");
    bench(&["--then-read", "some"]).expect(2).says(&["some", "nothing, first, last or all"]);
}

#[test]
fn table_shows_share_of_memory_limit() {
    let arguments = ["copy", "bench", "--sizes", "4KiB,8KiB", "--kernel", "scalar"];
    let ran = run(haul(&arguments).args(["--budget", "0.1"])).expect(0);
    for part in ["GB/s", "of limit", "4 KiB", "8 KiB", "%", " GB/s by copying"] {
        assert!(ran.out.contains(part), "{part}: {ran:#?}");
    }
    // Rates of memory are not times: a row for them once had the wrong unit and verdict.
    assert!(!ran.out.contains("64 MiB"), "{ran:#?}");
    let ran = bench(&["--sizes", "4KiB", "--function", "memset"]).expect(0);
    let records = ran.records();
    let fill = record_of(&records, "copy.size", "haul");
    let rate = limit::throughput(fill).unwrap();
    assert!((rate - 4096.0 / fill.median().unwrap()).abs() < 0.01, "{fill:#?}");
    assert!(limit::memory_limit(&records, fill).is_some_and(|limit| limit > 0.0), "{ran:#?}");
    assert!(
        !fill.parameters.contains_key("of_limit"),
        "a record holds what was measured: {fill:#?}"
    );
    let limits = ran.records().into_iter().filter(|r| r.experiment == "memory.bandwidth");
    let operations: Vec<_> = limits.map(|r| r.parameters["operation"].clone()).collect();
    assert!(!operations.is_empty() && operations.iter().all(|name| name == "write"), "{ran:#?}");
}

#[test]
fn bench_prints_table_with_verdicts() {
    let arguments = ["copy", "bench", "--size-class", "0-16", "--budget", "0.2"];
    let ran = run(&mut haul(&arguments)).expect(0);
    for part in ["ratio", "interval", "floor", "verdict", "0-16", "haul-inline"] {
        assert!(ran.out.contains(part), "{part}: {ran:#?}");
    }
    assert!(!ran.out.contains("haul.record"), "{ran:#?}");
}

#[test]
fn bench_answers_unknown_names_with_known_ones() {
    let kernel = ["--sizes", "4KiB", "--kernel", "sse9"];
    bench(&kernel).expect(2).says(&["sse9", "scalar", "libc", "haul"]);
    bench(&["--level", "l4"]).expect(2).says(&["l4", "l1, l2, llc, cold and mixed"]);
    bench(&["--function", "strcpy"]).expect(2).says(&["strcpy", "memcpy, memmove and memset"]);
    bench(&["--distribution", "no-such-sizes"]).expect(2).says(&["no-such-sizes", "service"]);
}

#[test]
fn bench_refuses_values_out_of_range() {
    for (arguments, part) in [
        (&["--size-class", "16"][..], "17-64"),
        (&["--size-class", "9-1"], "smaller size first"),
        (&["--size-class", "0-99999999999"], "1 MiB"),
        (&["--sizes", "0"], "smallest size is 1 B"),
        (&["--sizes", "-1"], "-1"),
        (&["--sizes", "8EiB"], "8EiB"),
        (&["--sizes", "18446744073709551615"], "smaller --sizes"),
        (&["--threads", "0"], "threads"),
        (&["--threads", "65535"], "--threads"),
    ] {
        bench(arguments).expect(2).says(&[part]);
    }
    for seconds in ["0", "-1", "NaN", "1e9"] {
        let arguments = ["copy", "bench", &format!("--budget={seconds}")];
        run(&mut haul(&arguments)).expect(2).says(&["from 1ms to 1h"]);
    }
}

#[test]
fn bench_refuses_size_beyond_memory() {
    let ran = bench(&["--sizes", "64,16TiB"]).expect(1);
    assert_eq!(ran.out, "", "something was measured before it");
    ran.says(&["cannot map 32.0 TiB", "GiB are available", "measure smaller sizes"]);
}

#[test]
fn bench_refuses_options_without_effect() {
    for (arguments, parts) in [
        (
            &["--sizes", "64", "--function", "memmove", "--overlap", "0.5"][..],
            ["--overlap", "drawn"],
        ),
        (&["--function", "memcpy", "--overlap", "0.5"], ["--overlap", "memmove"]),
    ] {
        bench(arguments).expect(2).says(&parts);
    }
}

#[test]
fn bench_names_fault_of_distribution_file() {
    let folder = tempfile::tempdir().unwrap();
    let check = |text: &[u8], parts: &[&str]| {
        let file = folder.path().join("bad.csv");
        fs::write(&file, text).unwrap();
        let mut all = parts.to_vec();
        all.extend(["bad.csv", "one line of probabilities"]);
        let ran = bench(&["--distribution", file.to_str().unwrap()]).expect(1).says(&all);
        assert!(ran.out.is_empty(), "it measured anyway: {ran:#?}");
    };
    check(b"", &["empty"]);
    check(b"\n", &["empty"]);
    check(b"0.5,0.25", &["sum to 0.75", "truncated"]);
    check(b"1.5,-0.5", &["-0.5", "below 0"]);
    check(b"0.9,0.9", &["sum to 1.8"]);
    check(b"NaN,1", &["finite"]);
    check(b"inf", &["finite"]);
    check(b"0.5,x", &["\"x\""]);
    check(b"0.5,0.5\n0.5,0.5", &["one line"]);
    check(b"0.5,\xff\xfe", &["not text"]);
}

#[test]
fn bench_refuses_irregular_distribution_without_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, mode).unwrap();
    let with = |path: &Path| bench(&["--distribution", path.to_str().unwrap()]).expect(1);
    with(&fifo).says(&["not a regular file"]);
    with(folder.path()).says(&["not a regular file"]);
    with(&folder.path().join("gone.csv")).says(&["cannot be read", "gone.csv"]);
    let turns = folder.path().join("turns");
    std::os::unix::fs::symlink(&turns, &turns).unwrap();
    with(&turns).says(&["cannot be read", "symbolic links"]);
    let mut command = haul(&["copy", "bench", "--distribution", "turns"]);
    run(command.current_dir(folder.path())).expect(1).says(&["cannot be read", "symbolic links"]);
    let mut command = haul(&["copy", "bench", "--distribution"]);
    command.arg(OsStr::from_bytes(b"bad\xff\xfename"));
    run(&mut command).expect(1).says(&["cannot be read", "bad", "name"]);
}

#[test]
fn bench_reports_unreadable_distribution_file() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, program) = public_folder();
    let file = folder.path().join("secret.csv");
    fs::write(&file, "1.0").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
    let arguments = ["copy", "bench", "--distribution", file.to_str().unwrap()];
    run(&mut unprivileged(&program, &arguments)).expect(1).says(&["secret.csv", "cannot be read"]);
}

#[test]
fn bench_ends_with_sentences_and_sorts_as_asked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("table.md");
    let arguments = ["copy", "bench", "--sizes", "64,8KiB", "--budget", "0.4"];
    let more = ["--export-markdown", path.to_str().unwrap()];
    let ran = run(&mut haul(&[&arguments[..], &more].concat())).expect(0);
    // The sentences of both sizes name the faster subject.
    for start in ["memcpy, 64 B, nearest: haul ", "memcpy, 8 KiB, nearest: haul "] {
        assert!(ran.out.lines().any(|line| line.starts_with(start)), "{start}: {ran:#?}");
    }
    let rows = |size: &str| -> Vec<(String, f64)> {
        let lines = ran.out.lines().filter(|line| line.starts_with(&format!("memcpy    {size}")));
        let words = lines.map(|line| line.split_whitespace().collect::<Vec<_>>());
        let ratio = |words: &[&str]| words.iter().rev().find_map(|w| w.parse().ok()).unwrap_or(0.0);
        words.map(|words| (words[5].to_owned(), ratio(&words))).collect()
    };
    let (small, large) = (rows("64 B"), rows("8 KiB"));
    // Kernels that bypass the caches are not measured at 64 B by default.
    let streams = |rows: &[(String, f64)]| rows.iter().any(|row| row.0.starts_with("stream"));
    assert!(!small.is_empty() && !streams(&small), "{small:?}");
    assert!(streams(&large), "{large:?}");
    let markdown = fs::read_to_string(&path).unwrap();
    assert!(markdown.starts_with("| function | sizes |"), "{markdown}");
    assert!(markdown.contains("\n- memcpy, 64 B, nearest: haul "), "{markdown}");
    let stream = if cfg!(target_arch = "x86_64") { "stream_sse2" } else { "stream_neon" };
    let named = ["--sizes", "64", "--kernel", stream, "--sort", "name"];
    let arguments = [&["copy", "bench", "--budget", "0.2"][..], &named].concat();
    let ran = run(&mut haul(&arguments)).expect(0);
    let (libc, stream) = (ran.out.find(" libc "), ran.out.find(&format!(" {stream} ")));
    assert!(libc.is_some() && libc < stream, "{ran:#?}");
    run(&mut haul(&["copy", "bench", "--sort", "luck"])).expect(2).says(&["fastest", "measured"]);
    let nowhere = ["copy", "bench", "--export-markdown", "/no/such/folder/t.md"];
    run(&mut haul(&nowhere)).expect(1).says(&["cannot write"]);
}

#[test]
fn sizes_have_one_name_in_all_commands() {
    for command in
        [&["copy", "bench"][..], &["heap", "bench"], &["channel", "bench"], &["channel", "explain"]]
    {
        let help = run(haul(command).arg("--help")).expect(0).out;
        assert!(help.contains("--sizes <SIZES>") && !help.contains("--size <"), "{help}");
        run(haul(command).args(["--sizes", "tall"])).expect(2).says(&["tall"]);
        run(haul(command).args(["--size", "64"])).expect(2).says(&["--size", "--sizes"]);
    }
}
