//! Tests a private heap through its public interface: packing, alignment, reuse, misuse,
//! exhaustion.

use std::collections::BTreeSet;
use std::ptr::NonNull;

use haul_heap::{AllocError, Fault, Heap, Node, Owner, Request};

const MIB: u64 = 1 << 20;

fn heap(mebibytes: u64) -> Heap {
    Heap::builder().limit(mebibytes * MIB).nodes(1).build().unwrap()
}

fn free(heap: &Heap, block: NonNull<u8>) {
    // SAFETY: the tests free blocks that they allocated, and do not use them again.
    unsafe { heap.free(block) }.unwrap();
}

fn wrong_free(heap: &Heap, address: usize) -> haul_heap::Misuse {
    let pointer = NonNull::new(std::ptr::without_provenance_mut(address)).unwrap();
    // SAFETY: no live block starts there.
    unsafe { heap.free(pointer) }.unwrap_err()
}

#[test]
fn page_aligned_pages_pack_without_gaps() {
    let heap = heap(256);
    let blocks: BTreeSet<usize> = (0..10_000)
        .map(|_| heap.alloc(Request::new(4096).aligned(4096)).unwrap().as_ptr() as usize)
        .collect();
    assert_eq!(blocks.len(), 10_000);
    assert!(blocks.iter().all(|block| block.is_multiple_of(4096)));
    let span = blocks.last().unwrap() + 4096 - blocks.first().unwrap();
    assert!(span as f64 <= 1.01 * 10_000.0 * 4096.0, "{span}");
}

#[test]
fn every_size_and_alignment_is_served_and_keeps_its_content() {
    let heap = heap(512);
    let mut blocks = Vec::new();
    let sizes = (0..=23).flat_map(|bits| [(1usize << bits) - 1, 1 << bits, (1 << bits) + 1]);
    for size in sizes {
        for align in [1, 8, 64, 128, 4096, 65536, 1 << 20, 1 << 22] {
            let block = heap.alloc(Request::new(size).aligned(align)).unwrap();
            assert!((block.as_ptr() as usize).is_multiple_of(align), "{size}@{align}");
            // SAFETY: allocated here.
            assert!(unsafe { heap.usable_size(block) }.unwrap() >= size);
            let mark = (size ^ align) as u8;
            // SAFETY: the test owns the block, which has `size` bytes.
            unsafe { block.write_bytes(mark, size) };
            blocks.push((block, size, mark));
            if blocks.len() > 40 {
                let (block, size, mark) = blocks.swap_remove(size % 40);
                check(block, size, mark);
                free(&heap, block);
            }
        }
    }
    for (block, size, mark) in blocks {
        check(block, size, mark);
        free(&heap, block);
    }
}

fn check(block: NonNull<u8>, size: usize, mark: u8) {
    // SAFETY: the block has `size` bytes, which were all written.
    let bytes = unsafe { std::slice::from_raw_parts(block.as_ptr(), size) };
    assert!(bytes.iter().all(|byte| *byte == mark), "{size} bytes of {mark}");
}

#[test]
fn zalloc_clears_reused_memory() {
    let heap = heap(64);
    for size in [64, 1000, 4096, 300_000] {
        for _ in 0..3 {
            let block = heap.zalloc(Request::new(size)).unwrap();
            check(block, size, 0);
            // SAFETY: the test owns the block, which has `size` bytes.
            unsafe { block.write_bytes(0xA5, size) };
            free(&heap, block);
        }
    }
}

#[test]
fn wrong_frees_are_distinguished() {
    let heap = heap(64);
    let block = heap.alloc(Request::new(320)).unwrap();
    let address = block.as_ptr() as usize;
    for (offset, fault) in [(64, Fault::Interior), (1, Fault::Interior), (319, Fault::Interior)] {
        let misuse = wrong_free(&heap, address + offset);
        assert_eq!((misuse.fault, misuse.class_bytes), (fault, Some(320)));
        assert!(matches!(misuse.owner, Owner::Process { .. }));
    }
    free(&heap, block);
    let misuse = wrong_free(&heap, address);
    assert_eq!((misuse.fault, misuse.address), (Fault::Double, address));
    assert!(matches!(misuse.owner, Owner::Cache(_)));
    let local = 0u64;
    assert_eq!(wrong_free(&heap, &raw const local as usize).fault, Fault::Foreign);
    assert_eq!(wrong_free(&heap, address + (32 << 20)).fault, Fault::Wild);

    let large = heap.alloc(Request::new(1 << 20)).unwrap();
    let address = large.as_ptr() as usize;
    assert_eq!(wrong_free(&heap, address + 4096).fault, Fault::Interior);
    assert_eq!(wrong_free(&heap, address + 65536).fault, Fault::Interior);
    free(&heap, large);
    assert_eq!(wrong_free(&heap, address).fault, Fault::Wild);
}

