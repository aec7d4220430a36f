//! `haul field` with programs that fail, hang or leave processes, and its own sudden end: a clear
//! error each, no process left, and no complete round lost.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal, kill_process};

use crate::field::{field, verdict_of};
use crate::signals::wait_until_it_watches;
use crate::{finish, haul, run, wait_until};

/// An argument of `sleep` that no other process has.
fn unique() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("1000.{}{number:03}", std::process::id())
}

/// The processes with this text in their command line, without haul and its supervisors.
fn processes_with(text: &str) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let has_text = |number: &i32| {
        let line = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.contains(text) && !line.contains("haul\0field")
    };
    numbers.filter(has_text).filter_map(Pid::from_raw).collect()
}

#[track_caller]
fn expect_none_with(text: &str) {
    let left = processes_with(text);
    assert!(left.is_empty(), "{text}: {left:?}");
}

fn shell(script: &str) -> [&str; 3] {
    ["sh", "-c", script]
}

/// A script that does `first` in its first runs of this number, and `then` afterwards.
fn after(runs: u32, first: &str, then: &str, folder: &Path) -> String {
    let file = folder.join("count");
    let file = file.display();
    format!(
        "n=$(cat {file} 2>/dev/null || echo 0); echo $((n+1)) > {file}; \
         if [ $n -lt {runs} ]; then {first}; else {then}; fi"
    )
}

#[test]
fn wrong_usage_is_refused_before_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text.so");
    fs::write(&text, "no library").unwrap();
    let preload = format!("preload:{}", text.display());
    let absent = format!("preload:{}/absent.so", folder.path().display());
    for (options, program, parts) in [
        (&["--change", "nothing"][..], &["true"][..], &["preload:PATH"][..]),
        (&["--change", "env:X"], &["true"], &["env:NAME=VALUE"]),
        (&["--change", "arg:absent=>x"], &["echo", "here"], &["no argument of echo here"]),
        (&["--change", "cmd:a | b"], &["true"], &["sh -c"]),
        (&["--change", &preload], &["true"], &["not a shared library of 64 bits"]),
        (&["--change", &absent], &["true"], &["absent.so"]),
        (&["--change", "env:X=1", "--metric", "stdout:("], &["true"], &["regular expression"]),
        (&["--change", "env:X=1", "--metric", "speed"], &["true"], &["max-rss"]),
        (&["--change", "env:X=1", "--runs", "0"], &["true"], &["from 1 to 10000"]),
        (&["--change", "env:X=1", "--matters", "x"], &["true"], &["percentage"]),
        (&["--change", "env:X=1", "--server", "a"], &["true"], &["cannot be used"]),
        (&["--metric", "wall"], &["true"], &["--change"]),
    ] {
        field(options, program).expect(2).says(parts);
    }
    run(&mut haul(&["field", "--change", "env:X=1"])).expect(2).says(&["CMD"]);
    let server = ["field", "--change", "env:X=1", "--server", "a"];
    run(&mut haul(&server)).expect(2).says(&["--ready"]);
}

