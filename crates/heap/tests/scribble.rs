//! A peer that overwrites the metadata of a shared heap: calls of other processes then fail or
//! succeed, and never cause a signal or a panic. Blocks may be lost or handed out twice, so the
//! tests do not write to them.

mod support;

use std::ffi::c_void;
use std::fs::File;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use haul_heap::{Heap, Node, Pages, Request};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use support::random::Random;

/// Bytes of the header. A process checks the header when it attaches, and does not read it
/// afterwards.
const HEADER: u64 = 4096;

/// A word that is valid in some table.
fn plausible(random: &mut Random) -> u64 {
    match random.below(6) {
        0 => 0,
        1 => u64::MAX,
        2 => random.below(1 << 16) * 0x0001_0001_0001_0001,
        3 => random.below(64) | random.below(8) << 6 | random.below(100) << 40,
        4 => random.below(1 << 20),
        _ => random.word(),
    }
}

/// A second mapping of the metadata, like the mapping of another process.
struct Scribbler {
    address: *mut c_void,
    bytes: usize,
}

impl Scribbler {
    fn map(file: &File, bytes: usize) -> Self {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an address where nothing is mapped.
        let address = unsafe { mmap(null_mut(), bytes, rights, MapFlags::SHARED, file, 0) };
        Self { address: address.unwrap(), bytes }
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the memory is mapped as long as `self` lives, and aligned to a page. All
        // accesses here are atomic, and any bits are a valid word.
        unsafe { std::slice::from_raw_parts(self.address.cast(), self.bytes / 8) }
    }
}

impl Drop for Scribbler {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and not borrowed any more.
        unsafe { munmap(self.address, self.bytes) }.unwrap();
    }
}

/// Makes every call of a heap. Returns whether the heap reports damage.
fn use_it(heap: &Heap, random: &mut Random) -> bool {
    let mut held = Vec::new();
    for _ in 0..600 {
        let size = match random.below(12) {
            0 => random.below(3 << 20),
            _ => random.below(9000),
        };
        if let Ok(block) = heap.alloc(Request::new(size as usize).aligned(1 << random.below(14))) {
            // SAFETY: if corruption gave the block two owners, neither owner writes to it.
            let _ = unsafe { heap.usable_size(block) };
            held.push(block);
        }
        if held.len() > 40 {
            let block = held.swap_remove(random.below(40) as usize);
            // SAFETY: the block is not in use.
            let _ = unsafe { heap.free(block) };
        }
    }
    let mut seen = 0;
    heap.walk(|block| {
        let end = block.offset.bytes() + block.bytes as u64;
        assert!(end <= 16 << 20, "a block that ends at {end}, beyond the heap");
        seen += 1;
    });
    heap.map(|_| seen += 1);
    let is_damaged = heap.validate().is_err();
    let _ = (heap.stats(Node::ANY), heap.tag("scribbled"));
    for block in held {
        // SAFETY: the block is not in use.
        let _ = unsafe { heap.free(block) };
    }
    let _ = (heap.reap(), heap.maintain());
    is_damaged
}

#[test]
fn overwritten_metadata_causes_no_crash() {
    scribble_over(false);
}

/// In debug mode the heap itself reads and writes its blocks.
#[test]
fn nor_does_it_where_the_heap_checks_its_blocks() {
    scribble_over(true);
}

/// Uses a heap while words in its metadata are overwritten. If the heap `is_checked`, words in
/// its first data are also overwritten.
fn scribble_over(is_checked: bool) {
    let rounds = if cfg!(debug_assertions) { 40 } else { 400 };
    let mut damaged = 0;
    for seed in 1..=rounds {
        let mut random = Random::new(seed);
        let builder = Heap::builder().limit(16 << 20).nodes(1).caches(8).pages(Pages::Plain);
        let builder = builder.debug(is_checked);
        let heap = builder.shared_fd().unwrap();
        let file = File::from(heap.fd().unwrap().try_clone_to_owned().unwrap());
        assert!(!use_it(&heap, &mut random));
        // The metadata: the size of the file without the heap's limit.
        let metadata = file.metadata().unwrap().len() - (16 << 20);
        let data = if is_checked { 2 << 20 } else { 0 };
        let scribbler = Scribbler::map(&file, (metadata + data) as usize);
        let words = scribbler.words();
        for _ in 0..20 {
            for _ in 0..=random.below(200) {
                let (start, end) = match random.below(4) {
                    // All tables, or only the small tables.
                    0 => (HEADER, metadata),
                    1 if is_checked => (metadata, metadata + data),
                    _ => (HEADER, metadata.min(512 << 10)),
                };
                let index = start / 8 + random.below((end - start) / 8 - 1);
                words[index as usize].store(plausible(&mut random), Relaxed);
            }
            damaged += usize::from(use_it(&heap, &mut random));
        }
    }
    // Most of the words that were written have an effect.
    assert!(damaged > rounds as usize * 15, "{damaged} reports of damage");
}

/// Overwrites non-zero words repeatedly while the heap is used, so that a word can change between
/// two reads.
#[test]
fn metadata_overwritten_during_use_causes_no_crash() {
    let rounds = if cfg!(debug_assertions) { 8 } else { 200 };
    for seed in 1..=rounds {
        for is_checked in [true, false] {
            scribble_meanwhile(seed, is_checked);
        }
    }
}

/// Ends the scribbler.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn scribble_meanwhile(seed: u64, is_checked: bool) {
    let builder = Heap::builder().limit(16 << 20).nodes(1).caches(8).pages(Pages::Plain);
    let heap = builder.debug(is_checked).shared_fd().unwrap();
    let file = File::from(heap.fd().unwrap().try_clone_to_owned().unwrap());
    let metadata = file.metadata().unwrap().len() - (16 << 20);
    let data = if is_checked { 2 << 20 } else { 0 };
    let scribbler = Scribbler::map(&file, (metadata + data) as usize);
    let is_over = AtomicBool::new(false);
    let words = scribbler.words();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random::new(seed);
            let mut previous = 0;
            while !is_over.load(Relaxed) {
                let index = HEADER / 8 + random.below(words.len() as u64 - HEADER / 8);
                let word = words[index as usize].load(Relaxed);
                if word != 0 {
                    let other = match random.below(4) {
                        0 => plausible(&mut random),
                        1 => word ^ 1 << random.below(64),
                        2 => words[(index as usize + 1) % words.len()].load(Relaxed),
                        _ => previous,
                    };
                    previous = word;
                    words[index as usize].store(other, Relaxed);
                }
            }
        });
        // Ends the scribbler even if the use of the heap panics.
        let _end = End(&is_over);
        let mut random = Random::new(!seed);
        for _ in 0..10 {
            use_it(&heap, &mut random);
        }
    });
}
