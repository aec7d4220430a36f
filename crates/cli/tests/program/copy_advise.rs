//! `haul copy advise`: one answer for a call site.

use haul_model::{Record, Verdict};

use crate::copy_stream::write_stream;
use crate::{haul, run};

/// The choice follows from the comparison in the record, and the sentence says it.
fn check_answer(record: &Record) {
    let comparison = record.comparison.as_ref().unwrap();
    assert_eq!(comparison.baseline, "libc");
    let is_inline = record.parameters["call"] == "inline";
    let expected = match comparison.verdict() {
        Verdict::Less if is_inline => "haul inline",
        Verdict::Less => "haul by pointer",
        Verdict::More => "libc",
        Verdict::NoDifference => "no difference",
        Verdict::CannotTell => "cannot tell",
    };
    assert_eq!(record.subject, expected, "{record:?}");
}

#[test]
fn advise_answers_for_each_size_in_the_asked_regime() {
    let start = ["copy", "advise", "--budget", "0.3", "--sizes", "8,200"];
    for (own, branches, then_read) in [
        (&[][..], "random", "nothing"),
        (&["--predictable", "--read", "--function", "memset"], "repeating", "first"),
    ] {
        let ran = run(haul(&start).args(own).arg("--json")).expect(0);
        let records = ran.records();
        let subjects: Vec<&str> =
            records.iter().take(3).map(|record| record.subject.as_str()).collect();
        assert_eq!(subjects, ["libc", "haul", "haul-inline"], "what the answer is based on");
        let answers: Vec<&Record> =
            records.iter().filter(|record| record.experiment == "copy.advise").collect();
        assert_eq!(answers.len(), 2);
        for (answer, size) in answers.into_iter().zip([8, 200]) {
            check_answer(answer);
            assert_eq!(answer.parameters["size_bytes"], size);
            assert_eq!(answer.parameters["branches"], branches);
            assert_eq!(answer.parameters["then_read"], then_read);
        }
    }
    let text = run(&mut haul(&start)).expect(0).out;
    assert_eq!(text.lines().count(), 2, "{text}");
    for (line, size) in text.lines().zip(["8 B", "200 B"]) {
        assert!(line.starts_with(&format!("memcpy of {size}, unpredictable, ")), "{line}");
        assert!(line.contains("of libc's time (") && line.contains("floor"), "{line}");
    }
}

#[test]
fn advise_answers_for_stream_and_its_call_sites() {
    let folder = tempfile::tempdir().unwrap();
    write_stream(&folder.path().join("a.stream"), "prog");
    let command = ["copy", "advise", "--budget", "0.5", "--stream", "a.stream"];
    let ran = run(haul(&command).arg("--json").current_dir(folder.path())).expect(0);
    let records = ran.records();
    let answers: Vec<&Record> =
        records.iter().filter(|record| record.experiment == "copy.advise").collect();
    let sites: Vec<Option<&str>> = answers.iter().map(|record| record.text("site")).collect();
    let expected = ["prog+0x10 (work)", "prog+0x20 (work)", "prog+0x30 (work)"];
    assert_eq!(sites, [None, Some(expected[0]), Some(expected[1]), Some(expected[2])]);
    answers.iter().for_each(|record| check_answer(record));
    assert_eq!(answers[1].parameters["read_share"], 1.0);
    assert_eq!(answers[1].parameters["calls"], 1000);
    let text = run(haul(&command).current_dir(folder.path())).expect(0).out;
    assert_eq!(text.lines().count(), 4, "{text}");
    assert!(text.starts_with("all sites of prog, 3000 calls, 33% of the targets read next: "));
}

#[test]
fn advise_refuses_wrong_questions() {
    let advise = |own: &[&str]| run(haul(&["copy", "advise"]).args(own));
    advise(&[]).expect(2).says(&["--sizes", "--stream"]);
    advise(&["--sizes", "0"]).expect(2).says(&["smallest size is 1 B"]);
    advise(&["--stream", "x", "--read"]).expect(2).says(&["--read", "--stream"]);
    advise(&["--stream", "x", "--sizes", "8"]).expect(2).says(&["--sizes", "--stream"]);
    advise(&["--stream", "none.stream"]).expect(1).says(&["none.stream", "No such file"]);
}
