//! `haul copy bench --stream`: the calls of a recorded program, replayed.

use std::fs;
use std::path::Path;

use haul_model::Record;
use haul_model::stream::{Call, Function, Header, Read, ReadsBy, Site, Stream, TimeClass};

use crate::{haul, run, run_with_input};

/// Writes a stream of 3,000 calls from three sites, of which the first is a reader.
pub(crate) fn write_stream(path: &Path, program: &str) {
    let site = |offset, read_soon| Site {
        module: program.into(),
        offset,
        symbol: Some("work".into()),
        sampled: 10,
        read_soon,
    };
    let call = |at: u32| {
        let (function, source) = match at % 3 {
            0 => (Function::Memcpy, Some(8192 + at)),
            1 => (Function::Memmove, Some(100 + at)),
            _ => (Function::Memset { zero: true }, None),
        };
        let (site, size, since) = ((at % 3) as u16, 1 + at * 7 % 200, TimeClass::of_ns(9));
        Call { function, site, size, target: at, source, since, read: Read::Unknown }
    };
    let header = Header {
        program: program.into(),
        about: "a test".into(),
        time: "2026-11-27T06:00:00Z".into(),
        machine: "test".into(),
        libc: "glibc 2.36".into(),
        thread: 0,
        process_calls: 3000,
        thread_calls: 3000,
        skipped: 0,
        left_out: 0,
        reads_by: ReadsBy::Breakpoint,
        pages: 4,
    };
    let sites = vec![site(0x10, 9), site(0x20, 0), site(0x30, 1)];
    let stream = Stream { header, sites, calls: (0..3000).map(call).collect() };
    fs::write(path, stream.write().unwrap()).unwrap();
}

fn bench(arguments: &[&str], folder: &Path) -> crate::Ran {
    let start = ["copy", "bench", "--json", "--budget", "0.2"];
    run(haul(&start).args(arguments).current_dir(folder))
}

#[test]
fn bench_replays_stream_with_every_subject() {
    let folder = tempfile::tempdir().unwrap();
    write_stream(&folder.path().join("redis.stream"), "redis-server");
    let ran = bench(&["--stream", "redis.stream"], folder.path()).expect(0);
    let records = ran.records();
    let subjects: Vec<&str> = records.iter().map(|record| record.subject.as_str()).collect();
    assert_eq!(subjects, ["libc", "haul", "haul-c", "empty"]);
    for record in &records {
        assert_eq!(record.experiment, "copy.stream");
        assert_eq!(record.parameters["stream"], "redis-server");
        assert_eq!(record.parameters["calls"], 3000);
        assert_eq!(record.parameters["arena_bytes"], 4 * 4096);
        assert_eq!(record.parameters["read_share"], 0.3333);
        let comparison = record.comparison.as_ref().unwrap();
        assert!(comparison.baseline == "libc" && comparison.ratio > 0.0, "{record:?}");
    }
    assert!(ran.out.contains("\"ratio\":"), "{ran:#?}");
    let page = run_with_input(&mut haul(&["report", "-"]), ran.out.as_bytes()).expect(0).out;
    assert!(page.contains("haul copy bench --stream redis.stream"), "no command to run it again");
}

#[test]
fn bench_replays_every_stream_of_folder_with_named_kernels() {
    let folder = tempfile::tempdir().unwrap();
    for program in ["b", "a"] {
        write_stream(&folder.path().join(format!("{program}.stream")), program);
    }
    fs::write(folder.path().join("README.md"), "not a stream").unwrap();
    // rep_movsb has no fill.
    let kernels = ["--kernel", "scalar", "--kernel", "haul-c"];
    let ran = bench(&[&["--stream", "."], &kernels[..]].concat(), folder.path()).expect(0);
    let of = |record: &Record| (record.shown("stream").unwrap(), record.subject.clone());
    let found: Vec<(String, String)> = ran.records().iter().map(of).collect();
    let expected = ["a", "b"].map(|stream| {
        ["libc", "haul-c", "scalar", "empty"].map(|it| (stream.to_owned(), it.to_owned()))
    });
    assert_eq!(found, expected.concat());
    let table = run(haul(&["copy", "bench", "--budget", "0.2", "--stream", "a.stream"])
        .current_dir(folder.path()))
    .expect(0)
    .out;
    for part in ["as called", "a: a test", "empty: calls of a function", "verdict"] {
        assert!(table.contains(part), "{part}: {table}");
    }
    let empty = table.lines().find(|line| line.contains(" empty ")).unwrap();
    let is_judged = ["faster", "slower", "difference", "cannot tell"];
    assert!(!is_judged.iter().any(|verdict| empty.contains(verdict)), "{empty}");
}

#[test]
fn bench_names_fault_of_stream() {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole.stream");
    write_stream(&whole, "whole");
    let bytes = fs::read(&whole).unwrap();
    let check = |bytes: &[u8], parts: &[&str]| {
        fs::write(folder.path().join("bad.stream"), bytes).unwrap();
        let ran = bench(&["--stream", "bad.stream"], folder.path()).expect(1).says(parts);
        assert!(ran.out.is_empty(), "it measured anyway: {ran:#?}");
    };
    check(b"", &["bad.stream", "haul copy record"]);
    check(b"{}\n", &["bad.stream", "haul.stream/1"]);
    check(&bytes[..bytes.len() - 3], &["bad.stream", "cut off"]);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let head = text.split_once('\n').unwrap().0;
    check(format!("{head}\nxx").as_bytes(), &["bad.stream", "cut off"]);
    let pages = head.replace("\"pages\":4", "\"pages\":99999999");
    check(format!("{pages}\n").as_bytes(), &["pages", "99999999", "must be at most"]);
    let missing = bench(&["--stream", "none.stream"], folder.path()).expect(1);
    missing.says(&["none.stream", "No such file"]);
    let empty = tempfile::tempdir().unwrap();
    bench(&["--stream", "."], empty.path()).expect(1).says(&["no file that ends in .stream"]);
    bench(&["--stream", "whole.stream", "--kernel", "sse9"], folder.path())
        .expect(2)
        .says(&["sse9", "scalar", "haul-c"]);
}

/// A call is as it was recorded, so that an option for sizes would have no effect.
#[test]
fn bench_refuses_options_for_sizes_with_stream_alone() {
    let folder = tempfile::tempdir().unwrap();
    write_stream(&folder.path().join("a.stream"), "a");
    for option in [
        ["--branches", "random"],
        ["--then-read", "first"],
        ["--level", "l1"],
        ["--function", "memset"],
        ["--misaligned", "0.5"],
        ["--overlap", "0.5"],
    ] {
        let both = [&["--stream", "a.stream"], &option[..]].concat();
        bench(&both, folder.path()).expect(2).says(&[option[0], "a stream has its own calls"]);
    }
    let both = ["--stream", "a.stream", "--sizes", "64", "--branches", "repeating"];
    let ran = bench(&[&both[..], &["--kernel", "scalar"]].concat(), folder.path()).expect(0);
    let experiments: Vec<String> = ran.records().into_iter().map(|it| it.experiment).collect();
    for experiment in ["copy.stream", "copy.size"] {
        assert!(experiments.iter().any(|it| it == experiment), "{experiments:?}");
    }
}
