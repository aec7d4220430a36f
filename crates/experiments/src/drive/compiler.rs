//! Compiles a peer's driver, whose source code is part of this program.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Compiles `driver.c` in this folder to `driver`, with the arguments of `compiler` behind those
/// that every driver needs.
///
/// # Errors
/// The compiler does not start, or its first error.
pub(crate) fn compile(compiler: &mut Command, folder: &Path) -> Result<(), String> {
    let name = compiler.get_program().to_string_lossy().into_owned();
    let own: Vec<OsString> = compiler.get_args().map(OsString::from).collect();
    let mut command = Command::new(&name);
    // A linker needs libraries after the objects that use them.
    command.current_dir(folder).args(["-O2", "-std=gnu11", "-o", "driver", "driver.c"]);
    let output = run(command.args(own), &name)?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let line = errors.lines().find(|line| line.contains("error")).unwrap_or("it printed nothing");
    Err(format!("{name} does not compile its driver ({})", line.trim()))
}

/// The output of a program that ends by itself.
///
/// # Errors
/// The program does not start.
pub(crate) fn run(command: &mut Command, name: &str) -> Result<Output, String> {
    command.stdin(Stdio::null()).output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("no {name} on PATH"),
        _ => format!("{name} does not start: {error}"),
    })
}
