//! The work of the victims: every operation of a heap. The heap is so small that each operation
//! happens often.

use std::ptr::NonNull;

use haul_heap::{Heap, Request};

use crate::support::random::Random;

/// Pages of the heap.
pub(crate) const PAGES: u64 = 16;

/// The most blocks held: they are on the stack, because a victim must not call malloc.
const BLOCKS: usize = 700;

/// Allocates, frees, resizes, reaps and maintains at random; `seed` determines the sequence. Ends
/// with nothing allocated.
pub(crate) fn work(heap: &Heap, seed: u64) {
    let mut random = Random::new(seed);
    clean_up(heap);
    take_whole_pages(heap);
    attach_and_leave(heap);
    // Returns one of a few names without calling malloc.
    heap.tag(["a", "b", "c", "d", "e", "f", "g", "h"][random.below(8) as usize]);
    let mut blocks: [Option<NonNull<u8>>; BLOCKS] = [None; BLOCKS];
    for round in 0..3 {
        fill(heap, &mut blocks, &mut random, round);
        resize(heap, &mut blocks, &mut random);
        for block in blocks.iter_mut().filter_map(Option::take) {
            // SAFETY: allocated by `fill` or `resize`, and taken out of the array.
            assert!(unsafe { heap.free(block) }.is_ok());
        }
        heap.maintain();
    }
}

/// Reaps a dead sibling.
pub(crate) fn clean_up(heap: &Heap) {
    heap.reap();
}

/// Makes the heap claim whole pages without memory, and give back slices that it claimed ahead.
/// For this, allocates blocks of a class with short spans, then of a class with longer spans.
fn take_whole_pages(heap: &Heap) {
    heap.trim();
    for size in [64 << 10, 128 << 10, 256 << 10] {
        if let Ok(block) = heap.alloc(Request::new(size)) {
            // SAFETY: allocated just now and not used.
            assert!(unsafe { heap.free(block) }.is_ok());
        }
    }
}

/// Attaches to the heap a second time, and drops this attachment while it has a cached block.
fn attach_and_leave(heap: &Heap) {
    let Some(fd) = heap.fd() else { return };
    let second = Heap::builder().attach_fd(fd);
    assert!(second.is_ok());
    let Ok(second) = second else { return };
    if let Ok(block) = second.alloc(Request::new(640)) {
        // SAFETY: allocated just now and not used.
        assert!(unsafe { second.free(block) }.is_ok());
    }
}

/// Allocates blocks of one class or of any class, until the array or the heap is full.
fn fill(
    heap: &Heap,
    blocks: &mut [Option<NonNull<u8>>; BLOCKS],
    random: &mut Random,
    round: usize,
) {
    let one_size = 64 << random.below(11);
    for slot in blocks.iter_mut() {
        let size = match round {
            0 => one_size,
            1 => 1 + random.below(300 << 10) as usize,
            // With few sizes and many blocks, spans are built and taken apart.
            _ => [64, 4096, 65536, 262_144, 1 << 20][random.below(5) as usize],
        };
        *slot = heap.alloc(Request::new(size)).ok();
        if slot.is_none() {
            break;
        }
    }
}

/// Grows and shrinks large blocks, and moves small blocks.
fn resize(heap: &Heap, blocks: &mut [Option<NonNull<u8>>; BLOCKS], random: &mut Random) {
    // Frees every second block, so that the others have room to grow.
    for slot in blocks.iter_mut().step_by(2) {
        if let Some(block) = slot.take() {
            // SAFETY: allocated by `fill`, and taken out of the array.
            assert!(unsafe { heap.free(block) }.is_ok());
        }
    }
    let mut large = heap.alloc(Request::new(300 << 10)).ok();
    for _ in 0..6 {
        let size = (257 << 10) + random.below(3 << 20) as usize;
        let Some(block) = large else { break };
        // SAFETY: the block is live, this process owns it, and the returned block replaces it.
        large = unsafe { heap.realloc(block, size, 64) }.ok().or(large);
    }
    if let Some(block) = large {
        // SAFETY: the block is live, this process owns it, and does not use it again.
        assert!(unsafe { heap.free(block) }.is_ok());
    }
    for slot in blocks.iter_mut().skip(1).step_by(16) {
        if let Some(block) = *slot {
            let size = 1 + random.below(100 << 10) as usize;
            // SAFETY: the block is live, this process owns it, and the returned block replaces
            // it.
            *slot = unsafe { heap.realloc(block, size, 64) }.ok().or(*slot);
        }
    }
}
