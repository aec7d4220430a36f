//! Programs of another libc, and a recorder of whole programs.

use std::process::Command;

use crate::setup::{Setup, is_here, skip, succeed};

/// Prints a sum of copied bytes.
const SUM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {
    unsigned char *p = malloc(70000), *q = malloc(70000);
    unsigned long sum = 0;
    for (int i = 0; i < 70000; i++) q[i] = i * 7;
    for (int i = 0; i < 500; i++) { memcpy(p, q, 97 + i * 139); sum += p[96 + i * 139]; }
    printf("%lu\n", sum);
    free(p); free(q);
    return 0;
}"#;

/// musl's dynamic linker does not find glibc's functions, such as `__chk_fail`, and says so before
/// the program begins. With a layer that has them, the program runs as without the library.
#[test]
fn musl_program_is_refused_by_its_linker_or_runs() {
    if !is_here("musl-gcc") {
        skip("a program of musl", "no musl-gcc on PATH", "apt-get install musl-tools");
        return;
    }
    let setup = Setup::new();
    let program = setup.compile_by("musl-gcc", "p", SUM, &["-O0", "-fno-builtin"]);
    let plain = succeed(&mut Command::new(&program));
    for mut with in [setup.plain(&program), setup.command(&program)] {
        let output = with.output().expect("it was built");
        let said = String::from_utf8_lossy(&output.stderr);
        let is_refused = output.status.code() == Some(127) && output.stdout.is_empty();
        assert!(is_refused || output == plain, "{output:?}");
        assert!(!is_refused || said.contains("libhaul_copy.so"), "{said}");
    }
}

/// rr needs the processor's counters, which few virtual machines have.
#[test]
fn recorder_replays_a_program_with_the_library() {
    if !is_here("rr") {
        skip("rr over libhaul_copy", "no rr on PATH", "apt-get install rr");
        return;
    }
    let setup = Setup::new();
    let traces = setup.folder.path().join("traces");
    let rr = |verb: &str| {
        let mut rr = Command::new("rr");
        rr.env("_RR_TRACE_DIR", &traces).arg(verb);
        rr
    };
    if !rr("record").arg("true").output().is_ok_and(|output| output.status.success()) {
        skip(
            "rr over libhaul_copy",
            "no recording by rr",
            "run it where rr knows the processor and has its counters",
        );
        return;
    }
    let Some(program) = setup.compile("p", SUM, &["-O0", "-fno-builtin"]) else { return };
    let plain = succeed(&mut Command::new(&program));
    let mut record = rr("record");
    for (name, value) in setup.command(&program).get_envs() {
        if let Some(value) = value {
            record.arg(format!("--env={}={}", name.display(), value.display()));
        }
    }
    let recorded = succeed(record.arg(&program));
    assert_eq!(recorded.stdout, plain.stdout);
    assert!(setup.profile().bytes() > 0, "the recorded program has the library");
    assert_eq!(succeed(rr("replay").arg("-a")).stdout, plain.stdout);
}
