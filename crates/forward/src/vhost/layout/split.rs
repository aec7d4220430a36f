//! The split ring: one index counts the available chains, another one the used chains.

use std::sync::atomic::{Ordering, fence};

use super::{Bad, Broken, Chain, First, Layout, ReadAhead, Walk};
use crate::ring::split::{self, Split};
use crate::vhost::inflight::Region;

#[derive(Debug)]
pub(in crate::vhost) struct SplitRing {
    ring: Split,
    /// The next available chain, and the index of its used entry.
    next: u16,
    /// The driver's index when it was last read. While enough chains lie below it, the line that
    /// holds it stays with the driver.
    available: u16,
    /// The used index that was last published to the driver.
    published: u16,
    /// The descriptor behind the last chain that a poll found, if the chains of that poll had
    /// consecutive descriptors: those of the next poll probably follow.
    follows: Option<u16>,
    has_events: bool,
    /// Where the progress is recorded, for other back ends that need it: this one does not.
    region: Option<Region>,
}

impl SplitRing {
    /// Resumes at the used index, which is correct also after the death of a back end.
    pub(in crate::vhost) fn new(ring: Split, has_events: bool, region: Option<Region>) -> Self {
        let next = ring.used_index();
        if let Some(region) = &region {
            region.begin_split(next);
        }
        ring.set_wants_no_calls(true);
        if has_events {
            ring.set_available_event(next.wrapping_sub(1));
        }
        Self { ring, next, available: next, published: next, follows: None, has_events, region }
    }

    /// A ring whose progress and calls another program manages, see [`SplitRing::resume`].
    pub(in crate::vhost) fn managed(ring: Split, has_events: bool) -> Self {
        let (next, region) = (0, None);
        Self { ring, next, available: next, published: next, follows: None, has_events, region }
    }

    /// Goes on at a chain, which the program that manages the ring has reached.
    #[inline]
    pub(in crate::vhost) fn resume(&mut self, next: u16) {
        if next != self.next {
            (self.next, self.available) = (next, next);
        }
        self.published = next;
    }

    /// Publishes the used chains, but does not decide whether the driver wants a call. Returns
    /// false if the driver certainly wants none: no chain was used.
    #[inline]
    pub(in crate::vhost) fn publish_only(&mut self) -> bool {
        let is_used = self.next != self.published;
        if is_used {
            // The driver has probably written the line of its flags since this device read it.
            self.ring.fetch_flags();
            self.ring.publish_used(self.next);
            self.published = self.next;
        }
        is_used
    }

    /// The number of chains that were used and not published.
    #[inline]
    pub(in crate::vhost) fn unpublished(&self) -> u16 {
        self.next.wrapping_sub(self.published)
    }

    /// Whether the driver wants a call for the last `count` chains that were published.
    #[inline]
    pub(in crate::vhost) fn wants_call(&self, count: u16) -> bool {
        if !self.has_events {
            return !self.ring.driver_wants_no_calls();
        }
        let before = self.published.wrapping_sub(count);
        split::has_passed(self.ring.used_event(), self.published, before)
    }

    /// Whether the driver may want a call for what was just published.
    #[inline]
    pub(in crate::vhost) fn may_want_call(&self) -> bool {
        // Read the driver's word only after the driver can see the used chains, as in `publish`.
        fence(Ordering::SeqCst);
        self.has_events || !self.ring.driver_wants_no_calls()
    }

    /// The index of the next chain.
    #[inline]
    pub(in crate::vhost) fn next(&self) -> u16 {
        self.next
    }

    /// Prefetches what the poll of `count` chains reads, `ahead` of the next one. Without this, the
    /// driver's index, the heads and the descriptors are three cache misses, one after the other,
    /// because the driver's processor wrote them.
    #[inline(always)]
    fn fetch(&self, ahead: u16, count: u16) {
        let Some(follows) = self.follows else { return };
        self.ring.fetch_heads(self.next.wrapping_add(ahead), count);
        self.ring.fetch_descriptors(follows, count);
    }

    /// How many chains are available. The value is up to date if it is below `wanted`.
    #[inline(always)]
    fn ready(&mut self, wanted: usize) -> Result<u16, Broken> {
        let mut ready = self.available.wrapping_sub(self.next);
        if usize::from(ready) < wanted {
            self.fetch(0, wanted as u16);
            self.available = self.ring.available_index();
            ready = self.available.wrapping_sub(self.next);
        }
        if ready > self.ring.size() { Err(Broken) } else { Ok(ready) }
    }

