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
//!
//! The driver goes on meanwhile. A driver that writes a whole ring anew, its last descriptor first,
//! and is stopped in the middle leaves a ring that looks as if it had come less far: nothing in it
//! tells the truth. So where a device of haul's has noted its place, the note counts before all
//! that the ring shows, and is held against the two descriptors beside that place alone, which
//! say the same however far the driver came: see `by_note`. Without a note, a driver that makes
//! chains available one by one and leaves a descriptor free is understood at any instant.

use super::super::super::ring::packed::{Entry, Packed, Place};
use super::super::super::ring::split::NEXT;
use super::super::inflight::Noted;

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

/// Where to go on: where a device of haul's has noted, else at the front end's place if that can
/// be, else where the ring shows. `is_sparse` where of a burst the first and the last descriptor
/// alone are marked.
///
/// A driver may write meanwhile. So the ring counts as it was read twice, with a `pause` between
/// the two, which says whether there is time for one; or else as it was read last.
pub(super) fn resume(
    ring: &Packed,
    noted: Option<Noted>,
    base: Place,
    is_sparse: bool,
    pause: &mut dyn FnMut() -> bool,
) -> Resumed {
    if let Some(resumed) = noted.and_then(|noted| by_note(ring, noted, is_sparse)) {
        return resumed;
    }
    let noted = noted.into_iter().flat_map(|Noted { shown, shows }| [shown, shows]);
    let places: Vec<Place> = noted.chain([base]).collect();
    by_ring(ring, &places, is_sparse, pause)
}

/// Where to go on by what was noted; `None` where the ring shows that it was not of this ring.
fn by_note(ring: &Packed, noted: Noted, is_sparse: bool) -> Option<Resumed> {
    let Noted { shown, shows } = noted;
    let is_shown = ring.available(shown).is_none();
    let place = if is_shown { shows } else { shown };
    if !can_be_noted(ring, place) {
        return None;
    }
    if is_shown || is_sparse && shown == shows {
        return Some(Resumed::at(place));
    }
    // The burst was not shown, so the driver has left all of it alone.
    let size = ring.size();
    let length = (1..=size).find(|count| shown.plus(*count, size) == shows).unwrap_or(size);
    let entry = |ahead| {
        let at = shown.plus(ahead, size);
        let is_used = ring.used(at).is_some();
        (ring.any(at), if is_used { Whose::Driver } else { Whose::Device })
    };
    let burst: Vec<_> = (0..length).map(entry).collect();
    if !is_sparse {
        return Some(give_back(ring, shown, &burst));
    }
    let (last, Whose::Driver) = burst.last()? else { return Some(Resumed::at(shown)) };
    ring.put_used(shown, last.id, 0);
    Some(Resumed { place: shows, lost: ends(&burst) })
}

/// Whether a device of haul's can be at a place: it has not used what stands there, and has used
/// what stands before, which the driver may have made available again.
fn can_be_noted(ring: &Packed, place: Place) -> bool {
    let before = place.minus_one(ring.size());
    let again = Place { is_odd: !before.is_odd, ..before };
    let is_used = ring.used(before).is_some() || ring.available(again).is_some();
    is_used && ring.used(place).is_none()
}

/// All descriptors of a ring.
fn read(ring: &Packed) -> Vec<Entry> {
    (0..ring.size()).map(|index| ring.any(Place { index, is_odd: false })).collect()
}

/// How many chains end here, of which the last one may have been overwritten.
fn ends(entries: &[(Entry, Whose)]) -> u64 {
    let ends = |(entry, _): &&(Entry, Whose)| entry.descriptor().flags & NEXT == 0;
    entries.iter().filter(ends).count() as u64
}

/// Where to go on: at the first of the places that can be, else where the ring shows.
fn by_ring(
    ring: &Packed,
    places: &[Place],
    is_sparse: bool,
    pause: &mut dyn FnMut() -> bool,
) -> Resumed {
    let Some(behind) = Behind::settled(ring, pause) else {
        let is_unused = |place: &&Place| ring.used(**place).is_none();
        let last = places.last().copied().unwrap_or(Place::START);
        return Resumed::at(places.iter().find(is_unused).copied().unwrap_or(last));
    };
    if is_sparse {
        return behind.place_in_order(ring, places);
    }
    let place = places.iter().find(|place| behind.can_be(**place));
    let place = place.map_or_else(|| behind.place(behind.first()), |place| *place);
    let ahead = behind.ahead(place).unwrap_or(behind.entries.len());
    give_back(ring, place, &behind.entries[ahead..])
}

impl Behind {
    /// As the ring stands once its driver writes no more, or there is no more time.
    fn settled(ring: &Packed, pause: &mut dyn FnMut() -> bool) -> Option<Self> {
        let mut before = read(ring);
        while pause() {
            let now = read(ring);
            let settled = if now == before { Self::of(&now, false) } else { None };
            if settled.is_some() {
                return settled;
            }
            before = now;
        }
        Self::of(&before, true)
    }

    /// `None` where what stands there is of no driver, or it writes at the moment: from a driver
    /// that was stopped then, which is the last explanation, comes an island of descriptors in the
    /// round behind its place.
    fn of(entries: &[Entry], may_have_island: bool) -> Option<Self> {
        let size = entries.len() as u16;
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
            return Resumed { place, lost: ends(&self.entries[start..=end]) };
        }
        Resumed::at(place)
    }
}

/// Gives back, empty, what a burst had overwritten before its first descriptor was shown, and says
/// where the next one begins. The burst begins at the place, with the first of the entries.
fn give_back(ring: &Packed, place: Place, entries: &[(Entry, Whose)]) -> Resumed {
    let [(first, Whose::Device), rest @ ..] = entries else { return Resumed::at(place) };
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
    let at = |ahead: usize| place.plus(ahead as u16, ring.size());
    for (index, (entry, _)) in rest[..count].iter().enumerate() {
        ring.put_used(at(1 + index), entry.id, 0);
    }
    ring.put_used(place, id, 0);
    Resumed { place: at(1 + count), lost: 1 + chains(&rest[tail..count]) }
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
