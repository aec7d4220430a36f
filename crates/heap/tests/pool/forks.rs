//! Processes fork while the kernel's pool has no free page. They use private heaps, and this
//! program uses the heap for all its allocations. The parent and the child write to all their
//! blocks, and each keeps its own content.

use std::process::Command;
use std::ptr::NonNull;

use haul_heap::{Global, Heap, Pages, Request};

use crate::guard::{IN_POOL, PAGE, Pool, hold_free_pages};
use crate::support::child::{in_child, start, wait};

/// The number of blocks of one page: more than the pool has pages.
const BLOCKS: usize = 3 * IN_POOL;

/// How often a child forks again.
const GENERATIONS: u8 = 4;

/// A block of [`PAGE`] bytes.
#[derive(Clone, Copy)]
struct Block(NonNull<u8>);

impl Block {
    fn new(heap: &Heap) -> Self {
        Self(heap.alloc(Request::new(PAGE).aligned(PAGE)).unwrap())
    }

    fn fill(self, byte: u8) {
        // SAFETY: this process owns the block, which has this size.
        unsafe { self.0.write_bytes(byte, PAGE) };
    }

    fn holds(self, byte: u8) -> bool {
        // SAFETY: this process owns the block, which has this size, and does not write to it
        // meanwhile.
        let bytes = unsafe { std::slice::from_raw_parts(self.0.as_ptr(), PAGE) };
        bytes.iter().all(|found| *found == byte)
    }
}

/// Forks; both processes write to all blocks at the same time. Returns whether each process found
/// the content that it had written.
fn fork_and_write(heap: &Heap, blocks: &[Block], generation: u8) -> bool {
    let before = generation;
    let child = start(|| {
        let has_copy = blocks.iter().all(|block| block.holds(before));
        blocks.iter().for_each(|block| block.fill(generation + 1));
        let another = Block::new(heap);
        another.fill(7);
        let is_whole = another.holds(7)
            && (generation + 1 == GENERATIONS || fork_and_write(heap, blocks, generation + 1))
            && blocks.iter().all(|block| block.holds(generation + 1));
        has_copy && is_whole
    });
    blocks.iter().for_each(|block| block.fill(100 + generation));
    let is_whole = wait(child) == 0 && blocks.iter().all(|block| block.holds(100 + generation));
    // Restores the content for the next check.
    blocks.iter().for_each(|block| block.fill(generation));
    is_whole
}

/// Runs this test again with a role, in a new program that starts while the pool is full.
fn run_again(test: &str) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env("HAUL_ROLE", test)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}\n{text}", output.status);
}

fn has_role(test: &str) -> bool {
    std::env::var("HAUL_ROLE").is_ok_and(|role| role == test)
}

#[test]
fn private_heap_survives_forks_with_an_exhausted_pool() {
    let this = "forks::private_heap_survives_forks_with_an_exhausted_pool";
    if !has_role(this) {
        let Some(_pool) = Pool::take("forks of a heap with the pool used up") else { return };
        return run_again(this);
    }
    for pages in [Pages::Auto, Pages::Huge2M, Pages::Huge1G, Pages::Transparent, Pages::Plain] {
        let heap = Heap::builder().limit((64 * PAGE) as u64).nodes(1).pages(pages).build().unwrap();
        let blocks: Vec<Block> = (0..BLOCKS).map(|_| Block::new(&heap)).collect();
        blocks.iter().for_each(|block| block.fill(0));
        let _other_pages = hold_free_pages();
        assert!(fork_and_write(&heap, &blocks, 0), "{pages:?}");
        assert!(heap.pages().from_pool == 0, "{}", heap.pages());
        heap.validate().unwrap();
    }
}

#[test]
fn program_on_the_heap_survives_forks_with_an_exhausted_pool() {
    let this = "forks::program_on_the_heap_survives_forks_with_an_exhausted_pool";
    if !has_role(this) {
        let Some(_pool) = Pool::take("forks of a program with the pool used up") else { return };
        return run_again(this);
    }
    let heap = Global::heap().unwrap();
    let blocks: Vec<Block> = (0..BLOCKS).map(|_| Block::new(heap)).collect();
    blocks.iter().for_each(|block| block.fill(0));
    let _other_pages = hold_free_pages();
    for round in 0..10 {
        let words: Vec<String> = (0..1000).map(|word| format!("{round} {word}")).collect();
        assert!(fork_and_write(heap, &blocks, 0), "round {round}");
        assert_eq!(words[999], format!("{round} 999"));
    }
    heap.validate().unwrap();
}

/// The parent and the child have the same pages, and neither process lacks a page.
#[test]
fn shared_heap_survives_forks_with_an_exhausted_pool() {
    let Some(_pool) = Pool::take("forks of a shared heap with the pool used up") else { return };
    let heap = Heap::builder().limit((64 * PAGE) as u64).nodes(1).shared_fd().unwrap();
    assert_eq!(heap.pages().from_pool as usize, IN_POOL);
    let blocks: Vec<Block> = (0..BLOCKS).map(|_| Block::new(&heap)).collect();
    blocks.iter().for_each(|block| block.fill(0));
    let _other_pages = hold_free_pages();
    let status = in_child(|| {
        blocks.iter().for_each(|block| block.fill(9));
        Block::new(&heap).fill(9);
        0
    });
    assert_eq!(status, 0);
    assert!(blocks.iter().all(|block| block.holds(9)));
    blocks.iter().for_each(|block| block.fill(1));
    assert_eq!(heap.reap().processes, 1);
}
