//! `haul heap record`, `info` and `list`.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use haul::heap::{Heap, Request};
use rustix::process::{Pid, Signal, kill_process};

use crate::patience::read_until;
use crate::{away, finish, haul, install, run};

/// The folder of this build's libraries, with the recorder.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = Path::new(env!("CARGO_BIN_EXE_haul")).parent().unwrap().to_owned();
        let mut cargo = Command::new(env!("CARGO"));
        // With the features of the program, so that what both need is compiled once.
        let both = ["-p", "haul-record", "-p", "haul-cli"];
        cargo.args(["build", "--quiet", "--locked", "--lib"]).args(both);
        cargo.env("CARGO_TARGET_DIR", folder.parent().unwrap());
        run(cargo.current_dir(env!("CARGO_MANIFEST_DIR"))).expect(0);
        assert!(folder.join("libhaul_record.so").exists(), "cargo left no libhaul_record.so");
        folder
    })
}

/// `haul heap record` in a folder.
pub(crate) fn record(folder: &Path, arguments: &[&str]) -> Command {
    built();
    let mut command = haul(&["heap", "record"]);
    command.args(arguments).current_dir(folder).env_remove("LD_PRELOAD");
    command
}

#[test]
fn record_keeps_programs_output_and_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let sort = ["-o", "sort.trace", "--", "sort", "-r", "words"];
    fs::write(folder.path().join("words"), "a\nc\nb\n").unwrap();
    let ran = run(&mut record(folder.path(), &sort)).expect(0);
    assert_eq!(ran.out, "c\nb\na\n");
    assert!(ran.err.contains("sort.trace (sort)"), "{ran:#?}");
    let info = |more: &[&str]| {
        let mut command = haul(&["heap", "info", "sort.trace"]);
        run(command.args(more).current_dir(folder.path())).expect(0)
    };
    let text = info(&[]).out;
    for part in ["program    sort, process", "allocations (", "at most", "half up to"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let records = info(&["--json"]).records();
    let of = |metric: &str| records.iter().find(|record| record.metric == metric).unwrap();
    assert!(of("allocations").median().unwrap() >= 1.0);
    assert_eq!(of("live_peak").parameters["program"], "sort");
    // An existing file is never overwritten; the error comes before the program runs.
    let again = run(&mut record(folder.path(), &sort)).expect(2).says(&["it exists", "-o"]);
    assert_eq!(again.out, "");
    // Without -o, the trace gets the program's name, and the next recording finds a free name.
    for name in ["sort.trace", "sort-2.trace"] {
        let _ = fs::remove_file(folder.path().join("sort.trace"));
        fs::write(folder.path().join("sort.trace"), "").unwrap();
        if name == "sort.trace" {
            fs::remove_file(folder.path().join("sort.trace")).unwrap();
        }
        run(&mut record(folder.path(), &["sort", "words"])).expect(0).says(&[name]);
    }
}

/// Files of a folder whose names begin with `begin`.
fn named(folder: &Path, begin: &str) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(begin)).collect();
    names.sort();
    names
}

/// The output of `heap info` for a trace.
fn info(folder: &Path, trace: &str) -> String {
    run(haul(&["heap", "info", trace]).current_dir(folder)).expect(0).out
}

#[test]
fn requested_program_gets_requested_name_and_others_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let script = "sort words | sort -r; exit 7";
    fs::write(folder.path().join("words"), "a\nb\n").unwrap();
    let arguments = ["-o", "all", "--", "sh", "-c", script];
    let ran = run(&mut record(folder.path(), &arguments)).expect(7);
    assert_eq!(ran.out, "b\na\n");
    let ran = ran.says(&["ended with exit code 7; its trace is complete", "all (sh)", "(sort)"]);
    assert_eq!(ran.err.lines().filter(|line| line.contains("haul: recorded")).count(), 1);
    let others = named(folder.path(), "all.").len();
    let expected = format!("{others} other programs of the run have a trace each, named ");
    assert!(others >= 2 && ran.err.contains(&expected), "{others}: {ran:#?}");
    assert!(info(folder.path(), "all").contains("program    sh, process"));
}

