//! The library and compiled programs.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use haul_model::profile::Profile;
use tempfile::TempDir;

/// A folder for a profile and programs.
pub(crate) struct Setup {
    pub(crate) folder: TempDir,
}

impl Setup {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a temporary folder can be made") }
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("profile.mapped")
    }

    /// A command that runs the program under the library, which is not profiled and reads no
    /// `haul.toml`.
    pub(crate) fn plain(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", library()).env("HAUL_TUNING", "off");
        command.env_remove("HAUL_COPY_PROFILE");
        command
    }

    /// A command that runs the program under the library, profiled.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.plain(program);
        command.env("HAUL_COPY_PROFILE", self.file());
        command
    }

    /// What the profile contains.
    pub(crate) fn profile(&self) -> Profile {
        let bytes = fs::read(self.file()).expect("the library creates it");
        Profile::parse(&bytes).expect("the library keeps the header")
    }

    /// Compiles a C program or library into the folder.
    pub(crate) fn compile(&self, name: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
        if !is_here("gcc") {
            skip("C programs under libhaul_copy", "no gcc on PATH", "apt-get install gcc");
            return None;
        }
        Some(self.compile_by("gcc", name, source, flags))
    }

    /// Compiles as [`Setup::compile`] does, by another compiler, which must be on PATH.
    pub(crate) fn compile_by(
        &self,
        compiler: &str,
        name: &str,
        source: &str,
        flags: &[&str],
    ) -> PathBuf {
        let file = self.folder.path().join(format!("{name}.c"));
        let built = self.folder.path().join(name);
        fs::write(&file, source).expect("the folder is ours");
        let mut compile = Command::new(compiler);
        compile.arg("-w").arg("-o").arg(&built).arg(&file).args(flags);
        assert!(compile.status().expect("the compiler is here").success());
        built
    }
}

/// The library, as users preload it: without the checks of a debug build, which link the standard
/// library.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let test = std::env::current_exe().expect("Linux knows it");
        let folder = test.parent().and_then(Path::parent).expect("cargo's layout");
        let target = folder.parent().expect("cargo's layout");
        let mut cargo = Command::new(env!("CARGO"));
        // With the features of the program, so that what both need is compiled once.
        let both = ["--package", "haul-copy-preload", "--package", "haul-cli"];
        cargo.args(["build", "--quiet", "--locked", "--release", "--lib"]).args(both);
        cargo.env("CARGO_TARGET_DIR", target).env_remove("LD_PRELOAD");
        succeed(cargo.current_dir(env!("CARGO_MANIFEST_DIR")));
        target.join("release/libhaul_copy.so")
    })
}

/// Runs a command, which must succeed.
pub(crate) fn succeed(command: &mut Command) -> Output {
    let output = command.output().expect("it can be started");
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

/// Runs a command, which must succeed and print nothing.
pub(crate) fn succeed_silently(command: &mut Command) {
    let output = succeed(command);
    assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{command:?}: {output:?}");
}

pub(crate) fn is_here(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

pub(crate) fn skip(what: &str, why: &str, remedy: &str) {
    eprintln!("SKIPPED: {what}: {why}: {remedy}");
}
