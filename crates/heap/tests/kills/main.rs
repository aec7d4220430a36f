//! Killed at every step: a forked child works on a shared heap, and is killed (SIGKILL) when it
//! passes one labelled step for the nth time. Then its parent reaps, and the heap must be intact.
//!
//! The labels come from the sources. A workload that passes all labels first runs with a hook
//! that only counts. Then it is killed at each label. `HAUL_KILLS=100000` sets the number of
//! additional kills at random labels and passages (default 300).
//!
//! - `victim`: children that die at a chosen step;
//! - `work`: the work of the victims;
//! - `labels`: the labels in the sources, and how often the work passes each label;
//! - `recovery`: how long reaping takes;
//! - `external`: deaths of a process that is giving external memory back;
//! - `slots`: deaths while all process slots are in use, and two attachments that reap at once.

mod external;
mod labels;
mod recovery;
mod slots;
#[path = "../support/mod.rs"]
mod support;
mod victim;
mod work;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use haul_heap::{Heap, Node, Pages, Request, Tag};

use recovery::Recoveries;
use support::random::Random;
use victim::End;
use work::{PAGES, work};

/// Attempts after which a new heap is used, so that events that happen only once in a heap's life
/// happen often.
const HEAP_LIFE: u64 = 64;

fn heap() -> Heap {
    let builder = Heap::builder().limit(PAGES << 21).nodes(1).pages(Pages::Plain).caches(64);
    builder.grow_ahead(4 << 20).decay(Some(0)).shared_fd().unwrap()
}

/// Asserts that a heap without live blocks can hand out all its memory: `PAGES` blocks of one
/// page.
fn assert_whole(heap: &Heap, what: &str) {
    heap.validate().unwrap_or_else(|damage| panic!("{what}: {damage}"));
    let stats = heap.stats(Node::ANY);
    assert_eq!(stats.live.blocks, 0, "{what}: {stats:?}");
    let blocks: Vec<_> =
        std::iter::from_fn(|| heap.alloc(Request::new(1 << 21).aligned(1 << 21)).ok()).collect();
    if blocks.len() as u64 != PAGES {
        let mut text = String::new();
        heap.dump(&mut text).unwrap();
        panic!("{what}: {} of {PAGES} pages are left\n{text}", blocks.len());
    }
    for block in blocks {
        // SAFETY: allocated just now and not used.
        unsafe { heap.free(block) }.unwrap();
    }
    assert_tags_are_whole(heap, what);
}

/// Asserts that a new name gets the lowest tag without a name, so that no tag is lost.
fn assert_tags_are_whole(heap: &Heap, what: &str) {
    static NAMES: AtomicU64 = AtomicU64::new(0);
    let tag = heap.tag(&format!("name {}", NAMES.fetch_add(1, Relaxed)));
    assert_ne!(tag, Tag::NONE, "{what}");
    let unnamed =
        (1..tag.number()).find(|number| heap.tag_name(Tag::new(*number)).as_str().is_empty());
    assert_eq!(unnamed, None, "{what}: {tag:?} was given before a lower one");
}

/// The results so far.
#[derive(Default)]
struct Tally {
    attempts: u64,
    kills: u64,
    recoveries: Recoveries,
}

impl Tally {
    /// Kills a victim, reaps unless the next victim should reap, and checks that no resource is
    /// lost.
    fn attempt(&mut self, heap: &Heap, label: &'static str, passage: u64, seed: u64, check: bool) {
        self.attempts += 1;
        let end = victim::kill_at(label, passage, || work(heap, seed));
        assert!(end != End::Crashed, "{label}, passage {passage}");
        self.kills += u64::from(end == End::Killed);
        // After one victim in three, the next victim reaps, so that victims also die while they
        // reap.
        if seed.is_multiple_of(3) && !check {
            return;
        }
        let reaped = self.recoveries.reap(heap);
        assert_eq!(reaped.damaged, 0, "{label}, passage {passage}: {reaped:?}");
        if check {
            assert_whole(heap, &format!("{label}, passage {passage}, seed {seed}"));
        }
    }
}

/// Kills a victim at each label, at the first, a middle and the last passage; then at random
/// ones.
#[test]
fn death_at_any_step_loses_no_block() {
    let passages = labels::passages(heap);
    labels::assert_all_are_reached(&passages);
    let random_kills: u64 =
        std::env::var("HAUL_KILLS").ok().map_or(300, |text| text.parse().expect("a number"));
    let mut random = Random::new(0x4A11);
    let mut tally = Tally::default();
    let start = Instant::now();
    for (label, count) in &passages {
        let heap = heap();
        for passage in [1, count.div_ceil(2), *count] {
            tally.attempt(&heap, label, passage, random.below(1 << 32), false);
            tally.attempt(&heap, label, passage, random.below(1 << 32), true);
        }
    }
    let mut shared = heap();
    let enough = tally.kills + random_kills;
    while tally.kills < enough {
        let (label, count) = passages[random.below(passages.len() as u64) as usize];
        let passage = 1 + random.below(count);
        let check = tally.attempts % HEAP_LIFE == HEAP_LIFE - 1;
        tally.attempt(&shared, label, passage, random.below(1 << 32), check);
        if check {
            shared = heap();
        }
    }
    let Tally { attempts, kills, recoveries } = tally;
    let rate = kills as f64 / start.elapsed().as_secs_f64();
    eprintln!("{kills} kills at {} steps, {rate:.0} a second", passages.len());
    recoveries.assert_fast();
    assert!(kills * 4 > attempts, "{kills} kills in {attempts} attempts");
}
