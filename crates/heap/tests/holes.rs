//! Large blocks, above 256 KiB, in a full heap: all freed blocks can be allocated again, and
//! random replacement of blocks needs hardly more memory than the blocks have.

mod support;

use std::ptr::NonNull;

use haul_heap::{Builder, Heap, Node, Pages, Request};
use support::child::{in_child, statm_bytes};
use support::random::Random;

const MIB: usize = 1 << 20;

/// The limit of the heaps that the tests fill.
const LIMIT: u64 = 64 << 20;

/// Sizes of blocks. Few of them are powers of two.
const SIZES: [usize; 13] = [
    262_145,
    300_000,
    400_000,
    524_288,
    786_433,
    MIB,
    MIB + 1,
    1_572_864,
    2 * MIB,
    2 * MIB + 1,
    3 * MIB,
    5_000_000,
    16 * MIB,
];

fn builder() -> Builder {
    Heap::builder().limit(LIMIT).nodes(1)
}

/// One heap of each kind.
fn heaps() -> [Heap; 4] {
    [
        builder().build(),
        builder().pages(Pages::Plain).build(),
        builder().pages(Pages::Plain).shared_fd(),
        builder().debug(true).pages(Pages::Plain).build(),
    ]
    .map(|heap| heap.unwrap())
}

fn alloc(heap: &Heap, size: usize, align: usize) -> Option<NonNull<u8>> {
    let block = heap.alloc(Request::new(size).aligned(align)).ok()?;
    assert!(block.addr().get().is_multiple_of(align));
    // SAFETY: allocated right above.
    assert!(unsafe { heap.usable_size(block) }.unwrap() >= size);
    Some(block)
}

fn free(heap: &Heap, block: NonNull<u8>) {
    // SAFETY: allocated by `alloc`, and not used again.
    unsafe { heap.free(block) }.unwrap();
}

/// Allocates blocks of one size until the heap is full.
fn fill(heap: &Heap, size: usize, align: usize) -> Vec<NonNull<u8>> {
    std::iter::from_fn(|| alloc(heap, size, align)).collect()
}

/// Frees every `step`th block. Returns the other blocks, and the number of freed blocks.
fn free_every(heap: &Heap, blocks: Vec<NonNull<u8>>, step: usize) -> (Vec<NonNull<u8>>, usize) {
    let (mut kept, mut freed) = (Vec::new(), 0);
    for (index, block) in blocks.into_iter().enumerate() {
        if index % step == 0 {
            free(heap, block);
            freed += 1;
        } else {
            kept.push(block);
        }
    }
    (kept, freed)
}

fn assert_freed_blocks_are_reused(heap: &Heap, size: usize, align: usize, step: usize) {
    let blocks = fill(heap, size, align);
    let all = blocks.len();
    let (mut blocks, freed) = free_every(heap, blocks, step);
    let again = fill(heap, size, align);
    assert_eq!(again.len(), freed, "of {all} of {size} B at {align}, every {step}th freed");
    blocks.extend(again);
    heap.validate().unwrap();
    blocks.into_iter().for_each(|block| free(heap, block));
}

#[test]
fn holes_of_freed_blocks_are_reused() {
    for heap in heaps() {
        for size in SIZES {
            for step in [2, 3] {
                assert_freed_blocks_are_reused(&heap, size, 64, step);
            }
        }
    }
}

#[test]
fn holes_of_freed_aligned_blocks_are_reused() {
    for heap in heaps() {
        for align in [4096, 64 << 10, 128 << 10, 256 << 10, MIB, 2 * MIB, 4 * MIB] {
            for size in [262_145, 400_000, MIB, 2 * MIB, 5_000_000] {
                assert_freed_blocks_are_reused(&heap, size, align, 2);
            }
        }
    }
}

#[test]
fn full_heap_holds_all_blocks_that_fit() {
    for (size, slices) in [(262_145, 5), (400_000, 7), (786_433, 13), (5_000_000, 77)] {
        let heap = builder().build().unwrap();
        assert_eq!(fill(&heap, size, 64).len(), 1024 / slices, "{size} B");
    }
}

#[test]
fn adjacent_holes_form_one_hole() {
    for heap in heaps() {
        for size in [5 * (64 << 10), 12 * (64 << 10), MIB, 3 * MIB] {
            // In debug mode a block has a trailer.
            let size = size - 64;
            let mut blocks = fill(&heap, size, 64);
            blocks.sort_unstable();
            let count = blocks.len() / 4;
            for index in (0..count).rev() {
                free(&heap, blocks.remove(4 * index + 1));
                free(&heap, blocks.remove(4 * index + 1));
            }
            let double = fill(&heap, 2 * size, 64);
            assert!(double.len() >= count, "{} of {count} of 2 * {size} B", double.len());
            double.into_iter().chain(blocks).for_each(|block| free(&heap, block));
        }
    }
}

