//! Programs that end normally.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::Stdio;

use haul_model::trace::{Kind, Oddities};

use crate::recording::{Recording, is_here, skip, succeed};

#[test]
fn recorded_program_behaves_as_unrecorded() {
    let recording = Recording::new();
    let bare = succeed(std::process::Command::new("ls").arg("-l").arg("/usr/bin"));
    let recorded = succeed(recording.command("ls").arg("-l").arg("/usr/bin"));
    assert_eq!(recorded, bare);
    let trace = recording.trace();
    assert_eq!(trace.header.program_name(), "ls");
    assert_eq!(trace.header.parent, 0);
    let oddities = Oddities { unknown: trace.history.oddities.unknown, ..Oddities::default() };
    assert_eq!(trace.history.oddities, oddities);
    assert!(trace.history.operations.len() > 20, "{}", trace.history.operations.len());
}

#[test]
fn threads_of_sort_are_recorded() {
    let recording = Recording::new();
    let mut child = recording
        .command("sort")
        .args(["--parallel=4", "-S", "1M"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("sort starts");
    let mut input = child.stdin.take().expect("it is piped");
    let writer = std::thread::spawn(move || {
        for line in 0..200_000_u64 {
            writeln!(input, "{}", line.wrapping_mul(0x9e37_79b9_7f4a_7c15)).expect("sort reads");
        }
    });
    let output = child.wait_with_output().expect("sort ends");
    writer.join().expect("it wrote");
    assert!(output.status.success());
    assert_eq!(output.stdout.iter().filter(|byte| **byte == b'\n').count(), 200_000);
    // `sort` may have started children to compress temporary files; its own trace is the first.
    let trace = &recording.traces()[0];
    assert_eq!(trace.history.oddities.damaged + trace.history.oddities.lost, 0);
    assert!(trace.history.peak_bytes > 500_000, "{}", trace.history.peak_bytes);
}

#[test]
fn long_trace_of_python_is_complete() {
    if !is_here("python3") {
        return skip("python3 under the recorder", "no python3 on PATH", "apt-get install python3");
    }
    let recording = Recording::new();
    let script = "x = [bytes(1000 + i % 7) for i in range(20000)]; print(sum(map(len, x)))";
    let output = succeed(recording.command("python3").args(["-S", "-c", script]));
    assert_eq!(output.stdout, b"20059997\n");
    // If python3 is a script that searches for an interpreter, there are several traces.
    let traces = recording.traces().into_iter();
    let trace = traces.max_by_key(|trace| trace.history.peak_bytes).expect("a trace");
    let oddities = trace.history.oddities;
    assert_eq!((oddities.damaged, oddities.lost, oddities.unfreed), (0, 0, 0), "{oddities:?}");
    let bytes = trace.history.operations.iter().filter(|o| (1033..1040).contains(&o.size));
    assert!(bytes.filter(|o| o.kind != Kind::Free).count() >= 20_000);
    assert!(trace.history.peak_bytes > 20_000_000);
}

/// Each of four threads calls every recorded function a known number of times, and passes blocks to
/// the next thread.
const EVERY_CALL: &str = r#"
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static void *handed;

static void *work(void *arg) {
    for (int i = 0; i < 3000; i++) {
        char *a = malloc(100), *b = calloc(3, 70), *c = aligned_alloc(256, 512), *d = memalign(4096, 10), *e = NULL;
        if (posix_memalign((void **)&e, 128, 300)) return arg;
        memset(a, 1, malloc_usable_size(a));
        a = realloc(a, 5000);
        for (int j = 0; j < 210; j++) if (b[j]) abort();
        if ((size_t)d % 4096 || (size_t)e % 128 || (size_t)c % 256) abort();
        free(__atomic_exchange_n(&handed, malloc(77), __ATOMIC_ACQ_REL));
        free(a); free(b); free(c); free(d); free(e); free(NULL);
    }
    return NULL;
}

int main(void) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < 4; i++) {
        void *result;
        pthread_join(threads[i], &result);
        if (result) return 1;
    }
    return 0;
}
"#;

#[test]
fn every_call_of_every_thread_is_recorded_once() {
    let recording = Recording::new();
    let Some(program) = recording.compile(EVERY_CALL, &["-pthread"]) else { return };
    succeed(&mut recording.command(program));
    let history = recording.trace().history;
    assert_eq!(history.oddities, Oddities::default());
    let mut count: BTreeMap<(u8, u64, u8), usize> = BTreeMap::new();
    for operation in &history.operations {
        *count.entry((operation.kind as u8, operation.size, operation.align_log2)).or_default() +=
            1;
    }
    let count = |kind: Kind, size, align| count.get(&(kind as u8, size, align)).copied();
    let each = Some(4 * 3000);
    assert_eq!(count(Kind::Allocate, 100, 0), each);
    assert_eq!(count(Kind::AllocateZeroed, 210, 0), each);
    assert_eq!(count(Kind::Allocate, 512, 8), each);
    assert_eq!(count(Kind::Allocate, 10, 12), each);
    assert_eq!(count(Kind::Allocate, 300, 7), each);
    assert_eq!(count(Kind::Reallocate, 5000, 0), each);
    assert_eq!(count(Kind::Free, 5000, 0), each);
    assert_eq!(count(Kind::Allocate, 77, 0), each);
    // The last passed block is never freed.
    assert_eq!(count(Kind::Free, 77, 0), Some(4 * 3000 - 1));
    assert!(history.threads.len() >= 5, "{:?}", history.threads);
}

