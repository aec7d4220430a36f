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
//! unless the ring shows that it cannot be: the end of a full ring of which none was used, say, is
//! a place of the round before. Where both sides keep the order and the device reads, a burst is
//! shown by its first descriptor alone, and the ring counts first: see `place_in_order`. Nothing
//! here is more than a place in the ring, whatever the driver wrote.

use std::thread;
use std::time::Duration;

use super::super::super::ring::packed::{Entry, Packed, Place};
use super::super::super::ring::split::NEXT;

/// Times that the ring is read, and how long between two: a driver that makes a chain available
/// meanwhile may write the first descriptor last.
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

/// Where a device goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resumed {
    pub(super) place: Place,
    /// Chains that the one before had taken and not shown: they were given back empty.
    pub(super) lost: u64,
}

impl Resumed {
    fn at(place: Place) -> Self {
        Self { place, lost: 0 }
    }
}

/// Where to go on: at the first of the places that can be, else where the ring shows. `is_sparse`
/// where of a burst the first and the last descriptor alone are marked.
pub(super) fn resume(ring: &Packed, places: &[Place], is_sparse: bool) -> Resumed {
    let read = |tried| {
        let pause = if tried == 0 { Duration::ZERO } else { PAUSE };
        thread::sleep(pause);
        Behind::read(ring, tried + 1 == TRIES)
    };
    let Some(behind) = (0..TRIES).find_map(read) else {
        let is_unused = |place: &&Place| ring.used(**place).is_none();
        let last = places.last().copied().unwrap_or(Place::START);
        return Resumed::at(places.iter().find(is_unused).copied().unwrap_or(last));
    };
    if is_sparse {
        return behind.place_in_order(ring, places);
    }
    let place = places.iter().find(|place| behind.can_be(**place));
    behind.give_back(ring, place.map_or_else(|| behind.place(behind.first()), |place| *place))
}

