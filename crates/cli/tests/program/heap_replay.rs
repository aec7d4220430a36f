//! `haul heap replay` and `haul heap map`: their output, and every wrong input.

use std::fs;

use crate::trace::trace;
use crate::{haul, run};

#[test]
fn replay_gives_records_table_and_page() {
    let folder = tempfile::tempdir().unwrap();
    let path = trace(folder.path());
    let path = path.to_str().unwrap();
    let arguments = ["heap", "replay", path, "--against", "libc", "--budget", "0.01"];
    let ran = run(&mut haul(&[&arguments[..], &["--json"]].concat())).expect(0);
    let records = ran.records();
    assert!(records.iter().all(|record| record.experiment == "heap.replay"));
    assert!(records.iter().all(|record| record.parameters["trace"] == "a trace"));
    let rerun = records[0].parameters["rerun"].as_str().unwrap();
    assert_eq!(rerun, "haul heap replay 'a trace' --against libc --json");
    let saved = folder.path().join("replay.jsonl");
    fs::write(&saved, &ran.out).unwrap();
    let page = run(&mut haul(&["report", saved.to_str().unwrap()])).expect(0).out;
    for part in ["A program’s allocations, replayed", "asked for", "haul heap replay"] {
        assert!(page.contains(part), "{part}");
    }
    let table = run(&mut haul(&arguments)).expect(0).out;
    for part in ["150 operations, 1 thread", "largest footprint", "asked for", "haul", "libc", "▁"]
    {
        assert!(table.contains(part), "{part}: {table}");
    }
    assert!(table.lines().any(|line| line.starts_with("time per operation: haul ")), "{table}");
    let markdown = folder.path().join("table.md");
    let more = ["--sort", "name", "--export-markdown", markdown.to_str().unwrap()];
    run(&mut haul(&[&arguments[..], &more].concat())).expect(0);
    let markdown = fs::read_to_string(markdown).unwrap();
    assert!(markdown.starts_with("| figure | heap |"), "{markdown}");
    assert!(markdown.contains("- time per operation: haul "), "{markdown}");
}

#[test]
fn map_gives_records_picture_and_page() {
    let folder = tempfile::tempdir().unwrap();
    let path = trace(folder.path());
    let path = path.to_str().unwrap();
    let ran = run(&mut haul(&["heap", "map", "--trace", path, "--json"])).expect(0);
    let records = ran.records();
    assert!(records.iter().all(|record| record.experiment == "heap.map"));
    let live = |at: &str| {
        let ran = run(&mut haul(&["heap", "map", "--trace", path, "--at", at, "--json"])).expect(0);
        let of_heap = ran
            .records()
            .into_iter()
            .find(|record| record.metric == "live" && record.parameters["by"] == "heap");
        of_heap.unwrap().median().unwrap()
    };
    assert_eq!(live("100%"), 50.0 * 4096.0);
    assert_eq!(live("0%"), 0.0);
    // After 49.5 ms: 50 blocks, of which 25 were freed.
    assert_eq!(live("49.5ms"), 25.0 * 4096.0);
    let saved = folder.path().join("map.jsonl");
    fs::write(&saved, &ran.out).unwrap();
    let saved = saved.to_str().unwrap();
    let page = run(&mut haul(&["report", saved])).expect(0).out;
    for part in ["What the heap holds", "class=\"pages\"", "4 KiB"] {
        assert!(page.contains(part), "{part}");
    }
    let drawn = run(&mut haul(&["heap", "map", "--trace", path])).expect(0).out;
    for part in ["with memory", "4 KiB", "untagged", "a page of 2 MiB", "after 150 operations"] {
        assert!(drawn.contains(part), "{part}: {drawn}");
    }
    assert!(!drawn.contains('\x1b'), "no colour where there is no terminal");
    let again = run(&mut haul(&["heap", "map", "--records", saved])).expect(0).out;
    assert_eq!(again, drawn);
}

#[test]
fn bad_input_is_refused_with_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = trace(folder.path());
    let path = path.to_str().unwrap();
    let junk = folder.path().join("junk");
    fs::write(&junk, "no trace\n").unwrap();
    let junk = junk.to_str().unwrap();
    let other = folder.path().join("other.jsonl");
    fs::write(
        &other,
        haul_model::Line::from(haul_model::Record::new("r", "e", "s", "m", "u")).to_json(),
    )
    .unwrap();
    for (arguments, code, part) in [
        (&["replay", "/nowhere"][..], 1, "cannot read /nowhere"),
        (&["replay", junk], 1, "not a haul trace"),
        (&["replay", path, "--operations", "5"], 1, "more than 5 operations"),
        (&["replay", path, "--part", "rte"], 1, "no operation on this heap"),
        (&["replay", path, "--against", "musl"], 2, "musl"),
        (&["replay", path, "--part", "both"], 2, "write malloc, rte or all"),
        (&["replay"], 2, "TRACE"),
        (&["map"], 2, "--name"),
        (&["map", "--name", "x", "--trace", path], 2, "cannot be used with"),
        (&["map", "--name", "no-such-heap-here"], 1, "no-such-heap-here"),
        (&["map", "--name", "../x"], 1, "begins with a dot"),
        (&["map", "--trace", junk], 1, "not a haul trace"),
        (&["map", "--trace", path, "--at", "yesterday"], 2, "not a point of a trace"),
        (&["map", "--records", other.to_str().unwrap()], 1, "holds no map"),
    ] {
        let ran = run(&mut haul(&[&["heap"][..], arguments].concat())).expect(code);
        assert!(ran.err.contains(part), "{arguments:?}: {}", ran.err);
    }
}
