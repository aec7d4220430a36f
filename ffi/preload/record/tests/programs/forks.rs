//! Programs that fork or execute other programs. Each process has a separate trace.

use haul_model::trace::{Kind, Oddities};

use crate::recording::{Recording, is_here, skip, succeed};

const FORKS: &str = r#"
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Forks by libc's function, which calls handlers, or by the system call, which does not. */
static void child(int raw, int size) {
    void *before = malloc(50);
    pid_t child = raw ? (pid_t)syscall(SYS_fork) : fork();
    if (child == 0) {
        for (int i = 0; i < 10000; i++) free(malloc(size));
        free(before);
        _exit(0);
    }
    for (int i = 0; i < 10000; i++) free(malloc(111));
    int status;
    if (waitpid(child, &status, 0) != child || status) abort();
    free(before);
}

int main(void) {
    child(0, 222);
#ifdef SYS_fork
    child(1, 333);
#else
    child(0, 333);
#endif
    return 0;
}
"#;

#[test]
fn forked_child_has_own_trace() {
    let recording = Recording::new();
    let Some(program) = recording.compile(FORKS, &[]) else { return };
    succeed(&mut recording.command(program));
    let traces = recording.traces();
    assert_eq!(traces.len(), 3);
    let parent = traces[0].header.process;
    for (trace, (size, times, unknown)) in
        traces.iter().zip([(111, 20_000, 0), (222, 10_000, 1), (333, 10_000, 1)])
    {
        let is_one = |o: &&haul_model::trace::Operation| o.kind == Kind::Allocate && o.size == size;
        assert_eq!(trace.history.operations.iter().filter(is_one).count(), times, "{size}");
        // The block that the parent allocated and the child freed is unknown in the child's trace.
        assert_eq!(trace.history.oddities, Oddities { unknown, ..Oddities::default() });
        let is_child = trace.header.process != parent;
        assert_eq!(trace.header.parent, if is_child { parent } else { 0 });
    }
}

#[test]
fn shell_pipeline_has_one_trace_per_process() {
    if !is_here("dash") {
        return skip("a pipeline under the recorder", "no dash on PATH", "apt-get install dash");
    }
    let recording = Recording::new();
    let script =
        "printf 'b\\na\\nc\\n' | sort | { read x; echo first $x; }; ls / > /dev/null; exit 0";
    let output = succeed(recording.command("dash").args(["-c", script]));
    assert_eq!(output.stdout, b"first a\n");
    let traces = recording.traces();
    let names: Vec<String> = traces.iter().map(|trace| trace.header.program_name()).collect();
    for name in ["dash", "sort", "ls"] {
        assert!(names.iter().any(|each| each == name), "{name} of {names:?}");
    }
    for trace in &traces {
        assert_eq!(trace.history.oddities.damaged + trace.history.oddities.lost, 0);
    }
}

#[test]
fn exec_leaves_two_traces() {
    let recording = Recording::new();
    let output = succeed(recording.command("sh").args(["-c", "exec ls /"]));
    assert!(!output.stdout.is_empty());
    let traces = recording.traces();
    assert_eq!(traces.len(), 2);
    assert_eq!(traces[0].header.process, traces[1].header.process);
    assert_eq!(traces[1].header.program_name(), "ls");
}
