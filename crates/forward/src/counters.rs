//! The counters of a port. One worker writes them; other threads see the copies that the worker
//! publishes.

use super::pool::BURST_MAX;

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DropReason {
    /// The other side had no room for the packet.
    Full,
    /// The port has no link.
    NoLink,
    /// The pool had no buffer.
    NoBuffer,
    /// Longer than the port's limit.
    TooLong,
    /// Shorter than a frame's header.
    TooShort,
    /// A chain of the guest's descriptors was invalid: it looped, was too long, or lay outside the
    /// guest's memory. Or the header in front of a packet described the work that the guest leaves
    /// to the device wrongly, or the guest may not leave this work.
    BadDescriptor,
    /// The ring was reset while it held the packet.
    Reset,
    /// The system refused the packet.
    Refused,
    /// The packet has no sequence number, which the port expects.
    Foreign,
    /// A capture holds only a part of the packet.
    Cut,
    /// Several packets that a guest, the kernel or a NIC had merged into one; the merge cannot be
    /// undone.
    Merged,
}

impl DropReason {
    /// All reasons, in the order of [`Direction::drops`].
    pub const ALL: [Self; 11] = [
        Self::Full,
        Self::NoLink,
        Self::NoBuffer,
        Self::TooLong,
        Self::TooShort,
        Self::BadDescriptor,
        Self::Reset,
        Self::Refused,
        Self::Foreign,
        Self::Cut,
        Self::Merged,
    ];

    /// The reason's name in records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::NoLink => "no_link",
            Self::NoBuffer => "no_buffer",
            Self::TooLong => "too_long",
            Self::TooShort => "too_short",
            Self::BadDescriptor => "bad_descriptor",
            Self::Reset => "reset",
            Self::Refused => "refused",
            Self::Foreign => "foreign",
            Self::Cut => "cut",
            Self::Merged => "merged",
        }
    }
}

/// One direction of a port.
#[derive(Clone, Debug)]
pub struct Direction {
    /// The number of packets that passed.
    pub packets: u64,
    /// The size of these packets in bytes, from the Ethernet header on, without the frame check
    /// sequence.
    pub bytes: u64,
    /// At index `n`, the number of calls in which `n` packets passed.
    pub batches: [u64; BURST_MAX + 1],
    /// Packets that were dropped, by [`DropReason`].
    pub drops: [u64; DropReason::ALL.len()],
}

impl Default for Direction {
    fn default() -> Self {
        Self {
            packets: 0,
            bytes: 0,
            batches: [0; BURST_MAX + 1],
            drops: [0; DropReason::ALL.len()],
        }
    }
}

impl Direction {
    /// Counts a call in which `packets` packets passed.
    #[inline]
    pub fn batch(&mut self, packets: usize, bytes: u64) {
        self.packets += packets as u64;
        self.bytes += bytes;
        self.batches[packets.min(BURST_MAX)] += 1;
    }

    /// Counts packets that were dropped.
    #[inline]
    pub fn dropped(&mut self, reason: DropReason, packets: u64) {
        self.drops[reason as usize] += packets;
    }

    /// Packets that were dropped for `reason`.
    #[must_use]
    pub fn drops_for(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }

    /// Packets that were dropped for any reason.
    #[must_use]
    pub fn drops_sum(&self) -> u64 {
        self.drops.iter().sum()
    }

    /// Calls, empty ones included.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.batches.iter().sum()
    }

    /// The difference to `before`, an earlier copy of the same direction.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut since = self.clone();
        since.packets = since.packets.wrapping_sub(before.packets);
        since.bytes = since.bytes.wrapping_sub(before.bytes);
        let pairs = since.batches.iter_mut().zip(&before.batches);
        pairs.for_each(|(now, before)| *now = now.wrapping_sub(*before));
        let pairs = since.drops.iter_mut().zip(&before.drops);
        pairs.for_each(|(now, before)| *now = now.wrapping_sub(*before));
        since
    }
}

/// The counters of one queue pair.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// From the port to the forwarder.
    pub rx: Direction,
    /// From the forwarder to the port.
    pub tx: Direction,
    /// How often a fault of the other side made the port reset.
    pub resets: u64,
}

impl Counters {
    /// The difference to `before`, an earlier copy of the same counters.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            rx: self.rx.since(&before.rx),
            tx: self.tx.since(&before.tx),
            resets: self.resets.wrapping_sub(before.resets),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_drop_reason_has_an_index_and_a_name() {
        let mut names = std::collections::BTreeSet::new();
        for (index, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
            assert!(names.insert(reason.name()));
        }
    }

    #[test]
    fn difference_covers_every_field() {
        let mut counters = Counters::default();
        counters.rx.batch(3, 192);
        let before = counters.clone();
        counters.rx.batch(3, 192);
        counters.rx.batch(0, 0);
        counters.tx.dropped(DropReason::Full, 7);
        counters.resets += 1;
        let since = counters.since(&before);
        assert_eq!((since.rx.packets, since.rx.bytes, since.rx.calls()), (3, 192, 2));
        assert_eq!((since.rx.batches[0], since.rx.batches[3]), (1, 1));
        assert_eq!(
            (since.tx.drops_sum(), since.tx.drops_for(DropReason::Full), since.resets),
            (7, 7, 1)
        );
    }
}
