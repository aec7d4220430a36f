//! Other preloaded libraries, valgrind, filters of system calls, and real programs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use haul_machine::sys::Sys;

use crate::setup::{Setup, is_here, library, skip, succeed};

const JEMALLOC: &str = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";

/// A shell with pipes and children, python, git, a compiler and psql: their output is as without
/// the library.
const PROGRAMS: [(&str, &[&str]); 6] = [
    ("bash", &["-c", "for i in 1 2 3; do x=$x$(echo $i | cat); done; echo $x; (exit 3); echo $?"]),
    (
        "python3",
        &[
            "-c",
            "import re, zlib, json, hashlib; d = bytes(range(256)) * 4000; \
             print(len(zlib.compress(d)), hashlib.sha256(d).hexdigest(), json.dumps([1] * 99)[:9])",
        ],
    ),
    ("git", &["-C", env!("CARGO_MANIFEST_DIR"), "--no-pager", "log", "--stat", "-n", "20"]),
    ("rustc", &["--print", "cfg"]),
    ("psql", &["--version"]),
    ("sort", &["--parallel=2", env!("CARGO_MANIFEST_DIR"), "--version"]),
];

#[test]
fn programs_behave_as_without_the_library() {
    for (program, arguments) in PROGRAMS {
        if !is_here(program) {
            let why = format!("no {program} on PATH");
            skip("a program under libhaul_copy", &why, &format!("install {program}"));
            continue;
        }
        let setup = Setup::new();
        let without = Command::new(program).args(arguments).output().expect("it is here");
        for mut with in [setup.plain(program), setup.command(program)] {
            let with = with.args(arguments).output().expect("it is here");
            assert_eq!(with, without, "{program}");
        }
        assert!(setup.profile().calls() >= 0.0, "{program} has a profile");
    }
}

#[test]
fn rustc_compiles_under_the_library() {
    let setup = Setup::new();
    let source = setup.folder.path().join("p.rs");
    fs::write(&source, "fn main() { println!(\"{}\", \"ab\".repeat(3)); }").expect("it is ours");
    let built = setup.folder.path().join("p");
    succeed(setup.command("rustc").arg("-o").arg(&built).arg(&source));
    assert_eq!(succeed(&mut setup.plain(&built)).stdout, b"ababab\n");
}

#[test]
fn shells_and_python_run_beside_jemalloc() {
    if !Path::new(JEMALLOC).exists() {
        let why = format!("no file {JEMALLOC}");
        skip("jemalloc preloaded beside", &why, "apt-get install libjemalloc2");
        return;
    }
    let ours = library().display().to_string();
    for order in [format!("{JEMALLOC}:{ours}"), format!("{ours}:{JEMALLOC}")] {
        for (program, arguments) in PROGRAMS.iter().take(2).filter(|(it, _)| is_here(it)) {
            let setup = Setup::new();
            let without = succeed(Command::new(program).args(*arguments));
            let with = succeed(setup.command(program).args(*arguments).env("LD_PRELOAD", &order));
            assert_eq!(with, without, "{program} under {order}");
        }
    }
}

#[test]
fn library_is_quiet_beside_an_auditor() {
    let setup = Setup::new();
    let auditor = "unsigned la_version(unsigned version) { return version; }";
    let Some(auditor) = setup.compile("audit.so", auditor, &["-shared", "-fPIC"]) else { return };
    let output = succeed(setup.command("bash").args(["-c", "echo x"]).env("LD_AUDIT", auditor));
    assert_eq!((output.stdout.as_slice(), output.stderr.len()), (&b"x\n"[..], 0));
}

/// A program that copies 500 times.
const COPIES: &str = r#"
#include <string.h>
#include <stdlib.h>
int main(void) {
    char *p = malloc(70000), *q = calloc(1, 70000);
    for (int i = 0; i < 500; i++) memcpy(p, q, 97 + i * 139);
    int result = p[96];
    free(p); free(q);
    return result;
}"#;

/// With a policy for AVX-512, which valgrind's processor does not have.
#[test]
fn valgrind_finds_nothing_under_any_policy() {
    if !is_here("valgrind") {
        skip("valgrind over libhaul_copy", "no valgrind on PATH", "apt-get install valgrind");
        return;
    }
    let setup = Setup::new();
    let Some(program) = setup.compile("p", COPIES, &["-O0", "-fno-builtin"]) else { return };
    let path = setup.folder.path().join("haul.toml");
    let text = format!(
        "schema = \"haul.tuning/1\"\nmachine = \"{}\"\nwritten = \"w\"\n[copy]\nisa = \"avx512\"\n\
         small = \"masks\"\n",
        Sys::new().machine_id()
    );
    fs::write(&path, text).expect("the folder is ours");
    for mut valgrind in [setup.plain("valgrind"), setup.command("valgrind")] {
        valgrind.env("HAUL_TUNING", &path);
        succeed(
            valgrind.args(["--quiet", "--error-exitcode=9", "--leak-check=full"]).arg(&program),
        );
    }
}

