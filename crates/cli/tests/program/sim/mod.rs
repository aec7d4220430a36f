//! `haul sim`: programs of one's own, plans, and everything bad that can be put in.

mod documents;
mod elf;
mod hyperqueue;
mod machines;
mod plans;
mod programs;
mod same;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{away, haul, install, run};

fn sim(arguments: &[&str]) -> Command {
    let mut all = vec!["sim"];
    all.extend(arguments);
    haul(&all)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts").join(name)
}

/// The workload of the paper, built once for all tests; `None` where its compiler is missing.
fn workload() -> Option<&'static Path> {
    const COMPILER: &str = "riscv64-unknown-elf-gcc";
    if Command::new(COMPILER).arg("--version").output().is_err() {
        eprintln!(
            "SKIPPED: the workload of haul sim: no {COMPILER} on PATH: apt-get install \
             gcc-riscv64-unknown-elf"
        );
        return None;
    }
    static BUILT: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    Some(BUILT.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sim-workload");
        let built = Command::new(script("sim-workload")).arg(&folder).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        folder.join("receive.elf")
    }))
}

#[test]
fn a_missing_compiler_is_named_with_its_package() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["scripts", "bin", "crates/sim/workload"] {
        fs::create_dir_all(folder.path().join(name)).unwrap();
    }
    install(&script("sim-workload"), &folder.path().join("scripts/sim-workload"));
    for tool in ["bash", "dirname", "mkdir"] {
        let found = ["/usr/bin", "/bin"].iter().map(|at| Path::new(at).join(tool));
        let found = found.into_iter().find(|path| path.exists()).unwrap();
        std::os::unix::fs::symlink(found, folder.path().join("bin").join(tool)).unwrap();
    }
    // A haul without a repository of its own.
    let haul = folder.path().join("bin/haul");
    install(env!("CARGO_BIN_EXE_haul").as_ref(), &haul);
    let mut command = Command::new(haul);
    command.args(["sim", "reproduce", "--quick", "--out", "out"]);
    away(&mut command);
    command.current_dir(folder.path()).env("PATH", folder.path().join("bin"));
    run(&mut command).expect(1).says(&["gcc-riscv64-unknown-elf"]);
}
