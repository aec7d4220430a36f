//! Programs that give up rights, and traces that are truncated. The recording continues if
//! possible, and the program always continues.

use std::process::Output;

use crate::recording::{Recording, is_root, library, skip, succeed};

/// Gives up the right that its first argument names, and allocates 300,000 times.
const GIVES_UP: &str = r#"
#define _GNU_SOURCE
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Only exit_group is allowed; every other call ends the process. */
static struct sock_filter only_exit[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};
static struct sock_fprog filter = {4, only_exit};

static void passed_by(int number) { (void)number; }

int main(int count, char **arguments) {
    const char *what = arguments[1];
    int strict = 0;
    char trace[4096];
    snprintf(trace, sizeof trace, "%s.%d", arguments[2], (int)getpid());
    void *first = malloc(100000);
    free(first);
    if (!strcmp(what, "setuid")) {
        if (setgroups(0, NULL) || setgid(65534) || setuid(65534)) return 2;
    } else if (!strcmp(what, "chroot")) {
        if (chroot(arguments[2]) || chdir("/")) return 2;
    } else if (!strcmp(what, "limit")) {
        struct rlimit none = {3, 3};
        if (setrlimit(RLIMIT_NOFILE, &none)) return 2;
    } else if (!strcmp(what, "close")) {
        if (syscall(SYS_close_range, 3, ~0U, 0)) return 2;
    } else if (!strcmp(what, "cut")) {
        if (truncate(trace, 0)) return 2;
    } else if (!strcmp(what, "cut-blocked")) {
        sigset_t all;
        sigfillset(&all);
        if (sigprocmask(SIG_BLOCK, &all, NULL) || truncate(trace, 0)) return 2;
    } else if (!strcmp(what, "cut-sent")) {
        if (signal(SIGBUS, passed_by) == SIG_ERR || kill(getpid(), SIGBUS)) return 2;
        if (truncate(trace, 0)) return 2;
    } else if (!strcmp(what, "cut-limited")) {
        struct rlimit none = {1, 1};
        if (setrlimit(RLIMIT_DATA, &none) || truncate(trace, 0)) return 2;
    } else if (!strcmp(what, "prctl-filter") || !strcmp(what, "seccomp-filter")) {
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 2;
        if (*what == 'p' ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0)
                         : (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter))
            return 2;
    } else if (!strcmp(what, "strict")) {
        strict = 1;
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0)) return 2;
    } else if (!strcmp(what, "probe")) {
        /* Tests whether filters are supported: the call fails, and nothing is filtered. */
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL, 0, 0) == 0) return 2;
        if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL) == 0) return 2;
    }
    for (int i = 0; i < 300000; i++) free(malloc(64));
    if (strict) syscall(SYS_exit, 0);
    _exit(0);
}
"#;

/// Runs the program and returns its output.
fn giving_up(recording: &Recording, what: &str, argument: &str) -> Option<Output> {
    let program = recording.compile(GIVES_UP, &[])?;
    Some(succeed(recording.command(program).args([what, argument])))
}

fn is_whole(recording: &Recording, output: &Output, what: &str) {
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{what}");
    let operations = recording.trace().history.operations.len();
    assert!(operations >= 600_000, "{what}: {operations}");
}

#[test]
fn recording_continues_without_right_to_open_its_file() {
    for what in ["setuid", "chroot", "limit", "probe", "close"] {
        if ["setuid", "chroot"].contains(&what) && !is_root() {
            skip(&format!("a recording after {what}"), "not running as root", "run as root");
            continue;
        }
        let recording = Recording::new();
        let empty = recording.folder.path().join("empty");
        std::fs::create_dir(&empty).expect("the folder is ours");
        let Some(output) = giving_up(&recording, what, &empty.to_string_lossy()) else { return };
        is_whole(&recording, &output, what);
    }
}

#[test]
fn program_with_system_call_filter_is_recorded() {
    for what in ["prctl-filter", "seccomp-filter"] {
        let recording = Recording::new();
        let Some(output) = giving_up(&recording, what, "") else { return };
        is_whole(&recording, &output, what);
    }
}

/// In strict mode, the kernel does not even allow a program to read the time.
#[test]
fn program_in_strict_mode_is_recorded_up_to_it() {
    let recording = Recording::new();
    let Some(output) = giving_up(&recording, "strict", "") else { return };
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(printed.lines().count() == 1 && printed.contains("read and write"), "{printed}");
    let operations = recording.trace().history.operations;
    assert!(operations.iter().any(|operation| operation.size == 100_000));
}

