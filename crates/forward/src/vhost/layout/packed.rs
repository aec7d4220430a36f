//! The packed ring: the descriptors themselves say what is available. Used chains are written where
//! they began, the first of a burst last, so that the driver sees none before all are there.
//!
//! Where both sides keep the order, chains that the device has read are shown by the last of a
//! burst alone: its id stands where the first began, section 2.8 of virtio 1.2, and the lines of
//! the others stay with the driver. But for the last descriptor, which says to the next device how
//! far this one came.

use std::sync::atomic::{Ordering, fence};

use super::super::super::ring::packed::{OF_LINE, Packed, Place};
use super::super::super::ring::split::NEXT;
use super::super::inflight::{Note, Noted};
use super::resume::{Resumed, resume};
use super::{Bad, Broken, Chain, First, Layout, Walk};

#[derive(Debug)]
pub(in super::super) struct PackedRing {
    ring: Packed,
    /// The next chain to be looked at, and where it is given back.
    next: Place,
    /// The first chain of a burst, which is shown last.
    held: Option<(Place, u16, u32)>,
    /// Descriptors that were used since the last time that the driver was shown any.
    unpublished: u16,
    has_events: bool,
    /// Whether of a burst the last chain alone is shown.
    shows_last: bool,
    /// Where it is noted how far it came, if the front end keeps that.
    note: Option<Note>,
}

impl PackedRing {
    /// Goes on where a device before it has noted, else at the front end's place if that can be, or
    /// where the ring itself shows, and says how many chains were lost with the one before;
    /// `shows_last` where the order is kept and the device reads. For `pause` see [`resume`].
    pub(in super::super) fn new(
        ring: Packed,
        (noted, base): (Option<Noted>, Place),
        (has_events, shows_last): (bool, bool),
        note: Option<Note>,
        pause: &mut dyn FnMut() -> bool,
    ) -> (Self, u64) {
        let Resumed { place: next, lost } = resume(&ring, noted, base, shows_last, pause);
        if let Some(note) = &note {
            note.begin_packed(next);
        }
        ring.set_polls(false);
        let (held, unpublished) = (None, 0);
        (Self { ring, next, held, unpublished, has_events, shows_last, note }, lost)
    }

    /// Marks the rest of a chain as used: it then shows where the device was.
    #[cold]
    fn mark_rest(&self, chain: Chain) {
        for ahead in 1..chain.descriptors {
            self.ring.mark_used(self.next.plus(ahead, self.size()));
        }
    }
}

impl Layout for PackedRing {
    type Place = Place;

    const HAS_PACKED_TABLES: bool = true;

    #[inline(always)]
    fn size(&self) -> u16 {
        self.ring.size()
    }

    #[inline(always)]
    fn has_id(&self, _: u16) -> bool {
        // The driver's own business: it is given back as it came.
        true
    }

    #[inline(always)]
    fn look(&mut self, firsts: &mut [First]) -> Result<usize, Broken> {
        let mut place = self.next;
        if !self.shows_last && self.ring.available(place).is_some() {
            // Each is written where it was read: its line comes once, to be written.
            for ahead in (OF_LINE..firsts.len().min(usize::from(self.size()))).step_by(OF_LINE) {
                self.ring.fetch(place.plus(ahead as u16, self.size()));
            }
        }
        for (index, first) in firsts.iter_mut().enumerate() {
            let Some(entry) = self.ring.available(place) else { return Ok(index) };
            let descriptor = entry.descriptor();
            *first = First {
                id: entry.id,
                flags: descriptor.flags,
                length: entry.length,
                address: entry.address,
            };
            if descriptor.flags & NEXT != 0 {
                return Ok(index + 1);
            }
            place = place.plus(1, self.size());
        }
        Ok(firsts.len())
    }

    fn place(&self) -> Place {
        self.next
    }

    fn open(&mut self, place: Place) -> Result<Option<Walk>, Broken> {
        let Some(entry) = self.ring.available(place) else { return Ok(None) };
        let next = place.plus(1, self.size()).index;
        let descriptor = entry.descriptor();
        Ok(Some(Walk { id: entry.id, next, count: 1, descriptor }))
    }

    fn step(&self, walk: &mut Walk) -> Result<(), Bad> {
        if walk.count >= self.size() {
            return Err(Bad);
        }
        // Whose it is was said by the first.
        let place = Place { index: walk.next, is_odd: false };
        let entry = self.ring.any(place);
        *walk = Walk {
            id: entry.id,
            next: place.plus(1, self.size()).index,
            count: walk.count + 1,
            descriptor: entry.descriptor(),
        };
        Ok(())
    }

    fn close(&self, place: Place, walk: &Walk) -> Result<(Chain, Place), Broken> {
        let mut walk = *walk;
        // The id is that of the last.
        while walk.descriptor.flags & NEXT != 0 {
            self.step(&mut walk).map_err(|Bad| Broken)?;
        }
        let chain = Chain { id: walk.id, descriptors: walk.count };
        Ok((chain, place.plus(walk.count, self.size())))
    }

    #[inline(always)]
    fn use_chain(&mut self, chain: Chain, written: u32) {
        // The rest first: who takes over a ring in which only the first is marked would take the
        // rest for a chain.
        if chain.descriptors > 1 && !self.shows_last {
            self.mark_rest(chain);
        }
        match &mut self.held {
            None => self.held = Some((self.next, chain.id, written)),
            Some((_, id, _)) if self.shows_last => *id = chain.id,
            Some(_) => self.ring.put_used(self.next, chain.id, written),
        }
        self.next = self.next.plus(chain.descriptors, self.size());
        self.unpublished = self.unpublished.saturating_add(chain.descriptors);
    }

    #[inline]
    fn publish(&mut self) -> bool {
        let Some((place, id, written)) = self.held.take() else { return false };
        if let Some(note) = &self.note {
            note.shows(place, self.next);
        }
        if self.shows_last && self.unpublished > 1 {
            // Nobody but who takes over looks at it: it says where the burst is.
            self.ring.put_used(self.next.minus_one(self.size()), id, self.unpublished.into());
        }
        self.ring.put_used(place, id, written);
        if let Some(note) = &self.note {
            note.has_shown(self.next);
        }
        // What the driver wants is read after it can see what was used: else it might go to sleep
        // in between.
        fence(Ordering::SeqCst);
        let count = std::mem::take(&mut self.unpublished);
        self.ring.driver_wants_call(self.next, count, self.has_events)
    }

    fn base(&self) -> u32 {
        u32::from(self.next.word()) * 0x1_0001
    }
}
