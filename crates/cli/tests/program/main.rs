//! The program from a user's view: exit codes, messages, JSON, and every wrong input.

mod bench;
mod channel;
mod channel_bench;
mod channel_stream;
mod compare;
mod copy_advise;
mod copy_preload;
mod copy_record;
mod copy_stream;
mod definition;
mod doctor;
mod documents;
mod engine_fake;
mod engine_tuning;
mod field;
mod field_hostile;
mod forward;
mod forward_between;
mod forward_flows;
mod forward_guest;
mod forward_ports;
mod forward_switches;
mod forward_users;
mod forward_watch;
mod heap_bench;
mod heap_record;
mod heap_replay;
mod limits;
mod machine;
#[path = "../../../forward/tests/forward/network.rs"]
mod network;
mod patience;
mod pcie;
mod pcie_bandwidth;
mod pcie_explain;
mod pcie_sweep;
mod pcie_watch;
mod report;
mod shell;
mod signals;
mod sim;
mod survey;
mod terminal;
#[path = "../trace/mod.rs"]
mod trace;
mod tune;
mod tuning;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use haul_model::{Line, Machine, Record};

/// Longest time for any of these commands: a hang is a failure, not a wait.
const LIMIT: Duration = Duration::from_secs(240);

/// Output and exit code of a run of the program.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

/// The program, without this user's tuning. `HAUL_TESTED` names another one than that of this
/// build: tests of times use the one that users install, and need no optimised build of the tests.
fn haul(arguments: &[&str]) -> Command {
    let built = || env!("CARGO_BIN_EXE_haul").into();
    let mut command = Command::new(std::env::var_os("HAUL_TESTED").unwrap_or_else(built));
    command.args(arguments);
    away(&mut command);
    command
}

fn away(command: &mut Command) {
    command.env("HAUL_TUNING", "off").env_remove("XDG_CONFIG_HOME").env("HOME", "/nonexistent");
}

fn run(command: &mut Command) -> Ran {
    run_with_input(command, b"")
}

fn run_with_input(command: &mut Command, input: &[u8]) -> Ran {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    // A program may close its input without reading it; the callers check what matters.
    let _ = child.stdin.take().expect("piped").write_all(input);
    finish(child)
}

/// Waits until a condition holds; `what` describes it.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LIMIT, "waited too long: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn finish(mut child: Child) -> Ran {
    let out = reader(child.stdout.take().expect("piped"));
    let err = reader(child.stderr.take().expect("piped"));
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("this process started the child") {
            break status;
        }
        if start.elapsed() > LIMIT {
            child.kill().expect("this process started the child");
            panic!("still running after {LIMIT:?}: {}", err.join().unwrap());
        }
        thread::sleep(Duration::from_millis(10));
    };
    Ran { code: status.code(), out: out.join().unwrap(), err: err.join().unwrap() }
}

fn reader(mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).expect("a pipe can be read");
        String::from_utf8(bytes).expect("haul writes text")
    })
}

impl Ran {
    #[track_caller]
    fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// Fails unless standard error contains all of these.
    #[track_caller]
    fn says(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(self.err.contains(part), "lacks {part:?}: {self:#?}");
        }
        assert!(!self.err.contains("panicked"), "{self:#?}");
        self
    }

    /// Standard output as lines of a record file.
    #[track_caller]
    fn lines(&self) -> Vec<Line> {
        haul_model::parse(&self.out).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    #[track_caller]
    fn records(&self) -> Vec<Record> {
        let records = records_of(self.lines());
        check_keys_are_unique(&records);
        records
    }

    #[track_caller]
    fn machine(&self) -> Machine {
        match self.lines().into_iter().next() {
            Some(Line::Machine(machine)) => machine,
            other => panic!("{other:?}"),
        }
    }
}

fn records_of(lines: Vec<Line>) -> Vec<Record> {
    lines
        .into_iter()
        .filter_map(|line| match line {
            Line::Record(record) => Some(record),
            Line::Machine(_) => None,
        })
        .collect()
}

