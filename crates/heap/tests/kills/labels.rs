//! The step labels in the sources, and how often the work passes each label.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use haul_heap::Heap;

use crate::victim::{self, End};
use crate::work::{clean_up, work};

/// Labels that one process does not pass when it works on one shared heap, each with the reason.
const ELSEWHERE: [(&str, &str); 10] = [
    ("page.open_external.after_frontier", "only with external memory"),
    ("page.open_external.after_outside", "only with external memory"),
    ("page.open_external.after_ready", "only with external memory"),
    ("maintain.release.after_absent", "only with external memory: see `external`"),
    ("cache.undo.between", "only when two caches race for a span"),
    ("slice.claim.before_roll_back", "only when two caches race for a slice"),
    ("slot.claim_all.before_roll_back", "only when two caches race for a span"),
    ("maintain.thread.after_flush", "only when a thread of the process ended"),
    ("heap.claim_slot.before_leave", "only when all process slots are taken: see `slots`"),
    ("reap.keeper.after_claim", "only when all process slots are taken: see `slots`"),
];

/// How many runs of the work are counted.
const RUNS: u64 = 6;

/// The labels in the sources, and how often a victim passed each label: shared with children.
static COUNTS: OnceLock<Vec<(String, &'static AtomicU64)>> = OnceLock::new();

/// The labels that one run of the work passes, and how often it passes each.
pub(crate) fn passages(fresh: impl Fn() -> Heap) -> Vec<(&'static str, u64)> {
    let mut labels = BTreeSet::new();
    collect(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut labels);
    assert!(labels.len() > 30, "the sources hold {} labels", labels.len());
    let words = victim::shared_words(labels.len());
    let counts = COUNTS.get_or_init(|| labels.into_iter().zip(words).collect());
    for seed in 0..RUNS {
        let heap = fresh();
        assert_eq!(victim::run(count, || work(&heap, seed)), End::Finished);
    }
    let passed = counts.iter().filter(|(_, count)| count.load(SeqCst) > 0);
    let by_work: Vec<_> =
        passed.map(|(label, count)| (label.as_str(), count.load(SeqCst).div_ceil(RUNS))).collect();
    // Reaping passes different labels, depending on where the process died.
    counts.iter().for_each(|(_, count)| count.store(0, SeqCst));
    for (label, count) in &by_work {
        let heap = fresh();
        let end = victim::kill_at(label, count.div_ceil(2), || work(&heap, 1));
        assert!(end != End::Crashed, "{label}");
        assert_eq!(victim::run(crate::labels::count, || clean_up(&heap)), End::Finished);
    }
    let by_reaping = counts.iter().filter(|(label, count)| {
        count.load(SeqCst) > 0 && by_work.iter().all(|(each, _)| each != label)
    });
    let by_reaping = by_reaping.map(|(label, _)| (label.as_str(), 1));
    by_work.iter().copied().chain(by_reaping).collect()
}

fn count(label: &'static str) {
    if let Some(counts) = COUNTS.get()
        && let Some((_, count)) = counts.iter().find(|(each, _)| each == label)
    {
        count.fetch_add(1, SeqCst);
    }
}

/// Fails with the labels in the sources that the work does not pass.
pub(crate) fn assert_all_are_reached(passages: &[(&'static str, u64)]) {
    let is_reached = |label: &str| {
        passages.iter().any(|(each, _)| *each == label)
            || ELSEWHERE.iter().any(|(each, _)| *each == label)
    };
    let labels = COUNTS.get().expect("counted before").iter().map(|(label, _)| label.as_str());
    let missed: Vec<_> = labels.filter(|label| !is_reached(label)).collect();
    assert!(missed.is_empty(), "no test passes the steps {missed:?}");
}

/// The labels in every source file below a folder.
fn collect(folder: &Path, labels: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, labels);
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for part in text.split("step!(\"").skip(1) {
            labels.extend(part.split('"').next().map(String::from));
        }
    }
}
