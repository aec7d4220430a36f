use std::collections::HashSet;

use super::*;
use crate::copy::Function;
use crate::copy::subjects::{Plain, available};

/// Sizes at a level, nothing overlapping.
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

/// Any number of iterations, from any round, ends where it should and writes only targets.
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

/// All lists have the same sizes, give or take one of each, and none is another's order.
#[test]
fn lists_differ_in_order_and_not_in_sizes() {
    let sizes = Distribution::uniform("test", 0..=16);
    let workload = Workload::drawn(&mix(&sizes, Level::L1), &Caches::default(), 1).unwrap();
    let lists = &workload.threads[0].lists;
    assert!(lists.len() * lists[0].len() >= OPERATIONS_OF_ALL_LISTS / 2, "{}", lists.len());
    let sizes_of = |list: &List| (0..list.len()).map(|index| list.operation(index).size).collect();
    let (first, second): (Vec<usize>, Vec<usize>) = (sizes_of(&lists[0]), sizes_of(&lists[1]));
    let same = first.iter().zip(&second).filter(|(a, b)| a == b).count();
    assert!(same < first.len() / 10, "{same} of {} sizes at the same place", first.len());
    for size in 0..=16 {
        let count = |sizes: &[usize]| sizes.iter().filter(|&&it| it == size).count();
        assert!(count(&first).abs_diff(count(&second)) <= 1);
    }
}

/// All subjects of a round, in whatever order, copy between the same addresses, in L1 and L2
/// and where the pair is resident; those of the next round between others.
#[test]
fn a_round_has_one_place_and_the_next_another() {
    let sizes = Distribution::uniform("test", 64..=64);
    let level = |level| Workload::drawn(&mix(&sizes, level), &Caches::default(), 1).unwrap();
    let resident = Workload::resident(2048, Alignment::default(), 1, 1).unwrap();
    for workload in [level(Level::L1), level(Level::L2), resident] {
        let candidates = &available(Function::Memcpy, Plain::C)[..3];
        let start = |candidate: &Candidate, round| {
            OnWorkload::new(*candidate, &workload, ThenRead::Nothing).prepare(0, round, 64);
            let own = &workload.threads[0];
            assert_eq!(own.position.load(Ordering::Relaxed), 0);
            let place = own.place.load(Ordering::Relaxed);
            // Of drawn sizes the list is each sample's own, and the place is the round's.
            let list = match workload.turn {
                Turn::List => 0,
                Turn::Round => own.list.load(Ordering::Relaxed),
            };
            let first = own.lists[list].operation(0);
            (place + first.source, place + first.target)
        };
        let mut rounds = HashSet::new();
        for round in 0..16 {
            let found: Vec<_> = candidates.iter().map(|it| start(it, round)).collect();
            assert!(found.iter().all(|it| *it == found[0]), "{found:?}");
            rounds.insert(found[0]);
        }
        // Of the 64 places of L2 14 different ones come up in 16 draws on average.
        assert!(rounds.len() >= 12, "{rounds:?}");
    }
}

/// A sample stays at its round's place, however many operations it has.
#[test]
fn a_resident_sample_stays_on_its_list() {
    let workload = Workload::resident(100, Alignment::default(), 1, 1).unwrap();
    let subject =
        OnWorkload::new(available(Function::Memcpy, Plain::C)[0], &workload, ThenRead::Nothing);
    subject.prepare(0, 7, 1);
    subject.run(0, 3 * OPERATIONS_REPEATING as u64 + 5);
    let own = &workload.threads[0];
    assert_eq!(own.list.load(Ordering::Relaxed), 7);
    assert_eq!(own.position.load(Ordering::Relaxed), 5);
}

/// Where two buffers are to lie badly to each other, they do, and 4 GiB apart too, in memory
/// for both alone.
#[test]
fn a_pair_lies_as_far_apart_as_it_should() {
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