/// Fails if two records of one run have the same key, because a reader could not distinguish them.
#[track_caller]
fn check_keys_are_unique(records: &[Record]) {
    let mut seen = BTreeSet::new();
    for record in records {
        let parameters = serde_json::to_string(&record.parameters).unwrap();
        let key = (&record.run, &record.experiment, &record.subject, &record.metric, parameters);
        assert!(!seen.contains(&key), "twice: {key:?}");
        seen.insert(key);
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A folder that every user can read, with a copy of the program that every user can run.
fn public_folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("haul");
    install(env!("CARGO_BIN_EXE_haul").as_ref(), &program);
    (folder, program)
}

/// Puts a copy of the program `from` at `to`, ready to be started.
///
/// Another process writes the copy. If this process wrote it, a child that another test starts at
/// the same time would hold the open file until its own `exec`. Until then the program could not
/// be run: `Text file busy`.
fn install(from: &Path, to: &Path) {
    let ran = run(Command::new("install").args(["-m", "755"]).args([from, to]));
    assert_eq!(ran.code, Some(0), "{ran:#?}");
}

/// A user without rights, because root ignores permission bits.
const NOBODY: u32 = 65534;

/// The program at `path`, run by a user to whom permission bits apply.
fn unprivileged(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    away(&mut command);
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

#[test]
fn every_command_has_help() {
    for command in [
        &["--help"][..],
        &["doctor", "--help"],
        &["survey", "--help"],
        &["report", "--help"],
        &["compare", "--help"],
        &["completions", "--help"],
        &["man", "--help"],
        &["copy", "--help"],
        &["copy", "list", "--help"],
        &["copy", "bench", "--help"],
        &["copy", "tune", "--help"],
        &["channel", "--help"],
        &["channel", "list", "--help"],
        &["channel", "bench", "--help"],
        &["channel", "send", "--help"],
        &["channel", "recv", "--help"],
        &["channel", "explain", "--help"],
        &["copy", "record", "--help"],
        &["heap", "--help"],
        &["heap", "bench", "--help"],
        &["heap", "replay", "--help"],
        &["heap", "map", "--help"],
        &["heap", "record", "--help"],
        &["heap", "info", "--help"],
        &["heap", "list", "--help"],
        &["field", "--help"],
        &["forward", "--help"],
        &["forward", "pvp", "--help"],
        &["pcie", "--help"],
        &["pcie", "list", "--help"],
        &["pcie", "estimate", "--help"],
        &["pcie", "bandwidth", "--help"],
        &["sim", "--help"],
        &["sim", "run", "--help"],
        &["sim", "reproduce", "--help"],
        &["sim", "sweep", "--help"],
        &["sim", "task", "--help"],
        &["sim", "collect", "--help"],
    ] {
        let ran = run(&mut haul(command)).expect(0);
        assert!(ran.out.contains("Usage: haul"), "{ran:#?}");
    }
}

#[test]
fn wrong_usage_exits_with_code_2() {
    for arguments in [
        &["nothing"][..],
        &["copy"],
        &["copy", "bench", "--nonsense"],
        &["report"],
        &["doctor", "extra"],
    ] {
        run(&mut haul(arguments)).expect(2);
    }
}

#[test]
fn closed_pipe_is_not_an_error() {
    let mut command = haul(&["copy", "list"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let err = reader(child.stderr.take().unwrap());
    let status = child.wait().unwrap();
    assert_eq!((status.code(), err.join().unwrap().as_str()), (Some(0), ""));
}

#[test]
fn full_standard_output_is_an_error() {
    let Ok(full) = fs::File::options().write(true).open("/dev/full") else {
        eprintln!("SKIPPED: a full standard output: no file /dev/full: mount /dev");
        return;
    };
    for arguments in [&["doctor", "--json"][..], &["--help"], &["--version"], &["copy", "--help"]] {
        let mut command = haul(arguments);
        let out = full.try_clone().unwrap();
        command.stdin(Stdio::null()).stdout(out).stderr(Stdio::piped());
        let output = command.output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {err}");
        assert!(err.contains("cannot write to standard output"), "{arguments:?}: {err}");
    }
}

/// Rust's runtime opens `/dev/null` instead of a closed output, and every write to it succeeds.
#[test]
fn closed_standard_output_is_an_error_and_dev_null_is_not() {
    let words = [&["copy", "list"][..], &["copy", "list", "--json"], &["--help"], &["--version"]];
    for (redirection, code) in [(">&-", 1), (">/dev/null", 0), ("1<>/dev/null", 0)] {
        for arguments in words {
            let line = format!("exec \"$0\" {} {redirection}", arguments.join(" "));
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(line).arg(env!("CARGO_BIN_EXE_haul"));
            shell.stdin(Stdio::null()).stderr(Stdio::piped());
            let output = shell.output().unwrap();
            let err = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(code), "{arguments:?} {redirection}: {err}");
            let is_reported = err.contains("cannot write to standard output");
            assert_eq!(is_reported, code == 1, "{arguments:?} {redirection}: {err}");
        }
    }
}

#[test]
fn control_characters_of_names_do_not_reach_a_terminal() {
    let name = "x\n\u{1b}[31mred";
    for arguments in
        [&["report", name][..], &["copy", "bench", "--nonsense", name], &["doctor", name]]
    {
        let ran = run(&mut haul(arguments));
        assert!(matches!(ran.code, Some(1 | 2)), "{ran:#?}");
        assert!(!ran.err.contains(['\u{1b}', '\r']), "{ran:#?}");
    }
    run(&mut haul(&["report", name])).expect(1).says(&["x\\n\\u{1b}[31mred: "]);
}

#[test]
fn negative_values_are_refused_with_value_and_limit() {
    for (arguments, part) in [
        (&["copy", "bench", "--sizes", "-1"][..], "is not a size"),
        (&["copy", "bench", "--budget", "-1"], "from 1ms to 1h"),
        (&["copy", "bench", "--threads", "-1"], "from 1 to 65535"),
        (&["heap", "bench", "--rounds", "-1"], "from 1 to 1000"),
    ] {
        run(&mut haul(arguments)).expect(2).says(&["'-1'", part]);
    }
}