impl Behind {
    /// `None` where what stands there is of no driver, or it writes at the moment: from a driver
    /// that was stopped then, which is the last explanation, comes an island of descriptors in the
    /// round behind its place.
    fn read(ring: &Packed, may_have_island: bool) -> Option<Self> {
        let size = ring.size();
        let all = (0..size).map(|index| ring.any(Place { index, is_odd: false }));
        let entries: Vec<Entry> = all.collect();
        let round = |index: usize| entries[index].rounds()[0];
        // Behind the end of the ring it is another round.
        let before = |index: usize| match index.checked_sub(1) {
            Some(before) => round(before),
            None => !round(entries.len() - 1),
        };
        let turns: Vec<usize> =
            (0..entries.len()).filter(|index| before(*index) != round(*index)).collect();
        let at = match turns[..] {
            [at] => at,
            // The longest way from turn to turn ends at the driver's place.
            [a, b, c] if may_have_island => {
                let ways = [(b - a, b), (c - b, c), (a + entries.len() - c, a)];
                ways.into_iter().max_by_key(|(length, _)| *length)?.1
            }
            _ => return None,
        };
        let start = Place { index: at as u16, is_odd: !before(at) };
        let whose = |ahead: usize| {
            let place = start.plus(ahead as u16, size);
            let entry = entries[usize::from(place.index)];
            let [available, used] = entry.rounds();
            // What the driver has written again is not the device's yet.
            let is_device = available == place.is_odd && used != available;
            (entry, if is_device { Whose::Device } else { Whose::Driver })
        };
        let entries = (0..entries.len()).map(whose).collect();
        Some(Self { entries, start, size })
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
    fn can_be(&self, place: Place) -> bool {
        let Some(ahead) = self.ahead(place) else { return false };
        let is_next = self.entries.get(ahead).is_none_or(|(_, whose)| *whose == Whose::Device);
        is_next && self.are_chains(&self.entries[..ahead])
    }

    /// Whether each of the descriptors from the oldest on was used, or is the rest of a chain of
    /// which one was. The driver may have made the beginning of the oldest chain available again.
    fn are_chains(&self, entries: &[(Entry, Whose)]) -> bool {
        let is_driver = |(_, whose): &(Entry, Whose)| *whose == Whose::Driver;
        if let [first, rest @ ..] = entries
            && !is_driver(first)
            && rest.iter().all(is_driver)
        {
            // A burst that was not shown. Were it the end of an old chain, it would be the same
            // place in the end, and to give that back again harms nobody.
            return false;
        }
        // The id of the chain that may go on, if that is known; and whether it has to go on.
        let (mut chain, mut has_to) = (Some(None), false);
        for (entry, whose) in entries {
            if *whose == Whose::Driver {
                if has_to {
                    return false;
                }
                chain = if entry.is_of_driver() { Some(Some(entry.id)) } else { None };
                continue;
            }
            has_to = entry.descriptor().flags & NEXT != 0;
            match chain {
                None => return false,
                Some(Some(id)) if !has_to && id != entry.id => return false,
                Some(_) if !has_to => chain = None,
                Some(_) => {}
            }
        }
        !has_to && (entries.is_empty() || entries.iter().any(is_driver))
    }

    /// Where a device was that shows a burst by its first descriptor, which has the id of the last
    /// chain, and has marked the last one before, with how many there are.
    ///
    /// That mark is in sight unless the driver has filled the ring behind it: then all of the ring
    /// is the device's. Other devices mark the first alone, and say a place where that id stands
    /// again. Where the driver has overwritten their mark nothing in the ring tells the middle of a
    /// burst from its end: it is taken for a full ring.
    fn place_in_order(&self, ring: &Packed, places: &[Place]) -> Resumed {
        let is_driver = |(_, whose): &(Entry, Whose)| *whose == Whose::Driver;
        let Some(end) = self.entries.iter().rposition(is_driver) else {
            return Resumed::at(self.start);
        };
        let (last, _) = self.entries[end];
        let count = last.length as usize;
        if count == 0 && last.is_of_driver() {
            let is_end = |place: &&Place| {
                let before = self.ahead(**place).and_then(|ahead| ahead.checked_sub(1));
                before.is_some_and(|at| at > end && self.entries[at].0.id == last.id)
            };
            if let Some(place) = places.iter().find(is_end) {
                return Resumed::at(*place);
            }
        }
        let place = self.place(end + 1);
        if count > 1
            && let Some(start) = (end + 1).checked_sub(count)
            && let Some((_, Whose::Device)) = self.entries.get(start)
        {
            // It was not shown yet. Of its last descriptor the flags are gone.
            ring.put_used(self.place(start), last.id, 0);
            let ends = |(entry, _): &&(Entry, Whose)| entry.descriptor().flags & NEXT == 0;
            let lost = self.entries[start..=end].iter().filter(ends).count() as u64;
            return Resumed { place, lost };
        }
        Resumed::at(place)
    }

    /// Gives back, empty, what a burst had overwritten before its first descriptor was shown, and
    /// says where the next one begins.
    fn give_back(&self, ring: &Packed, place: Place) -> Resumed {
        let ahead = self.ahead(place).unwrap_or(self.entries.len());
        let Some((first, Whose::Device)) = self.entries.get(ahead) else {
            return Resumed::at(place);
        };
        let rest = &self.entries[ahead + 1..];
        let hidden = rest.iter().take_while(|(_, whose)| *whose == Whose::Driver).count();
        if hidden == 0 {
            return Resumed::at(place);
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
        let lost = 1 + chains(&rest[tail..count]);
        Resumed { place: self.place(ahead + 1 + count), lost }
    }
}

/// How many chains were used here: each begins with its id, which stands again at its end.
fn chains(mut entries: &[(Entry, Whose)]) -> u64 {
    let mut count = 0;
    while let [(first, _), rest @ ..] = entries {
        count += 1;
        let ends = |(entry, _): &(Entry, Whose)| entry.descriptor().flags & NEXT == 0;
        let end = rest.iter().position(ends).filter(|end| rest[*end].0.id == first.id);
        entries = end.map_or(rest, |end| &rest[end + 1..]);
    }
    count
}

#[cfg(test)]
mod kills;
#[cfg(test)]
mod tests;
