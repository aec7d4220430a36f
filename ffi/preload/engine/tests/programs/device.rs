//! What a program sees of the fake, and what it submits.

use crate::setup::{Setup, library, succeed};

const SHARED_AND_DEDICATED: &str = "queue mode=shared size=4\nqueue mode=dedicated size=8";

#[test]
fn write_submits_descriptors_of_the_program() {
    Setup::new(SHARED_AND_DEDICATED).run(
        r#"
static char from[100000], to[100000];
int main(void) {
    struct record r[2];
    struct descriptor d[2];
    int wq = open("/dev/dsa/wq0.0", O_RDWR);
    CHECK(wq > 2);
    struct stat about;
    CHECK(fstat(wq, &about) == 0 && S_ISCHR(about.st_mode));
    for (int i = 0; i < 100000; i++) from[i] = i % 251;
    d[0] = copy_of(to, from, 50000, &r[0]);
    d[1] = copy_of(to + 50000, from + 50000, 50000, &r[1]);
    CHECK(write(wq, d, sizeof d) == sizeof d);
    CHECK(wait_for(&r[0]) == 1 && wait_for(&r[1]) == 1);
    CHECK(memcmp(from, to, 100000) == 0);
    d[0] = copy_of(0, from, 10, &r[0]);
    CHECK(write(wq, d, 64) == 64);
    CHECK(wait_for(&r[0]) == 0x83 && r[0].completed == 0 && r[0].address == 0);
    d[0].record += 8;
    CHECK(write(wq, d, 64) == -1 && errno == EINVAL);
    CHECK(close(wq) == 0);
    CHECK(write(wq, d, 64) == -1 && errno == EBADF);
    CHECK(open("/dev/dsa/wq0.9", O_RDWR) == -1 && errno == ENOENT);
    return 0;
}"#,
    );
}

/// MOVDIR64B and ENQCMD, on a processor with or without them.
#[cfg(target_arch = "x86_64")]
#[test]
fn portals_accept_both_instructions() {
    Setup::new(SHARED_AND_DEDICATED).run(
        r#"
static char from[5000], to[5000];
int main(void) {
    struct record r;
    for (int queue = 0; queue < 2; queue++) {
        int wq = open(queue ? "/dev/dsa/wq0.1" : "/dev/dsa/wq0.0", O_RDWR);
        char *portal = mmap(0, 4096, PROT_WRITE, MAP_SHARED | MAP_POPULATE, wq, 0);
        CHECK(portal != MAP_FAILED);
        close(wq);
        for (int i = 0; i < 5000; i++) from[i] = i * 7 + queue, to[i] = 0;
        struct descriptor d = copy_of(to, from, 5000, &r);
        CHECK((queue ? movdir64b : enqcmd)(portal + 64 * queue, &d) == 0);
        CHECK(wait_for(&r) == 1 && memcmp(from, to, 5000) == 0);
        CHECK(munmap(portal, 4096) == 0);
    }
    return 0;
}"#,
    );
}

/// Other forms of the operands: an index, a displacement, and the instruction's own address.
#[cfg(target_arch = "x86_64")]
#[test]
fn portals_accept_every_form_of_address() {
    Setup::new("queue mode=dedicated size=8").run(
        r#"
static char from[64], to[64];
static struct descriptor global;
int main(void) {
    struct record r;
    int wq = open("/dev/dsa/wq0.0", O_RDWR);
    char *portal = mmap(0, 4096, PROT_WRITE, MAP_SHARED, wq, 0);
    CHECK(portal != MAP_FAILED);
    struct descriptor d[3];
    for (int form = 0; form < 4; form++) {
        memset(from, form + 1, 64);
        d[2] = global = copy_of(to, from, 64, &r);
        char *base = (char *)d;
        long two = 2 * sizeof d[0] / 8;
        switch (form) {
        case 0: /* r9, [r10 + r11*8] */
            __asm__ volatile("mov %0, %%r9; mov %1, %%r10; mov %2, %%r11;"
                ".byte 0x66, 0x47, 0x0f, 0x38, 0xf8, 0x0c, 0xda"
                : : "r"(portal), "r"(base), "r"(two) : "r9", "r10", "r11", "memory");
            break;
        case 1: /* rax, [rdx + 127] */
            __asm__ volatile(".byte 0x66, 0x0f, 0x38, 0xf8, 0x42, 0x7f"
                : : "a"(portal), "d"((char *)&d[2] - 127) : "memory");
            break;
        case 2: /* rax, [r12 - 0x80000000] */
            __asm__ volatile("mov %1, %%r12; .byte 0x66, 0x41, 0x0f, 0x38, 0xf8, 0x84, 0x24, 0, 0, 0, 0x80"
                : : "a"(portal), "r"((char *)&d[2] + 0x80000000ul) : "r12", "memory");
            break;
        case 3: /* rax, [rip + global] */
            __asm__ volatile(".byte 0x66, 0x0f, 0x38, 0xf8, 0x05; .long %c1 - . - 4"
                : : "a"(portal), "i"(&global) : "memory");
            break;
        }
        CHECK(wait_for(&r) == 1 && memcmp(from, to, 64) == 0);
    }
    return 0;
}"#,
    );
}

