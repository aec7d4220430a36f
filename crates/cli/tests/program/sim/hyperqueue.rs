//! A plan on HyperQueue: two workers, killed in every way, and finally the same records as here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::elf::{self, COUNTS};
use super::plans::record_files;
use super::{script, sim, text};
use crate::patience::attempts;
use crate::{LIMIT, Ran, away, finish, run};

/// Number of tasks, and how far each counts: some tenths of a second.
const TASKS: usize = 12;
const COUNT: &str = "400000";

/// Writes the plan of tasks into the folder; with more arguments runs it as well.
fn sweep(folder: &Path, program: &Path, more: &[&str]) -> PathBuf {
    let plan = folder.join("plan.jsonl");
    let vary = ["sweep", "--vary", "memory.latency_ns=70..180:10", "--argument", COUNT];
    let place = ["--program", text(program), "--out-file", text(&plan)];
    run(&mut sim(&[&vary[..], &place, more].concat())).expect(0);
    plan
}

/// `scripts/sim-hyperqueue` for this haul, not started yet.
fn on_hyperqueue(plan: &Path) -> Command {
    let mut command = Command::new(script("sim-hyperqueue"));
    command.arg(plan).arg("2").env("HAUL", env!("CARGO_BIN_EXE_haul"));
    away(&mut command);
    // A killed cluster leaves its folder.
    command.env("TMPDIR", plan.parent().unwrap());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn done(plan: &Path) -> Ran {
    finish(on_hyperqueue(plan).spawn().unwrap())
}

/// Waits until `found` returns a value.
#[track_caller]
fn wait_for<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        if let Some(found) = found() {
            return found;
        }
        thread::sleep(Duration::from_millis(2));
    }
    panic!("no {what} after {LIMIT:?}");
}

/// The fields after a process's name: its state, and its parent.
fn state(pid: i32) -> Option<(String, i32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}

/// The running tasks: a worker's processes are the cluster's children.
fn running(cluster: u32) -> Vec<i32> {
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| {
        let is_haul = || {
            fs::read_link(format!("/proc/{pid}/exe"))
                .is_ok_and(|program| program == Path::new(env!("CARGO_BIN_EXE_haul")))
        };
        state(*pid).is_some_and(|(_, parent)| parent as u32 == cluster) && is_haul()
    })
    .collect()
}

/// Kills the cluster in the middle, server and workers.
///
/// # Errors
/// All tasks were done before.
fn kill_cluster(plan: &Path) -> Result<(), String> {
    let mut cluster = on_hyperqueue(plan).spawn().unwrap();
    wait_for("record", || (!record_files(plan).is_empty()).then_some(()));
    cluster.kill().unwrap();
    cluster.wait().unwrap();
    if record_files(plan).len() == TASKS {
        return Err("the cluster was killed too late for this test".to_owned());
    }
    let ran = run(&mut sim(&["collect", text(plan), "--json"])).expect(1).says(&["not done"]);
    assert!(!ran.records().is_empty(), "the finished work is kept");
    Ok(())
}

/// Kills a task in the middle, while another task runs on the second worker.
///
/// # Errors
/// The cluster ended before.
fn kill_task(plan: &Path) -> Result<(), String> {
    let mut cluster = on_hyperqueue(plan).spawn().unwrap();
    let is_killed = wait_for("task killed beside a running one", || {
        let pids = running(cluster.id());
        if pids.len() == 2 && killed_while_running(pids[0]) {
            return Some(true);
        }
        cluster.try_wait().unwrap().map(|_| false)
    });
    let ran = finish(cluster);
    if !is_killed {
        return Err(format!("two tasks never ran at the same time: {ran:#?}"));
    }
    let ran = ran.expect(1).says(&["tasks failed", "run the command again"]);
    assert!(ran.err.contains("task "), "{ran:#?}");
    Ok(())
}

#[test]
fn plan_on_two_workers_survives_every_kill() {
    let present = Command::new(script("sim-hyperqueue")).arg("--check").output().unwrap();
    if !present.status.success() {
        eprintln!(
            "SKIPPED: a plan on HyperQueue: no Python package hyperqueue: scripts/sim-hyperqueue \
             --install"
        );
        return;
    }
    let here = tempfile::tempdir().unwrap();
    let program = elf::program(here.path(), "counts.elf", &COUNTS);
    let expected = record_files(&sweep(here.path(), &program, &["--run"]));
    assert_eq!(expected.len(), TASKS);

    // On a busy machine, the tasks may end before the test can kill what it wants to: then it
    // begins again, with a fresh plan.
    let (_there, plan) = attempts(1..=3, |_| {
        let there = tempfile::tempdir().unwrap();
        let plan = sweep(there.path(), &program, &[]);
        kill_cluster(&plan)?;
        kill_task(&plan)?;
        Ok((there, plan))
    });

    // Once more, and again when all are finished: existing records are not changed.
    done(&plan).expect(0);
    let written = |name: &str| {
        let path = PathBuf::from(format!("{}.d", plan.display())).join(name);
        fs::metadata(path).unwrap().modified().unwrap()
    };
    let times: Vec<_> = expected.iter().map(|(name, _)| written(name)).collect();
    done(&plan).expect(0);
    assert_eq!(expected.iter().map(|(name, _)| written(name)).collect::<Vec<_>>(), times);
    assert_eq!(record_files(&plan), expected, "equal bytes as on this machine's threads");
    let records = run(&mut sim(&["collect", text(&plan), "--json"])).expect(0).records();
    assert_eq!(records.len(), 2 * TASKS);
}

/// Kills a task in its middle, for which it is stopped first. `false` if it ended before that.
fn killed_while_running(pid: i32) -> bool {
    let target = Pid::from_raw(pid).unwrap();
    if kill_process(target, Signal::STOP).is_err() {
        return false;
    }
    let stopped = wait_for("stopped or ended task", || match state(pid) {
        Some((state, _)) if state == "T" => Some(true),
        Some((state, _)) if state != "Z" => None,
        _ => Some(false),
    });
    stopped && kill_process(target, Signal::KILL).is_ok()
}

#[test]
fn hyperqueue_script_refuses_bad_plan_and_worker_count() {
    let folder = tempfile::tempdir().unwrap();
    let present = Command::new(script("sim-hyperqueue")).arg("--check").output().unwrap();
    if !present.status.success() {
        eprintln!(
            "SKIPPED: bad plans on HyperQueue: no Python package hyperqueue: \
             scripts/sim-hyperqueue --install"
        );
        return;
    }
    let text_file = folder.path().join("plan.jsonl");
    fs::write(&text_file, "{\"tasks\":\n").unwrap();
    done(&text_file).expect(1).says(&["plan.jsonl", "is not a plan"]);
    done(Path::new("/nonexistent.jsonl")).expect(1).says(&["nonexistent.jsonl"]);
    let mut command = Command::new(script("sim-hyperqueue"));
    command.args([text(&text_file), "0"]).env("HAUL", env!("CARGO_BIN_EXE_haul"));
    run(&mut command).expect(1);
}
