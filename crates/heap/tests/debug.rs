//! Debug mode detects writes past the end of a block and writes to a freed block.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use haul_heap::{Fault, Heap, Misuse, Node, ReallocError, Request};

static REPORTED: AtomicUsize = AtomicUsize::new(0);

fn count_report(_: &Misuse) {
    REPORTED.fetch_add(1, Ordering::Relaxed);
}

fn heap() -> Heap {
    Heap::builder().limit(256 << 20).nodes(1).debug(true).build().unwrap()
}

fn free(heap: &Heap, block: NonNull<u8>) -> Result<(), Misuse> {
    // SAFETY: the tests free blocks that they allocated. The tests use freed blocks on purpose,
    // and the memory of these blocks stays mapped.
    unsafe { heap.free(block) }
}

fn write(block: NonNull<u8>, offset: usize, value: u8) {
    // SAFETY: within the slot or run of the block.
    let byte = unsafe { block.add(offset) };
    // SAFETY: as above, and the memory stays mapped.
    unsafe { byte.write(value) };
}

#[test]
fn correct_use_reports_no_misuse() {
    let heap = heap();
    let handle = heap.handle(Request::new(100)).unwrap();
    for round in 0..3000usize {
        let (size, align) = ([0, 1, 64, 100, 4096, 262_144, 300_000][round % 7], 1 << (round % 13));
        let block = heap.alloc(Request::new(size).aligned(align)).unwrap();
        assert!((block.as_ptr() as usize).is_multiple_of(align), "{size}@{align}");
        // SAFETY: allocated here.
        assert_eq!(unsafe { heap.usable_size(block) }, Ok(size));
        (0..size).step_by(97).for_each(|offset| write(block, offset, 1));
        // SAFETY: the test owns the block and replaces it with the returned block.
        let block = unsafe { heap.realloc(block, size + 5, align) }.unwrap();
        // SAFETY: the block has this many bytes.
        let first = unsafe { block.read() };
        assert_eq!(first, if size == 0 { 0xA5 } else { 1 });
        let other = handle.alloc().unwrap();
        free(&heap, block).unwrap();
        free(&heap, other).unwrap();
    }
    assert_eq!(heap.stats(Node::ANY).live.blocks, 0);
    assert_eq!(heap.validate(), Ok(()));
}

#[test]
fn free_detects_write_past_the_end() {
    let heap = heap();
    for size in [0, 1, 48, 100, 4096, 262_144, 400_000] {
        let block = heap.alloc(Request::new(size)).unwrap();
        write(block, size, 7);
        assert_eq!(free(&heap, block).unwrap_err().fault, Fault::Scribbled, "{size}");
        write(block, size, if size == 48 { size as u8 } else { 0xFE });
        free(&heap, block).unwrap();
    }
}

#[test]
fn second_free_is_detected_in_quarantine() {
    let heap = heap();
    let block = heap.alloc(Request::new(100)).unwrap();
    free(&heap, block).unwrap();
    assert_eq!(free(&heap, block).unwrap_err().fault, Fault::Double);
}

#[test]
fn write_after_free_is_reported_when_block_leaves_quarantine() {
    let heap = Heap::builder()
        .limit(64 << 20)
        .nodes(1)
        .debug(true)
        .on_misuse(count_report)
        .build()
        .unwrap();
    let block = heap.alloc(Request::new(100)).unwrap();
    free(&heap, block).unwrap();
    write(block, 50, 1);
    for _ in 0..300 {
        let other = heap.alloc(Request::new(100)).unwrap();
        assert_ne!(other, block, "the block is in quarantine");
        free(&heap, other).unwrap();
        if REPORTED.load(Ordering::Relaxed) > 0 {
            break;
        }
    }
    assert_eq!(REPORTED.load(Ordering::Relaxed), 1);
}

#[test]
fn realloc_refuses_block_with_overwritten_end() {
    let heap = heap();
    let block = heap.alloc(Request::new(100)).unwrap();
    write(block, 100, 1);
    // SAFETY: live, and not moved.
    let moved = unsafe { heap.realloc(block, 5000, 64) };
    assert!(matches!(moved, Err(ReallocError::Misuse(misuse)) if misuse.fault == Fault::Scribbled));
    assert_eq!(heap.stats(Node::ANY).live.blocks, 1);
}