/// A shim, like those of pyenv and rustup: it starts many programs, and then executes the requested
/// program.
#[test]
fn trace_of_a_shim_is_of_the_executed_program() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("words"), "b\na\n").unwrap();
    let script = "for i in 1 2 3 4 5 6 7 8 9; do x=$(sort words | sort); done; exec sort words";
    let arguments = ["-o", "shim.trace", "--", "sh", "-c", script];
    let ran = run(&mut record(folder.path(), &arguments)).expect(0);
    let ran = ran.says(&["shim.trace (sort)", "a trace each", "shim.trace.PROCESS"]);
    assert!(ran.err.lines().count() <= 4, "{ran:#?}");
    assert!(info(folder.path(), "shim.trace").contains("program    sort, process"));
}

#[test]
fn trace_name_may_place_the_process() {
    let folder = tempfile::tempdir().unwrap();
    // A placeholder in the folder's name is not replaced.
    let below = folder.path().join("100%pure");
    fs::create_dir(&below).unwrap();
    fs::write(below.join("words"), "b\na\n").unwrap();
    let ran = run(&mut record(&below, &["-o", "%p.trace", "--", "sort", "words"])).expect(0);
    let traces: Vec<String> =
        named(&below, "").into_iter().filter(|name| name.ends_with(".trace")).collect();
    let [trace] = &traces[..] else { panic!("{traces:?}: {ran:#?}") };
    assert!(trace.trim_end_matches(".trace").parse::<u32>().is_ok(), "{trace}");
    assert!(
        ran.err.contains(&format!("haul: recorded {}", below.join(trace).display())),
        "{ran:#?}"
    );
    assert!(info(&below, trace).contains("program    sort, process"));
    run(&mut record(&below, &["-o", "plain", "--", "sort", "words"])).expect(0);
    assert_eq!(named(&below, "plain"), ["plain"]);
}

/// Compiles a C program; `None` without a compiler.
pub(crate) fn compiled(folder: &Path, source: &str, flags: &[&str]) -> Option<PathBuf> {
    let (file, program) = (folder.join("p.c"), folder.join("p"));
    fs::write(&file, source).unwrap();
    let mut gcc = Command::new("gcc");
    match gcc.args(["-O0", "-fno-builtin", "-o"]).arg(&program).arg(&file).args(flags).status() {
        Ok(status) => {
            assert!(status.success());
            Some(program)
        }
        Err(_) => {
            eprintln!("SKIPPED: C programs that are recorded: no gcc on PATH: apt-get install gcc");
            None
        }
    }
}

/// A malloc that is linked into a program precedes the recorder's.
const OWN_MALLOC: &str = r#"
#include <stddef.h>
#include <stdio.h>
#include <string.h>
static char pool[1 << 24];
static size_t used;
void *malloc(size_t n) { void *p = pool + used; used += (n + 15) & ~(size_t)15; return p; }
void free(void *p) { (void)p; }
void *calloc(size_t a, size_t b) { return malloc(a * b); }
void *realloc(void *p, size_t n) { void *q = malloc(n); if (p) memcpy(q, p, n); return q; }
int main(void) { puts("done"); return 0; }
"#;

#[test]
fn record_fails_with_reason_for_invisible_program() {
    let folder = tempfile::tempdir().unwrap();
    let nothing = |program: &str, why: &str| {
        let ran = run(&mut record(folder.path(), &["-o", "t", "--", program])).expect(1);
        let ran = ran.says(&["recorded nothing of ", why]);
        assert!(!ran.err.contains("haul: recorded"), "{ran:#?}");
        assert_eq!(named(folder.path(), "t"), Vec::<String>::new());
    };
    let Some(program) = compiled(folder.path(), OWN_MALLOC, &[]) else { return };
    nothing(program.to_str().unwrap(), "its own malloc");
    const PLAIN: &str = "#include <stdlib.h>\nint main(void) { free(malloc(9)); return 0; }";
    if let Some(program) = compiled(folder.path(), PLAIN, &["-static"]) {
        nothing(program.to_str().unwrap(), "linked statically");
    }
    const NONE: &str = "int main(void) { return 0; }";
    if let Some(program) = compiled(folder.path(), NONE, &[]) {
        nothing(program.to_str().unwrap(), "allocated no memory");
    }
}

