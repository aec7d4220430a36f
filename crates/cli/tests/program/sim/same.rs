//! Equal bytes on one thread, on several, and in a repetition.

use std::fs;

use haul_model::{Kind, Line};

use super::{sim, text};
use crate::run;

/// The records of a reproduction with few packets, without the values that come from a clock.
fn reproduced(threads: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let words = ["reproduce", "--packets", "20", "--threads", threads, "--out", text(&out)];
    run(&mut sim(&words)).expect(0);
    let lines = haul_model::parse(&fs::read_to_string(out.join("sim.jsonl")).unwrap()).unwrap();
    let timeless = lines.into_iter().filter_map(|line| match line {
        Line::Record(record) if record.kind == Kind::Measured => None,
        Line::Record(mut record) => {
            (record.run, record.time) = (String::new(), String::new());
            Some(Line::from(record).to_json())
        }
        Line::Machine(_) => None,
    });
    timeless.collect()
}

#[test]
fn reproduction_is_equal_on_any_number_of_threads() {
    let once = reproduced("1");
    // 48 machines twice, three for the parameter, and the derived records.
    assert!(once.len() > 99 + 2 * 54, "{}", once.len());
    for (place, threads) in ["1", "2", "5"].into_iter().enumerate() {
        let again = reproduced(threads);
        assert_eq!(again.len(), once.len());
        for (number, (one, other)) in once.iter().zip(&again).enumerate() {
            assert_eq!(one, other, "record {number} of run {place}, on {threads} threads");
        }
    }
}
