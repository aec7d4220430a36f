//! Programs that end abnormally. The trace contains every event up to the last event.

use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;

use haul_model::trace::{Kind, Oddities};

use crate::recording::{Recording, succeed};

const ENDS: &str = r#"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int count, char **arguments) {
    for (int i = 0; i < 5; i++) free(malloc(123));
    void *last = malloc(456);
    if (!strcmp(arguments[1], "_exit")) _exit(0);
    if (!strcmp(arguments[1], "abort")) abort();
    if (!strcmp(arguments[1], "kill")) kill(getpid(), SIGKILL);
    if (!strcmp(arguments[1], "crash")) *(volatile int *)8 = (int)(size_t)last;
    return 0;
}
"#;

#[test]
fn trace_has_every_event_before_any_end() {
    for (end, signal) in [
        ("return", None),
        ("_exit", None),
        ("abort", Some(libc_signal::ABORT)),
        ("kill", Some(libc_signal::KILL)),
        ("crash", Some(libc_signal::SEGMENT)),
    ] {
        let recording = Recording::new();
        let Some(program) = recording.compile(ENDS, &[]) else { return };
        let status = recording.command(program).arg(end).status().expect("it starts");
        assert_eq!(status.signal(), signal, "{end}");
        let history = recording.trace().history;
        assert_eq!(history.oddities, Oddities::default(), "{end}");
        let count = |kind: Kind, size: u64| {
            history.operations.iter().filter(|o| o.kind == kind && o.size == size).count()
        };
        assert_eq!((count(Kind::Allocate, 123), count(Kind::Free, 123)), (5, 5), "{end}");
        assert_eq!((count(Kind::Allocate, 456), history.live), (1, 1), "{end}");
    }
}

/// The numbers of signals, which are the same on every Linux.
mod libc_signal {
    pub(super) const ABORT: i32 = 6;
    pub(super) const KILL: i32 = 9;
    pub(super) const SEGMENT: i32 = 11;
}

const FOREVER: &str = r#"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>
static atomic_size_t rounds[4];
static void *work(void *arg) {
    size_t number = (size_t)arg;
    for (;;) {
        free(malloc(500 + number * 1000));
        atomic_fetch_add(&rounds[number], 1);
    }
}
int main(void) {
    for (size_t i = 1; i <= 3; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, work, (void *)i);
    }
    for (size_t i = 1; i <= 3; i++)
        while (atomic_load(&rounds[i]) < 100) usleep(1000);
    write(1, "x", 1);
    work((void *)0);
}
"#;

#[test]
fn kill_at_any_time_leaves_complete_events() {
    for _ in 0..5 {
        let recording = Recording::new();
        let Some(program) = recording.compile(FOREVER, &["-pthread"]) else { return };
        let mut child =
            recording.command(program).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut output = child.stdout.take().expect("it is piped");
        output.read_exact(&mut [0]).expect("it prints a byte when all threads run");
        child.kill().expect("it is ours");
        child.wait().expect("it is ours");
        let history = recording.trace().history;
        assert_eq!(history.oddities, Oddities::default());
        for number in 1..=3 {
            let is_its = |size: u64| size == 500 + number * 1000;
            let count = history.operations.iter().filter(|o| is_its(o.size)).count();
            assert!(count >= 100, "{count} operations of thread {number}");
        }
        assert!(history.live <= 4 + 3, "at most one block a thread, and the threads' own");
    }
}

const HANDLER: &str = r#"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
static volatile sig_atomic_t count;
static void handle(int signal) { count++; }
int main(void) {
    struct sigaction action = {.sa_handler = handle};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval every = {{0, 200}, {0, 200}};
    setitimer(ITIMER_REAL, &every, NULL);
    while (count < 200) free(malloc(64));
    return 0;
}
"#;

#[test]
fn signal_handlers_do_not_disturb_recording() {
    let recording = Recording::new();
    let Some(program) = recording.compile(HANDLER, &[]) else { return };
    succeed(&mut recording.command(program));
    let history = recording.trace().history;
    assert_eq!((history.oddities, history.live), (Oddities::default(), 0));
}