#[test]
fn hole_is_reused_by_a_block_of_its_size() {
    for heap in heaps() {
        let mut random = Random::new(7);
        let mut blocks = Vec::new();
        loop {
            let size = 262_145 + random.index(3 * MIB);
            let Some(block) = alloc(&heap, size, 64) else { break };
            blocks.push((block, size));
        }
        for _ in 0..500 {
            let index = random.index(blocks.len());
            let (block, size) = blocks[index];
            free(&heap, block);
            let again = alloc(&heap, size, 64);
            blocks[index].0 = again.unwrap_or_else(|| panic!("the hole of {size} B is lost"));
        }
        heap.validate().unwrap();
    }
}

#[test]
fn holes_left_by_other_threads_are_reused() {
    let heap = builder().build().unwrap();
    for size in [262_145, 786_433, 2 * MIB + 1] {
        let blocks = fill(&heap, size, 64);
        let all = blocks.len();
        // Two threads free blocks 0 and 1 of each four blocks at the same time.
        let parts = [0, 1].map(|part| {
            let part = blocks.iter().enumerate().filter(move |(index, _)| index % 4 == part);
            part.map(|(_, block)| block.addr().get()).collect::<Vec<_>>()
        });
        std::thread::scope(|scope| {
            for part in &parts {
                let heap = &heap;
                scope.spawn(move || {
                    for address in part {
                        let block = std::ptr::with_exposed_provenance_mut(*address);
                        free(heap, NonNull::new(block).unwrap());
                    }
                });
            }
        });
        let freed: usize = parts.iter().map(Vec::len).sum();
        let counts = std::thread::scope(|scope| {
            let threads = [0, 1].map(|_| scope.spawn(|| fill(&heap, size, 64).len()));
            threads.map(|thread| thread.join().unwrap())
        });
        assert_eq!(counts.iter().sum::<usize>(), freed, "of {all} of {size} B");
        heap.trim();
        let live = heap.stats(Node::ANY).live.blocks;
        assert_eq!(live, all as u64);
        let mut live = Vec::new();
        heap.walk(|block| live.push(block.address));
        live.into_iter().for_each(|block| free(&heap, block));
    }
}

#[test]
fn holes_left_by_another_process_are_reused() {
    let heap = builder().pages(Pages::Plain).shared_fd().unwrap();
    for size in [262_145, 786_433, 2 * MIB + 1] {
        let blocks = fill(&heap, size, 64);
        let all = blocks.len();
        let freed = in_child(|| {
            let other = Heap::builder().attach_fd(heap.fd().unwrap()).unwrap();
            let mut freed = 0;
            for block in blocks.iter().step_by(2) {
                let offset = heap.offset(*block).unwrap();
                free(&other, other.pointer(offset).unwrap());
                freed += 1;
            }
            freed
        });
        assert_eq!(freed as usize, all.div_ceil(2));
        let again = fill(&heap, size, 64);
        assert_eq!(again.len(), freed as usize, "of {all} of {size} B");
        heap.validate().unwrap();
        let kept = blocks.into_iter().skip(1).step_by(2);
        again.into_iter().chain(kept).for_each(|block| free(&heap, block));
    }
}

#[test]
fn block_grows_into_the_hole_behind_it() {
    for heap in &heaps()[..3] {
        for size in [300_000, MIB, 2 * MIB + 1] {
            let mut blocks = fill(heap, size, 64);
            blocks.sort_unstable();
            free(heap, blocks.remove(2));
            // SAFETY: live, and not used.
            let grown = unsafe { heap.realloc(blocks[1], 2 * size, 64) }.unwrap();
            assert_eq!(grown, blocks[1], "{size} B");
            // SAFETY: as above.
            assert!(unsafe { heap.usable_size(grown) }.unwrap() >= 2 * size);
            heap.validate().unwrap();
            blocks.into_iter().for_each(|block| free(heap, block));
        }
    }
}

#[test]
fn contiguous_block_lies_within_one_page() {
    let heap = builder().build().unwrap();
    let shift = alloc(&heap, 262_145, 64).unwrap();
    for size in [262_145, MIB, 1_500_000, 2 * MIB] {
        for _ in 0..3 {
            let block =
                heap.alloc_contiguous(Request::new(size).tagged(haul_heap::Tag::NONE)).unwrap();
            let offset = heap.offset(block).unwrap().bytes() as usize;
            assert_eq!(offset / (2 * MIB), (offset + size - 1) / (2 * MIB), "{size} B");
        }
    }
    free(&heap, shift);
}