    /// The descriptor behind these chains, if they have consecutive ones. The first and the last
    /// show it: a wrong answer costs time alone.
    #[inline(always)]
    fn following(&self, chains: &[First]) -> Option<u16> {
        let (first, last) = (chains.first()?, chains.last()?);
        let distance = last.id.wrapping_sub(first.id) & (self.size() - 1);
        (usize::from(distance) + 1 == chains.len()).then(|| last.id.wrapping_add(1))
    }

    #[inline(always)]
    fn first(&self, head: u16) -> First {
        let descriptor = self.ring.descriptor(head);
        let split::Descriptor { address, length, flags, .. } = descriptor;
        First { id: head, flags, length, address }
    }
}

impl Layout for SplitRing {
    type Location = u16;

    const HAS_PACKED_TABLES: bool = false;

    #[inline(always)]
    fn size(&self) -> u16 {
        self.ring.size()
    }

    #[inline(always)]
    fn has_id(&self, id: u16) -> bool {
        id < self.size()
    }

    #[inline(always)]
    fn poll(&mut self, firsts: &mut [First]) -> Result<usize, Broken> {
        let count = firsts.len().min(usize::from(self.ready(firsts.len())?));
        let firsts = &mut firsts[..count];
        // Reads all heads before all descriptors, so that the misses of the descriptors overlap.
        for (index, first) in firsts.iter_mut().enumerate() {
            first.id = self.ring.head(self.next.wrapping_add(index as u16));
        }
        for first in firsts.iter_mut() {
            *first = self.first(first.id);
        }
        self.follows = self.following(firsts);
        let (ready, count) = (self.available.wrapping_sub(self.next), count as u16);
        self.fetch(count, count.min(ready - count));
        Ok(count.into())
    }

    fn location(&self) -> u16 {
        self.next
    }

    #[inline(always)]
    fn open(&mut self, location: u16) -> Result<Option<Walk>, Broken> {
        let ahead = location.wrapping_sub(self.next);
        if self.ready(usize::from(ahead) + 1)? <= ahead {
            return Ok(None);
        }
        let id = self.ring.head(location);
        let descriptor = self.ring.descriptor(id);
        Ok(Some(Walk { id, next: descriptor.next, count: 1, descriptor }))
    }

    #[inline(always)]
    fn step(&self, walk: &mut Walk) -> Result<(), Bad> {
        if walk.next >= self.size() {
            return Err(Bad);
        }
        walk.descriptor = self.ring.descriptor(walk.next);
        walk.next = walk.descriptor.next;
        Ok(())
    }

    #[inline(always)]
    fn close(&self, location: u16, walk: &Walk) -> Result<(Chain, u16), Broken> {
        Ok((Chain { id: walk.id, descriptors: 1 }, location.wrapping_add(1)))
    }

    #[inline(always)]
    fn use_chain(&mut self, chain: Chain, written: u32) {
        self.ring.put_used(self.next, chain.id, written);
        self.next = self.next.wrapping_add(1);
    }

    #[inline]
    fn publish(&mut self) -> bool {
        let (now, before) = (self.next, self.published);
        if now == before {
            return false;
        }
        self.ring.publish_used(now);
        if let Some(region) = &self.region {
            region.record_used(now);
        }
        self.published = now;
        // Read whether the driver wants a call only after the driver can see the used chains.
        // Otherwise the driver might go to sleep between the two.
        fence(Ordering::SeqCst);
        if self.has_events {
            // Half of all indices ahead, so that the driver never calls: the device polls.
            self.ring.set_available_event(now.wrapping_add(1 << 15));
        }
        self.wants_call(now.wrapping_sub(before))
    }

    fn base(&self) -> u32 {
        self.next.into()
    }
}

impl ReadAhead for SplitRing {
    fn reader(&self) -> Self {
        let mut reader = Self::managed(self.ring.clone(), self.has_events);
        reader.resume(self.next);
        reader
    }

    #[inline(always)]
    fn skip(&mut self, _: Chain) {
        self.next = self.next.wrapping_add(1);
    }
}
