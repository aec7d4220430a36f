//! A peer that writes where it should not: the others get errors, or wrong blocks, but never crash
//! and never hang.

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use haul_heap::{Heap, Node, Tag};

use crate::support::random::Random;
use crate::{Named, finish, said, start};

/// How long a victim works under scribbling.
const TIME: Duration = Duration::from_millis(400);

/// Everything that a process can ask of a heap, over and over, while another one scribbles. What a
/// call returns does not matter; that it returns does. Blocks are not touched: that a peer can
/// write to the data is what sharing means.
pub(crate) fn suffer(heap: &Heap, seed: u64) {
    let mut random = Random::new(seed);
    let mut blocks: [Option<NonNull<u8>>; 256] = [None; 256];
    let tag = heap.tag("victim");
    let mut out = std::io::stdout();
    writeln!(out, "\nREADY").unwrap();
    out.flush().unwrap();
    let start = Instant::now();
    let mut round = 0_u64;
    while start.elapsed() < TIME {
        round += 1;
        let place = &mut blocks[random.index(256)];
        if let Some(block) = place.take() {
            // SAFETY: of two owners that a scribbler made, neither touches the block.
            let _ = unsafe { heap.usable_size(block) };
            // SAFETY: as above.
            let _ = unsafe { heap.free(block) };
        }
        let size = [64, 300, 4096, 70_000, 300_000, 3 << 20][random.index(6)];
        *place = heap.alloc_tagged(size, 64, Node::ANY, tag).ok();
        match round % 500 {
            100 => drop(heap.validate()),
            200 => drop(heap.stats(Node::ANY)),
            250 => heap.walk(|_| ()),
            300 => heap.map(|_| ()),
            350 => drop(heap.reap()),
            400 => drop(heap.maintain()),
            450 => drop(heap.tag_name(Tag::NONE)),
            _ => {}
        }
    }
}

/// Writes the words that `word_at` makes, with their offsets, while a victim works, and once more
/// while one works that has the heap check its blocks.
fn scribble(label: &str, seed: u64, word_at: impl Fn(u64) -> (u64, u64)) {
    for role in ["suffer", "suffer-debug"] {
        scribble_under(role, label, seed, &word_at);
    }
}

fn scribble_under(role: &str, label: &str, seed: u64, word_at: impl Fn(u64) -> (u64, u64)) {
    let named = Named::new(label);
    let path = format!("/dev/shm/haul-heap.{}", named.name);
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    let mut child = start(role, &named.name, &seed.to_string());
    said(&mut child, "READY");
    let mut random = Random::new(!seed);
    let begun = Instant::now();
    while begun.elapsed() < TIME {
        let (offset, word) = word_at(random.word() >> 8);
        file.write_at(&word.to_le_bytes(), offset).unwrap();
    }
    finish(child, &format!("{label}, {role}, seed {seed}"));
}

/// The metadata of the tests' heap is less than this.
const METADATA: u64 = 16 << 20;

#[test]
fn random_words_anywhere_in_the_metadata_are_survived() {
    for seed in 0..6 {
        scribble("anywhere", seed, |random| {
            (random % (METADATA / 8) * 8, random.wrapping_mul(0x9E37_79B9_7F4A_7C15))
        });
    }
}

/// The first pages hold the header, the records, the hints and the words of pages and slices: what
/// everything is found by.
#[test]
fn random_words_in_the_records_are_survived() {
    for seed in 0..6 {
        scribble("records", seed, |random| {
            (
                random % (256 << 10) / 8 * 8,
                random.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (random % 64),
            )
        });
    }
}

/// Small numbers look like states and counts.
#[test]
fn words_that_look_right_are_survived() {
    for seed in 0..6 {
        scribble("right", seed, |random| (random % (METADATA / 8) * 8, random >> 20 & 0x1FF));
    }
}

/// What the heap itself writes into blocks: sizes, cookies and fences, where it checks them.
#[test]
fn random_words_in_the_data_are_survived() {
    let first = std::cell::Cell::new(0);
    for seed in 0..6 {
        scribble_under("suffer-debug", "data", seed, |random| {
            if first.get() == 0 {
                let path = format!("/dev/shm/haul-heap.test-data-{}", std::process::id());
                first.set(std::fs::metadata(path).unwrap().len() - crate::PAGES * 2 * crate::MIB);
            }
            (first.get() + random % (4 * crate::MIB / 8) * 8, random >> (random % 64))
        });
    }
}
