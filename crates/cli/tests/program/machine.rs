//! Machines with fewer features: one processor, no /proc, no /sys.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use crate::{Ran, away, haul, records_of, run};

/// Runs with the affinity mask of one processor, inherited from the starting thread.
fn on_one_processor(arguments: &[&str]) -> Ran {
    let pinned = || {
        let allowed = rustix::thread::sched_getaffinity(None).unwrap();
        let first = (0..rustix::thread::CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).unwrap();
        let mut one = rustix::thread::CpuSet::new();
        one.set(first);
        rustix::thread::sched_setaffinity(None, &one).unwrap();
        run(&mut haul(arguments))
    };
    thread::scope(|scope| scope.spawn(pinned).join().unwrap())
}

#[test]
fn one_processor_suffices_and_two_threads_are_refused() {
    let machine = on_one_processor(&["doctor", "--json"]).expect(0).machine();
    assert_eq!(machine.processors, 1);
    let whole = run(&mut haul(&["doctor", "--json"])).machine();
    assert_eq!(machine.id, whole.id, "a mask does not make another machine");

    let measured =
        on_one_processor(&["copy", "bench", "--size-class", "0-16", "--budget", "0.2", "--json"]);
    assert!(!measured.expect(0).records().is_empty());
    on_one_processor(&["copy", "bench", "--threads", "2"]).expect(2).says(&[
        "2 threads",
        "1 processor;",
        "taskset",
    ]);
}

#[test]
fn channel_bench_refuses_one_processor() {
    on_one_processor(&["channel", "bench", "--sizes", "64", "--against", "pipe"])
        .expect(1)
        .says(&["1 processor", "two", "taskset"]);
}

#[test]
fn survey_on_one_processor_names_omissions() {
    let plan = on_one_processor(&["survey", "--plan"]).expect(0);
    assert!(plan.out.contains("heap pairs") && !plan.out.contains("transfer"), "{plan:#?}");
    let ran = plan.says(&["transfers between processes are left out", "taskset"]);
    assert_eq!(ran.err.lines().count(), 1, "printed once: {ran:#?}");
}

/// Runs with /proc and /sys covered by empty folders. `None` if this user may not do that.
fn without_system_files(arguments: &str) -> Option<Ran> {
    let script = format!(
        "mount -t tmpfs none /sys && mount -t tmpfs none /proc && exec {} {arguments}",
        env!("CARGO_BIN_EXE_haul")
    );
    let mut probe = Command::new("unshare");
    if !probe.args(["-rm", "true"]).output().is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: no /proc and no /sys: no user namespaces: allow unprivileged unshare");
        return None;
    }
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", &script]);
    away(&mut command);
    Some(run(&mut command))
}

#[test]
fn doctor_works_without_proc_and_sys() {
    let Some(ran) = without_system_files("doctor") else { return };
    let ran = ran.expect(0);
    assert!(ran.out.contains("not mounted here: /proc /sys"), "{ran:#?}");
    assert_eq!(ran.out.matches("not mounted here").count(), 1, "printed once: {ran:#?}");
    let machine = without_system_files("doctor --json").unwrap().expect(0).machine();
    assert!(machine.processors >= 1 && machine.memory_bytes > 0);
}

#[test]
fn survey_warns_once_without_proc_and_sys() {
    let Some(ran) = without_system_files("survey --plan") else { return };
    let ran = ran.expect(0).says(&["not mounted here: /proc /sys"]);
    assert_eq!(ran.err.lines().count(), 1, "printed once: {ran:#?}");
    assert!(ran.out.contains("memory read"), "{ran:#?}");
}

#[test]
fn missing_home_gives_defaults_without_warning() {
    let mut command = haul(&["copy", "list", "--json"]);
    let ran = run(command.env_remove("HAUL_TUNING").env_remove("HOME")).expect(0);
    // /etc/haul may hold a file of this machine.
    assert!(ran.err.is_empty() && ran.machine().facts.contains_key("tuning"), "{ran:#?}");
}

#[test]
fn benches_work_without_proc_and_sys() {
    for arguments in [
        "copy bench --size-class 0-16 --budget 0.2 --json",
        "heap bench --test pairs --sizes 64 --against libc --budget 0.2 --json",
        "channel bench --sizes 4KiB --mechanism ring --against pipe --budget 0.2 --json",
    ] {
        if arguments.starts_with("channel") && haul_measure::sys::affinity().len() < 2 {
            eprintln!("SKIPPED: transfers without /proc: only one CPU: allow it two");
            continue;
        }
        let Some(ran) = without_system_files(arguments) else { return };
        assert!(!ran.expect(0).records().is_empty());
    }
}

/// Records and a page exist, whatever the survey left out with a warning.
#[track_caller]
fn check_survey(ran: Ran, out: &Path) {
    ran.expect(0).says(&[]);
    let text = fs::read_to_string(out.join("survey.jsonl")).unwrap();
    assert!(!records_of(haul_model::parse(&text).unwrap()).is_empty());
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.trim_end().ends_with("</html>"));
}

#[test]
fn survey_on_one_processor_writes_its_page() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let ran = on_one_processor(&["survey", "--quick", "--out", out.to_str().unwrap()]);
    check_survey(ran, &out);
}

#[test]
fn survey_without_proc_and_sys_writes_its_page() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let Some(ran) = without_system_files(&format!("survey --quick --out {}", out.display())) else {
        return;
    };
    check_survey(ran, &out);
}
