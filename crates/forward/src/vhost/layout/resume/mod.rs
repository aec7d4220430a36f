//! Where a device resumes in a packed ring whose last back end died. The message that sets up the
//! ring names a location that may be several rounds old.
//!
//! The ring shows the driver's location. The driver has written every descriptor of a round once,
//! so that the available bits flip at one location. Each descriptor of the round behind this
//! location belongs to the device, or was used. haul's device keeps the order, and marks all
//! descriptors of a chain: it resumes at the first descriptor that belongs to the device.
//!
//! ```text
//! of the driver's round:  used used used | available available | <- the driver
//! killed in a burst:      used used | available used used | available | <- the driver
//! ```
//!
//! A burst is published by its first descriptor, which is written last. Chains that a killed device
//! has overwritten without publishing them are lost: the next device returns them empty.
//!
//! Other devices mark only the first descriptor of a chain. Therefore the front end's location
//! has precedence, unless the ring contradicts it. For example, in a full ring without a used
//! chain, a location at the end of the round belongs to the previous round. If both sides keep
//! the order and the device reads, a burst is published by its first descriptor alone, and the
//! ring has precedence: see `location_in_order`. For any content that the driver writes, the
//! result is only a location in the ring.
//!
//! The driver continues meanwhile. A driver may rewrite a whole ring, its last descriptor first.
//! If it is stopped in the middle, the ring has the content of an earlier state, and no
//! descriptor shows the true location. Therefore a location that haul's device has recorded has
//! precedence over the content of the ring. It is checked only against the two descriptors beside
//! it, and this check succeeds however far the driver has come: see `by_record`. Without a
//! record, the location is certain at any instant if the driver makes chains available one by one
//! and leaves a descriptor free.

use crate::ring::packed::{Entry, Location, Packed};
use crate::ring::split::NEXT;
use crate::vhost::inflight::Progress;

/// The descriptors of the round behind the driver's location, from the oldest on.
struct Round {
    entries: Vec<(Entry, Owner)>,
    start: Location,
    size: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Device,
    Driver,
}

/// Where a device resumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resumed {
    pub(super) location: Location,
    /// The number of chains that the previous device had read but not published. They were
    /// returned empty.
    pub(super) lost: u64,
}

impl Resumed {
    fn at(location: Location) -> Self {
        Self { location, lost: 0 }
    }
}

/// Where to resume: at the recorded location, else at the front end's if it is plausible, else at
/// the location that the ring shows. `is_sparse` must be set if only the first and the last
/// descriptor of a burst are marked.
///
/// A driver may write meanwhile. Therefore the ring is read until two reads agree, with a `pause`
/// between them. `pause` returns false once the time is over; then the last read counts.
pub(super) fn resume(
    ring: &Packed,
    recorded: Option<Progress>,
    base: Location,
    is_sparse: bool,
    pause: &mut dyn FnMut() -> bool,
) -> Resumed {
    if let Some(resumed) = recorded.and_then(|recorded| by_record(ring, recorded, is_sparse)) {
        return resumed;
    }
    let recorded =
        recorded.into_iter().flat_map(|Progress { published, publishing }| [published, publishing]);
    let locations: Vec<Location> = recorded.chain([base]).collect();
    by_ring(ring, &locations, is_sparse, pause)
}

/// Where to resume by the record; `None` if the ring shows that the record belongs to another ring.
fn by_record(ring: &Packed, recorded: Progress, is_sparse: bool) -> Option<Resumed> {
    let Progress { published, publishing } = recorded;
    let is_shown = ring.available(published).is_none();
    let location = if is_shown { publishing } else { published };
    if !is_plausible(ring, location) {
        return None;
    }
    if is_shown || is_sparse && published == publishing {
        return Some(Resumed::at(location));
    }
    // The burst was not published, so the driver has not written to it.
    let size = ring.size();
    let length =
        (1..=size).find(|count| published.plus(*count, size) == publishing).unwrap_or(size);
    let entry = |ahead| {
        let at = published.plus(ahead, size);
        let is_used = ring.used(at).is_some();
        (ring.any(at), if is_used { Owner::Driver } else { Owner::Device })
    };
    let burst: Vec<_> = (0..length).map(entry).collect();
    if !is_sparse {
        return Some(return_empty(ring, published, &burst));
    }
    let (last, Owner::Driver) = burst.last()? else { return Some(Resumed::at(published)) };
    ring.put_used(published, last.id, 0);
    Some(Resumed { location: publishing, lost: ends(&burst) })
}

