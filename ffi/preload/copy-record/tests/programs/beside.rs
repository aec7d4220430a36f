//! Other preloaded libraries, valgrind, and programs that stay unrecorded.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::setup::{Setup, is_here, library, skip, succeed};

const JEMALLOC: &str = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";

#[test]
fn shells_and_python_run_beside_jemalloc() {
    if !Path::new(JEMALLOC).exists() {
        let why = format!("no file {JEMALLOC}");
        skip("jemalloc preloaded beside", &why, "apt-get install libjemalloc2");
        return;
    }
    let ours = library().display().to_string();
    for order in [format!("{JEMALLOC}:{ours}"), format!("{ours}:{JEMALLOC}")] {
        let setup = Setup::new();
        let script = "for i in 1 2 3; do x=$x$(echo $i | cat); done; echo $x; (exit 0)";
        let output = succeed(setup.command("bash").args(["-c", script]).env("LD_PRELOAD", &order));
        assert_eq!((output.stdout.as_slice(), output.stderr.len()), (&b"123\n"[..], 0), "{order}");
        if is_here("python3") {
            let script = "print(len(str([bytes(i) for i in range(300)])))";
            let plain = succeed(Command::new("python3").args(["-c", script]));
            let python =
                succeed(setup.command("python3").args(["-c", script]).env("LD_PRELOAD", &order));
            assert_eq!(python.stdout, plain.stdout, "{order}");
            assert!(python.stderr.is_empty(), "{order}");
        }
    }
}

/// A program that copies 500 times.
const COPIES: &str = r#"
#include <string.h>
#include <stdlib.h>
int main(void) {
    char *p = malloc(200), *q = calloc(1, 200);
    for (int i = 0; i < 500; i++) memcpy(p, q, 97);
    int result = p[96];
    free(p); free(q);
    return result;
}"#;

#[test]
fn valgrind_finds_nothing_in_recorded_program() {
    if !is_here("valgrind") {
        skip("valgrind over a recorded program", "no valgrind on PATH", "apt-get install valgrind");
        return;
    }
    let setup = Setup::new();
    let Some(program) = setup.compile("p", COPIES, &["-O0", "-fno-builtin"]) else { return };
    let mut valgrind = setup.command("valgrind");
    succeed(valgrind.args(["--quiet", "--error-exitcode=9", "--leak-check=full"]).arg(&program));
}

#[test]
fn program_runs_without_usable_file() {
    let setup = Setup::new();
    let Some(program) = setup.compile("p", COPIES, &["-O0", "-fno-builtin"]) else { return };
    let short = setup.folder.path().join("short");
    std::fs::write(&short, "haulcpr\n").expect("the folder is ours");
    let damaged = setup.folder.path().join("damaged");
    let mut bytes = std::fs::read(setup.file()).expect("it is ours");
    bytes[12..24].fill(0xff);
    std::fs::write(&damaged, bytes).expect("the folder is ours");
    let folder = setup.folder.path();
    for name in [Path::new("/nowhere/at/all"), &short, &damaged, folder, Path::new("/dev/zero")] {
        let output = succeed(setup.command(&program).env("HAUL_COPY_RECORD", name));
        assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{}", name.display());
    }
    succeed(&mut setup.command(&program));
    assert_eq!(setup.calls(97), 500);
}

#[test]
fn set_user_id_program_is_not_recorded() {
    if !rustix::process::geteuid().is_root() {
        skip("set-user-id programs", "not running as root", "run it as root");
        return;
    }
    if !is_here("setpriv") {
        skip("set-user-id programs", "no setpriv on PATH", "apt-get install util-linux");
        return;
    }
    let setup = Setup::new();
    let Some(program) = setup.compile("p", COPIES, &["-O0", "-fno-builtin"]) else { return };
    let all = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
    };
    all(setup.folder.path(), 0o755);
    all(&setup.file(), 0o666);
    all(&program, 0o4755);
    // In a folder of the system, the dynamic linker would preload it even so.
    let as_another = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let mut command = Command::new("setpriv");
    command.args(as_another).arg("env").arg(format!("LD_PRELOAD={}", library().display()));
    command.arg(format!("HAUL_COPY_RECORD={}", setup.file().display())).arg(&program);
    command.output().expect("setpriv is here");
    assert_eq!(setup.calls(97), 0);
}
