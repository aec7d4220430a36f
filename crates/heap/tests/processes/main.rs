//! Several processes on one heap. Children are this very program, started again with a role in
//! their environment: see `roles`.
//!
//! - `roles`: what children do;
//! - `cut`: files that can be cut short;
//! - `fork`: children that were not started again;
//! - `namespaces`: children that cannot see each other;
//! - `scribble`: a peer that writes where it should not;
//! - `starve`: a file system that others fill;
//! - `soak`: all of it at once, with threads and deaths.

mod cut;
mod fork;
mod namespaces;
mod roles;
mod scribble;
mod soak;
mod starve;
#[path = "../support/mod.rs"]
mod support;

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use haul_heap::{Heap, Node, Offset, Pages, Tag};

const MIB: u64 = 1 << 20;

/// Pages of a test's heap.
const PAGES: u64 = 32;

/// How long a child may take before it counts as hanging, on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn builder() -> haul_heap::Builder {
    Heap::builder().limit(PAGES * 2 * MIB).nodes(1).pages(Pages::Plain).caches(512)
}

/// A named heap that goes with this value.
struct Named {
    heap: Heap,
    name: String,
}

impl Named {
    fn new(label: &str) -> Self {
        let name = format!("test-{label}-{}", std::process::id());
        Self { heap: builder().shared_named(&name).unwrap(), name }
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = Heap::remove_name(&self.name);
    }
}

/// Starts this program again in a role.
fn start(role: &str, heap: &str, argument: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "roles::play", "--nocapture", "--test-threads=1"])
        .env("HAUL_ROLE", role)
        .env("HAUL_HEAP", heap)
        .env("HAUL_ARGUMENT", argument)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits for a child; fails if it crashed or hangs.
fn finish(mut child: Child, what: &str) -> String {
    drop(child.stdin.take());
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{what}: hangs");
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(status.success(), "{what}: {status}: {text}");
    text
}

/// What a child says after a word.
fn said(child: &mut Child, word: &str) -> String {
    let mut bytes = Vec::new();
    let out = child.stdout.as_mut().unwrap();
    loop {
        let mut byte = [0];
        assert_eq!(out.read(&mut byte).unwrap(), 1, "the child ended without saying {word}");
        bytes.push(byte[0]);
        if byte[0] == b'\n' {
            let line = String::from_utf8_lossy(&bytes).trim().to_owned();
            if let Some((_, rest)) = line.split_once(word) {
                return rest.trim().to_owned();
            }
            bytes.clear();
        }
    }
}

/// Everything must be had that a heap without live blocks can give.
fn assert_whole(heap: &Heap) {
    heap.validate().unwrap();
    assert_eq!(heap.stats(Node::ANY).live.blocks, 0);
    let blocks: Vec<_> =
        std::iter::from_fn(|| heap.alloc(2 << 20, 2 << 20, Node::ANY).ok()).collect();
    assert_eq!(blocks.len() as u64, PAGES);
    for block in blocks {
        // SAFETY: allocated just now and not used.
        unsafe { heap.free(block) }.unwrap();
    }
}

#[test]
fn processes_that_share_a_name_exchange_offsets() {
    let named = Named::new("offsets");
    let block = named.heap.alloc(1 << 20, 64, Node::ANY).unwrap();
    // SAFETY: just allocated with this size.
    unsafe { block.write_bytes(0x5A, 1 << 20) };
    let offset = named.heap.offset(block).unwrap();
    let text = finish(start("answer", &named.name, &offset.bytes().to_string()), "answer");
    let answer = text.lines().find_map(|line| line.split_once("OFFSET ")).unwrap().1;
    let answer = named.heap.pointer(Offset::new(answer.trim().parse().unwrap())).unwrap();
    // SAFETY: the child allocated and filled a block of 4 KiB there.
    let bytes = unsafe { std::slice::from_raw_parts(answer.as_ptr(), 4096) };
    assert!(bytes.iter().all(|byte| *byte == 0xA5));
    // SAFETY: the child gave the block to us; both are not used again.
    unsafe { named.heap.free(answer) }.unwrap();
    // SAFETY: as above.
    unsafe { named.heap.free(block) }.unwrap();
    named.heap.reap();
    assert_whole(&named.heap);
}

