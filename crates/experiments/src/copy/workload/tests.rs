use std::collections::HashSet;

use super::*;
use crate::copy::Function;
use crate::copy::subjects::{Plain, available};

/// Sizes at a level, without overlaps.
fn mix(sizes: &Distribution, level: Level) -> Mix<'_> {
    Mix {
        sizes,
        level,
        alignment: Alignment::default(),
        overlap: Overlap { share: 0.0 },
        branches: Branches::Random,
        seed: 1,
    }
}

/// A run of any number of iterations, in any round, ends at the expected operation and writes
/// only to targets.
#[test]
fn iterations_wrap_around_the_list() {
    let sizes = Distribution::uniform("test", 1..=40);
    let caches = Caches { l1_bytes: 8 << 10, l2_bytes: 32 << 10, llc_bytes: 64 << 10 };
    for level in Level::ALL {
        let workload = Workload::drawn(&mix(&sizes, level), &caches, 1).unwrap();
        let own = &workload.threads[0];
        let subject =
            OnWorkload::new(available(Function::Memcpy, Plain::C)[0], &workload, ThenRead::All);
        let length = workload.operations_multiple();
        subject.prepare(0, 3, 8 * length);
        let (start, lists) = (own.list.load(Ordering::Relaxed), own.lists.len());
        subject.run(0, 3 * length + 5);
        assert_eq!(own.list.load(Ordering::Relaxed), (start + 3) % lists, "{level}");
        assert_eq!(own.position.load(Ordering::Relaxed), 5, "{level}");
    }
}

/// All lists have the same sizes in different orders; a size may occur once more or once less in
/// a list.
#[test]
fn lists_have_equal_sizes_in_different_orders() {
    let sizes = Distribution::uniform("test", 0..=16);
    let workload = Workload::drawn(&mix(&sizes, Level::L1), &Caches::default(), 1).unwrap();
    let lists = &workload.threads[0].lists;
    assert!(lists.len() * lists[0].len() >= OPERATIONS_OF_ALL_LISTS / 2, "{}", lists.len());
    let sizes_of = |list: &List| (0..list.len()).map(|index| list.operation(index).size).collect();
    let (first, second): (Vec<usize>, Vec<usize>) = (sizes_of(&lists[0]), sizes_of(&lists[1]));
    let same = first.iter().zip(&second).filter(|(a, b)| a == b).count();
    assert!(same < first.len() / 10, "{same} of {} sizes at the same position", first.len());
    for size in 0..=16 {
        let count = |sizes: &[usize]| sizes.iter().filter(|&&it| it == size).count();
        assert!(count(&first).abs_diff(count(&second)) <= 1);
    }
}

/// All subjects of a round, in any order, copy between the same addresses, in L1 and L2 and with
/// a resident pair. The subjects of the next round use other addresses.
#[test]
fn location_changes_with_each_round() {
    let sizes = Distribution::uniform("test", 64..=64);
    let level = |level| Workload::drawn(&mix(&sizes, level), &Caches::default(), 1).unwrap();
    let resident =
        |branches| Workload::resident(2048, Alignment::default(), branches, 1, 1).unwrap();
    let [repeating, random] = [Branches::Repeating, Branches::Random].map(resident);
    for workload in [level(Level::L1), level(Level::L2), repeating, random] {
        let candidates = &available(Function::Memcpy, Plain::C)[..3];
        let start = |candidate: &Candidate, round| {
            OnWorkload::new(*candidate, &workload, ThenRead::Nothing).prepare(0, round, 64);
            let own = &workload.threads[0];
            assert_eq!(own.position.load(Ordering::Relaxed), 0);
            let [sources, targets] =
                [&own.sources, &own.targets].map(|it| it.load(Ordering::Relaxed));
            // With random sizes, each sample has its own list, and the round has one location.
            let list = match workload.turn {
                Turn::List | Turn::Part => 0,
                Turn::Round => own.list.load(Ordering::Relaxed),
            };
            let first = own.lists[list].operation(0);
            (sources + first.source, targets + first.target)
        };
        let mut rounds = HashSet::new();
        for round in 0..16 {
            let found: Vec<_> = candidates.iter().map(|it| start(it, round)).collect();
            assert!(found.iter().all(|it| *it == found[0]), "{found:?}");
            rounds.insert(found[0]);
        }
        // 16 draws from the 64 locations in L2 have 14 different locations on average.
        assert!(rounds.len() >= 12, "{rounds:?}");
    }
}

/// A sample stays at its round's location, however many operations it has.
#[test]
fn resident_sample_stays_on_its_list() {
    let workload =
        Workload::resident(100, Alignment::default(), Branches::Repeating, 1, 1).unwrap();
    let subject =
        OnWorkload::new(available(Function::Memcpy, Plain::C)[0], &workload, ThenRead::Nothing);
    subject.prepare(0, 7, 1);
    subject.run(0, 3 * OPERATIONS_REPEATING as u64 + 5);
    let own = &workload.threads[0];
    assert_eq!(own.list.load(Ordering::Relaxed), 7);
    assert_eq!(own.position.load(Ordering::Relaxed), 5);
}

/// With random branches, the next sample has other alignments, and a sample longer than a list goes
/// on with the next list. With repeating ones, it has the same 64 operations.
#[test]
fn resident_alignments_repeat_only_if_requested() {
    for (branches, is_same) in [(Branches::Random, false), (Branches::Repeating, true)] {
        let workload = Workload::resident(100, Alignment::default(), branches, 1, 1).unwrap();
        let own = &workload.threads[0];
        let subject =
            OnWorkload::new(available(Function::Memcpy, Plain::C)[0], &workload, ThenRead::First);
        let alignments = || {
            subject.prepare(0, 7, 1);
            let list = &own.lists[own.list.load(Ordering::Relaxed)];
            let first: Vec<_> = (0..OPERATIONS_REPEATING).map(|at| list.operation(at)).collect();
            let before = own.list.load(Ordering::Relaxed);
            subject.run(0, list.len() as u64 + 3);
            let has_moved = own.list.load(Ordering::Relaxed) != before;
            assert_eq!((has_moved, own.position.load(Ordering::Relaxed)), (!is_same, 3));
            first
        };
        assert_eq!(alignments() == alignments(), is_same, "{branches:?}");
        let all: usize = own.lists.iter().map(List::len).sum();
        assert_eq!(all >= OPERATIONS_OF_ALL_LISTS / 2, !is_same, "{branches:?}");
    }
}

/// Two buffers lie at the requested bad offset, also 4 GiB apart, and only the buffers take memory.
#[test]
fn pair_has_requested_distance() {
    for (multiple_of, and) in [(4096, 1), (4096, 4064), (4 << 30, 33)] {
        let mut workload = Workload::apart(10_000, Apart { multiple_of, and }, 1).unwrap();
        let (_, operations) = workload.proof_material(10);
        for it in operations {
            assert!(it.target >= it.source + it.size);
            assert_eq!((it.target - it.source) % multiple_of, and);
        }
        let subject =
            OnWorkload::new(available(Function::Memcpy, Plain::C)[0], &workload, ThenRead::All);
        subject.prepare(0, 3, 100);
        subject.run(0, 100);
    }
}
