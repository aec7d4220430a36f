//! Received packets for which the kernel left work: a checksum to complete, or a merged packet to
//! split.

use super::rings::{Receiving, SlotPacket};
use crate::counters::{Direction, DropReason};
use crate::interface::{Cut, FRAME_BYTES_MIN, Offload};
use crate::pool::{Burst, PACKET_BYTES_MAX, Pool};

/// A packet with work left, until all its parts were delivered.
#[derive(Debug, Default)]
pub(super) struct Offloaded {
    frame: Vec<u8>,
    /// How the frame is split; `None` for a single packet.
    cut: Option<Cut>,
    part: Vec<u8>,
    is_pending: bool,
}

impl Offloaded {
    /// Whether a packet can be delivered.
    #[inline]
    pub(super) fn is_pending(&self) -> bool {
        self.is_pending
    }

    /// Receives a packet from the ring, or counts it as dropped.
    #[cold]
    pub(super) fn take(&mut self, from: &Receiving, found: &SlotPacket, counted: &mut Direction) {
        let (came, offload) = from.read_all(found, &mut self.frame);
        let length = found.length();
        self.cut = Cut::of(&self.frame, length, &offload).filter(|_| offload.is_merged());
        let parts = self.cut.map_or(1, |cut| cut.parts());
        let longest = self.cut.and_then(|cut| cut.length()).unwrap_or(length);
        let why = match longest {
            ..FRAME_BYTES_MIN => Some(DropReason::TooShort),
            _ if offload.is_merged() && self.cut.is_none() => Some(DropReason::Merged),
            _ if longest > PACKET_BYTES_MAX => Some(DropReason::TooLong),
            // The socket's queue was full.
            _ if came < length => Some(DropReason::Full),
            _ if self.cut.is_none() && !self.complete(&offload) => Some(DropReason::Merged),
            _ => None,
        };
        match why {
            Some(reason) => counted.dropped(reason, parts),
            None => self.is_pending = true,
        }
    }

    fn complete(&mut self, offload: &Offload) -> bool {
        offload.complete(&mut self.frame)
    }

    /// Delivers the next packet and returns its length; `None` if the pool has no buffer for it
    /// now.
    #[cold]
    pub(super) fn give(&mut self, pool: &mut Pool, burst: &mut Burst) -> Option<usize> {
        let Self { frame, cut, part, .. } = self;
        let length = cut.map_or(Some(frame.len()), |cut| cut.length())?;
        let packet = pool.take(length)?;
        let bytes = match cut {
            None => &frame[..],
            Some(cut) => {
                part.resize(length, 0);
                cut.write(frame, part);
                &part[..]
            }
        };
        let is_written = pool.write(&packet, 0, bytes);
        debug_assert!(is_written, "a packet of {length} B holds {length} B");
        burst.push(packet);
        self.is_pending = cut.is_some_and(|cut| cut.length().is_some());
        Some(length)
    }
}
