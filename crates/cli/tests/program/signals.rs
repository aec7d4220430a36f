//! Signals that ask to end: one rule for all commands. Tests of each command check what the
//! command keeps.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::heap_record::record;
use crate::patience::read_until;
use crate::{finish, haul, wait_until};

/// Longer than the time within which several signals count as one request.
const MOMENT_OVER: Duration = Duration::from_millis(1500);

fn start(command: &mut Command) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Whether SIGHUP ends a process started here: under `nohup`, the process and its children ignore
/// it.
pub(crate) fn is_ended_by(signal: Signal) -> bool {
    signal != Signal::HUP || mask(std::process::id(), "SigIgn:") & 1 == 0
}

/// Signals with a bit in a mask of the process's status.
fn mask(process: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0");
    u64::from_str_radix(line.trim(), 16).unwrap()
}

/// Waits until the process handles signals: of these, SIGQUIT gets its handler last.
pub(crate) fn wait_until_it_watches(child: &Child) {
    let quit = Signal::QUIT.as_raw() - 1;
    wait_until("the program handles signals", || mask(child.id(), "SigCgt:") >> quit & 1 == 1);
}

/// Waits until the program has reported its first signal, and then until another signal is a
/// second request.
fn wait_until_moment_is_over(child: &mut Child) {
    read_until(child.stderr.as_mut().unwrap(), "(press again to abort)");
    thread::sleep(MOMENT_OVER);
}

#[test]
fn signal_ends_command_without_records_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let all = [(2, Signal::INT), (15, Signal::TERM), (1, Signal::HUP), (3, Signal::QUIT)];
    for (number, by) in all.into_iter().filter(|(_, by)| is_ended_by(*by)) {
        // The command waits for its input.
        let report = start(&mut haul(&["report", "-", "--out-file", page.to_str().unwrap()]));
        wait_until_it_watches(&report);
        signal(&report, by);
        finish(report).expect(128 + number).says(&["interrupted before it was complete"]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
    let socket = folder.path().join("socket");
    let to = ["channel", "send", "--wait", "--to", socket.to_str().unwrap(), "-"];
    let send = start(&mut haul(&to));
    wait_until_it_watches(&send);
    signal(&send, Signal::INT);
    finish(send).expect(130).says(&["interrupted before it was complete"]);
}

/// The signal may arrive at any time, also just after the run has renamed earlier records.
#[test]
fn interrupted_run_without_figure_keeps_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    fs::create_dir(&out).unwrap();
    let (records, earlier) = (out.join("sim.jsonl"), "an earlier run's\n");
    fs::write(&records, earlier).unwrap();
    let arguments = ["sim", "reproduce", "--packets", "1000000", "--out", out.to_str().unwrap()];
    let child = start(&mut haul(&arguments));
    wait_until("the earlier records are renamed", || out.join("sim.jsonl.old").exists());
    signal(&child, Signal::INT);
    finish(child).expect(130).says(&["interrupted", "nothing was measured", "nothing is kept"]);
    assert_eq!(fs::read_to_string(&records).unwrap(), earlier);
    assert_eq!(fs::read_dir(&out).unwrap().count(), 1);
}

#[test]
fn second_signal_after_a_moment_aborts_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let trace = crate::trace::trace(folder.path());
    let temporary = folder.path().join("temporary");
    fs::create_dir(&temporary).unwrap();
    let arguments = ["heap", "replay", trace.to_str().unwrap(), "--against", "libc"];
    let mut child = start(haul(&arguments).env("TMPDIR", &temporary));
    wait_until("a folder of steps exists", || fs::read_dir(&temporary).unwrap().count() > 0);
    // The command's driver hangs, so the run cannot end by itself.
    // A driver may end before it is stopped; another one follows.
    wait_until("a driver is stopped", || {
        children(child.id()).into_iter().any(|driver| {
            let _ = kill_process(Pid::from_raw(driver.cast_signed()).unwrap(), Signal::STOP);
            let stat = fs::read_to_string(format!("/proc/{driver}/stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, after)| after.starts_with('T'))
        })
    });
    signal(&child, Signal::TERM);
    wait_until_moment_is_over(&mut child);
    let drivers = children(child.id());
    signal(&child, Signal::INT);
    wait_until("the command ends", || child.try_wait().unwrap().is_some());
    for driver in drivers {
        // A stopped driver ends when it continues. One that was stopped before it became another
        // program holds the command's output open until then.
        let _ = kill_process(Pid::from_raw(driver.cast_signed()).unwrap(), Signal::CONT);
    }
    finish(child).expect(130);
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
}

fn children(process: u32) -> Vec<u32> {
    let path = format!("/proc/{process}/task/{process}/children");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// Under `nohup` SIGHUP is ignored, and the started program must survive it.
#[test]
fn ignored_hangup_stays_ignored() {
    let mut command = haul(&["report", "-"]);
    let program = command.get_program().to_owned();
    command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" report -"]).arg(program);
    let child = start(&mut command);
    wait_until_it_watches(&child);
    assert_eq!(mask(child.id(), "SigIgn:") & 1, 1);
    signal(&child, Signal::HUP);
    thread::sleep(Duration::from_millis(300));
    signal(&child, Signal::TERM);
    finish(child).expect(128 + 15);
}

/// A recorded program that does not end on request is ended by the second signal, and its trace is
/// kept.
#[test]
fn second_signal_ends_recorded_program_and_keeps_trace() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("words"), "b\na\n").unwrap();
    let script = "trap '' INT TERM; sort words; echo ready; while :; do sleep 0.05; done";
    let mut child =
        start(record(folder.path(), &["-o", "deaf", "--", "sh", "-c", script]).process_group(0));
    read_until(child.stdout.as_mut().unwrap(), "ready\n");
    let program = children(child.id());
    signal(&child, Signal::INT);
    wait_until_moment_is_over(&mut child);
    assert!(child.try_wait().unwrap().is_none());
    signal(&child, Signal::INT);
    finish(child).expect(128 + 9).says(&["haul: recorded", "deaf"]);
    assert!(!program.is_empty());
    for process in program {
        assert!(!Path::new(&format!("/proc/{process}")).exists());
    }
    assert!(folder.path().join("deaf").exists());
}
