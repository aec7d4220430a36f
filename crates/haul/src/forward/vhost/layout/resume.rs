//! Where a device goes on in a packed ring whose last back end died: the message that sets the ring
//! up names a place that may be rounds old.
//!
//! The ring says how far the driver came: it has written every descriptor once on the way, so the
//! bits by which it makes them available turn over in one place. Each descriptor of the round
//! behind that place is the device's, or was used. A device of haul's keeps the order, and marks
//! all descriptors of a chain: the first that is the device's is where it goes on.
//!
//! ```text
//! of the driver's round:  used used used | available available | <- the driver
//! killed in a burst:      used used | available used used | available | <- the driver
//! ```
//!
//! A burst is shown by its first descriptor, written last. What a killed one has overwritten is
//! lost: it is given back empty.
//!
//! Other devices mark the first descriptor of a chain alone. So what a front end says counts first,
//! unless the ring shows that it cannot be. Nothing here is more than a place in the ring, whatever
//! the driver wrote.

use std::thread;
use std::time::Duration;

use super::super::super::ring::packed::{Entry, Packed, Place};
use super::super::super::ring::split::NEXT;

/// Times that the ring is read, and how long between two: a driver that makes chains available
/// meanwhile may write the first descriptor last, and its processor may be taken from it before.
const TRIES: usize = 50;
const PAUSE: Duration = Duration::from_micros(100);

/// The descriptors of the round behind the driver's place, from the oldest on.
struct Behind {
    entries: Vec<(Entry, Whose)>,
    start: Place,
    size: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Device,
    Driver,
}

/// Where to go on: at the first of the places that can be, else where the ring shows.
///
/// `is_sparse` where of a burst the last chain alone is marked: the ring then shows little, and
/// nothing is given back.
pub(super) fn resume(ring: &Packed, places: &[Place], is_sparse: bool) -> Place {
    let last = places.last().copied().unwrap_or(Place::START);
    let Some(behind) = (0..TRIES).find_map(|_| Behind::read(ring)) else {
        let is_unused = |place: &&Place| ring.used(**place).is_none();
        return places.iter().find(is_unused).copied().unwrap_or(last);
    };
    let fits = |place: &&Place| behind.can_be(**place, is_sparse);
    let place = match places.iter().find(fits) {
        Some(place) => *place,
        None if is_sparse => return last,
        None => behind.place(behind.first()),
    };
    if is_sparse { place } else { behind.give_back(ring, place) }
}

impl Behind {
    /// `None` where what stands there is of no driver, or it writes at the moment.
    fn read(ring: &Packed) -> Option<Self> {
        let size = ring.size();
        let all = (0..size).map(|index| ring.any(Place { index, is_odd: false }));
        let mut entries: Vec<Entry> = all.collect();
        let [first, _] = entries.first()?.rounds();
        let is_of_first = |entry: &Entry| entry.rounds()[0] == first;
        let turn = entries.iter().position(|entry| !is_of_first(entry));
        let (index, is_odd) = turn.map_or((0, !first), |turn| (turn as u16, first));
        let at = usize::from(index);
        if at > 0 && entries[at..].iter().any(is_of_first) {
            thread::sleep(PAUSE);
            return None;
        }
        entries.rotate_left(at);
        let whose = |entry: Entry| {
            let [available, used] = entry.rounds();
            (entry, if used == available { Whose::Driver } else { Whose::Device })
        };
        let entries = entries.into_iter().map(whose).collect();
        Some(Self { entries, start: Place { index, is_odd: !is_odd }, size })
    }

    fn place(&self, ahead: usize) -> Place {
        self.start.plus(ahead as u16, self.size)
    }

    /// How far a place is from the oldest; `None` where the driver is not so far, or was farther.
    fn ahead(&self, place: Place) -> Option<usize> {
        (0..=self.size).find(|ahead| self.start.plus(*ahead, self.size) == place).map(usize::from)
    }

