//! Calls before the library is relocated, without its constructor, and in constructors.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

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
    succeed(&mut Command::new(&program));
    succeed(&mut setup.plain(&program));
    succeed(&mut setup.command(&program));
    // The resolver also runs if its library is preloaded, before this one and after it.
    for order in [
        format!("{at}/libresolver.so:{}", library().display()),
        format!("{}:{at}/libresolver.so", library().display()),
    ] {
        succeed(setup.plain(&program).env("LD_PRELOAD", &order));
        succeed(setup.command(&program).env("LD_PRELOAD", &order));
    }
}

/// A copy of the library that the dynamic linker believes to have no constructor.
fn without_constructor(setup: &Setup) -> PathBuf {
    /// DT_INIT_ARRAYSZ, and DT_DEBUG, which libraries do not use (ELF gABI, dynamic section).
    const SIZE_TAG: [u8; 8] = 27_u64.to_le_bytes();
    let mut bytes = fs::read(library()).expect("it was built");
    let mut found = 0;
    for at in (0..bytes.len() - 16).step_by(8) {
        // The section's entry: the tag, then the size of a few pointers.
        let size = u64::from_le_bytes(bytes[at + 8..at + 16].try_into().expect("eight bytes"));
        if bytes[at..at + 8] == SIZE_TAG && size > 0 && size.is_multiple_of(8) && size <= 64 {
            bytes[at + 8..at + 16].fill(0);
            found += 1;
        }
    }
    assert_eq!(found, 1, "one dynamic section");
    let path = setup.folder.path().join("libinert.so");
    fs::write(&path, bytes).expect("the folder is ours");
    path
}

/// Some C libraries and languages never call the constructors of a preloaded library.
#[test]
fn copies_are_right_without_the_constructor() {
    let setup = Setup::new();
    let flags = ["-fno-builtin", "-O0"];
    let Some(program) = setup.compile("all", crate::contracts::ALL, &flags) else { return };
    let inert = without_constructor(&setup);
    succeed(setup.command(&program).env("LD_PRELOAD", inert));
    assert!(!setup.file().exists(), "the constructor ran");
}

/// dlopen reserves thread-local storage late, where room for it is scarce.
#[test]
fn library_can_be_opened_later() {
    let setup = Setup::new();
    let source = r#"
        #include <dlfcn.h>
        #include <string.h>
        int main(int count, char **arguments) {
            void *library = dlopen(arguments[1], RTLD_NOW);
            if (!library) return 1;
            void *(*copy)(void *, const void *, size_t) = dlsym(library, "memcpy");
            char target[700], source[700];
            for (int i = 0; i < 700; i++) source[i] = (char)i;
            if (copy(target, source, 700) != target || memcmp(target, source, 700)) return 2;
            return dlclose(library) != 0;
        }"#;
    let Some(program) = setup.compile("open", source, &["-ldl"]) else { return };
    succeed(setup.command(&program).env_remove("LD_PRELOAD").arg(library()));
}
