//! The library, a file for a recording, and compiled programs.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use haul_model::stream::recording::Recording;
use haul_model::stream::recording::layout::{self, head};
use tempfile::TempDir;

/// A folder with a file for a recording.
pub(crate) struct Setup {
    pub(crate) folder: TempDir,
}

impl Setup {
    pub(crate) fn new() -> Self {
        let setup = Self { folder: tempfile::tempdir().expect("a temporary folder can be made") };
        const BLOCKS: u32 = 1000;
        let blocks_at = layout::blocks_at(64, 256);
        let mut file = vec![0; blocks_at + BLOCKS as usize * layout::BLOCK_BYTES];
        let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &layout::MAGIC);
        for (at, number) in [
            (head::VERSION_AT, layout::VERSION),
            (head::PROCESSES, 64),
            (head::THREADS, 256),
            (head::BLOCKS, BLOCKS),
        ] {
            put(at, &number.to_ne_bytes());
        }
        put(head::CALLS, &100_000_u64.to_ne_bytes());
        put(head::SAMPLE, &10_u64.to_ne_bytes());
        fs::write(setup.file(), file).expect("the folder is ours");
        setup
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("recording")
    }

    /// A command that runs the program under the library, recording.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", library()).env("HAUL_COPY_RECORD", self.file());
        command
    }

    /// A command that runs the program under the library, without a recording.
    pub(crate) fn plain(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.command(program);
        command.env_remove("HAUL_COPY_RECORD");
        command
    }

    /// The number of calls in the recording that have this size.
    pub(crate) fn calls(&self, size: u32) -> usize {
        let bytes = fs::read(self.file()).expect("the file is ours");
        let recording = Recording::parse(&bytes).expect("the library keeps the header");
        let events = recording.threads.iter().flat_map(|thread| &thread.events);
        events.filter(|event| event.size == size).count()
    }

    /// Compiles a C program or library into the folder.
    pub(crate) fn compile(&self, name: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
        if !is_here("gcc") {
            skip("C programs under libhaul_copy_record", "no gcc on PATH", "apt-get install gcc");
            return None;
        }
        let file = self.folder.path().join(format!("{name}.c"));
        let built = self.folder.path().join(name);
        fs::write(&file, source).expect("the folder is ours");
        let mut gcc = Command::new("gcc");
        gcc.arg("-w").arg("-o").arg(&built).arg(&file).args(flags);
        assert!(gcc.status().expect("gcc is here").success());
        Some(built)
    }
}

/// The library. Cargo builds it for this test too, but leaves that one without its name.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let test = std::env::current_exe().expect("Linux knows it");
        let folder = test.parent().and_then(Path::parent).expect("cargo's layout").to_owned();
        let mut cargo = Command::new(env!("CARGO"));
        // With the features of the program, so that what both need is compiled once.
        let both = ["--package", "haul-copy-record", "--package", "haul-cli"];
        cargo.args(["build", "--quiet", "--locked", "--lib"]).args(both);
        if folder.ends_with("release") {
            cargo.arg("--release");
        }
        cargo.env("CARGO_TARGET_DIR", folder.parent().expect("cargo's layout"));
        succeed(cargo.current_dir(env!("CARGO_MANIFEST_DIR")));
        folder.join("libhaul_copy_record.so")
    })
}

/// Runs a command, which must succeed.
pub(crate) fn succeed(command: &mut Command) -> Output {
    let output = command.output().expect("it can be started");
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

pub(crate) fn is_here(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

pub(crate) fn skip(what: &str, why: &str, remedy: &str) {
    eprintln!("SKIPPED: {what}: {why}: {remedy}");
}
