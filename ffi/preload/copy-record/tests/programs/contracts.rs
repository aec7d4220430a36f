//! Each function does what libc's does. `libhaul_copy.so` has these tests too.

use std::os::unix::process::ExitStatusExt as _;

use crate::setup::{Setup, succeed};

/// Sizes and overlaps of every function, against loops over bytes.
pub(crate) const ALL: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#define BYTES 9000
static unsigned char a[BYTES], b[BYTES];
void *__memcpy_chk(void *, const void *, size_t, size_t);
void *__memmove_chk(void *, const void *, size_t, size_t);
void *__mempcpy_chk(void *, const void *, size_t, size_t);
void *__memset_chk(void *, int, size_t, size_t);
void __explicit_bzero_chk(void *, size_t, size_t);
void *__mempcpy(void *, const void *, size_t);
void __bzero(void *, size_t);
static void reset(void) { for (int i = 0; i < BYTES; i++) a[i] = b[i] = (unsigned char)(i * 7 + 1); }
static void expect(const void *got, const void *wanted, int which) {
    if (got != wanted) exit(10 + which);
    for (int i = 0; i < BYTES; i++) if (a[i] != b[i]) exit(100 + which);
}
static void moved(unsigned target, unsigned source, unsigned size) {
    unsigned char *copy = malloc(size + 1);
    for (unsigned i = 0; i < size; i++) copy[i] = b[source + i];
    for (unsigned i = 0; i < size; i++) b[target + i] = copy[i];
    free(copy);
}
static void set(unsigned target, int byte, unsigned size) {
    for (unsigned i = 0; i < size; i++) b[target + i] = (unsigned char)byte;
}
int main(void) {
    static const unsigned sizes[] = {0, 1, 7, 8, 31, 32, 64, 65, 128, 200, 257, 1024, 4096};
    static const unsigned places[] = {0, 1, 8, 63, 64, 130, 4000};
    for (unsigned s = 0; s < sizeof sizes / sizeof *sizes; s++)
    for (unsigned t = 0; t < 7; t++)
    for (unsigned f = 0; f < 7; f++) {
        unsigned n = sizes[s], to = places[t], from = places[f];
        unsigned char *p = a + to, *q = a + from;
        for (int which = 0; which < 9; which++) {
            reset();
            moved(to, from, n);
            switch (which) {
            /* memcpy@GLIBC_2.2.5 may overlap, and old programs rely on it. */
            case 0: expect(memcpy(p, q, n), p, which); break;
            case 1: expect(memmove(p, q, n), p, which); break;
            case 2: expect(mempcpy(p, q, n), p + n, which); break;
            case 3: expect(__mempcpy(p, q, n), p + n, which); break;
            case 4: bcopy(q, p, n); expect(0, 0, which); break;
            case 5: expect(__memcpy_chk(p, q, n, n), p, which); break;
            case 6: expect(__memmove_chk(p, q, n, n + 1), p, which); break;
            case 7: expect(__mempcpy_chk(p, q, n, -1), p + n, which); break;
            case 8: expect(memmove(p, q, n), p, which); break;
            }
        }
        for (int which = 20; which < 26; which++) {
            int byte = which == 20 || which == 21 ? 0x1a5 : 0;
            reset();
            set(to, byte, n);
            switch (which) {
            case 20: expect(memset(p, byte, n), p, which); break;
            case 21: expect(__memset_chk(p, byte, n, n), p, which); break;
            case 22: bzero(p, n); expect(0, 0, which); break;
            case 23: __bzero(p, n); expect(0, 0, which); break;
            case 24: explicit_bzero(p, n); expect(0, 0, which); break;
            case 25: __explicit_bzero_chk(p, n, n); expect(0, 0, which); break;
            }
        }
    }
    return 0;
}
"#;

#[test]
fn every_function_has_libcs_result() {
    let setup = Setup::new();
    let Some(program) = setup.compile("all", ALL, &["-fno-builtin", "-O0"]) else { return };
    succeed(&mut setup.command(&program));
    succeed(&mut setup.plain(&program));
}

#[test]
fn old_version_of_memcpy_may_overlap() {
    let setup = Setup::new();
    let source = r#"
        #include <string.h>
        __asm__(".symver memcpy, memcpy@GLIBC_2.2.5");
        static char a[64] = "abcdefgh";
        int main(void) {
            memcpy(a + 1, a, 8);
            if (strcmp(a, "aabcdefgh")) return 1;
            memcpy(a, a + 1, 9);
            return strcmp(a, "abcdefgh") != 0;
        }"#;
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let Some(program) = setup.compile("old", source, &["-fno-builtin", "-O0"]) else { return };
    succeed(&mut setup.command(&program));
    succeed(&mut setup.plain(&program));
}

/// The end of a fortified program that overflows its target by this function.
fn overflow(setup: &Setup, call: &str) {
    let source = format!(
        "#define _GNU_SOURCE\n#include <string.h>\n#include <strings.h>\n#include <stdlib.h>\n\
         static char target[16], source[64];\n\
         int main(int count, char **arguments) {{ size_t n = (size_t)atoi(arguments[1]);\n\
         {call}; return target[0]; }}"
    );
    let flags = ["-O2", "-D_FORTIFY_SOURCE=2"];
    let Some(program) = setup.compile("overflow", &source, &flags) else { return };
    succeed(setup.command(&program).arg("16"));
    let plain = std::process::Command::new(&program).arg("17").output().expect("it was built");
    let output = setup.command(&program).arg("17").output().expect("it was built");
    assert_eq!(plain.status.signal(), Some(6), "{call}: {plain:?}");
    assert_eq!(output.status.signal(), Some(6), "{call}: {output:?}");
    assert_eq!(output.stderr, plain.stderr, "{call}");
}

#[test]
fn checked_functions_abort_as_libcs() {
    let setup = Setup::new();
    for call in [
        "memcpy(target, source, n)",
        "memmove(target, source, n)",
        "mempcpy(target, source, n)",
        "memset(target, 0, n)",
        "explicit_bzero(target, n)",
    ] {
        overflow(&setup, call);
    }
}

/// Copies that end at a page without access, and values that a call must not change.
#[test]
fn calls_touch_no_other_byte_and_keep_registers() {
    let setup = Setup::new();
    let source = r#"
        #define _GNU_SOURCE
        #include <errno.h>
        #include <fenv.h>
        #include <string.h>
        #include <sys/mman.h>
        int main(void) {
            char *p = mmap(0, 5 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            mprotect(p, 4096, PROT_NONE);
            mprotect(p + 2 * 4096, 4096, PROT_NONE);
            mprotect(p + 4 * 4096, 4096, PROT_NONE);
            char *a = p + 2 * 4096, *b = p + 4 * 4096;
            errno = 77;
            fesetround(FE_DOWNWARD);
            for (int n = 0; n <= 4096; n++) {
                memset(b - n, n, n);
                memcpy(a - n, b - n, n);
                memmove(p + 4096, p + 3 * 4096, n);
                if (memcmp(a - n, b - n, n)) return 1;
                long flags; __asm__ volatile("pushf; pop %0" : "=r"(flags));
                if (flags & 0x400) return 2;
            }
            return errno != 77 || fegetround() != FE_DOWNWARD;
        }"#;
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let flags = ["-fno-builtin", "-O2", "-lm"];
    let Some(program) = setup.compile("guarded", source, &flags) else { return };
    succeed(&mut setup.command(&program));
}