#[test]
fn full_queue_is_a_short_write_and_then_an_error() {
    Setup::new("queue size=4\ninject at=6 wedge").run(
        r#"
int main(void) {
    struct record r[16];
    struct descriptor d[16];
    int wq = open("/dev/dsa/wq0.0", O_RDWR);
    for (int i = 0; i < 16; i++) d[i] = copy_of(&r[i], &r[i], 0, &r[i]), d[i].flags = 0xc;
    for (int i = 0; i < 5; i++) {
        CHECK(write(wq, &d[i], 64) == 64);
        CHECK(wait_for(&r[i]) == 1);
    }
    CHECK(write(wq, &d[5], 11 * 64) == 4 * 64);
    CHECK(write(wq, &d[9], 64) == -1 && errno == EAGAIN);
    _exit(0);
}"#,
    );
}

/// Sapphire Rapids without CAP_SYS_RAWIO: no portal, no batch, but `write`.
#[test]
fn unsafe_device_refuses_portals_and_batches() {
    Setup::new("device portal=no batches=no").run(
        r#"
int main(void) {
    char line[200] = {0};
    struct record r;
    int wq = open("/dev/dsa/wq0.0", O_RDWR);
    CHECK(mmap(0, 4096, PROT_WRITE, MAP_SHARED, wq, 0) == MAP_FAILED && errno == EPERM);
    struct descriptor d = {0};
    d.flags = 1u << 24, d.size = 2;
    CHECK(write(wq, &d, 64) == -1 && errno == EINVAL);
    FILE *file = fopen("/sys/bus/dsa/devices/dsa0/op_cap", "r");
    CHECK(file && fgets(line, sizeof line, file));
    CHECK((strtol(strrchr(line, ',') + 1, 0, 16) & 2) == 0);
    CHECK(access("/sys/bus/dsa/devices/wq0.0/state", R_OK) == 0);
    CHECK(access("/sys/bus/dsa/devices/wq9.0/state", R_OK) == -1);
    return 0;
}"#,
    );
}

#[test]
fn removal_of_the_folder_removes_the_device() {
    let setup = Setup::new("");
    let Some(mut program) = setup.program(
        r#"
int main(int count, char **words) {
    struct record r;
    struct descriptor d = copy_of(&d, &d, 0, &r);
    d.flags = 0xc;
    int wq = open("/dev/dsa/wq0.0", O_RDWR);
    CHECK(write(wq, &d, 64) == 64 && wait_for(&r) == 1);
    char command[5000];
    snprintf(command, sizeof command, "rm -r '%s'", getenv("HAUL_ENGINE_FAKE"));
    CHECK(system(command) == 0);
    CHECK(write(wq, &d, 64) == -1 && errno == ENODEV);
    CHECK(open("/dev/dsa/wq0.0", O_RDWR) == -1 && errno == ENOENT);
    return 0;
}"#,
    ) else {
        return;
    };
    succeed(&mut program);
    assert!(!setup.fake().exists());
}

/// A fault of the program's own goes to the program's handler, or ends the program.
#[test]
fn other_faults_are_the_programs_own() {
    use std::os::unix::process::ExitStatusExt as _;
    let body = |handler: &str| {
        format!(
            r#"
#include <signal.h>
static void on_fault(int signal, siginfo_t *info, void *context) {{
    _exit(info->si_addr == (void *)16 ? 9 : 1);
}}
int main(void) {{
    struct sigaction action = {{ .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO }};
    {handler}
    int wq = open("/dev/dsa/wq0.0", O_RDWR);
    CHECK(mmap(0, 4096, PROT_WRITE, MAP_SHARED, wq, 0) != MAP_FAILED);
    *(volatile int *)16 = 1;
    return 0;
}}"#
        )
    };
    let setup = Setup::new("");
    let Some(mut program) = setup.program(&body("sigaction(SIGSEGV, &action, 0);")) else { return };
    assert_eq!(program.status().unwrap().code(), Some(9));
    let Some(mut program) = setup.program(&body("")) else { return };
    assert_eq!(program.status().unwrap().signal(), Some(libc::SIGSEGV));
}

/// Without the variable, or with a folder without a fake, the library changes nothing.
#[test]
fn library_without_a_fake_changes_nothing() {
    let setup = Setup::new("");
    let body = r#"
int main(void) {
    CHECK(open("/dev/dsa/wq0.77", O_RDWR) == -1 && errno == ENOENT);
    int file = open("/dev/null", O_WRONLY);
    CHECK(write(file, "x", 1) == 1 && close(file) == 0);
    void *page = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED && munmap(page, 4096) == 0);
    return 0;
}"#;
    let Some(mut program) = setup.program(body) else { return };
    for folder in ["", "relative", "/nonexistent"] {
        succeed(program.env("HAUL_ENGINE_FAKE", folder));
    }
    succeed(program.env_remove("HAUL_ENGINE_FAKE"));
    assert!(library().exists());
}