#[test]
fn impossible_requests_are_refused() {
    let heap = heap(64);
    let alloc = |size, align, node| {
        heap.alloc(Request::new(size).aligned(align).on_node(node)).unwrap_err()
    };
    assert_eq!(alloc(1 << 63, 64, Node::ANY), AllocError::TooLarge);
    assert_eq!(alloc(usize::MAX, 64, Node::ANY), AllocError::TooLarge);
    assert_eq!(alloc(usize::MAX, 1, Node::ANY), AllocError::TooLarge);
    assert_eq!(alloc(65 << 20, 64, Node::ANY), AllocError::TooLarge);
    for align in [0, 3, 48, 96, 1 << 31, 1 << 63, usize::MAX] {
        assert_eq!(alloc(64, align, Node::ANY), AllocError::BadAlign, "{align}");
    }
    assert_eq!(alloc(64, 64, Node::new(1)), AllocError::NoNode);
    assert_eq!(alloc(1 << 20, 64, Node::new(255)), AllocError::NoNode);
    free(&heap, heap.alloc(Request::new(0).aligned(1).on_node(Node::new(0))).unwrap());
}

#[test]
fn full_heap_reports_exhaustion_and_serves_again_after_frees() {
    let heap = heap(16);
    for size in [64, 4096, 196_608, 1 << 20] {
        let mut blocks = Vec::new();
        let error = loop {
            match heap.alloc(Request::new(size)) {
                Ok(block) => blocks.push(block),
                Err(error) => break error,
            }
        };
        assert_eq!(error, AllocError::Exhausted);
        assert!(blocks.len() * size > 14 << 20, "{} of {size}", blocks.len());
        // Wrong pointers into the last block before the heap's end are also detected.
        for block in &blocks {
            let misuse = wrong_free(&heap, block.as_ptr() as usize + 1);
            assert_eq!(misuse.fault, Fault::Interior, "{size}");
        }
        // After any one block is freed, one more block can be allocated.
        free(&heap, blocks.swap_remove(blocks.len() / 2));
        blocks.push(heap.alloc(Request::new(size)).unwrap());
        blocks.into_iter().for_each(|block| free(&heap, block));
    }
}

#[test]
fn realloc_keeps_the_content() {
    let heap = heap(256);
    let mut block = heap.alloc(Request::new(10)).unwrap();
    // SAFETY: the test owns ten bytes there.
    unsafe { block.write_bytes(7, 10) };
    let mut size = 10;
    for next in [60, 64, 65, 5000, 70_000, 270_000, 400_000, 9 << 20, 3 << 20, 300_000, 100, 10] {
        // SAFETY: the test owns the block and replaces it with the returned one.
        block = unsafe { heap.realloc(block, next, 64) }.unwrap();
        check(block, size.min(next), 7);
        // SAFETY: the block has that many bytes now.
        unsafe { block.write_bytes(7, next) };
        size = next;
    }
    free(&heap, block);
}

#[test]
fn large_block_grows_in_place_if_possible() {
    let heap = heap(64);
    let block = heap.alloc(Request::new(1 << 20)).unwrap();
    // SAFETY: the test owns the block and replaces it with the returned one.
    let same = unsafe { heap.realloc(block, 20 << 20, 64) }.unwrap();
    assert_eq!(same, block);
    // SAFETY: as above.
    assert_eq!(unsafe { heap.usable_size(block) }, Ok(20 << 20));
    // SAFETY: as above.
    let same = unsafe { heap.realloc(block, 1 << 20, 64) }.unwrap();
    // SAFETY: as above.
    assert_eq!((same, unsafe { heap.usable_size(same) }), (block, Ok(1 << 20)));
    let next = heap.alloc(Request::new(1 << 20)).unwrap();
    assert_eq!(next.as_ptr() as usize, block.as_ptr() as usize + (1 << 20));
}

#[test]
fn offset_and_pointer_convert_both_ways() {
    let heap = heap(64);
    let block = heap.alloc(Request::new(64)).unwrap();
    let offset = heap.offset(block).unwrap();
    assert_eq!(heap.pointer(offset), Some(block));
    assert_eq!(heap.pointer(haul_heap::Offset::new(u64::MAX)), None);
    assert_eq!(heap.offset(NonNull::dangling()), None);
}

#[test]
fn blocks_freed_by_another_thread_are_reused() {
    let heap = heap(16);
    for _ in 0..20 {
        // Ten mebibytes each round: without reuse, the heap would be full in the second pass.
        let blocks: Vec<usize> =
            (0..40_000).map(|_| heap.alloc(Request::new(256)).unwrap().as_ptr() as usize).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for block in blocks {
                    let block = NonNull::new(std::ptr::with_exposed_provenance_mut(block));
                    free(&heap, block.unwrap());
                }
            });
        });
    }
}