#[test]
fn set_user_id_program_loads_no_library() {
    let folder = tempfile::tempdir().unwrap();
    // The change is refused before anything is loaded.
    let change = "preload:/bin/true";
    let program = folder.path().join("program");
    fs::copy("/bin/true", &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    let ran = field(&["--change", change], &[program.to_str().unwrap()]);
    ran.expect(2).says(&["set-user-id", "ignores LD_PRELOAD"]);
}

/// The dynamic linker would go on without the library, and the test would compare the program with
/// itself.
#[test]
fn library_that_is_not_loaded_is_an_error() {
    let ran = field(&["--change", "preload:/bin/true"], &["true"]).expect(1);
    ran.says(&["with the change", "the library is not loaded"]);
}

#[test]
fn failing_program_is_reported_with_its_output() {
    let of = |script: &str| field(&["--change", "env:X=1", "--runs", "3"], &shell(script));
    let ran = of("echo 'no such table' >&2; exit 7").expect(1);
    ran.says(&["once before the rounds, without the change", "exit code 7", "no such table"]);
    of("kill -9 $$").expect(1).says(&["signal 9 ended it"]);
    // Only the changed program fails.
    of("exit ${X:-0}").expect(1).says(&["with the change", "exit code 1"]);
    let absent = field(&["--change", "env:X=1"], &["/nonexistent/program"]).expect(1);
    absent.says(&["cannot be started", "on PATH"]);
    let allowed = ["--change", "env:X=1", "--runs", "3", "--allow-failure"];
    field(&allowed, &["false"]).expect(0);
}

#[test]
fn program_that_fails_later_loses_no_round() {
    let folder = tempfile::tempdir().unwrap();
    // Two runs before the rounds, and two rounds of three.
    let script = after(2 + 6 + 1, "echo 5", "exit 9", folder.path());
    let options = ["--change", "env:X=1", "--metric", "stdout:([0-9])", "--json"];
    let ran = field(&options, &shell(&script)).expect(1);
    assert_eq!(verdict_of(&ran).samples, [5.0; 2]);
    ran.says(&["round 3 of at most 15", "exit code 9"]);
}

#[test]
fn figure_that_cannot_be_read_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let changing = after(3, "echo '12.5 ms'", "echo '0.9 s'", folder.path());
    let stale = folder.path().join("stale");
    fs::write(&stale, "n 7\n").unwrap();
    let stale = format!("file:{}:n ([0-9])", stale.display());
    for (metric, script, parts) in [
        ("stdout:tps = (.*)", "echo no", &["matches nothing", "it printed: no"][..]),
        ("stdout:tps = (.*)", ":", &["matches nothing"]),
        ("stdout:tps = (.*)", "echo tps = many", &["\"many\" is not a number"]),
        ("stdout:([0-9.]+)", &changing, &["changed its unit from ms to s"]),
        ("stdout:([0-9.]+)", "echo 0", &["not above 0"]),
        (&stale, ":", &["did not write the file"]),
        ("file:/nonexistent/file:x", ":", &["/nonexistent/file"]),
        ("cmd:false", ":", &["the metric's command failed"]),
        ("cmd:echo text", ":", &["is not a number"]),
        ("cmd:/nonexistent/program", ":", &["cannot be started"]),
    ] {
        let options = ["--change", "env:X=1", "--metric", metric, "--runs", "3"];
        field(&options, &shell(script)).expect(1).says(parts);
    }
}

#[test]
fn hanging_program_is_ended() {
    let time = unique();
    let options = ["--change", "env:X=1", "--timeout", "300ms"];
    let ran = field(&options, &["sleep", &time]).expect(1);
    ran.says(&["did not end within 0.3 s", "--timeout"]);
    expect_none_with(&time);
    // Neither SIGTERM nor a session of its own protects it.
    let deaf = format!("trap '' TERM HUP INT; setsid sleep {time} & while :; do sleep 0.1; done");
    field(&options, &shell(&deaf)).expect(1).says(&["did not end within"]);
    expect_none_with(&time);
}

#[test]
fn processes_that_a_run_leaves_are_ended_and_reported() {
    let time = unique();
    // A child, one in a session of its own, and one whose parents have ended.
    let script = format!(
        "sleep {time} & setsid sleep {time} & (setsid sh -c 'sleep {time} & sleep {time}' &); exit 0"
    );
    let options = ["--change", "env:X=1", "--runs", "3", "--json"];
    let ran = field(&options, &shell(&script)).expect(0);
    expect_none_with(&time);
    let record = verdict_of(&ran);
    assert!(record.text("note").unwrap().contains("runs left processes"), "{record:?}");
    ran.says(&["runs left processes, which haul ended: sleep"]);
}

