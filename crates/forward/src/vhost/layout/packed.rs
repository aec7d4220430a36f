//! The packed ring: the descriptors themselves show which chains are available. A used chain is
//! written to its first location. The first chain of a burst is written last, so that the driver
//! sees either no chain of the burst or all of them.
//!
//! If both sides keep the order, the device publishes only the last chain of a burst that it has
//! read. The device writes the id of this last chain to the location of the first chain (section
//! 2.8 of virtio 1.2), and the lines of the other chains stay with the driver. The exception is
//! the burst's last descriptor, whose mark shows the next device how far this device came.

use std::sync::atomic::{Ordering, fence};

use super::resume::{Resumed, resume};
use super::{Bad, Broken, Chain, First, Layout, ReadAhead, Walk};
use crate::ring::packed::{Location, OF_LINE, Packed};
use crate::ring::split::NEXT;
use crate::vhost::inflight::{Progress, Region};

#[derive(Debug)]
pub(in crate::vhost) struct PackedRing {
    ring: Packed,
    /// The location of the next chain, where the chain will also be marked as used.
    next: Location,
    /// The first chain of a burst, which is published last.
    held: Option<(Location, u16, u32)>,
    /// The number of descriptors that were used since the last publication.
    unpublished: u16,
    has_events: bool,
    /// Whether only the last chain of a burst is published.
    shows_last: bool,
    /// Where the progress is recorded, if the front end keeps it.
    region: Option<Region>,
}

impl PackedRing {
    /// Resumes at the recorded location, else at the front end's location if that is plausible,
    /// else at the location that the ring shows. Returns how many chains were lost with the
    /// previous device. `shows_last` must be set if both sides keep the order and the device
    /// reads the buffers. For `pause` see [`resume`].
    pub(in crate::vhost) fn new(
        ring: Packed,
        (recorded, base): (Option<Progress>, Location),
        (has_events, shows_last): (bool, bool),
        region: Option<Region>,
        pause: &mut dyn FnMut() -> bool,
    ) -> (Self, u64) {
        let Resumed { location: next, lost } = resume(&ring, recorded, base, shows_last, pause);
        if let Some(region) = &region {
            region.begin_packed(next);
        }
        ring.set_polls(false);
        let (held, unpublished) = (None, 0);
        (Self { ring, next, held, unpublished, has_events, shows_last, region }, lost)
    }

    /// A ring whose progress and calls another program manages, see [`PackedRing::resume`].
    pub(in crate::vhost) fn managed(ring: Packed) -> Self {
        let (next, has_events, shows_last) = (Location::START, false, false);
        Self { ring, next, held: None, unpublished: 0, has_events, shows_last, region: None }
    }

    /// Goes on at a location, encoded as in messages, which the program that manages the ring has
    /// reached. Returns false if the ring has no such location.
    #[inline]
    pub(in crate::vhost) fn resume(&mut self, word: u16) -> bool {
        let Some(next) = Location::of(word, self.size().into()) else { return false };
        self.next = next;
        true
    }

    /// Publishes the used chains, but does not decide whether the driver wants a call. Returns
    /// false if the driver certainly wants none: no chain was used.
    #[inline]
    pub(in crate::vhost) fn publish_only(&mut self) -> bool {
        let Some((location, id, written)) = self.held.take() else { return false };
        self.ring.put_used(location, id, written);
        self.unpublished = 0;
        true
    }

    /// The number of descriptors that were used and not published.
    #[inline]
    pub(in crate::vhost) fn unpublished(&self) -> u16 {
        self.unpublished
    }

    /// Whether the driver wants a call for the last `count` descriptors that were published.
    #[inline]
    pub(in crate::vhost) fn wants_call(&self, count: u16) -> bool {
        self.ring.driver_wants_call(self.next, count, self.has_events)
    }

    /// The location of the next chain, encoded as in messages.
    #[inline]
    pub(in crate::vhost) fn next(&self) -> u16 {
        self.next.word()
    }

