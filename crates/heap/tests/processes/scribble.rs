//! A peer that overwrites the heap: other processes may get errors or wrong blocks, but must
//! never crash or hang.

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use haul_heap::{Heap, Node, Request, Tag};

use crate::support::random::Random;
use crate::{Named, finish, read_line_with, start};

/// How long a victim works while the peer overwrites the heap.
const TIME: Duration = Duration::from_millis(400);

/// Makes every call of a heap repeatedly, while another process overwrites the heap. The results do
/// not matter, but every call must return. Blocks are not accessed, because a peer may write to the
/// data at any time.
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
        let slot = &mut blocks[random.index(256)];
        if let Some(block) = slot.take() {
            // SAFETY: if corruption gave the block two owners, neither owner accesses it.
            let _ = unsafe { heap.usable_size(block) };
            // SAFETY: as above.
            let _ = unsafe { heap.free(block) };
        }
        let size = [64, 300, 4096, 70_000, 300_000, 3 << 20][random.index(6)];
        *slot = heap.alloc(Request::new(size).tagged(tag)).ok();
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

/// Writes the words that `word_at` returns to their offsets while a victim works, once without
/// and once with debug mode.
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
    read_line_with(&mut child, "READY");
    let mut random = Random::new(!seed);
    let begun = Instant::now();
    while begun.elapsed() < TIME {
        let (offset, word) = word_at(random.word() >> 8);
        file.write_at(&word.to_le_bytes(), offset).unwrap();
    }
    finish(child, &format!("{label}, {role}, seed {seed}"));
}

/// The largest size of the metadata in these tests.
const METADATA: u64 = 16 << 20;

#[test]
fn victim_survives_random_words_in_the_metadata() {
    for seed in 0..6 {
        scribble("anywhere", seed, |random| {
            (random % (METADATA / 8) * 8, random.wrapping_mul(0x9E37_79B9_7F4A_7C15))
        });
    }
}

/// The first pages contain the header, the records, the hints, and the page and slice words,
/// which lead to everything else.
#[test]
fn victim_survives_random_words_in_the_records() {
    for seed in 0..6 {
        scribble("records", seed, |random| {
            (
                random % (256 << 10) / 8 * 8,
                random.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (random % 64),
            )
        });
    }
}

/// Small numbers can be mistaken for states and counts.
#[test]
fn victim_survives_plausible_words() {
    for seed in 0..6 {
        scribble("right", seed, |random| (random % (METADATA / 8) * 8, random >> 20 & 0x1FF));
    }
}

/// In debug mode the heap itself writes sizes, cookies and fences into blocks.
#[test]
fn victim_survives_random_words_in_the_data() {
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
