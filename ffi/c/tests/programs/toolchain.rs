//! Compilers and tools, and the skips of missing ones.

use std::process::Command;

/// The output of a program.
pub(crate) struct Output {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs a command and panics if it fails.
pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {}\n{stdout}\n{stderr}", output.status);
    Output { stdout, stderr }
}

/// Whether a program is on PATH.
pub(crate) fn is_here(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Reports a skipped test in the form that scripts/test counts.
pub(crate) fn skip(what: &str, why: &str, remedy: &str) {
    eprintln!("SKIPPED: {what}: {why}: {remedy}");
}

/// The installed compilers for "c" or "c++". Each missing compiler is a skip.
pub(crate) fn compilers(language: &str) -> Vec<String> {
    let all = if language == "c" { ["gcc", "clang"] } else { ["g++", "clang++"] };
    let (here, missing): (Vec<_>, Vec<_>) = all.into_iter().partition(|compiler| is_here(compiler));
    for compiler in missing {
        let package = if compiler.starts_with("clang") { "clang" } else { compiler };
        skip(
            &format!("{language} programs with {compiler}"),
            &format!("no {compiler} on PATH"),
            &format!("apt-get install {package}"),
        );
    }
    here.into_iter().map(String::from).collect()
}