#[test]
fn record_reports_hidden_memory_of_a_program() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("words"), "b\na\n").unwrap();
    // The recorder is removed when the process executes another program.
    let arguments = ["-o", "env", "--", "env", "-u", "LD_PRELOAD", "sort", "words"];
    run(&mut record(folder.path(), &arguments)).expect(0).says(&["env (env)", "went on as sort"]);
    // Any program with this name counts as Python.
    let python = folder.path().join("python3");
    let Some(program) = compiled(
        folder.path(),
        "#include <stdlib.h>\nint main(void) { free(malloc(9)); return 0; }",
        &[],
    ) else {
        return;
    };
    fs::rename(program, &python).unwrap();
    let python = python.to_str().unwrap();
    let of = |name: &str, setting: Option<&str>| {
        let mut command = record(folder.path(), &["-o", name, "--", python]);
        match setting {
            Some(setting) => command.env("PYTHONMALLOC", setting),
            None => command.env_remove("PYTHONMALLOC"),
        };
        run(&mut command).expect(0).err
    };
    assert!(of("python.trace", None).contains("PYTHONMALLOC=malloc"));
    assert!(of("pymalloc.trace", Some("pymalloc")).contains("PYTHONMALLOC=malloc"));
    assert!(!of("malloc.trace", Some("malloc")).contains("PYTHONMALLOC"));
    // A linked-in allocator is recognized by a text that it contains.
    const LINKED_IN: &str = r#"
        #include <stdlib.h>
        const char *says = "<jemalloc>: out of memory";
        int main(void) { free(malloc(9)); return says[0] != '<'; }
    "#;
    let Some(program) = compiled(folder.path(), LINKED_IN, &[]) else { return };
    let arguments = ["-o", "linked.trace", "--", program.to_str().unwrap()];
    run(&mut record(folder.path(), &arguments)).expect(0).says(&["has jemalloc linked in"]);
}

#[test]
fn early_end_of_traces_is_reported_once() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("words"), "b\na\n").unwrap();
    let script = "sort words; sort words; sort words; exit 3";
    let mut command = record(folder.path(), &["-o", "cut", "--", "sh", "-c", script]);
    let ran = run(command.env("HAUL_RECORD_LIMIT", "1000")).expect(1);
    let ran = ran.says(&["its trace could not be written"]);
    assert_eq!(ran.err.matches("haul_record:").count(), 1, "{ran:#?}");
    assert_eq!(named(folder.path(), "."), Vec::<String>::new(), "no marker stays");
    // One block of the file, which the first program fills.
    const MANY: &str = r#"
        #include <stdlib.h>
        int main(void) { for (int i = 0; i < 100000; i++) free(malloc(9)); return 3; }
    "#;
    let Some(program) = compiled(folder.path(), MANY, &[]) else { return };
    let mut command = record(folder.path(), &["-o", "cut", "--", program.to_str().unwrap()]);
    let ran = run(command.env("HAUL_RECORD_LIMIT", "200000")).expect(3);
    ran.says(&["haul: recorded", "exit code 3; its trace ends before it did"]);
}

#[test]
fn record_reports_failing_and_unrecordable_programs() {
    let folder = tempfile::tempdir().unwrap();
    let of = |arguments: &[&str]| run(&mut record(folder.path(), arguments));
    of(&["-o", "a", "--", "/no/such/program"]).expect(1).says(&["cannot start", "PATH"]);
    let ran = of(&["-o", "b", "--", "sh", "-c", "kill -9 $$"]).expect(128 + 9);
    ran.says(&["exit code 137", "recorded"]);
    of(&["-o", "no/such/folder/c", "--", "true"]).expect(1).says(&["cannot write"]);
    of(&[]).expect(2);
    // A copy of haul without the library beside it.
    let lonely = folder.path().join("bin");
    fs::create_dir(&lonely).unwrap();
    install(env!("CARGO_BIN_EXE_haul").as_ref(), &lonely.join("haul"));
    let mut command = Command::new(lonely.join("haul"));
    away(command.args(["heap", "record", "true"]).current_dir(folder.path()));
    run(&mut command).expect(1).says(&["libhaul_record.so", "-p haul-record", "scripts/install"]);
    // In an installation, the library is in the lib beside bin.
    fs::create_dir(folder.path().join("lib")).unwrap();
    let library = "libhaul_record.so";
    symlink(built().join(library), folder.path().join("lib").join(library)).unwrap();
    let mut command = Command::new(lonely.join("haul"));
    away(command.args(["heap", "record", "--", "sort", "/dev/null"]).current_dir(folder.path()));
    run(&mut command).expect(0).says(&["sort.trace"]);
}

