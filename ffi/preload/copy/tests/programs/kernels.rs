//! Long copies at every offset and at the end of a page, registers, and the cost of a call.

use std::process::Command;

use haul_machine::sys::Sys;

use crate::setup::{Setup, library, succeed, succeed_silently};

const TIMING: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}
"#;

fn compile(setup: &Setup, name: &str, body: &str) -> Option<std::path::PathBuf> {
    setup.compile(name, &format!("{TIMING}{body}"), &["-O2", "-fno-builtin", "-lm"])
}

/// A policy that streams from the smallest size, and copies that end at a page without access.
#[test]
fn streamed_copies_end_at_a_page_without_access() {
    let setup = Setup::new();
    let Some(program) = compile(
        &setup,
        "guarded",
        "int main(void) {
            enum { P = 4096, N = 40 * P };
            char *a = mmap(0, N + 2 * P, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            char *b = mmap(0, N + 2 * P, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            char *end_a = a + P + N, *end_b = b + P + N;
            mprotect(a, P, PROT_NONE); mprotect(end_a, P, PROT_NONE);
            mprotect(b, P, PROT_NONE); mprotect(end_b, P, PROT_NONE);
            for (int n = 2000; n < N; n += 1 + n / 40) {
                for (int i = 0; i < n; i++) end_b[i - n] = (char)(i * 7 + n);
                memcpy(end_a - n, end_b - n, n);
                if (memcmp(end_a - n, end_b - n, n)) return 1;
                memcpy(a + P, end_b - n, n);
                if (memcmp(a + P, end_b - n, n)) return 2;
                memset(end_a - n, n, n);
                if (end_a[-1] != (char)n || end_a[-n] != (char)n) return 3;
            }
            return 0;
        }",
    ) else {
        return;
    };
    let path = setup.folder.path().join("haul.toml");
    let text = format!(
        "schema = \"haul.tuning/1\"\nmachine = \"{}\"\nwritten = \"w\"\n[copy]\nstream_copy_min = 1\n\
         paged_copy_min = 65536\nstream_fill_min = 1\nrep_movsb_min = \"never\"\n",
        Sys::new().machine_id()
    );
    std::fs::write(&path, text).expect("the folder is ours");
    succeed_silently(setup.command(&program).env("HAUL_TUNING", path));
    assert!(setup.profile().processes[0].has_policy_file, "the policy was used");
}

/// Optimised code with live values in all registers that a call keeps, and the state that it must
/// restore.
#[test]
fn call_keeps_registers_flags_and_state() {
    let setup = Setup::new();
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let body = r#"
        static char a[1 << 17], b[1 << 17];
        static long check(void *(*copy)(void *, const void *, size_t), char *to, char *from, long n) {
            long bad = 0;
            __asm__ volatile(
                "lea -128(%%rsp), %%rsp\n"
                "push %%rbx\n push %%rbp\n push %%r12\n push %%r13\n push %%r14\n push %%r15\n"
                "mov %%rsp, %%rbx\n sub $64, %%rsp\n and $-64, %%rsp\n mov %%rbx, (%%rsp)\n sub $64, %%rsp\n"
                "mov $11, %%ebx\n mov $12, %%ebp\n mov $13, %%r12d\n mov $14, %%r13d\n mov $15, %%r14d\n mov $16, %%r15d\n"
                "call *%%rax\n"
                "xor %%eax, %%eax\n"
                "cmp $11, %%rbx\n setne %%al\n cmp $12, %%rbp\n setne %%cl\n or %%cl, %%al\n"
                "cmp $13, %%r12\n setne %%cl\n or %%cl, %%al\n cmp $14, %%r13\n setne %%cl\n or %%cl, %%al\n"
                "cmp $15, %%r14\n setne %%cl\n or %%cl, %%al\n cmp $16, %%r15\n setne %%cl\n or %%cl, %%al\n"
                "pushf\n pop %%rcx\n shr $10, %%ecx\n and $1, %%ecx\n or %%cl, %%al\n"
                "add $64, %%rsp\n mov (%%rsp), %%rsp\n"
                "pop %%r15\n pop %%r14\n pop %%r13\n pop %%r12\n pop %%rbp\n pop %%rbx\n"
                "lea 128(%%rsp), %%rsp\n"
                : "+a"(copy), "+D"(to), "+S"(from), "+d"(n)
                : : "rcx", "r8", "r9", "r10", "r11", "memory", "cc",
                  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
                  "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
            return (long)copy;
        }
        int main(void) {
            unsigned before, after;
            __asm__("stmxcsr %0" : "=m"(before));
            for (long n = 0; n < 100000; n += 1 + n / 3)
                for (int up = 0; up < 2; up++) {
                    if (check(memcpy, a + 64, b + up, n)) return 1;
                    if (check(memmove, a + up, a + 1 - up, n)) return 2;
                    if (check((void *(*)(void *, const void *, size_t))memset, a, b, n)) return 3;
                }
            __asm__("stmxcsr %0" : "=m"(after));
            return before != after;
        }"#;
    let Some(program) = compile(&setup, "registers", body) else { return };
    succeed_silently(&mut setup.plain(&program));
    succeed_silently(&mut setup.command(&program));
}

/// The time of the slowest distance of target and source, modulo a page, over the median of all;
/// and of copies upwards over copies downwards.
#[test]
fn no_offset_and_no_direction_is_much_slower() {
    let setup = Setup::new();
    let body = r#"
        static char a[1 << 20] __attribute__((aligned(4096))), b[1 << 20] __attribute__((aligned(4096)));
        static int order(const void *x, const void *y) {
            double p = *(double *)x, q = *(double *)y;
            return (p > q) - (p < q);
        }
        /* Repetitions of one time are far apart, so that a disturbance does not meet all of them. */
        static void lower(double *least, char *to, char *from, long n) {
            double since = now();
            for (int i = 0; i < 8; i++) memmove(to, from, n);
            since = now() - since;
            if (since < *least) *least = since;
        }
        int main(void) {
            static double times[4096];
            double slowest = 0, up = 1e18, down = 1e18;
            int count = (4095 / 7) + 1;
            for (long n = 4096; n <= 65536; n *= 4) {
                for (int i = 0; i < count; i++) times[i] = 1e18;
                for (int again = 0; again < 6; again++)
                    for (int i = 0; i < count; i++) lower(&times[i], a + 7 * i, b, n);
                double most = 0;
                for (int i = 0; i < count; i++) if (times[i] > most) most = times[i];
                qsort(times, count, sizeof *times, order);
                if (most / times[count / 2] > slowest) slowest = most / times[count / 2];
            }
            for (int again = 0; again < 40; again++) {
                lower(&up, a + 1, a, 65536);
                lower(&down, a, a + 1, 65536);
            }
            printf("%f %f\n", slowest, up / down);
        }"#;
    let Some(program) = compile(&setup, "offsets", body) else { return };
    // On Zen 4, one process in five takes two to six times as long while the target is some 80 to
    // 500 bytes ahead of the source, modulo a page. The cause is not known: it changes with the
    // process also where the virtual addresses do not.
    let mut least = [f64::INFINITY; 2];
    for _ in 0..12 {
        let output = succeed(&mut setup.plain(&program));
        let text = String::from_utf8(output.stdout).expect("it prints text");
        let found = text.split_whitespace().map(|word| word.parse().expect("it is a number"));
        least.iter_mut().zip(found).for_each(|(least, found): (_, f64)| *least = least.min(found));
        if least[0] <= 2.0 && least[1] <= 3.0 {
            break;
        }
    }
    let [slowest, upwards] = least;
    assert!(slowest <= 2.0, "the slowest offset takes {slowest} of the median");
    assert!(upwards <= 3.0, "a move up by one takes {upwards} of a move down");
}

/// A copy leaves the upper halves of registers clean, so that SSE code after it is not slow.
#[test]
fn sse_code_after_a_call_is_not_slow() {
    let setup = Setup::new();
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let body = r#"
        static char a[1 << 16], b[1 << 16];
        /* The upper halves of all registers are clean afterwards. */
        static void clean(void) {
            if (__builtin_cpu_supports("avx")) __asm__ volatile("vzeroupper");
        }
        /* The time after a copy of n bytes, or without a copy. */
        static double sse(long n) {
            double least = 1e18;
            for (int again = 0; again < 40; again++) {
                if (n) memcpy(a, b, n); else clean();
                double since = now();
                for (int i = 0; i < 20000; i++)
                    __asm__ volatile("addps %%xmm1, %%xmm0\n mulps %%xmm2, %%xmm3\n" ::: "xmm0", "xmm3");
                since = now() - since;
                if (since < least) least = since;
            }
            return least;
        }
        int main(void) {
            double most = 0;
            for (long n = 1; n < 65536; n = n * 3 / 2 + 1) {
                /* Beside each other, because a busy machine changes its clock. */
                double alone = sse(0), after = sse(n);
                if (after / alone > most) most = after / alone;
            }
            printf("%f\n", most);
        }"#;
    let Some(program) = compile(&setup, "sse", body) else { return };
    let mut tries = Vec::new();
    let is_quick = (0..12).any(|_| {
        let output = succeed(&mut setup.plain(&program));
        let text = String::from_utf8(output.stdout).expect("it prints text");
        let most: f64 = text.trim().parse().expect("it is a number");
        tries.push(most);
        most < 1.5
    });
    assert!(is_quick, "SSE code after a call takes these multiples of its usual time: {tries:?}");
}

/// The time of a call of 16 bytes through the procedure linkage table, of haul and of libc in
/// turns.
#[test]
fn call_takes_at_most_twice_the_time_of_libcs() {
    let setup = Setup::new();
    let body = r#"
        static char a[4096], b[4096];
        int main(void) {
            volatile size_t size = 16;
            double least = 1e18;
            for (int again = 0; again < 20; again++) {
                double since = now();
                for (int i = 0; i < 200000; i++) memcpy(a + (i & 15) * 64, b, size);
                since = (now() - since) / 200000;
                if (since < least) least = since;
            }
            printf("%f\n", least);
        }"#;
    let Some(program) = compile(&setup, "cost", body) else { return };
    let time = |command: &mut Command| -> f64 {
        let output = succeed(command);
        String::from_utf8(output.stdout).expect("it prints text").trim().parse().expect("a number")
    };
    let (mut haul, mut libc) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..10 {
        haul = haul.min(time(&mut setup.plain(&program)));
        libc = libc.min(time(Command::new(&program).env_remove("LD_PRELOAD")));
    }
    assert!(library().is_file());
    eprintln!("a call of 16 B: haul {haul:.2} ns, libc {libc:.2} ns");
    // A busy machine changes its clock between two processes.
    assert!(haul <= 2.0 * libc, "haul {haul} ns, libc {libc} ns");
}
