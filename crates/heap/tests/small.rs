//! A heap of two pages, which is so small that Miri can check every access to it.

use std::ptr::NonNull;
use std::thread;

use haul_heap::{Heap, Pages, Request};

fn heap() -> Heap {
    Heap::builder().limit(4 << 20).nodes(1).caches(4).pages(Pages::Plain).build().unwrap()
}

fn free(heap: &Heap, block: NonNull<u8>) {
    // SAFETY: the tests free blocks that they allocated, and do not use them again.
    unsafe { heap.free(block) }.unwrap();
}

fn mark(block: NonNull<u8>, size: usize) {
    for offset in [0, size / 2, size - 1] {
        // SAFETY: within the block.
        let byte = unsafe { block.add(offset) };
        // SAFETY: as above, and the test owns the block.
        unsafe { byte.write(size as u8) };
    }
}

#[test]
fn blocks_are_allocated_resized_and_freed() {
    let heap = heap();
    let mut blocks = Vec::new();
    for size in [1, 65, 300, 4096, 300_000] {
        for _ in 0..2 {
            let block = heap.alloc(Request::new(size)).unwrap();
            mark(block, size);
            blocks.push(block);
        }
    }
    let mut seen = 0;
    heap.walk(|_| seen += 1);
    assert_eq!(seen, blocks.len());
    for (index, block) in blocks.into_iter().enumerate() {
        // SAFETY: the test owns the block and replaces it with the returned block.
        let block = unsafe { heap.realloc(block, 200 * (index + 1), 64) }.unwrap();
        mark(block, 200 * (index + 1));
        // SAFETY: within the block.
        let within = unsafe { block.add(1) };
        // SAFETY: no block begins there.
        assert!(unsafe { heap.free(within) }.is_err());
        free(&heap, block);
        // SAFETY: the block is already free, so this call is an error.
        assert!(unsafe { heap.free(block) }.is_err());
    }
    assert_eq!(heap.validate(), Ok(()));
}

#[test]
fn bin_is_filled_and_emptied() {
    let heap = heap();
    for _ in 0..2 {
        let blocks: Vec<_> = (0..80).map(|_| heap.alloc(Request::new(8192)).unwrap()).collect();
        blocks.iter().for_each(|block| mark(*block, 8192));
        blocks.into_iter().for_each(|block| free(&heap, block));
    }
}

#[test]
fn another_thread_frees_blocks() {
    let heap = heap();
    let (sender, receiver) = std::sync::mpsc::channel::<usize>();
    thread::scope(|scope| {
        scope.spawn(|| {
            for offset in receiver {
                let offset = haul_heap::Offset::new(offset as u64);
                free(&heap, heap.pointer(offset).unwrap());
            }
        });
        for _ in 0..80 {
            let block = heap.alloc(Request::new(8192)).unwrap();
            mark(block, 8192);
            sender.send(heap.offset(block).unwrap().bytes() as usize).unwrap();
        }
        drop(sender);
    });
}