#[test]
fn program_survives_truncated_trace() {
    for what in ["cut", "cut-blocked", "cut-sent", "cut-limited"] {
        let recording = Recording::new();
        let base = recording.folder.path().join("t");
        let Some(output) = giving_up(&recording, what, &base.to_string_lossy()) else { return };
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(printed.lines().count(), 1, "{what}: {printed}");
        assert!(printed.contains("was truncated"), "{what}: {printed}");
    }
}

/// A program that causes a SIGBUS itself, with the default action or with a handler of either
/// kind.
const OWN_FAULT: &str = r#"
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static sigjmp_buf back;
static volatile char *page;
static void plain(int number) { siglongjmp(back, number == SIGBUS ? 1 : 2); }
static void full(int number, siginfo_t *info, void *context) {
    siglongjmp(back, number == SIGBUS && info->si_addr == page ? 1 : 2);
}
int main(int count, char **arguments) {
    free(malloc(10));
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(tmpfile()), 0);
    if (page == MAP_FAILED) return 3;
    struct sigaction was;
    if (sigaction(SIGBUS, NULL, &was) || was.sa_handler != SIG_DFL) return 4;
    if (!strcmp(arguments[1], "full")) {
        struct sigaction action = {.sa_sigaction = full, .sa_flags = SA_SIGINFO};
        if (sigaction(SIGBUS, &action, &was) || was.sa_handler != SIG_DFL) return 5;
        if (sigaction(SIGBUS, NULL, &was) || was.sa_sigaction != full) return 6;
        if (!(was.sa_flags & SA_SIGINFO) || was.sa_flags & SA_ONSTACK) return 7;
    } else if (!strcmp(arguments[1], "plain")) {
        if (signal(SIGBUS, plain) != SIG_DFL) return 8;
        if (signal(SIGBUS, plain) != plain) return 9;
    } else if (!strcmp(arguments[1], "sent")) {
        kill(getpid(), SIGBUS);
        return 10;
    }
    for (int round = 0; round < 3; round++) {
        int by = sigsetjmp(back, 1);
        if (by == 0) *page = 1;
        if (by != 1) return 11;
        free(malloc(10));
    }
    return 0;
}
"#;

#[test]
fn sigbus_of_program_reaches_its_own_handler() {
    use std::os::unix::process::ExitStatusExt as _;
    const BUS: i32 = 7;
    for (how, signal) in
        [("full", None), ("plain", None), ("default", Some(BUS)), ("sent", Some(BUS))]
    {
        let recording = Recording::new();
        let Some(program) = recording.compile(OWN_FAULT, &[]) else { return };
        let status = recording.command(program).arg(how).status().expect("it starts");
        assert_eq!(
            (status.signal(), status.code()),
            (signal, if signal.is_none() { Some(0) } else { None }),
            "{how}"
        );
        assert!(recording.trace().history.operations.len() >= 2, "{how}");
    }
}

/// A disk of 64 KiB is full before a trace begins.
#[test]
fn full_disk_is_reported_once_for_all_processes() {
    let recording = Recording::new();
    let script = "mount -t tmpfs -o size=64k none $DISK && cd / && head -c 60000 /dev/zero > $DISK/full; \
                  export LD_PRELOAD=$RECORDER HAUL_RECORD=$DISK/t; \
                  sh -c 'for i in 1 2 3 4 5 6 7 8 9 10; do ls / > /dev/null; done'; unset LD_PRELOAD; ls -A $DISK";
    let disk = recording.folder.path().join("disk");
    std::fs::create_dir(&disk).expect("the folder is ours");
    let mut unshare = std::process::Command::new("unshare");
    let output = unshare
        .args(["-rm", "sh", "-c", script])
        .env("DISK", &disk)
        .env("RECORDER", library())
        .output();
    let Some(output) = output.ok().filter(|output| output.status.success()) else {
        skip("a full disk", "no user namespaces", "allow unprivileged unshare");
        return;
    };
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(printed.lines().count(), 1, "{printed}");
    assert!(printed.contains("errno 28") && printed.contains("reported once"), "{printed}");
    // In addition to the file that filled the disk, the disk contains only the file that records
    // the report.
    let left = String::from_utf8_lossy(&output.stdout);
    let others: Vec<&str> = left.lines().filter(|name| *name != "full").collect();
    assert!(others.len() == 1 && others[0].starts_with(".haul_record."), "{left}");
}
