//! The work of children.

use std::io::Write;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use haul_heap::{Builder, Heap, Offset, Request};

use crate::support::random::Random;

/// Plays a child's role, if this program was started as a child; else does nothing.
#[test]
fn play() {
    let Ok(role) = std::env::var("HAUL_ROLE") else { return };
    match role.as_str() {
        "overfill" => return overfill(),
        "starve" => return crate::starve::starve(),
        _ => {}
    }
    let builder = Heap::builder().debug(role == "suffer-debug");
    let heap = attach(builder, &std::env::var("HAUL_HEAP").unwrap());
    let argument: u64 = std::env::var("HAUL_ARGUMENT").unwrap().parse().unwrap();
    match role.as_str() {
        "answer" => answer(&heap, argument),
        "churn" => churn(&heap, argument, u64::MAX),
        "work" => churn(&heap, argument, 30_000),
        "bequeath" => bequeath(&heap, argument),
        "soak" => crate::soak::work(&heap, argument),
        "suffer" | "suffer-debug" => crate::scribble::suffer(&heap, argument),
        role => panic!("no role {role}"),
    }
}

/// Fills a named heap twice, in a file system that is smaller than the heap. Writes to every
/// block.
fn overfill() {
    let heap = crate::builder().shared_named("overfill").unwrap();
    let fill = || {
        let mut blocks = Vec::new();
        while let Ok(block) = heap.alloc(Request::new(1 << 20)) {
            // SAFETY: just allocated with this size.
            unsafe { block.write_bytes(0xA5, 1 << 20) };
            blocks.push(block);
        }
        let count = blocks.len();
        for block in blocks {
            // SAFETY: allocated above, and not used again.
            unsafe { heap.free(block) }.unwrap();
        }
        count
    };
    let first = fill();
    assert!((4..16).contains(&first), "{first} MiB of a file system of 16 MiB");
    assert_eq!(fill(), first);
    heap.validate().unwrap();
    let small = (0..100_000).map_while(|_| heap.alloc(Request::new(64)).ok()).count();
    assert!(small > 0);
    heap.maintain();
}

/// Attaches by name, or by an inherited descriptor with this number.
fn attach(builder: Builder, heap: &str) -> Heap {
    match heap.parse() {
        // SAFETY: the parent left the descriptor open, and no code here closes it.
        Ok(number) => builder.attach_fd(unsafe { BorrowedFd::borrow_raw(number) }).unwrap(),
        Err(_) => builder.attach_named(heap).unwrap(),
    }
}

/// Writes a line for the parent.
fn write_line(text: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "\n{text}").unwrap();
    out.flush().unwrap();
}

/// Checks the parent's block, and allocates one that the parent will own.
fn answer(heap: &Heap, offset: u64) {
    let block = heap.pointer(Offset::new(offset)).unwrap();
    // SAFETY: the parent filled a block of 1 MiB there.
    let bytes = unsafe { std::slice::from_raw_parts(block.as_ptr(), 1 << 20) };
    assert!(bytes.iter().all(|byte| *byte == 0x5A));
    // SAFETY: the parent does not use the block meanwhile.
    assert!(unsafe { heap.usable_size(block) }.unwrap() >= 1 << 20);
    let answer = filled(heap, 0xA5);
    write_line(&format!("OFFSET {}", heap.offset(answer).unwrap().bytes()));
}

/// Leaves two blocks to the parent, and waits until it is killed.
fn bequeath(heap: &Heap, parent: u64) {
    heap.set_heir(Some(parent as u32));
    let block = filled(heap, 0xA5);
    heap.alloc(Request::new(5 << 20)).unwrap();
    write_line(&format!("OFFSET {}", heap.offset(block).unwrap().bytes()));
    wait_for_the_end();
}

pub(crate) fn wait_for_the_end() {
    // The parent has the other end of the pipe, and closes it when it ends.
    let _ = std::io::stdin().read_line(&mut String::new());
}

fn filled(heap: &Heap, byte: u8) -> NonNull<u8> {
    let block = heap.alloc(Request::new(4096).aligned(4096)).unwrap();
    // SAFETY: just allocated with this size.
    unsafe { block.write_bytes(byte, 4096) };
    block
}

/// Allocates and frees blocks of all sizes, `rounds` times. Has no block at the end.
fn churn(heap: &Heap, seed: u64, rounds: u64) {
    let mut random = Random::new(seed);
    let mut blocks: [Option<NonNull<u8>>; 64] = [None; 64];
    for round in 0..rounds {
        let slot = &mut blocks[random.index(64)];
        if let Some(block) = slot.take() {
            // SAFETY: the block was allocated below, and taken out of the array.
            unsafe { heap.free(block) }.unwrap();
        }
        let size = match random.index(64) {
            0 => 300 << 10,
            1 => 1 << 20,
            few => few << random.below(11),
        };
        *slot = heap.alloc(Request::new(size)).ok();
        if let Some(block) = slot {
            // SAFETY: just allocated with at least one byte.
            unsafe { block.write(round as u8) };
        }
        if round == 2000 {
            write_line("READY");
        }
    }
    for block in blocks.into_iter().flatten() {
        // SAFETY: allocated above, and not used again.
        unsafe { heap.free(block) }.unwrap();
    }
}