#[test]
fn a_descriptor_can_be_inherited() {
    let heap = builder().shared_fd().unwrap();
    let fd = rustix::io::dup(heap.fd().unwrap()).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&fd).to_string();
    let block = heap.alloc(1 << 20, 64, Node::ANY).unwrap();
    // SAFETY: just allocated with this size.
    unsafe { block.write_bytes(0x5A, 1 << 20) };
    let offset = heap.offset(block).unwrap();
    finish(start("answer", &number, &offset.bytes().to_string()), "answer by descriptor");
    heap.reap();
    assert_eq!(heap.stats(Node::ANY).live.blocks, 1);
    // SAFETY: not used again.
    unsafe { heap.free(block) }.unwrap();
    assert_whole(&heap);
}

#[test]
fn a_child_killed_in_a_malloc_loop_loses_nothing() {
    let named = Named::new("killed");
    let ours = named.heap.alloc_tagged(640, 64, Node::ANY, named.heap.tag("ours")).unwrap();
    let mut slowest = Duration::ZERO;
    for round in 0..12_u64 {
        let mut children: Vec<_> =
            (0..2).map(|i| start("churn", &named.name, &(round * 2 + i).to_string())).collect();
        for child in &mut children {
            said(child, "READY");
        }
        std::thread::sleep(Duration::from_micros(500 * (round % 7)));
        for child in &mut children {
            child.kill().unwrap();
        }
        for mut child in children {
            child.wait().unwrap();
        }
        let began = Instant::now();
        let reaped = named.heap.reap();
        slowest = slowest.max(began.elapsed());
        assert_eq!((reaped.processes, reaped.damaged), (2, 0), "{reaped:?}");
        named.heap.validate().unwrap();
        assert_eq!(named.heap.stats(Node::ANY).live.blocks, 1);
    }
    eprintln!("slowest recovery {slowest:?}");
    // The aim is 10 ms; a loaded machine may take the processor away meanwhile.
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    // SAFETY: not used again.
    unsafe { named.heap.free(ours) }.unwrap();
    assert_whole(&named.heap);
}

#[test]
fn an_heir_gets_the_blocks_of_the_dead() {
    let named = Named::new("heir");
    let mut child = start("bequeath", &named.name, &std::process::id().to_string());
    let offset = said(&mut child, "OFFSET").parse().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let reaped = named.heap.reap();
    assert_eq!((reaped.processes, reaped.blocks, reaped.inherited), (1, 0, 2), "{reaped:?}");
    let block = named.heap.pointer(Offset::new(offset)).unwrap();
    // SAFETY: the child filled a block of 4 KiB there, and left it to us.
    let bytes = unsafe { std::slice::from_raw_parts(block.as_ptr(), 4096) };
    assert!(bytes.iter().all(|byte| *byte == 0xA5));
    let mut blocks = Vec::new();
    named.heap.walk(|block| blocks.push(block.address));
    assert_eq!(blocks.len(), 2);
    for block in blocks {
        // SAFETY: ours now, and not used again.
        unsafe { named.heap.free(block) }.unwrap();
    }
    assert_whole(&named.heap);
}

/// Past the end of a memory file system a touch would be a signal.
#[test]
fn a_full_file_system_is_an_error() {
    in_small_file_system("overfill");
}

/// Neither may a touch of metadata be one, where it is another program that fills the file system.
#[test]
fn a_file_system_that_others_fill_is_an_error() {
    in_small_file_system("starve");
}

/// Plays a role with a file system of 16 MiB in the place of `/dev/shm`.
fn in_small_file_system(role: &str) {
    let namespaces = Command::new("unshare").args(["-rm", "true"]).status();
    if !namespaces.is_ok_and(|status| status.success()) {
        eprintln!(
            "SKIPPED: a full /dev/shm: no user namespaces: set kernel.unprivileged_userns_clone to 1"
        );
        return;
    }
    let mount = "mount -t tmpfs -o size=16m none /dev/shm && exec \"$0\" \"$@\"";
    let child = Command::new("unshare")
        .args(["-rm", "sh", "-c", mount])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "roles::play", "--nocapture", "--test-threads=1"])
        .env("HAUL_ROLE", role)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    finish(child, role);
}

#[test]
fn many_processes_work_at_once() {
    let named = Named::new("many");
    let children: Vec<_> =
        (0..4).map(|seed| start("work", &named.name, &seed.to_string())).collect();
    for child in children {
        finish(child, "work");
    }
    named.heap.reap();
    assert_whole(&named.heap);
    assert_eq!(named.heap.stats(Node::ANY).tag(Tag::NONE).blocks, 0);
}
