//! Blocks that an engine fills with zeros.
#![cfg(feature = "engine")]

use std::ptr::NonNull;
use std::sync::Arc;

use haul::engine::Queue;
use haul::heap::{Heap, Node, Request, Zeroing};

const SIZES: [usize; 5] = [1, 4096, 65_536, (2 << 20) + 1, 16 << 20];

fn heap() -> Arc<Heap> {
    Arc::new(Heap::builder().limit(128 << 20).build().unwrap())
}

/// Frees a block full of a byte other than zero, so that the next block of its size has this
/// content.
fn leave_traces(heap: &Heap, size: usize) {
    let block = heap.alloc(Request::new(size)).unwrap();
    // SAFETY: allocated here with this size.
    unsafe { block.write_bytes(0xa5, size) };
    // SAFETY: as above, and not used again.
    unsafe { heap.free(block) }.unwrap();
}

fn is_zero(block: NonNull<u8>, size: usize) -> bool {
    // SAFETY: the tests pass live blocks of this size.
    unsafe { std::slice::from_raw_parts(block.as_ptr(), size) }.iter().all(|byte| *byte == 0)
}

#[test]
fn every_engine_fills_blocks_of_every_size() {
    for name in ["inline", "worker", "auto"] {
        let (heap, queue) = (heap(), Queue::by_name(name).unwrap());
        for size in SIZES {
            leave_traces(&heap, size);
            let request = Request::new(size).aligned(64);
            let block = Zeroing::start(Arc::clone(&heap), request, &queue).unwrap();
            let block = block.wait().unwrap();
            assert!(is_zero(block, size), "{name}, {size}");
            assert_eq!(Arc::strong_count(&heap), 1, "nothing else keeps the heap");
            // SAFETY: the block is live and not used again.
            unsafe { heap.free(block) }.unwrap();
        }
    }
}

#[test]
fn dropped_block_is_freed_and_leaked_block_stays() {
    let (heap, queue) = (heap(), Queue::worker().unwrap());
    for _ in 0..100 {
        drop(Zeroing::start(Arc::clone(&heap), Request::new(8 << 20), &queue).unwrap());
    }
    assert_eq!((Arc::strong_count(&heap), heap.stats(Node::ANY).live.blocks), (1, 0));
    std::mem::forget(Zeroing::start(Arc::clone(&heap), Request::new(8 << 20), &queue).unwrap());
    drop(queue);
    assert_eq!((Arc::strong_count(&heap), heap.stats(Node::ANY).live.blocks), (2, 1));
}

#[test]
fn full_heap_is_error() {
    let heap = Arc::new(Heap::builder().limit(8 << 20).build().unwrap());
    let request = Request::new(64 << 20);
    let error = Zeroing::start(Arc::clone(&heap), request, &Queue::inline()).unwrap_err();
    assert_eq!(heap.alloc(request), Err(error));
}

/// A child must not write zeros into a block that its parent uses: they may share the memory.
#[test]
fn child_of_fork_leaves_block_to_parent() {
    let heap = Arc::new(Heap::builder().limit(128 << 20).shared_fd().unwrap());
    let queue = Queue::worker().unwrap();
    let block = Zeroing::start(Arc::clone(&heap), Request::new(32 << 20), &queue).unwrap();
    // SAFETY: the child only waits for the block, which must return at once, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends a child that hangs.
        unsafe { libc::alarm(60) };
        let has_block = block.is_done() || block.wait().is_some();
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(has_block)) };
    }
    let block = block.wait().unwrap();
    // SAFETY: the block is live with this size.
    unsafe { block.write_bytes(7, 32 << 20) };
    let mut status = 0;
    // SAFETY: waits for a child of this process.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0);
    // SAFETY: as above.
    let bytes = unsafe { std::slice::from_raw_parts(block.as_ptr(), 32 << 20) };
    assert!(bytes.iter().all(|byte| *byte == 7));
}
