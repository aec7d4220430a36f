use std::ptr::NonNull;

use super::*;

const SIZE: u16 = 8;

fn ring() -> Packed {
    let at = || NonNull::new(vec![0_u64; 16].leak().as_mut_ptr().cast()).unwrap();
    // SAFETY: each area has the bytes of a ring of 8, and is never freed.
    unsafe { Packed::new([at(), at(), at()], SIZE.into()) }
}

/// Where a device resumes according to the present content of the ring.
fn resume_at(ring: &Packed, locations: &[Location], is_sparse: bool) -> Resumed {
    by_ring(ring, locations, is_sparse, &mut || false)
}

/// The location behind `count` descriptors.
fn at(count: u16) -> Location {
    (0..count).fold(Location::START, |location, _| location.plus(1, SIZE))
}

/// A ring in which `available` descriptors were made available, one by one, and `used` of them
/// were used.
fn run(available: u16, used: u16) -> Packed {
    let ring = ring();
    for number in 0..available {
        ring.put_available(at(number), number, 60, 0);
        if number < used {
            ring.put_used(at(number), number, 60);
        }
    }
    ring
}

#[test]
fn ring_shows_location_of_its_device() {
    for used in 0..5 * SIZE {
        for available in used..=used + SIZE {
            let (ring, location) = (run(available, used), at(used));
            // No location of the front end is needed, and an old one does no harm.
            for old in [&[][..], &[Location::START], &[at(4)], &[location, Location::START]] {
                assert_eq!(
                    resume_at(&ring, old, false),
                    Resumed::at(location),
                    "{used} of {available}, {old:?}"
                );
            }
        }
    }
}

/// The first descriptor of the burst was not published: the overwritten descriptors are returned
/// empty, and no others.
#[test]
fn interrupted_burst_is_returned_empty() {
    for used in 0..3 * SIZE {
        for burst in 2..=SIZE {
            for (done, recorded) in (1..burst).flat_map(|done| [(done, false), (done, true)]) {
                let ring = run(used + burst, used);
                (1..=done).for_each(|more| ring.put_used(at(used + more), more, 60));
                let name = format!("{done} of {burst} behind {used}, recorded: {recorded}");
                let recorded = if recorded { vec![at(used), at(used + burst)] } else { vec![] };
                let expected = Resumed { location: at(used + done + 1), lost: 1 + u64::from(done) };
                assert_eq!(resume_at(&ring, &recorded, false), expected, "{name}");
                assert_eq!(ring.used(at(used)), Some((used, 0)), "{name}");
                for more in 1..=done {
                    assert_eq!(ring.used(at(used + more)), Some((more, 0)), "{name}");
                }
                let rest = done + 1..burst;
                assert!(rest.into_iter().all(|more| {
                    let entry = ring.available(at(used + more));
                    entry.is_some_and(|entry| entry.length == 60)
                }));
            }
        }
    }
}

/// The other device marks only the first descriptor of a chain, and reports where it stopped.
#[test]
fn chains_of_other_devices_resume_at_reported_location() {
    for used in 0..10 {
        let ring = ring();
        for chain in 0..used {
            for (ahead, flags) in [(0, NEXT), (1, NEXT), (2, 0)] {
                ring.set_address(at(3 * chain + ahead), 4096);
                ring.put_available(at(3 * chain + ahead), chain, 60, flags);
            }
            ring.put_used(at(3 * chain), chain, 60);
        }
        let location = at(3 * used);
        assert_eq!(resume_at(&ring, &[location], false).location, location, "{used}");
    }
}

/// An ordered ring: a device that marks only the first descriptor of a burst used `burst` chains,
/// and the driver then made `again` descriptors available once more.
fn run_in_order(burst: u16, again: u16) -> Packed {
    let ring = ring();
    for number in 0..SIZE + again {
        ring.set_address(at(number), 4096);
        ring.put_available(at(number), number % SIZE, 60, 0);
        if number == SIZE - 1 {
            ring.put_used(at(0), burst - 1, 0);
        }
    }
    ring
}

#[test]
fn ordered_burst_of_other_devices_ends_at_reported_location() {
    for burst in 1..=SIZE {
        let (ring, location) = (run_in_order(burst, 0), at(burst));
        assert_eq!(resume_at(&ring, &[location], true).location, location, "{burst}");
        // A location of another round is ignored.
        assert_eq!(resume_at(&ring, &[at(burst + SIZE)], true).location, at(1), "{burst}");
    }
}

/// An ambiguity: if the driver has seen two bursts and made their beginnings available again, the
/// ring does not show which one was longer. Therefore haul's device marks the end as well.
#[test]
fn bursts_with_overwritten_beginning_are_ambiguous() {
    let words = |ring: Packed| (0..SIZE).map(|index| ring.any(at(index))).collect::<Vec<_>>();
    assert_eq!(words(run_in_order(2, 1)), words(run_in_order(5, 1)));
    assert_eq!(resume_at(&run_in_order(5, 1), &[at(5)], true).location, at(1));
}

/// The driver writes the first descriptor of a chain last, and is stopped before.
#[test]
fn driver_stopped_in_a_chain_changes_no_location() {
    for used in 0..3 * SIZE {
        for (out, rest) in [(0, 1), (0, 3), (1, 1), (3, 2), (4, 3), (6, 1)] {
            let (ring, name) = (run(used + out, used), format!("{used}, {out}, {rest}"));
            (1..=rest).for_each(|more| ring.put_available(at(used + out + more), 9, 60, 0));
            for in_order in [false, true] {
                assert_eq!(
                    resume_at(&ring, &[at(4)], in_order).location,
                    at(used),
                    "{name}, {in_order}"
                );
            }
            assert_eq!(ring.used(at(used)), None, "{name}");
        }
    }
}

#[test]
fn implausible_ring_changes_no_location() {
    let ring = run(1, 0);
    [3, 5].into_iter().for_each(|index| ring.put_available(at(index), 5, 60, 0));
    let location = Location { index: 6, is_odd: false };
    assert_eq!(resume_at(&ring, &[location], false).location, location);
    assert_eq!(resume_at(&ring, &[], false).location, Location::START);
}
