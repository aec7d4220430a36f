//! A queue of packets, first in, first out.

use super::Packet;

/// The largest number of packets per burst.
pub const BURST_MAX: usize = 256;

/// Default number of packets of a burst, as in DPDK's programs.
const LIMIT: usize = 32;

/// Packets in the order of their arrival, all from one pool. If a burst that holds packets is
/// dropped, the pool loses these packets.
#[derive(Debug)]
pub struct Burst {
    indices: [u32; BURST_MAX],
    start: usize,
    end: usize,
    limit: usize,
}

impl Default for Burst {
    fn default() -> Self {
        Self::new()
    }
}

impl Burst {
    /// An empty burst for 32 packets.
    #[must_use]
    pub fn new() -> Self {
        Self::with_limit(LIMIT)
    }

    /// An empty burst for `limit` packets, at least 1 and at most [`BURST_MAX`].
    #[must_use]
    pub fn with_limit(limit: usize) -> Self {
        let limit = limit.clamp(1, BURST_MAX);
        Self { indices: [0; BURST_MAX], start: 0, end: 0, limit }
    }

    /// Sets how many packets an empty burst can hold, at most [`BURST_MAX`].
    pub(crate) fn set_limit(&mut self, limit: usize) {
        debug_assert!(self.is_empty() && limit <= BURST_MAX);
        self.limit = limit;
    }

    /// How many packets the burst can hold.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// How many packets the burst holds.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Whether the burst holds no packet.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// How many more packets the burst can hold.
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        self.limit - self.len()
    }

    /// Appends a packet.
    ///
    /// # Panics
    /// Panics if the burst is full.
    #[inline]
    pub fn push(&mut self, packet: Packet) {
        assert!(self.room() > 0, "a burst holds {} packets", self.limit);
        if self.end == BURST_MAX {
            self.indices.copy_within(self.start.., 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        self.indices[self.end] = packet.into_index();
        self.end += 1;
    }

    /// Removes the first packet.
    #[inline]
    pub fn pop(&mut self) -> Option<Packet> {
        if self.is_empty() {
            return None;
        }
        let index = self.indices[self.start];
        self.start += 1;
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
        }
        Some(Packet::from_index(index))
    }

    /// Removes the last packet.
    pub(crate) fn pop_last(&mut self) -> Option<Packet> {
        if self.is_empty() {
            return None;
        }
        self.end -= 1;
        Some(Packet::from_index(self.indices[self.end]))
    }

    /// The packets' indices in their pool, in order.
    #[inline]
    pub(crate) fn indices(&self) -> &[u32] {
        &self.indices[self.start..self.end]
    }

    /// Calls `act` with each packet in order. The packets stay in the burst.
    #[inline]
    pub fn for_each(&self, act: impl FnMut(&Packet)) {
        self.for_each_from(0, act);
    }

    /// Like [`Burst::for_each`], but skips the first `skip` packets.
    #[inline]
    pub fn for_each_from(&self, skip: usize, mut act: impl FnMut(&Packet)) {
        for &index in self.indices().iter().skip(skip) {
            let packet = Packet::from_index(index);
            act(&packet);
            // Not lost: the burst still holds the packet.
            let _ = packet.into_index();
        }
    }
}