    /// Marks the later descriptors of a chain as used: they then show the device's progress.
    #[cold]
    fn mark_rest(&self, chain: Chain) {
        for ahead in 1..chain.descriptors {
            self.ring.mark_used(self.next.plus(ahead, self.size()));
        }
    }
}

impl Layout for PackedRing {
    type Location = Location;

    const HAS_PACKED_TABLES: bool = true;

    #[inline(always)]
    fn size(&self) -> u16 {
        self.ring.size()
    }

    #[inline(always)]
    fn has_id(&self, _: u16) -> bool {
        // The id means something to the driver alone; the device returns it unchanged.
        true
    }

    #[inline(always)]
    fn poll(&mut self, firsts: &mut [First]) -> Result<usize, Broken> {
        let mut location = self.next;
        if !self.shows_last && self.ring.available(location).is_some() {
            // The device will write to the line that it reads here, so it prefetches the line
            // once, for writing.
            for ahead in (OF_LINE..firsts.len().min(usize::from(self.size()))).step_by(OF_LINE) {
                self.ring.fetch(location.plus(ahead as u16, self.size()));
            }
        }
        for (index, first) in firsts.iter_mut().enumerate() {
            let Some(entry) = self.ring.available(location) else { return Ok(index) };
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
            location = location.plus(1, self.size());
        }
        Ok(firsts.len())
    }

    fn location(&self) -> Location {
        self.next
    }

    #[inline(always)]
    fn open(&mut self, location: Location) -> Result<Option<Walk>, Broken> {
        let Some(entry) = self.ring.available(location) else { return Ok(None) };
        let next = location.plus(1, self.size()).index;
        let descriptor = entry.descriptor();
        Ok(Some(Walk { id: entry.id, next, count: 1, descriptor }))
    }

    #[inline(always)]
    fn step(&self, walk: &mut Walk) -> Result<(), Bad> {
        if walk.count >= self.size() {
            return Err(Bad);
        }
        // The first descriptor has shown that the device owns the chain, so the round does not
        // matter.
        let location = Location { index: walk.next, is_odd: false };
        let entry = self.ring.any(location);
        *walk = Walk {
            id: entry.id,
            next: location.plus(1, self.size()).index,
            count: walk.count + 1,
            descriptor: entry.descriptor(),
        };
        Ok(())
    }

    #[inline(always)]
    fn close(&self, location: Location, walk: &Walk) -> Result<(Chain, Location), Broken> {
        let mut walk = *walk;
        // A chain has the id of its last descriptor.
        while walk.descriptor.flags & NEXT != 0 {
            self.step(&mut walk).map_err(|Bad| Broken)?;
        }
        let chain = Chain { id: walk.id, descriptors: walk.count };
        Ok((chain, location.plus(walk.count, self.size())))
    }

    #[inline(always)]
    fn use_chain(&mut self, chain: Chain, written: u32) {
        // The later descriptors first: if only the first were marked, a device that takes over
        // would treat the later ones as a chain.
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
        let Some((location, id, written)) = self.held.take() else { return false };
        if let Some(region) = &self.region {
            region.record_publishing(location, self.next);
        }
        if self.shows_last && self.unpublished > 1 {
            // Only a device that takes over reads this mark: it shows where the burst ends.
            self.ring.put_used(self.next.minus_one(self.size()), id, self.unpublished.into());
        }
        self.ring.put_used(location, id, written);
        if let Some(region) = &self.region {
            region.record_published(self.next);
        }
        // Read whether the driver wants a call only after the driver can see the used chains.
        // Otherwise the driver might go to sleep between the two.
        fence(Ordering::SeqCst);
        let count = std::mem::take(&mut self.unpublished);
        self.wants_call(count)
    }

    fn base(&self) -> u32 {
        u32::from(self.next.word()) * 0x1_0001
    }
}

impl ReadAhead for PackedRing {
    fn reader(&self) -> Self {
        Self { next: self.next, ..Self::managed(self.ring.clone()) }
    }

    #[inline(always)]
    fn skip(&mut self, chain: Chain) {
        self.next = self.next.plus(chain.descriptors, self.size());
    }
}
