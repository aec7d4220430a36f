//! Threads with small stacks, like those of musl and Go: the heap's calls need little stack.

use std::sync::Arc;
use std::thread;

use haul_heap::{Heap, Node, Pages, Request};

/// 16 KiB: glibc's PTHREAD_STACK_MIN on x86-64, and an eighth of musl's default.
const LEAST: usize = 16 << 10;

/// Runs `work` in a thread with a stack of `bytes` bytes. If that stack is too small, the process
/// crashes.
fn on_a_stack(bytes: usize, work: impl FnOnce() + Send + 'static) {
    thread::Builder::new().stack_size(bytes).spawn(work).unwrap().join().unwrap();
}

fn small() -> Heap {
    Heap::builder().pages(Pages::Plain).limit(64 << 20).build().unwrap()
}

fn use_it(heap: &Heap) {
    let mut blocks = Vec::new();
    for size in [1, 100, 5000, 100_000, 3 << 20] {
        for _ in 0..50 {
            blocks.extend(heap.alloc(Request::new(size)));
        }
    }
    let last = blocks.pop().unwrap();
    // SAFETY: the block belongs to this heap and is not used again.
    blocks.extend(unsafe { heap.realloc(last, 5 << 20, 64) }.ok());
    for block in blocks {
        // SAFETY: the block belongs to this heap and is not used again.
        unsafe { heap.free(block) }.unwrap();
    }
}

#[test]
fn allocation_works_on_the_smallest_stack() {
    let heap = Arc::new(small());
    for _ in 0..4 {
        let heap = heap.clone();
        on_a_stack(LEAST, move || use_it(&heap));
    }
}

#[test]
fn heap_is_built_inspected_and_dropped_on_a_small_stack() {
    on_a_stack(64 << 10, || {
        let heap = small();
        use_it(&heap);
        let _ = (heap.stats(Node::ANY), heap.validate(), heap.trim(), heap.reap());
    });
}

#[test]
fn shared_heap_is_built_and_attached_to_on_a_small_stack() {
    on_a_stack(64 << 10, || {
        let heap = Heap::builder().pages(Pages::Plain).limit(64 << 20).shared_fd().unwrap();
        let other = Heap::builder().attach_fd(heap.fd().unwrap()).unwrap();
        use_it(&other);
        let _ = (other.stats(Node::ANY), other.validate(), other.reap());
    });
}