#[test]
fn server_that_does_not_serve_is_reported() {
    let time = unique();
    let of = |server: &str, load: &str| {
        let words = ["field", "--change", "env:X=1", "--server", server, "--ready", "ready"];
        let ran = run(&mut haul(&[&words[..], &["--load", load, "--runs", "3"]].concat()));
        expect_none_with(&time);
        ran
    };
    of("sh -c 'echo broken >&2; exit 3'", "true").expect(1).says(&[
        "not ready before its end",
        "exit code 3",
        "broken",
    ]);
    // The server ends once the load has opened the pipe, and the load ends after it.
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let pipe = pipe.display();
    of(&format!("sh -c 'echo ready; : >{pipe}'"), &format!("sh -c 'cat {pipe}; sleep 5'"))
        .expect(1)
        .says(&["did not outlive its load"]);
    let serves = format!("sh -c 'echo ready; sleep {time}'");
    of(&serves, "sh -c 'exit 4'").expect(1).says(&["the load failed", "exit code 4"]);
    of(&serves, "/nonexistent/load").expect(1).says(&["cannot be started"]);
    of(&serves, "true").expect(0);
}

/// In a container, the session of its first process is another PID namespace's.
#[test]
fn session_may_be_outside_of_the_container() {
    let container = ["-pf", "--mount-proc"];
    let probe = Command::new("unshare").args(container).arg("true").output();
    if !probe.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: a test of a change in a container: no PID namespaces: run as root");
        return;
    }
    let mut command = Command::new("unshare");
    command.args(container).arg(env!("CARGO_BIN_EXE_haul"));
    command.args(["field", "--change", "env:X=1", "--runs", "3", "--", "true"]);
    run(command.env("HAUL_TUNING", "off")).expect(0);
}

fn started(options: &[&str], program: &[&str]) -> Child {
    let mut command: Command = haul(&[&["field"], options, &["--"], program].concat());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

#[test]
fn interrupted_test_keeps_its_rounds() {
    let (time, folder) = (unique(), tempfile::tempdir().unwrap());
    let script = after(2 + 6, "echo 5", &format!("sleep {time}"), folder.path());
    let options = ["--change", "env:X=1", "--metric", "stdout:([0-9])", "--json"];
    for signal in [Signal::INT, Signal::TERM] {
        let _ = fs::remove_file(folder.path().join("count"));
        let child = started(&options, &shell(&script));
        wait_until_it_watches(&child);
        wait_until("the third round runs", || !processes_with(&format!("\0{time}")).is_empty());
        kill_process(Pid::from_child(&child), signal).unwrap();
        let ran = finish(child).expect(128 + signal.as_raw()).says(&["interrupted", "kept"]);
        assert_eq!(verdict_of(&ran).samples, [5.0; 2]);
        expect_none_with(&time);
    }
}

#[test]
fn killed_test_leaves_no_process() {
    let time = unique();
    let script = format!("setsid sleep {time} & sleep {time}");
    let child = started(&["--change", "env:X=1"], &shell(&script));
    wait_until("the program runs", || processes_with(&format!("\0{time}")).len() >= 2);
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    finish(child);
    wait_until("the program's processes end", || processes_with(&time).is_empty());
}

#[test]
fn killed_supervisor_leaves_no_process() {
    let time = unique();
    let script = format!("setsid sleep {time} & sleep {time}");
    let child = started(&["--change", "env:X=1"], &shell(&script));
    wait_until("the program runs", || processes_with(&format!("\0{time}")).len() >= 2);
    let program = processes_with(&format!("\0{time}"))[0].as_raw_nonzero().get();
    let parent_of = |process: i32| -> i32 {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.split(' ').nth(1).unwrap().parse().unwrap()
    };
    let mut supervisor = program;
    while parent_of(supervisor) != i32::try_from(child.id()).unwrap() {
        supervisor = parent_of(supervisor);
    }
    kill_process(Pid::from_raw(supervisor).unwrap(), Signal::KILL).unwrap();
    finish(child).expect(1).says(&["supervises the command failed"]);
    expect_none_with(&time);
}
