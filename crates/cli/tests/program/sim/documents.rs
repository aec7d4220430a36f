//! docs/sim.md: runs every command that it shows, in its order, in a form that takes seconds, and
//! compares the code that it shows with the code.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use haul_sim::isa::{Operation, encode};

use super::elf::{self, COUNTS};
use super::script;
use crate::{Ran, away, install, run};

/// A shown command, and a shorter form that is run instead. Each shown command must be in the
/// document.
const SMALLER: [(&str, &str); 7] = [
    ("reproduce --quick", "reproduce --packets 20"),
    ("reproduce --out", "reproduce --packets 20 --out"),
    ("400000-402400", "4000-6400 --packets 8"),
    ("--set packets=2000 --set warm_packets=100", "--set packets=8 --set warm_packets=2"),
    ("--set copying=engine --out", "--set copying=engine --set packets=8 --out"),
    ("--argument 2000 --argument 4096", "--argument 20 --argument 4096"),
    ("apt-get install gcc-riscv64-unknown-elf", "riscv64-unknown-elf-gcc --version"),
];

/// A replacement for HyperQueue's program: `hq submit --array FIRST-LAST COMMAND...`.
const HQ: &str = "#!/bin/sh
[ \"$1 $2\" = 'submit --array' ] || exit 2
range=$3; shift 3
for task in $(seq \"${range%-*}\" \"${range#*-}\"); do HQ_TASK_ID=$task \"$@\" || exit 1; done
echo \"$range\" >hq.ran
";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn document() -> String {
    fs::read_to_string(root().join("docs/sim.md")).unwrap()
}

/// The unchanged blocks of a language.
fn blocks<'a>(document: &'a str, language: &str) -> Vec<&'a str> {
    let start = format!("```{language}\n");
    document.split(&start).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

/// The commands of all shell blocks, a line each.
fn commands(document: &str) -> Vec<String> {
    let joined = blocks(document, "sh").concat().replace("\\\n", " ");
    joined.lines().map(str::to_owned).filter(|line| !line.is_empty()).collect()
}

/// A folder like a fresh clone, with `haul`, `hq` and a user's program.
fn clone() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["scripts", "crates"] {
        symlink(root().join(name).canonicalize().unwrap(), at(name)).unwrap();
    }
    fs::create_dir(at("bin")).unwrap();
    symlink(env!("CARGO_BIN_EXE_haul"), at("bin/haul")).unwrap();
    fs::write(at("hq.sh"), HQ).unwrap();
    install(&at("hq.sh"), &at("bin/hq"));
    // If the page is followed in order, the program is compiled again before the second command.
    let counts_to_1000 = [&[encode::immediate(Operation::Add, 10, 0, 1000)][..], &COUNTS].concat();
    elf::program(folder.path(), "my-program.elf", &counts_to_1000);
    fs::write(at("my-program.c"), blocks(&document(), "c")[0]).unwrap();
    folder
}

/// Whether a user's program can be compiled, as the page does.
fn has_compiler() -> bool {
    const COMPILER: &str = "riscv64-unknown-elf-gcc";
    let is_here = Command::new(COMPILER).arg("--version").output().is_ok();
    if !is_here {
        eprintln!(
            "SKIPPED: the commands of docs/sim.md: no {COMPILER} on PATH: apt-get install \
             gcc-riscv64-unknown-elf"
        );
    }
    is_here
}

/// Asserts that a command does what its remark says: `# stops with an error after 100,000
/// instructions`, or `# 266,862 cycles`.
fn as_shown(line: &str, ran: Ran) {
    let remark = line.split_once(" # ").map_or("", |(_, remark)| remark.trim());
    let plain = |text: &str| text.replace(',', "");
    if let Some(limit) = remark.strip_prefix("stops with an error after ") {
        let limit = plain(limit.split(' ').next().unwrap());
        ran.expect(1).says(&[&limit]);
        return;
    }
    let ran = ran.expect(0);
    assert!(!ran.err.contains("error"), "{line}: {ran:#?}");
    let number = plain(remark.split([' ', ':']).next().unwrap());
    if line.contains("my-program.elf") && number.parse::<u64>().is_ok() {
        assert!(ran.out.contains(&format!(" {number} cycles")), "{line}: {ran:#?}");
    }
}

#[test]
fn documented_commands_do_what_is_shown() {
    if !has_compiler() {
        return;
    }
    let folder = clone();
    let mut lines = commands(&document());
    assert!(lines.len() >= 15, "{lines:#?}");
    for (shown, smaller) in SMALLER {
        assert!(lines.iter().any(|line| line.contains(shown)), "the page shows no {shown}");
        lines.iter_mut().for_each(|line| *line = line.replace(shown, smaller));
    }
    let check = Command::new(script("sim-hyperqueue")).arg("--check").output().unwrap();
    if !check.status.success() {
        eprintln!(
            "SKIPPED: the page's plan on HyperQueue: no Python package hyperqueue: \
             scripts/sim-hyperqueue --install"
        );
        let by_itself = "hq submit --array 0-19 sh -c 'haul sim task plan.jsonl $HQ_TASK_ID'";
        lines
            .iter_mut()
            .filter(|line| line.starts_with("scripts/sim-hyperqueue"))
            .for_each(|line| by_itself.clone_into(line));
    }
    let path =
        format!("{}:{}", folder.path().join("bin").display(), std::env::var("PATH").unwrap());
    for line in &lines {
        let mut command = Command::new("sh");
        // Replaces the shell, so that a kill reaches a hanging command.
        command.args(["-c", &format!("exec {line}")]).current_dir(folder.path()).env("PATH", &path);
        command.env("HAUL", env!("CARGO_BIN_EXE_haul"));
        away(&mut command);
        let ran = run(&mut command);
        as_shown(line, ran);
    }
    for (left, holds) in [
        ("haul-sim/report.html", "Calibration: none"),
        ("paper/sim.jsonl", "sim.table2"),
        ("trace.html", "class=\"lanes\""),
        ("policies.jsonl", "async-pipelined"),
        ("values.jsonl", "\"values\""),
        ("sweep.jsonl", "engine.share_percent"),
        ("sweep.html", "A sweep"),
        ("hq.ran", "0-19"),
    ] {
        let text = fs::read_to_string(folder.path().join(left)).unwrap_or_default();
        assert!(text.contains(holds), "{left} holds no {holds}: {}", text.len());
    }
}

#[test]
fn worked_example_equals_compiled_file() {
    let document = document();
    let file = fs::read_to_string(root().join("crates/sim/src/engine/pipelined.rs")).unwrap();
    let shown: Vec<&str> = blocks(&document, "rust,ignore")[0].lines().map(str::trim).collect();
    let lines: Vec<&str> = file.lines().map(str::trim).collect();
    assert!(
        shown.len() > 5 && lines.windows(shown.len()).any(|window| window == shown),
        "{shown:#?}"
    );
    assert!(document.contains(&format!("{} lines. It is ASYNC", lines.len())), "{}", lines.len());
    // The lines that every policy has.
    for entry in fs::read_dir(root().join("crates/sim/src/engine")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains("impl Policy for") || text.lines().count() <= 150, "{path:?}");
    }
}