/// More threads than there are slots, one after the other. Each thread continues in the block of
/// an earlier thread.
const MANY_THREADS: &str = r#"
#include <pthread.h>
#include <stdlib.h>
static void *work(void *arg) { free(malloc(1234)); return arg; }
int main(void) {
    for (int i = 0; i < 5000; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, NULL)) return 1;
        pthread_join(thread, NULL);
    }
    return 0;
}
"#;

#[test]
fn successive_threads_share_blocks() {
    let recording = Recording::new();
    let Some(program) = recording.compile(MANY_THREADS, &["-pthread"]) else { return };
    succeed(&mut recording.command(program));
    let history = recording.trace().history;
    assert_eq!(history.oddities, Oddities::default());
    let is_one = |o: &&haul_model::trace::Operation| o.kind == Kind::Allocate && o.size == 1234;
    assert_eq!(history.operations.iter().filter(is_one).count(), 5000);
    let entry = std::fs::read_dir(recording.folder.path()).expect("the folder is ours");
    let sizes = entry.map(|entry| entry.and_then(|entry| entry.metadata()).expect("ours").len());
    // The file has a header and one or two blocks. One block for each of the 5,000 threads would
    // need 320 MB.
    assert!(sizes.max().expect("a trace") < 4 << 20);
}

/// A library with DPDK's functions, and a program that uses it.
const DPDK_LIBRARY: &str = r#"
#include <stddef.h>
#include <string.h>
static char room[1 << 20] __attribute__((aligned(4096)));
static size_t next;
void *rte_malloc_socket(const char *type, size_t size, unsigned align, int socket) {
    next += 4096;
    return next + 4096 > sizeof room ? NULL : room + next;
}
void *rte_malloc(const char *type, size_t size, unsigned align) { return rte_malloc_socket(type, size, align, -1); }
void rte_free(void *block) {}
void *rte_realloc(void *block, size_t size, unsigned align) {
    void *moved = memcpy(rte_malloc(NULL, size, align), block, size < 4096 ? size : 4096);
    rte_free(block);
    return moved;
}
"#;
const DPDK_PROGRAM: &str = r#"
#include <stddef.h>
void *rte_malloc(const char *, size_t, unsigned);
void *rte_malloc_socket(const char *, size_t, unsigned, int);
void *rte_realloc(void *, size_t, unsigned);
void rte_free(void *);
int main(void) {
    for (int i = 0; i < 10; i++) {
        rte_free(rte_realloc(rte_malloc("mbuf_pool", 1111, 64), 2222, 0));
        rte_free(rte_malloc_socket(NULL, 3333, 4096, 0));
    }
    return 0;
}
"#;

#[test]
fn dpdk_calls_are_recorded_with_type() {
    let recording = Recording::new();
    let flags = ["-shared", "-fPIC"];
    let Some(library) = recording.compile(DPDK_LIBRARY, &flags) else { return };
    let shared = recording.folder.path().join("librte_eal.so");
    std::fs::rename(library, &shared).expect("the folder is ours");
    let at = recording.folder.path().display().to_string();
    let flags = ["-L", &at, "-lrte_eal", &format!("-Wl,-rpath,{at}")];
    let program = recording.compile(DPDK_PROGRAM, &flags).expect("gcc is here");
    succeed(&mut recording.command(program));
    let history = recording.trace().history;
    assert_eq!(history.tags, ["untagged", "mbuf_pool", "rte_malloc"]);
    let tagged = |tag: u16, kind: Kind, size: u64| {
        let operations = history.operations.iter();
        operations.filter(|o| (o.tag, o.kind, o.size) == (tag, kind, size)).count()
    };
    assert_eq!(tagged(1, Kind::Allocate, 1111), 10);
    assert_eq!(tagged(1, Kind::Reallocate, 2222), 10);
    assert_eq!(tagged(1, Kind::Free, 2222), 10);
    assert_eq!(tagged(2, Kind::Allocate, 3333), 10);
    assert_eq!(tagged(2, Kind::Free, 3333), 10);
    // Calls that DPDK makes within a call of the program are not recorded.
    assert_eq!(history.operations.iter().filter(|operation| operation.tag != 0).count(), 50);
}
