use std::ptr::NonNull;

use super::*;

const SIZE: u16 = 8;

fn ring() -> Packed {
    let at = || NonNull::new(vec![0_u64; 16].leak().as_mut_ptr().cast()).unwrap();
    // SAFETY: each area has the bytes of a ring of 8, and is never freed.
    unsafe { Packed::new([at(), at(), at()], SIZE.into()) }
}

/// Where a device goes on by what the ring shows now.
fn resume_at(ring: &Packed, places: &[Place], is_sparse: bool) -> Resumed {
    by_ring(ring, places, is_sparse, &mut || false)
}

/// The place that so many descriptors were gone through to.
fn at(count: u16) -> Place {
    (0..count).fold(Place::START, |place, _| place.plus(1, SIZE))
}

/// A ring of which so many descriptors were made available, and so many used, one by one.
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
fn a_ring_shows_where_its_device_was() {
    for used in 0..5 * SIZE {
        for available in used..=used + SIZE {
            let (ring, place) = (run(available, used), at(used));
            // Not even the front end's word is needed, and an old one does no harm.
            for old in [&[][..], &[Place::START], &[at(4)], &[place, Place::START]] {
                assert_eq!(
                    resume_at(&ring, old, false),
                    Resumed::at(place),
                    "{used} of {available}, {old:?}"
                );
            }
        }
    }
}

/// A burst whose first descriptor was not shown: what it has overwritten is given back empty,
/// and nothing else.
#[test]
fn a_burst_that_a_death_cut_short_is_given_back_empty() {
    for used in 0..3 * SIZE {
        for burst in 2..=SIZE {
            for (done, noted) in (1..burst).flat_map(|done| [(done, false), (done, true)]) {
                let ring = run(used + burst, used);
                (1..=done).for_each(|more| ring.put_used(at(used + more), more, 60));
                let name = format!("{done} of {burst} behind {used}, noted: {noted}");
                let noted = if noted { vec![at(used), at(used + burst)] } else { vec![] };
                let expected = Resumed { place: at(used + done + 1), lost: 1 + u64::from(done) };
                assert_eq!(resume_at(&ring, &noted, false), expected, "{name}");
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

/// A device that marks the first of a chain alone, and says where it stopped.
#[test]
fn chains_of_other_devices_go_on_where_they_say() {
    for used in 0..10 {
        let ring = ring();
        for chain in 0..used {
            for (ahead, flags) in [(0, NEXT), (1, NEXT), (2, 0)] {
                ring.set_address(at(3 * chain + ahead), 4096);
                ring.put_available(at(3 * chain + ahead), chain, 60, flags);
            }
            ring.put_used(at(3 * chain), chain, 60);
        }
        let place = at(3 * used);
        assert_eq!(resume_at(&ring, &[place], false).place, place, "{used}");
    }
}

/// A ring in order of which four were made available in one round, used by a device that marks the
/// first of a burst alone, and made available once more.
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
fn a_burst_in_order_of_other_devices_ends_where_they_say() {
    for burst in 1..=SIZE {
        let (ring, place) = (run_in_order(burst, 0), at(burst));
        assert_eq!(resume_at(&ring, &[place], true).place, place, "{burst}");
        // A place of another round says nothing.
        assert_eq!(resume_at(&ring, &[at(burst + SIZE)], true).place, at(1), "{burst}");
    }
}

/// What cannot be told apart: of two bursts that the driver has seen, and whose beginnings it has
/// made available again, nothing in the ring says which was longer. So a device of haul's marks the
/// end as well.
#[test]
fn bursts_whose_beginning_is_overwritten_look_the_same() {
    let words = |ring: Packed| (0..SIZE).map(|index| ring.any(at(index))).collect::<Vec<_>>();
    assert_eq!(words(run_in_order(2, 1)), words(run_in_order(5, 1)));
    assert_eq!(resume_at(&run_in_order(5, 1), &[at(5)], true).place, at(1));
}

/// A driver that was stopped while it made a chain available, whose first descriptor it writes
/// last.
#[test]
fn a_driver_that_was_stopped_in_a_chain_moves_nothing() {
    for used in 0..3 * SIZE {
        for (out, rest) in [(0, 1), (0, 3), (1, 1), (3, 2), (4, 3), (6, 1)] {
            let (ring, name) = (run(used + out, used), format!("{used}, {out}, {rest}"));
            (1..=rest).for_each(|more| ring.put_available(at(used + out + more), 9, 60, 0));
            for in_order in [false, true] {
                assert_eq!(
                    resume_at(&ring, &[at(4)], in_order).place,
                    at(used),
                    "{name}, {in_order}"
                );
            }
            assert_eq!(ring.used(at(used)), None, "{name}");
        }
    }
}

#[test]
fn words_of_no_driver_move_nothing() {
    let ring = run(1, 0);
    [3, 5].into_iter().for_each(|index| ring.put_available(at(index), 5, 60, 0));
    let place = Place { index: 6, is_odd: false };
    assert_eq!(resume_at(&ring, &[place], false).place, place);
    assert_eq!(resume_at(&ring, &[], false).place, Place::START);
}
