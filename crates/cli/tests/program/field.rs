//! `haul field`: verdicts, metrics, and records. `field_hostile` has the runs that go wrong.

use std::fs;

use haul_model::Record;

use crate::patience::attempts;
use crate::{Ran, haul, run};

/// A run of `haul field` with these options before `--`, and this program after it.
pub(crate) fn field(options: &[&str], program: &[&str]) -> Ran {
    let words = [&["field"], options, &["--"], program].concat();
    run(&mut haul(&words))
}

/// The one record of a verdict.
#[track_caller]
pub(crate) fn verdict_of(ran: &Ran) -> Record {
    let records = ran.records().into_iter();
    let mut verdicts: Vec<Record> =
        records.filter(|record| record.experiment == "field.verdict").collect();
    assert_eq!(verdicts.len(), 1, "{ran:#?}");
    verdicts.remove(0)
}

/// A program whose figure does not depend on the machine: it prints the variable X, or 100.
const PRINTS: [&str; 3] = ["sh", "-c", "echo \"tps = ${X:-100} (of all)\""];
const TPS: &str = "stdout:tps = ([0-9.]+)";

#[test]
fn change_of_nothing_is_recorded_by_name() {
    let options = ["--change", "env:X=1", "--metric", "wall", "--runs", "5", "--json"];
    let ran = field(&options, &["sleep", "0.01"]).expect(0).says(&["sleep 0.01 with env:X=1: "]);
    let record = verdict_of(&ran);
    let verdicts = ["faster", "slower", "no difference", "cannot tell"];
    assert!(verdicts.contains(&record.text("verdict").unwrap()), "{record:?}");
    let comparison = record.comparison.clone().unwrap();
    assert!(comparison.ratio_low <= comparison.ratio && comparison.ratio <= comparison.ratio_high);
    assert!(comparison.floor > 0.0);
    assert_eq!(
        (&record.subject[..], &record.metric[..], &record.unit[..]),
        ("env:X=1", "wall", "s")
    );
    assert_eq!(record.samples.len(), 5);
    assert!(record.samples.iter().all(|wall| (0.01..240.0).contains(wall)), "{record:?}");
    assert!(record.text("rerun").unwrap().starts_with("haul field --change env:X=1 "));
}

#[test]
fn figure_that_the_program_prints_decides() {
    let of = |change: &str, more: &[&str]| {
        let options = [&["--change", change, "--metric", TPS, "--runs", "6", "--json"], more];
        field(&options.concat(), &PRINTS)
    };
    let rate = ["--higher-is-better"];
    for (change, more, verdict, ratio) in [
        ("env:X=97", &rate[..], "slower", 100.0 / 97.0),
        ("env:X=103", &rate, "faster", 100.0 / 103.0),
        ("env:X=97", &[], "faster", 0.97),
        ("env:X=100", &rate, "no difference", 1.0),
        ("env:Y=1", &rate, "no difference", 1.0),
    ] {
        let record = verdict_of(&of(change, more).expect(0));
        assert_eq!(record.text("verdict"), Some(verdict), "{record:?}");
        let cost = record.cost().unwrap();
        assert!((cost.ratio - ratio).abs() < 1e-9, "{record:?}");
    }
    // Exit codes for CI.
    let fails = |on: &str, change: &str| of(change, &["--higher-is-better", "--fail-on", on]);
    fails("slower", "env:X=97").expect(3).says(&["slower by 3.1%", "--fail-on"]);
    fails("changed", "env:X=103").expect(3);
    fails("slower,cannot-tell", "env:X=103").expect(0);
    fails("slower", "env:Y=1").expect(0);
}

#[test]
fn changes_and_metrics_reach_the_program() {
    let of = |options: &[&str], program: &[&str]| {
        let options = [options, &["--runs", "3", "--json"]].concat();
        verdict_of(&field(&options, program).expect(0))
    };
    let count = ["--metric", "stdout:([0-9]+)"];
    let argument = of(&[&["--change", "arg:11=>22"], &count[..]].concat(), &["echo", "11"]);
    assert_eq!(argument.samples, [22.0; 3]);
    let command = of(&[&["--change", "cmd:echo 'a 33'"], &count[..]].concat(), &["echo", "11"]);
    assert_eq!(command.samples, [33.0; 3]);
    // The program prints whether the variable names the library.
    let library = format!("/lib/{}-linux-gnu/libm.so.6", std::env::consts::ARCH);
    let change = format!("preload:{library}");
    let script = "case \"$LD_PRELOAD\" in *libm*) echo 2;; *) echo 1;; esac";
    let record = of(&[&["--change", &change], &count[..]].concat(), &["sh", "-c", script]);
    assert_eq!(record.samples, [2.0; 3]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("figure");
    let script = format!("echo \"n 7\" > {}", file.display());
    let metric = format!("file:{}:n ([0-9])", file.display());
    let of_file = of(&["--change", "env:A=1", "--metric", &metric], &["sh", "-c", &script]);
    assert_eq!(of_file.samples, [7.0; 3]);
    let counted = of(&["--change", "env:A=1", "--metric", "cmd:echo 12.5 MB"], &["true"]);
    assert_eq!((counted.samples, &counted.unit[..]), (vec![12.5; 3], "MB"));
}

#[test]
fn processor_time_and_memory_are_those_of_all_processes() {
    // Children of the program use both, and the program waits for them.
    let script = |megabytes: u32| {
        format!("head -c {megabytes}000000 /dev/zero | tail -c {megabytes}000000 | wc -c; :")
    };
    let (few, many) = (script(10), script(60));
    let change = format!("arg:{few}=>{many}");
    let options = ["--change", &change, "--runs", "3", "--json", "--metric", "max-rss"];
    let ran = field(&options, &["sh", "-c", &few]).expect(0);
    let memory = verdict_of(&ran);
    assert_eq!((memory.text("verdict"), &memory.unit[..]), (Some("slower"), "B"), "{memory:?}");
    assert!(memory.median().unwrap() > 60e6, "{memory:?}");
    let cpu = ran.records().into_iter().find(|it| it.metric == "cpu" && it.subject == change);
    let cpu = cpu.unwrap();
    assert!(cpu.median().unwrap() > 0.0 && cpu.comparison.is_some(), "{cpu:?}");
}

#[test]
fn server_is_loaded_once_it_is_ready() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let server = format!(
        "sh -c 'echo start >> {0}; trap \"echo end >> {0}; exit 0\" TERM; sleep 0.05; \
         echo \"now ready\" >&2; while :; do sleep 0.01; done'",
        log.display()
    );
    let load = format!("sh -c 'echo load >> {}; echo \"rate 50 MB/s\"'", log.display());
    let words = [
        "field",
        "--change",
        "env:A=1",
        "--server",
        &server,
        "--ready",
        "now ready",
        "--load",
        &load,
        "--metric",
        "stdout:rate ([0-9]+)",
        "--higher-is-better",
        "--runs",
        "3",
        "--json",
    ];
    let record = verdict_of(&run(&mut haul(&words)).expect(0));
    assert_eq!((record.samples.clone(), &record.unit[..]), (vec![50.0; 3], "MB/s"));
    assert!(record.text("load").unwrap().starts_with("sh -c "));
    // Two runs before the three rounds of three. Each server ended in order.
    let log = fs::read_to_string(log).unwrap();
    assert_eq!(log, "start\nload\nend\n".repeat(2 + 9));
}