/// The most live blocks in the tests of resident memory.
const LIVE_MAX: usize = 200;

/// Replaces blocks at random, with `live` live blocks of `from` to `to` bytes, and writes to each
/// block. Returns the increase of resident memory as a percentage of the live bytes. Calls no
/// malloc.
fn resident_percentage(heap: &Heap, from: usize, to: usize, live: usize, steps: usize) -> u64 {
    let mut random = Random::new(1);
    let mut blocks: [Option<(NonNull<u8>, usize)>; LIVE_MAX] = [None; LIVE_MAX];
    let before = statm_bytes(1);
    let mut asked = 0;
    for step in 0..live + steps {
        let index = if step < live { step } else { random.index(live) };
        if let Some((block, size)) = blocks[index].take() {
            free(heap, block);
            asked -= size;
        }
        let size = from + random.index(to - from + 1);
        let block = heap.alloc(Request::new(size)).unwrap();
        for offset in (0..size).step_by(4096) {
            // SAFETY: the bytes are in the block, which has no other user.
            let byte = unsafe { block.add(offset) };
            // SAFETY: likewise.
            unsafe { byte.write_volatile(1) };
        }
        blocks[index] = Some((block, size));
        asked += size;
    }
    (statm_bytes(1) - before) * 100 / asked as u64
}

/// The increases of resident memory: with all blocks live, and after all blocks were freed and
/// allocated again without a write. Calls no malloc.
fn resident_again(heap: &Heap, size: usize) -> (u64, u64) {
    let before = statm_bytes(1);
    let fill = |byte: Option<u8>| {
        [(); LIVE_MAX].map(|()| {
            let block = heap.alloc(Request::new(size)).unwrap();
            if let Some(byte) = byte {
                // SAFETY: the block has this many bytes and no other user.
                unsafe { block.write_bytes(byte, size) };
            }
            block
        })
    };
    fill(Some(1)).into_iter().for_each(|block| free(heap, block));
    let first = statm_bytes(1) - before;
    fill(None);
    (first, statm_bytes(1) - before)
}

#[test]
fn reallocated_blocks_keep_their_memory() {
    for size in [262_145, MIB] {
        for (kind, pages) in [("private", Pages::Auto), ("plain", Pages::Plain)] {
            let heap = Heap::builder().limit(2 << 30).nodes(1).pages(pages).build().unwrap();
            let percent = in_child(|| {
                let (first, again) = resident_again(&heap, size);
                (again * 100 / first) as i32
            });
            assert!((80..=101).contains(&percent), "{kind}, {size} B: {percent}%");
        }
    }
}

#[test]
fn block_reuses_the_hole_freed_last() {
    for heap in &heaps()[..3] {
        for size in [262_145, MIB, 3 * MIB] {
            let blocks = fill(heap, size, 64);
            for (first, second) in [(1, 3), (3, 1), (0, blocks.len() - 1)] {
                free(heap, blocks[first]);
                free(heap, blocks[second]);
                assert_eq!(alloc(heap, size, 64), Some(blocks[second]), "{size} B");
                assert_eq!(alloc(heap, size, 64), Some(blocks[first]), "{size} B");
            }
            heap.validate().unwrap();
            blocks.into_iter().for_each(|block| free(heap, block));
        }
    }
}

#[test]
fn random_replacement_keeps_little_extra_memory() {
    let heap = |builder: fn() -> Builder| builder().limit(2 << 30);
    // Pages of a pool do not count as resident.
    let shared = || heap(builder).pages(Pages::Transparent).shared_fd().unwrap();
    let kinds: [(&str, &dyn Fn() -> Heap); 3] = [
        ("private", &|| heap(builder).build().unwrap()),
        ("plain", &|| heap(builder).pages(Pages::Plain).build().unwrap()),
        ("shared", &shared),
    ];
    for (from, to, live, steps) in [
        (262_145, 262_145, 200, 200),
        (262_144, 400_000, 200, 1000),
        (262_144, MIB, 200, 1000),
        (262_144, MIB, 30, 1000),
        (MIB, 4 * MIB, 40, 300),
        (262_144, 16 * MIB, 32, 150),
    ] {
        for (kind, build) in kinds {
            // A child process measures, so that the memory of other tests does not count.
            let heap = build();
            let percent = in_child(|| resident_percentage(&heap, from, to, live, steps) as i32);
            eprintln!("{kind}, {live} of {from} to {to} B: {percent}%");
            assert!((95..=110).contains(&percent), "{kind}, {from} to {to} B: {percent}%");
        }
    }
}