/// Whether haul's device can be at a location: it has not used the descriptor there, and has used
/// the one before, which the driver may have made available again.
fn is_plausible(ring: &Packed, location: Location) -> bool {
    let before = location.minus_one(ring.size());
    let again = Location { is_odd: !before.is_odd, ..before };
    let is_used = ring.used(before).is_some() || ring.available(again).is_some();
    is_used && ring.used(location).is_none()
}

/// All descriptors of a ring.
fn read(ring: &Packed) -> Vec<Entry> {
    (0..ring.size()).map(|index| ring.any(Location { index, is_odd: false })).collect()
}

/// How many chains end in these descriptors. The last descriptor may be overwritten.
fn ends(entries: &[(Entry, Owner)]) -> u64 {
    let ends = |(entry, _): &&(Entry, Owner)| entry.descriptor().flags & NEXT == 0;
    entries.iter().filter(ends).count() as u64
}

/// Where to resume: at the first plausible location of `locations`, else at the one that the ring
/// shows.
fn by_ring(
    ring: &Packed,
    locations: &[Location],
    is_sparse: bool,
    pause: &mut dyn FnMut() -> bool,
) -> Resumed {
    let Some(round) = Round::read_stable(ring, pause) else {
        let is_unused = |location: &&Location| ring.used(**location).is_none();
        let last = locations.last().copied().unwrap_or(Location::START);
        return Resumed::at(locations.iter().find(is_unused).copied().unwrap_or(last));
    };
    if is_sparse {
        return round.location_in_order(ring, locations);
    }
    let location = locations.iter().find(|location| round.is_plausible(**location));
    let location = location.map_or_else(|| round.location(round.first()), |location| *location);
    let ahead = round.ahead(location).unwrap_or(round.entries.len());
    return_empty(ring, location, &round.entries[ahead..])
}

impl Round {
    /// The round, once the driver writes no more or the time is over.
    fn read_stable(ring: &Packed, pause: &mut dyn FnMut() -> bool) -> Option<Self> {
        let mut before = read(ring);
        while pause() {
            let now = read(ring);
            let stable = if now == before { Self::of(&now, false) } else { None };
            if stable.is_some() {
                return stable;
            }
            before = now;
        }
        Self::of(&before, true)
    }

    /// `None` if no driver wrote these descriptors, or if a driver is writing at the moment. A
    /// driver that was stopped while writing leaves an island of descriptors in the round behind
    /// its location; `may_have_island` admits this last explanation.
    fn of(entries: &[Entry], may_have_island: bool) -> Option<Self> {
        let size = entries.len() as u16;
        let round = |index: usize| entries[index].rounds()[0];
        // Another round begins behind the end of the ring.
        let before = |index: usize| match index.checked_sub(1) {
            Some(before) => round(before),
            None => !round(entries.len() - 1),
        };
        let flips: Vec<usize> =
            (0..entries.len()).filter(|index| before(*index) != round(*index)).collect();
        let at = match flips[..] {
            [at] => at,
            // The longest arc between two flips ends at the driver's location.
            [a, b, c] if may_have_island => {
                let arcs = [(b - a, b), (c - b, c), (a + entries.len() - c, a)];
                arcs.into_iter().max_by_key(|(length, _)| *length)?.1
            }
            _ => return None,
        };
        let start = Location { index: at as u16, is_odd: !before(at) };
        let owner = |ahead: usize| {
            let location = start.plus(ahead as u16, size);
            let entry = entries[usize::from(location.index)];
            let [available, used] = entry.rounds();
            // A descriptor that the driver has written again does not belong to the device yet.
            let is_device = available == location.is_odd && used != available;
            (entry, if is_device { Owner::Device } else { Owner::Driver })
        };
        let entries = (0..entries.len()).map(owner).collect();
        Some(Self { entries, start, size })
    }

    fn location(&self, ahead: usize) -> Location {
        self.start.plus(ahead as u16, self.size)
    }

    /// The distance of a location from the oldest descriptor; `None` if the driver has not
    /// reached it, or has passed it.
    fn ahead(&self, location: Location) -> Option<usize> {
        (0..=self.size)
            .find(|ahead| self.start.plus(*ahead, self.size) == location)
            .map(usize::from)
    }

    /// The first descriptor that belongs to the device, or the driver's location.
    fn first(&self) -> usize {
        let is_device = |(_, owner): &(Entry, Owner)| *owner == Owner::Device;
        self.entries.iter().position(is_device).unwrap_or(self.entries.len())
    }

    /// Whether a device can be at a location: the next descriptor was not used, and each earlier
    /// one was used or belongs to a used chain.
    fn is_plausible(&self, location: Location) -> bool {
        let Some(ahead) = self.ahead(location) else { return false };
        let is_next = self.entries.get(ahead).is_none_or(|(_, owner)| *owner == Owner::Device);
        is_next && self.are_chains(&self.entries[..ahead])
    }

