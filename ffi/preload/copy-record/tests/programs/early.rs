//! Calls before the library is relocated, and in constructors.

use crate::setup::{Setup, library, succeed};

/// A library whose IFUNC resolver copies. The dynamic linker relocates it before this library, and
/// calls the resolver meanwhile.
const RESOLVER: &str = r#"
#include <string.h>
static char a[300], b[300];
static int three(void) { return 3; }
static int wrong(void) { return 4; }
/* The addresses are relocated before the resolver runs, unlike the slots of calls. */
static void *(*volatile copy)(void *, const void *, size_t) = memcpy;
static void *(*volatile move)(void *, const void *, size_t) = memmove;
static void *(*volatile fill)(void *, int, size_t) = memset;
static int (*resolve(void))(void) {
    for (int i = 0; i < 300; i++) a[i] = (char)i;
    copy(b, a, 300);
    move(b + 1, b, 299);
    move(b, b + 1, 299);
    for (int i = 0; i < 299; i++) if (b[i] != (char)i) return wrong;
    fill(b, 'x', 300);
    for (int i = 0; i < 300; i++) if (b[i] != 'x') return wrong;
    return three;
}
int number(void) __attribute__((ifunc("resolve")));
int call_number(void) { return number(); }
"#;

const PROGRAM: &str = r#"
#include <string.h>
#include <unistd.h>
#include <sys/wait.h>
int call_number(void);
static char a[50];
static int forked;
__attribute__((constructor)) static void begin(void) {
    memset(a, 'c', 41);
    int child = fork();
    if (child == 0) { memset(a, 'd', 42); _exit(a[0] != 'd'); }
    int status = 1;
    waitpid(child, &status, 0);
    forked = status == 0 && a[0] == 'c';
}
int main(void) { memset(a, 'm', 43); return call_number() != 3 || !forked; }
"#;

#[test]
fn resolvers_and_constructors_may_copy() {
    let setup = Setup::new();
    let at = setup.folder.path().display().to_string();
    let shared = ["-shared", "-fPIC", "-fno-builtin", "-Wl,-z,now"];
    let Some(_) = setup.compile("libresolver.so", RESOLVER, &shared) else { return };
    let flags = ["-fno-builtin", "-L", &at, "-lresolver", &format!("-Wl,-rpath,{at}")];
    let program = setup.compile("p", PROGRAM, &flags).expect("gcc is here");
    succeed(&mut std::process::Command::new(&program));
    succeed(&mut setup.command(&program));
    assert_eq!([41, 42, 43].map(|size| setup.calls(size)), [1, 1, 1]);
    // The resolver also runs if its library is preloaded, before this one and after it.
    for order in [
        format!("{at}/libresolver.so:{}", library().display()),
        format!("{}:{at}/libresolver.so", library().display()),
    ] {
        succeed(setup.command(&program).env("LD_PRELOAD", order));
    }
}