    /// The first descriptor that is the device's, or the driver's place.
    fn first(&self) -> usize {
        let is_device = |(_, whose): &(Entry, Whose)| *whose == Whose::Device;
        self.entries.iter().position(is_device).unwrap_or(self.entries.len())
    }

    /// Whether a device can be there: what comes next was not used, and what came before was, or
    /// follows in a chain that was.
    fn can_be(&self, place: Place, is_sparse: bool) -> bool {
        let Some(ahead) = self.ahead(place) else { return false };
        let is_next = self.entries.get(ahead).is_none_or(|(_, whose)| *whose == Whose::Device);
        is_next && (is_sparse || self.are_chains(ahead))
    }

    /// Whether each of the first descriptors was used, or is the rest of a chain of which one was.
    /// The driver may have made the beginning of the oldest chain available again.
    fn are_chains(&self, count: usize) -> bool {
        let is_driver = |(_, whose): &(Entry, Whose)| *whose == Whose::Driver;
        // Whether a chain goes on, and its id if that is known.
        let mut chain = Some(None);
        for (entry, whose) in &self.entries[..count] {
            if *whose == Whose::Driver {
                chain = Some(Some(entry.id));
                continue;
            }
            let is_last = entry.descriptor().flags & NEXT == 0;
            match chain {
                None => return false,
                Some(Some(id)) if is_last && id != entry.id => return false,
                Some(_) if is_last => chain = None,
                Some(_) => {}
            }
        }
        count == 0 || self.entries[..count].iter().any(is_driver)
    }

    /// Gives back, empty, what a burst had overwritten before its first descriptor was shown, and
    /// says where the next one begins.
    fn give_back(&self, ring: &Packed, place: Place) -> Place {
        let ahead = self.ahead(place).unwrap_or(self.entries.len());
        let Some((first, Whose::Device)) = self.entries.get(ahead) else { return place };
        let rest = &self.entries[ahead + 1..];
        let hidden = rest.iter().take_while(|(_, whose)| *whose == Whose::Driver).count();
        if hidden == 0 {
            return place;
        }
        // The id of a chain is that of its last descriptor.
        let (mut id, mut tail) = (first.id, 0);
        let mut flags = first.descriptor().flags;
        while flags & NEXT != 0
            && let Some((entry, _)) = rest.get(tail)
        {
            (id, flags, tail) = (entry.id, entry.descriptor().flags, tail + 1);
        }
        let count = hidden.max(tail);
        for (index, (entry, _)) in rest[..count].iter().enumerate() {
            ring.put_used(self.place(ahead + 1 + index), entry.id, 0);
        }
        ring.put_used(place, id, 0);
        self.place(ahead + 1 + count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::NonNull;

    const SIZE: u16 = 8;

    fn ring() -> Packed {
        let at = || NonNull::new(vec![0_u64; 16].leak().as_mut_ptr().cast()).unwrap();
        // SAFETY: each area has the bytes of a ring of 8, and is never freed.
        unsafe { Packed::new([at(), at(), at()], SIZE.into()) }
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
                    assert_eq!(resume(&ring, old, false), place, "{used} of {available}, {old:?}");
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
                    let place = resume(&ring, &noted, false);
                    assert_eq!(place, at(used + done + 1), "{name}");
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
                ring.put_available(at(3 * chain), chain, 60, NEXT);
                ring.put_available(at(3 * chain + 1), chain, 60, NEXT);
                ring.put_available(at(3 * chain + 2), chain, 60, 0);
                ring.put_used(at(3 * chain), chain, 60);
            }
            let place = at(3 * used);
            assert_eq!(resume(&ring, &[place], false), place, "{used}");
        }
    }

    #[test]
    fn words_of_no_driver_move_nothing() {
        let ring = run(3, 0);
        ring.put_available(at(5), 5, 60, 0);
        let place = Place { index: 6, is_odd: false };
        assert_eq!(resume(&ring, &[place], false), place);
        assert_eq!(resume(&ring, &[], false), Place::START);
    }
}