    /// Whether each descriptor in `entries`, which begin with the oldest, was used or belongs to
    /// a used chain. The first entries may be the end of a used chain whose beginning the driver
    /// has made available again.
    fn are_chains(&self, entries: &[(Entry, Owner)]) -> bool {
        let is_driver = |(_, owner): &(Entry, Owner)| *owner == Owner::Driver;
        if let [first, rest @ ..] = entries
            && !is_driver(first)
            && rest.iter().all(is_driver)
        {
            // The device died before it published this burst: the burst's first descriptor is
            // written last. If this descriptor is instead the end of an old chain, the device
            // resumes at the same location and returns that chain again, which is harmless.
            return false;
        }
        // The id of the chain that may continue, if it is known; and whether the chain must
        // continue.
        let (mut chain, mut has_to) = (Some(None), false);
        for (entry, owner) in entries {
            if *owner == Owner::Driver {
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

    /// The location of a previous device that published each burst by its first descriptor alone.
    /// This descriptor holds the id of the burst's last chain. Before it published the burst, the
    /// device marked the burst's last descriptor with this id and the burst's number of
    /// descriptors.
    ///
    /// This mark is visible unless the driver has refilled the ring behind it; then the whole
    /// ring belongs to the device. Other devices mark the first descriptor alone, and name a
    /// location where that id occurs again. If the driver has overwritten their mark, the ring
    /// does not distinguish the middle of a burst from its end: it is treated as a full ring.
    fn location_in_order(&self, ring: &Packed, locations: &[Location]) -> Resumed {
        let is_driver = |(_, owner): &(Entry, Owner)| *owner == Owner::Driver;
        let Some(end) = self.entries.iter().rposition(is_driver) else {
            return Resumed::at(self.start);
        };
        let (last, _) = self.entries[end];
        let count = last.length as usize;
        if count == 0 && last.is_of_driver() {
            let is_end = |location: &&Location| {
                let before = self.ahead(**location).and_then(|ahead| ahead.checked_sub(1));
                before.is_some_and(|at| at > end && self.entries[at].0.id == last.id)
            };
            if let Some(location) = locations.iter().find(is_end) {
                return Resumed::at(*location);
            }
        }
        let location = self.location(end + 1);
        if count > 1
            && let Some(start) = (end + 1).checked_sub(count)
            && let Some((_, Owner::Device)) = self.entries.get(start)
        {
            // The burst was not published. The flags of its last descriptor are overwritten.
            ring.put_used(self.location(start), last.id, 0);
            return Resumed { location, lost: ends(&self.entries[start..=end]) };
        }
        Resumed::at(location)
    }
}

/// Returns to the driver, empty, the chains that a burst had overwritten before its first
/// descriptor was published. The result says where the next burst begins. The burst begins at
/// `location`, with the first of `entries`.
fn return_empty(ring: &Packed, location: Location, entries: &[(Entry, Owner)]) -> Resumed {
    let [(first, Owner::Device), rest @ ..] = entries else { return Resumed::at(location) };
    let hidden = rest.iter().take_while(|(_, owner)| *owner == Owner::Driver).count();
    if hidden == 0 {
        return Resumed::at(location);
    }
    // A chain has the id of its last descriptor.
    let (mut id, mut tail) = (first.id, 0);
    let mut flags = first.descriptor().flags;
    while flags & NEXT != 0
        && let Some((entry, _)) = rest.get(tail)
    {
        (id, flags, tail) = (entry.id, entry.descriptor().flags, tail + 1);
    }
    let count = hidden.max(tail);
    let at = |ahead: usize| location.plus(ahead as u16, ring.size());
    for (index, (entry, _)) in rest[..count].iter().enumerate() {
        ring.put_used(at(1 + index), entry.id, 0);
    }
    ring.put_used(location, id, 0);
    Resumed { location: at(1 + count), lost: 1 + chains(&rest[tail..count]) }
}

/// How many chains were used here: each begins with its id, which occurs again at its end.
fn chains(mut entries: &[(Entry, Owner)]) -> u64 {
    let mut count = 0;
    while let [(first, _), rest @ ..] = entries {
        count += 1;
        let ends = |(entry, _): &(Entry, Owner)| entry.descriptor().flags & NEXT == 0;
        let end = rest.iter().position(ends).filter(|end| rest[*end].0.id == first.id);
        entries = end.map_or(rest, |end| &rest[end + 1..]);
    }
    count
}

#[cfg(test)]
mod kills;
#[cfg(test)]
mod tests;