#[test]
fn record_continues_after_ctrl_c() {
    let folder = tempfile::tempdir().unwrap();
    // The script ends by itself when it is interrupted, like a server.
    let script = "trap 'sort words; exit 0' INT; echo ready; while :; do sleep 0.05; done";
    fs::write(folder.path().join("words"), "b\na\n").unwrap();
    let arguments = ["-o", "server", "--", "sh", "-c", script];
    let mut command = record(folder.path(), &arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // From here on the script runs with its trap, and haul watches for signals.
    read_until(child.stdout.as_mut().unwrap(), "ready\n");
    // Like a terminal, the test sends the signal to all processes in the foreground.
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let of_parent = |pid: u32| -> Vec<u32> {
        let path = format!("/proc/{pid}/task/{pid}/children");
        let text = fs::read_to_string(path).unwrap_or_default();
        text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    };
    for shell in of_parent(child.id()) {
        // The script may have ended since.
        let _ = kill_process(Pid::from_raw(shell.cast_signed()).unwrap(), Signal::INT);
    }
    // The exit code of haul is the program's.
    let ran = finish(child).expect(0);
    assert!(ran.out.contains("a\nb"), "{ran:#?}");
    ran.says(&["interrupted", "haul: recorded"]);
}

/// Runs the document's first example unchanged, except for the paths of the build.
#[test]
fn documented_example_runs_as_shown() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/heap-trace.md");
    let text = fs::read_to_string(document).unwrap();
    let block = text.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let libraries = folder.path().join("target");
    fs::create_dir(&libraries).unwrap();
    symlink(built(), libraries.join("release")).unwrap();
    let script: String = block
        .lines()
        .filter(|line| !line.starts_with("cargo build "))
        .map(|line| match line.starts_with("haul heap replay") {
            true => format!("{line} --against libc --budget 10ms\n"),
            false => {
                format!("{}\n", line.replace("/tmp/", &format!("{}/", folder.path().display())))
            }
        })
        .collect();
    let path = format!("{}:{}", built().display(), env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    away(shell.args(["-ec", &script]).current_dir(folder.path()).env("PATH", path));
    let ran = run(shell.env_remove("LD_PRELOAD")).expect(0);
    for part in ["program    sort, process", "largest footprint"] {
        assert!(ran.out.contains(part), "{part}: {ran:#?}");
    }
    // One trace is from the first recording, the other from the recording without haul.
    assert_eq!(named(folder.path(), "sort.trace").len(), 2, "{ran:#?}");
}

#[test]
fn list_shows_shared_heaps() {
    let name = format!("list-{}", std::process::id());
    let heap = Heap::builder().limit(64 << 20).shared_named(&name).unwrap();
    let block = heap.alloc(Request::new(4096).aligned(16)).unwrap();
    let ran = run(&mut haul(&["heap", "list"])).expect(0);
    let line = ran.out.lines().find(|line| line.starts_with(&name));
    let line = line.unwrap_or_else(|| panic!("{ran:#?}")).to_owned();
    let user = run(Command::new("id").arg("-un")).expect(0).out;
    assert!(line.contains(user.trim()), "{line}");
    assert!(line.contains(" 1 ") && line.contains("64.0 MiB"), "{line}");
    let records = run(&mut haul(&["heap", "list", "--json"])).expect(0).records();
    let live = records.iter().find(|r| r.parameters["heap"] == *name && r.metric == "live");
    assert!(live.unwrap().median().unwrap() >= 4096.0);
    // SAFETY: allocated above, and freed once.
    unsafe { heap.free(block) }.unwrap();
    Heap::remove_name(&name).unwrap();
    let ran = run(&mut haul(&["heap", "list"])).expect(0);
    assert!(!ran.out.contains(&name), "{ran:#?}");
    // A file that is not a heap is reported, and does not stop the list.
    let bad = Path::new("/dev/shm").join(format!("haul-heap.bad-{}", std::process::id()));
    fs::write(&bad, "nonsense").unwrap();
    let ran = run(&mut haul(&["heap", "list"]));
    fs::remove_file(&bad).unwrap();
    let ran = ran.expect(0);
    assert!(ran.out.lines().any(|line| line.starts_with("bad-")), "{ran:#?}");
}
