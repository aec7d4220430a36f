//! The break-even sizes of engines in `haul.toml`.

use std::fs;
use std::path::Path;

use haul_machine::tuning::Tuning;

use crate::{Ran, haul, records_of, run};

fn file_of(machine: &str, engine: &str) -> String {
    format!("schema = \"haul.tuning/1\"\nmachine = \"{machine}\"\nwritten = \"w\"\n{engine}\n")
}

fn this_machine() -> String {
    run(&mut haul(&["doctor", "--json"])).expect(0).machine().id
}

/// The line of `haul engine list` about the helper thread.
fn worker(path: &Path) -> (String, Ran) {
    let ran = run(haul(&["engine", "list"]).env("HAUL_TUNING", path)).expect(0);
    let line = ran.out.lines().find(|line| line.starts_with("worker")).unwrap().to_owned();
    (line, ran)
}

fn bench(path: &Path, sizes: &str) -> Ran {
    let all = ["engine", "bench", "--engine", "worker", "--against", "none", "--budget", "1"];
    run(haul(&all).args(["--sizes", sizes, "--out-file", path.to_str().unwrap()]))
}

#[test]
fn sizes_of_the_file_are_in_force_and_wrong_ones_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("haul.toml");
    let machine = this_machine();
    let with = |machine: &str, value: &str| {
        fs::write(&path, file_of(machine, &format!("[engine.worker]\n{value}"))).unwrap();
        worker(&path)
    };
    let (line, ran) = with(&machine, "break_even = \"3 MiB\"");
    assert!(line.contains("3 MiB") && ran.err.is_empty(), "{ran:#?}");
    let (line, _) = with("another-machine", "break_even = \"3 MiB\"");
    assert!(line.contains("64 KiB"), "{line}");
    for (wrong, part) in [
        ("break_even = \"soon\"", "engine.worker.break_even"),
        ("break_even_busy = -1", "engine.worker.break_even_busy"),
        ("break_evne = 1", "engine.worker.break_evne"),
    ] {
        let (line, ran) = with(&machine, wrong);
        assert!(line.contains("64 KiB"), "{line}");
        assert_eq!(ran.err.lines().count(), 1, "{ran:#?}");
        ran.says(&["tuning file ignored", "haul.toml", part]);
    }
}

#[test]
fn bench_writes_the_sizes_and_keeps_the_rest_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("haul.toml");
    let copy = "[copy]\nstream_copy_min = \"48 MiB\"";
    fs::write(&path, file_of(&this_machine(), copy)).unwrap();
    let all = ["engine", "bench", "--engine", "worker", "--against", "none", "--budget", "2"];
    let sizes = ["--sizes", "64KiB,1MiB", "--busy-core", "0,1"];
    let ran = run(haul(&all).args(sizes).arg("--out-file").arg(&path)).expect(0);
    let tuning: Tuning = fs::read_to_string(&path).unwrap().parse().unwrap();
    assert_eq!(tuning.copy["stream_copy_min"], 48 << 20);
    let records = fs::read_to_string(folder.path().join("haul.engine.jsonl")).unwrap();
    let records = records_of(haul_model::parse(&records).unwrap());
    let worker_of = |record: &&haul_model::Record| record.subject == "worker";
    let is_disturbed = records.iter().filter(worker_of).any(haul_model::Record::is_disturbed);
    let Some(sizes) = tuning.engine else {
        assert!(is_disturbed, "{ran:#?}");
        assert!(ran.out.contains("was not written"), "{ran:#?}");
        return;
    };
    for size in [sizes.idle, sizes.busy] {
        assert!([64 << 10, 1 << 20, usize::MAX].contains(&size), "{sizes:?}");
    }
    let busy = |record: &haul_model::Record| record.count("busy_core") == Some(1);
    assert!(records.iter().filter(worker_of).any(busy), "{ran:#?}");
    assert_eq!(haul_experiments::engine::break_even::sizes(records.iter()), Some(sizes));
    assert_eq!(tuning.evidence.len(), usize::from(sizes.idle != usize::MAX), "{tuning}");
    assert!(tuning.evidence.iter().all(|it| it.records == "haul.engine.jsonl"), "{tuning}");
    assert!(ran.out.contains("To use it: export HAUL_TUNING="), "{ran:#?}");
    // The program accepts the file.
    assert_eq!(worker(&path).1.err, "");
}

#[test]
fn bench_leaves_a_file_that_it_cannot_extend() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("haul.toml");
    for (text, part) in [
        (file_of("another-machine", ""), "another-machine"),
        (
            file_of(&this_machine(), "[engine.worker]\nbreak_even = true"),
            "engine.worker.break_even",
        ),
    ] {
        fs::write(&path, &text).unwrap();
        bench(&path, "4KiB").expect(1).says(&[part]);
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "it measured first");
    }
    // Sizes that are too small to decide leave no file.
    fs::remove_file(&path).unwrap();
    let ran = bench(&path, "1KiB").expect(0);
    assert!(ran.out.contains("was not written"), "{ran:#?}");
    assert!(!path.exists());
}