#[test]
fn test_ends_once_it_is_decided() {
    let options = ["--change", "env:X=90", "--metric", TPS, "--until-decided", "--json"];
    let record = verdict_of(&field(&options, &PRINTS).expect(0));
    assert_eq!((record.samples.len(), record.text("verdict")), (6, Some("faster")));
    assert!(record.count("analyses").unwrap() > 1);
    let options = ["--change", "env:X=90", "--budget", "1ms", "--json"];
    let record = verdict_of(&field(&options, &["sleep", "0.01"]).expect(0));
    assert_eq!(record.samples.len(), 3, "the fewest rounds with an interval");
}

#[test]
fn page_and_exports_are_made_of_the_records() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let options = ["--change", "env:X=97", "--metric", TPS, "--runs", "6", "--higher-is-better"];
    let with_folder = [&options[..], &["--out", out.to_str().unwrap()]].concat();
    let ran = field(&with_folder, &PRINTS).expect(0);
    assert!(ran.out.contains("slower by 3.1%") && ran.out.contains("report.html"), "{ran:#?}");
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("slower by 3.1%") && page.contains("<polyline"));
    let records = out.join("field.jsonl");
    let again = run(&mut haul(&["report", records.to_str().unwrap()])).expect(0);
    assert_eq!(again.out.trim_end(), page.trim_end());
    for (format, part) in [
        ("bencher", "\"lower_value\""),
        ("github", "\"unit\": \"ratio\""),
        ("markdown", "| slower | 1.031 |"),
        ("json", "\"verdict\": \"slower\""),
    ] {
        let exported = [&options[..], &["--export", format]].concat();
        let ran = field(&exported, &PRINTS).expect(0).says(&["slower by 3.1%"]);
        assert!(ran.out.contains(part), "{ran:#?}");
        if format != "markdown" {
            serde_json::from_str::<serde_json::Value>(&ran.out).unwrap();
        }
    }
}

/// A program that mostly copies has a large share, and a program that does not has nearly none.
#[test]
fn share_of_the_copies_is_beside_the_verdict() {
    crate::copy_preload::built();
    let folder = tempfile::tempdir().unwrap();
    let body = "int main(int n, char **all) { volatile long spins = 0; \
                if (n > 1) while (spins < 30000000) spins++; \
                for (int i = 0; i < (n > 1 ? 10 : 300000); i++) memcpy(a, b, 8000); return 0; }";
    let Some(program) = crate::copy_preload::program(folder.path(), body) else { return };
    let share = |arguments: &[&str]| {
        let options = ["--change", "copy", "--runs", "3", "--metric", "cpu", "--json"];
        let program = [&[program.to_str().unwrap()], arguments].concat();
        let ran = field(&options, &program).expect(0).says(&["Copies and fills take about "]);
        let record = verdict_of(&ran);
        (record.number("copy_share").unwrap(), record.number("copy_share_changed").unwrap())
    };
    // The cost of a copy was measured before: on a busy machine, it may be wrong for a try.
    attempts(1..=3, |_| {
        let (copying, changed) = share(&[]);
        let is_right = (0.2..=1.0).contains(&copying) && changed > 0.0;
        if is_right { Ok(()) } else { Err(format!("{copying} {changed}")) }
    });
    attempts(1..=3, |_| {
        let (spinning, _) = share(&["spin"]);
        if (0.0..0.05).contains(&spinning) { Ok(()) } else { Err(format!("{spinning}")) }
    });
    // Another change has no such share.
    let ran = field(&["--change", "env:A=1", "--runs", "3", "--json"], &["true"]).expect(0);
    assert_eq!(verdict_of(&ran).number("copy_share"), None);
}
