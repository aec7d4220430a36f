//! `haul sim`: a user's programs, plans, and every wrong input.

mod documents;
mod elf;
mod hyperqueue;
mod machines;
mod output;
mod plans;
mod programs;
mod same;

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

/// An empty folder with only haul, as after an installation: without a repository above it and
/// without tools on its path.
fn alone() -> (tempfile::TempDir, impl Fn(&[&str]) -> Command) {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().to_owned();
    let haul = at.join("haul");
    install(env!("CARGO_BIN_EXE_haul").as_ref(), &haul);
    let sim = move |words: &[&str]| {
        let mut command = Command::new(&haul);
        command.arg("sim").args(words);
        away(&mut command);
        command.current_dir(&at).env("PATH", "/nonexistent");
        command
    };
    (folder, sim)
}

#[test]
fn workloads_are_part_of_the_program() {
    let (folder, sim) = alone();
    let ran = run(&mut sim(&["run", "--packets", "20", "--json"])).expect(0);
    let of = |record: &haul_model::Record| record.parameters["program"] == "receive";
    assert!(ran.records().iter().all(of), "{ran:#?}");
    run(&mut sim(&["run", "receive", "--packets", "20", "--functional"])).expect(0);
    let values = ["--argument", "20", "--argument", "4096", "--argument", "1", "--argument", "64"];
    run(&mut sim(&[&["run", "values"], &values[..]].concat())).expect(0);
    run(&mut sim(&["reproduce", "--packets", "20", "--out", "paper"])).expect(0);
    assert!(folder.path().join("paper/report.html").is_file());
    let sweep = ["sweep", "--vary", "memory.mshrs=1,2", "--set", "packets=20", "--run", "--json"];
    let ran = run(&mut sim(&sweep)).expect(0);
    assert_eq!(ran.records().len(), 4, "{ran:#?}");
    let sweep = ["sweep", "--vary", "memory.mshrs=1,2", "--program", "values", "--run", "--json"];
    let ran = run(&mut sim(&[&sweep[..], &values, &["--out-file", "values"]].concat())).expect(0);
    assert_eq!(ran.records().len(), 4, "{ran:#?}");
    run(&mut sim(&["task", "plan.jsonl", "1"])).expect(0);
    run(&mut sim(&["run", "./receive"])).expect(1).says(&["./receive"]);
}

/// Only a user's programs need the compiler, and its script names the package.
#[test]
fn missing_compiler_is_named_with_its_package() {
    let folder = tempfile::tempdir().unwrap();
    for tool in ["bash", "dirname", "mkdir"] {
        let found = ["/usr/bin", "/bin"].iter().map(|at| Path::new(at).join(tool));
        let found = found.into_iter().find(|path| path.exists()).unwrap();
        std::os::unix::fs::symlink(found, folder.path().join(tool)).unwrap();
    }
    let mut command = Command::new(script("sim-workload"));
    command.arg(folder.path().join("out")).env("PATH", folder.path());
    run(&mut command).expect(1).says(&["gcc-riscv64-unknown-elf"]);
}