/// A filter that ends the process at every system call but a few.
#[test]
fn filtered_program_copies_on() {
    let setup = Setup::new();
    let source = r#"
        #include <string.h>
        #include <sys/prctl.h>
        #include <linux/seccomp.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        static char a[1 << 20], b[1 << 20];
        int main(void) {
            if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) return 1;
            for (int i = 0; i < 3000; i++) memcpy(a, b, i * 300);
            syscall(SYS_exit, 0);
        }"#;
    let Some(program) = setup.compile("p", source, &["-O0", "-fno-builtin"]) else { return };
    succeed(&mut setup.plain(&program));
    succeed(&mut setup.command(&program));
    let profile = setup.profile();
    let samples: u64 = profile.sites.iter().map(|site| site.samples).sum();
    assert!(samples > 100, "{samples} samples under the filter");
}

#[test]
fn set_user_id_program_is_not_profiled() {
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
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
    };
    all(setup.folder.path(), 0o777);
    all(&program, 0o4755);
    // In a folder of the system, the dynamic linker would preload it even so.
    let as_another = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let mut command = Command::new("setpriv");
    command.args(as_another).arg("env").arg(format!("LD_PRELOAD={}", library().display()));
    command.arg(format!("HAUL_COPY_PROFILE={}", setup.file().display())).arg(&program);
    command.output().expect("setpriv is here");
    assert!(!setup.file().exists(), "the user chose a file for root");
}

/// A 32-bit child of a program with the library prints nothing, because `$LIB` leads it to a
/// library of its own class.
#[test]
fn child_of_32_bits_is_quiet() {
    const LINKER: &str = "/lib/ld-linux.so.2";
    if !Path::new(LINKER).exists() {
        skip("a 32-bit child", &format!("no file {LINKER}"), "apt-get install libc6-i386");
        return;
    }
    let setup = Setup::new();
    let at = setup.folder.path();
    let source = "void _start(void) { __asm__ volatile(\"int $0x80\" :: \"a\"(1), \"b\"(0)); }";
    let flags = ["-m32", "-nostdlib", "-pie", &format!("-Wl,-dynamic-linker,{LINKER}")];
    let Some(program) = setup.compile("p32", source, &flags) else { return };
    let empty = setup.compile("empty.so", "", &["-m32", "-shared", "-nostdlib"]);
    for (folder, file) in [
        ("lib/x86_64-linux-gnu", library()),
        ("lib64", library()),
        ("lib/i386-linux-gnu", empty.as_deref().expect("gcc is here")),
        ("lib", empty.as_deref().expect("gcc is here")),
        ("lib32", empty.as_deref().expect("gcc is here")),
    ] {
        fs::create_dir_all(at.join(folder)).expect("it is ours");
        fs::copy(file, at.join(folder).join("libhaul_copy.so")).expect("it is ours");
    }
    let mut command = setup.command("bash");
    command.env("LD_PRELOAD", format!("{}/$LIB/libhaul_copy.so", at.display()));
    let output = succeed(command.arg("-c").arg("\"$0\" && cat /proc/$$/maps").arg(&program));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let maps = String::from_utf8_lossy(&output.stdout);
    assert!(maps.contains("libhaul_copy.so"), "the shell of 64 bits has the library");
}

/// Prints its open descriptors, and the number that a file gets once all are closed. The process
/// that starts the test may leave descriptors to it, so both outputs are compared.
const DESCRIPTORS: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static char a[1 << 16], b[1 << 16], text[1 << 16];
int main(void) {
    int length = 0;
    for (int at = 0; at < 1024; at++)
        if (fcntl(at, F_GETFD) != -1) length += sprintf(text + length, "%d ", at);
    int out = dup2(1, 2000);
    for (int at = 0; at < 1024; at++) close(at);
    for (int i = 0; i < 5000; i++) memcpy(a, b, i * 13);
    length += sprintf(text + length, "then %d\n", open("/dev/null", O_RDONLY));
    return write(out, text, length) != length;
}"#;

/// A daemon that closes all descriptors may get another file under the number of one of them.
#[test]
fn library_keeps_no_descriptor() {
    let setup = Setup::new();
    let flags = ["-O0", "-fno-builtin"];
    let Some(program) = setup.compile("p", DESCRIPTORS, &flags) else { return };
    let without = succeed(&mut Command::new(&program));
    assert!(String::from_utf8_lossy(&without.stdout).ends_with("then 0\n"), "{without:?}");
    for mut with in [setup.plain(&program), setup.command(&program)] {
        assert_eq!(succeed(&mut with), without);
    }
    assert!(setup.profile().bytes() > 0, "the profile goes on without descriptors");
}
