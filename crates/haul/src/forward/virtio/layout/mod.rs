//! How a ring is laid out, from the driver's side: what was given to the device, and what it gave
//! back. What it says is checked against what was given.
//!
//! From the bottom up:
//!
//! - `free`: the descriptors that are free, of either;
//! - `split`: the split ring;
//! - `packed`: the packed ring.

mod free;
mod packed;
mod split;

use std::ptr::NonNull;

use super::super::pool::Segment;
use super::super::ring::packed::{self as packed_ring, Packed};
use super::super::ring::split::{self as split_ring, Split};
use packed::PackedRing;
use split::SplitRing;

/// The device said what cannot be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Broken;

/// No packet, or no descriptor.
pub(super) const NONE: u32 = u32::MAX;

/// The first buffer of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffer {
    pub(super) address: u64,
    pub(super) length: u32,
    pub(super) flags: u16,
}

/// A ring of either layout.
#[derive(Debug)]
pub(super) enum Ring {
    Split(SplitRing),
    Packed(PackedRing),
}

/// Does the same with either.
macro_rules! either {
    ($ring:expr, $it:ident => $act:expr) => {
        match $ring {
            Ring::Split($it) => $act,
            Ring::Packed($it) => $act,
        }
    };
}

impl Ring {
    /// A ring over its three areas.
    ///
    /// # Safety
    /// `size` is a power of two up to 32,768; the areas have [`Ring::area_bytes`], are aligned to
    /// 16, can be read and written, and stay so as long as this value is used.
    pub(super) unsafe fn new(areas: [NonNull<u8>; 3], size: u32, is_packed: bool) -> Self {
        if is_packed {
            // SAFETY: the caller's promise.
            Self::Packed(PackedRing::new(unsafe { Packed::new(areas, size) }))
        } else {
            // SAFETY: the caller's promise.
            Self::Split(SplitRing::new(unsafe { Split::new(areas, size) }))
        }
    }

    /// Bytes of the areas.
    pub(super) fn area_bytes(size: u32, is_packed: bool) -> [u64; 3] {
        if is_packed { packed_ring::area_bytes(size) } else { split_ring::area_bytes(size) }
    }

    /// Whether it is a packed one.
    pub(super) fn is_packed(&self) -> bool {
        matches!(self, Self::Packed(_))
    }

    /// Descriptors of the ring.
    #[inline]
    pub(super) fn size(&self) -> u16 {
        either!(self, ring => ring.size())
    }

    /// How many of them the device has not.
    #[inline]
    pub(super) fn free_count(&self) -> usize {
        either!(self, ring => ring.free_count())
    }

    /// Packets that the device has.
    pub(super) fn outstanding(&self) -> usize {
        either!(self, ring => ring.outstanding())
    }

    /// As it was when new; calls `give` with the packets that the device had.
    pub(super) fn reset(&mut self, give: impl FnMut(u32)) {
        either!(self, ring => ring.reset(give));
    }

    /// Looks how far the device came, as far as so many chains are concerned.
    #[inline]
    pub(super) fn look(&mut self, wanted: usize) -> Result<(), Broken> {
        match self {
            Self::Split(ring) => ring.look(wanted),
            // Each descriptor says it itself.
            Self::Packed(_) => Ok(()),
        }
    }

    /// The packet of a used chain that comes `ahead` chains of one descriptor later.
    #[inline]
    pub(super) fn peek(&self, ahead: u16) -> Option<u32> {
        either!(self, ring => ring.peek(ahead))
    }

    /// The packet of the chain that the device used next, and how many bytes it says that it
    /// wrote; `None` where there is none, as far as was looked.
    #[inline]
    pub(super) fn take_used(&mut self) -> Result<Option<(u32, u32)>, Broken> {
        either!(self, ring => ring.take_used())
    }

    /// Puts a packet into the ring: its first buffer, and those that follow. There are free
    /// descriptors for all. Not seen before [`Ring::publish`].
    #[inline]
    pub(super) fn give(&mut self, packet: u32, first: Buffer, rest: &[Segment]) {
        either!(self, ring => ring.give(packet, first, rest));
    }

    /// Shows the device what was given, and says whether it was anything.
    #[inline]
    pub(super) fn publish(&mut self) -> bool {
        either!(self, ring => ring.publish())
    }

    /// Whether the device wants no calls.
    #[inline]
    pub(super) fn device_wants_no_calls(&self) -> bool {
        either!(self, ring => ring.device_wants_no_calls())
    }
}
