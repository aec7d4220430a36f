//! A program under the recorder, and its traces.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use haul_model::trace::{Header, History};
use tempfile::TempDir;

/// More operations than any program of these tests makes.
const OPERATIONS_MAX: usize = 10_000_000;

/// A folder for a program's traces.
pub(crate) struct Recording {
    pub(crate) folder: TempDir,
}

/// One trace.
pub(crate) struct Trace {
    pub(crate) header: Header,
    pub(crate) history: History,
}

impl Recording {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a temporary folder can be made") }
    }

    /// A command that runs the program under the recorder.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", library()).env("HAUL_RECORD", self.folder.path().join("t"));
        command
    }

    /// Every trace in the folder, in the order in which they began.
    pub(crate) fn traces(&self) -> Vec<Trace> {
        let entries = std::fs::read_dir(self.folder.path()).expect("the folder is ours");
        let paths = entries.map(|entry| entry.expect("the folder is ours").path());
        let mut traces: Vec<Trace> =
            paths.filter(|path| name(path).starts_with("t.")).map(|path| read(&path)).collect();
        traces.sort_by_key(|trace| trace.header.clock_ns);
        traces
    }

    /// The only trace.
    pub(crate) fn trace(&self) -> Trace {
        let mut traces = self.traces();
        assert_eq!(traces.len(), 1, "traces");
        traces.remove(0)
    }

    /// Compiles a C program into the folder.
    pub(crate) fn compile(&self, source: &str, flags: &[&str]) -> Option<PathBuf> {
        if !is_here("gcc") {
            skip("C programs under the recorder", "no gcc on PATH", "apt-get install gcc");
            return None;
        }
        let (file, program) = (self.folder.path().join("p.c"), self.folder.path().join("p"));
        std::fs::write(&file, source).expect("the folder is ours");
        let mut gcc = Command::new("gcc");
        // Without optimization, the compiler keeps every call of malloc.
        succeed(gcc.args(["-O0", "-o"]).arg(&program).arg(&file).args(flags));
        Some(program)
    }
}

/// Reads a trace.
pub(crate) fn read(path: &Path) -> Trace {
    let bytes = std::fs::read(path).expect("the trace is ours");
    let (header, history) = History::parse(&bytes, OPERATIONS_MAX)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Trace { header, history }
}

/// Runs a command that has to succeed.
pub(crate) fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

/// Whether a program is on PATH.
pub(crate) fn is_here(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Whether this test runs as root.
pub(crate) fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n")
}

/// Prints that a test was skipped, in the form that scripts/test counts.
pub(crate) fn skip(what: &str, why: &str, remedy: &str) {
    eprintln!("SKIPPED: {what}: {why}: {remedy}");
}

/// The library's release build, made once for these tests, because users get a release build.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let target = folder.parent().expect("target/tmp has a parent");
        let mut cargo = Command::new(env!("CARGO"));
        // With the features of the whole build, as scripts/install builds it, so that what both
        // need is compiled once.
        cargo.args(["build", "--release", "--lib", "-p", "haul-record", "-p", "haul-cli"]);
        succeed(cargo.env("CARGO_TARGET_DIR", target).current_dir(env!("CARGO_MANIFEST_DIR")));
        target.join("release/libhaul_record.so")
    })
}

fn name(path: &Path) -> String {
    path.file_name().expect("an entry has a name").to_string_lossy().into_owned()
}
