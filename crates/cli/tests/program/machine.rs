//! Machines that offer less: one processor, no /proc, no /sys.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use crate::{Ran, away, haul, records_of, run};

/// Runs with the affinity mask of one processor, inherited from the thread that starts it.
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
fn one_processor_is_enough_and_two_threads_are_refused() {
    let machine = on_one_processor(&["doctor", "--json"]).expect(0).machine();
    assert_eq!(machine.processors, 1);
    let usual = run(&mut haul(&["doctor", "--json"])).machine();
    assert_eq!(machine.id, usual.id, "a mask does not make another machine");

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
fn two_ends_on_one_processor_are_refused() {
    on_one_processor(&["channel", "bench", "--size", "64", "--against", "pipe"]).expect(1).says(&[
        "1 processor",
        "two",
        "taskset",
    ]);
}

#[test]
fn a_survey_on_one_processor_says_what_it_leaves_out() {
    let plan = on_one_processor(&["survey", "--plan"]).expect(0);
    assert!(plan.out.contains("heap pairs") && !plan.out.contains("transfer"), "{plan:#?}");
    let ran = plan.says(&["transfers between processes are left out", "taskset"]);
    assert_eq!(ran.err.lines().count(), 1, "said once: {ran:#?}");
}

/// Runs with /proc and /sys covered by nothing. `None` where this user may not do that.
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
fn without_proc_and_sys_doctor_says_what_is_left() {
    let Some(ran) = without_system_files("doctor") else { return };
    let ran = ran.expect(0);
    assert!(ran.out.contains("not mounted here: /proc /sys"), "{ran:#?}");
    assert_eq!(ran.out.matches("not mounted here").count(), 1, "said once: {ran:#?}");
    let machine = without_system_files("doctor --json").unwrap().expect(0).machine();
    assert!(machine.processors >= 1 && machine.memory_bytes > 0);
}

#[test]
fn without_proc_and_sys_a_survey_says_so_once() {
    let Some(ran) = without_system_files("survey --plan") else { return };
    let ran = ran.expect(0).says(&["not mounted here: /proc /sys"]);
    assert_eq!(ran.err.lines().count(), 1, "said once: {ran:#?}");
    assert!(ran.out.contains("memory read"), "{ran:#?}");
}

#[test]
fn without_a_home_there_are_defaults_and_no_complaint() {
    let mut command = haul(&["copy", "list", "--json"]);
    let ran = run(command.env_remove("HAUL_TUNING").env_remove("HOME")).expect(0);
    // /etc/haul may hold a file of this machine.
    assert!(ran.err.is_empty() && ran.machine().facts.contains_key("tuning"), "{ran:#?}");
}

#[test]
fn without_proc_and_sys_everything_is_measured() {
    for arguments in [
        "copy bench --size-class 0-16 --budget 0.2 --json",
        "heap bench --test pairs --size 64 --against libc --budget 0.2 --json",
        "channel bench --size 4KiB --mechanism ring --against pipe --budget 0.2 --json",
    ] {
        if arguments.starts_with("channel") && haul_measure::sys::affinity().len() < 2 {
            eprintln!("SKIPPED: transfers without /proc: only one CPU: allow it two");
            continue;
        }
        let Some(ran) = without_system_files(arguments) else { return };
        assert!(!ran.expect(0).records().is_empty());
    }
}

/// Whatever it left out, and it says so: records and a page are there.
#[track_caller]
fn check_survey(ran: Ran, out: &Path) {
    ran.expect(0).says(&[]);
    let text = fs::read_to_string(out.join("survey.jsonl")).unwrap();
    assert!(!records_of(haul_model::parse(&text).unwrap()).is_empty());
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.trim_end().ends_with("</html>"));
}

#[test]
fn a_survey_of_one_processor_ends_in_its_page() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let ran = on_one_processor(&["survey", "--quick", "--out", out.to_str().unwrap()]);
    check_survey(ran, &out);
}

#[test]
fn a_survey_without_proc_and_sys_ends_in_its_page() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let Some(ran) = without_system_files(&format!("survey --quick --out {}", out.display())) else {
        return;
    };
    check_survey(ran, &out);
}
