//! A ring of a device that another program manages, such as DPDK's vhost library. The program
//! keeps the progress of the ring between two bursts, calls the guest, and handles every packet
//! that needs more than copies and the record of a checksum, and every invalid chain.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use super::chain::Scratch;
use super::enqueue::{self, Fast, Single};
use super::layout::packed::PackedRing;
use super::layout::split::SplitRing;
use super::layout::{Broken, Layout};
use super::vring::Active;
use crate::copy::{Copier, CopyMethod};
use crate::packets::{GuestMemory, Incoming, Outgoing};
use crate::pool::BURST_MAX;
use crate::ring::features;
use crate::ring::packed::{self, Packed};
use crate::ring::split::{self, Split};

/// One ring of a device that another program manages.
///
/// A burst has four steps: [`DeviceRing::resume`] at the program's progress,
/// [`DeviceRing::enqueue`] or [`DeviceRing::dequeue`], [`DeviceRing::publish`], whose result is the
/// program's new progress, and [`DeviceRing::may_want_call`]. The guest is hostile: each of its
/// words is read once and checked before it is used.
#[derive(Debug)]
pub struct DeviceRing<M: GuestMemory> {
    active: AnyActive<M>,
    copier: Copier,
    scratch: Scratch,
}

#[derive(Debug)]
enum AnyActive<M: GuestMemory> {
    Split(Active<SplitRing, M>),
    Packed(Active<PackedRing, M>),
}

/// How far a burst came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the packets behind a stop are still to be handled"]
pub struct Progress {
    /// The number of packets that passed.
    pub packets: usize,
    /// Whether the burst stopped at a packet that needs more than copies and the record of a
    /// checksum, or at an invalid chain: the program must go on there. Otherwise the ring has no
    /// further chain, the burst is complete, or it has followed many descriptors.
    pub is_stopped: bool,
}

impl<M: GuestMemory> DeviceRing<M> {
    /// A ring over its three areas: descriptors, available, used; or, with the feature
    /// VIRTIO_F_RING_PACKED, descriptors and the events of driver and device. `features` are
    /// those that both sides negotiated. `None` if the size or the alignment of an area is
    /// invalid. Allocates some 30 KiB.
    ///
    /// # Safety
    /// The areas have the sizes of sections 2.7 and 2.8 of virtio 1.2 for `size` descriptors, can
    /// be read and written, and stay valid as long as this value is used. The words for events may
    /// be missing in a split ring without VIRTIO_F_EVENT_IDX: nothing accesses them.
    pub unsafe fn new(
        areas: [NonNull<u8>; 3],
        size: u16,
        features: u64,
        memory: M,
        copy: CopyMethod,
    ) -> Option<Self> {
        let (is_packed, size) = (features & features::PACKED != 0, u32::from(size));
        let (aligns, largest) = if is_packed {
            (packed::AREA_ALIGNS, packed::SIZE_MAX)
        } else {
            (split::AREA_ALIGNS, split::SIZE_MAX)
        };
        let is_aligned = |(at, align): (&NonNull<u8>, usize)| at.addr().get() % align == 0;
        let is_size = (1..=largest).contains(&size) && (is_packed || size.is_power_of_two());
        if !is_size || !areas.iter().zip(aligns).all(is_aligned) {
            return None;
        }
        let memory = Arc::new(memory);
        let active = if is_packed {
            // SAFETY: the caller's promise; size and alignment were checked above.
            let ring = PackedRing::managed(unsafe { Packed::new(areas, size) });
            AnyActive::Packed(Active::new(ring, memory, features))
        } else {
            // SAFETY: as above.
            let ring = unsafe { Split::new(areas, size) };
            let ring = SplitRing::managed(ring, features & features::EVENT_INDEX != 0);
            AnyActive::Split(Active::new(ring, memory, features))
        };
        Some(Self { active, copier: Copier::new(copy), scratch: Scratch::new(BURST_MAX) })
    }

    /// Whether the ring has the packed layout.
    #[must_use]
    pub fn is_packed(&self) -> bool {
        matches!(self.active, AnyActive::Packed(_))
    }

    /// Goes on at the program's progress: the index of the next available chain or, in a packed
    /// ring, its location with the wrap counter in bit 15. Returns false if the ring has no such
    /// location.
    #[inline]
    #[must_use]
    pub fn resume(&mut self, next: u16) -> bool {
        match &mut self.active {
            AnyActive::Split(active) => {
                active.ring.resume(next);
                true
            }
            AnyActive::Packed(active) => active.ring.resume(next),
        }
    }

    /// Moves the packets up to `count` into the guest's buffers, as many as there are buffers for.
    /// The guest sees them after [`DeviceRing::publish`]. A packet may take a chain of several
    /// descriptors and, with VIRTIO_NET_F_MRG_RXBUF, several chains.
    #[inline]
    pub fn enqueue(&mut self, packets: &impl Outgoing, count: usize) -> Progress {
        let Self { active, copier, scratch } = self;
        match active {
            AnyActive::Split(active) => active.enqueue_all(packets, count, copier, scratch),
            AnyActive::Packed(active) => active.enqueue_all(packets, count, copier, scratch),
        }
    }

    /// Receives up to `count` packets of the guest, each of at most `longest` bytes. The guest
    /// sees the used chains after [`DeviceRing::publish`].
    #[inline]
    pub fn dequeue(&mut self, room: &mut impl Incoming, longest: usize, count: usize) -> Progress {
        let Self { active, copier, scratch } = self;
        match active {
            AnyActive::Split(active) => active.dequeue_all(room, (longest, count), copier, scratch),
            AnyActive::Packed(active) => {
                active.dequeue_all(room, (longest, count), copier, scratch)
            }
        }
    }

    /// Publishes the used chains to the guest. Returns the program's new progress, in the encoding
    /// of [`DeviceRing::resume`]; `None` if no chain was used.
    #[inline]
    pub fn publish(&mut self) -> Option<u16> {
        match &mut self.active {
            AnyActive::Split(Active { ring, .. }) => ring.publish_only().then(|| ring.next()),
            AnyActive::Packed(Active { ring, .. }) => ring.publish_only().then(|| ring.next()),
        }
    }

    /// Whether the guest may want a call for what was published, which the program then decides.
    /// False only if the guest has certainly said that it wants none.
    ///
    /// Cost: waits until the guest's processor can see everything that was written. Work between
    /// [`DeviceRing::publish`] and this call takes none of that time.
    #[inline]
    #[must_use]
    pub fn may_want_call(&self) -> bool {
        match &self.active {
            AnyActive::Split(active) => active.ring.may_want_call(),
            AnyActive::Packed(_) => true,
        }
    }
}

/// One direction of a ring: how packets pass.
trait Passing<L: Layout, M: GuestMemory> {
    /// Passes packets, behind the first `done`, through these chains of `scratch.firsts`, as long
    /// as each is a copy into one buffer or from one.
    fn pass(
        &mut self,
        active: &mut Active<L, M>,
        done: usize,
        chains: Range<usize>,
        scratch: &mut Scratch,
    ) -> Fast;

    /// Passes the packet behind the first `done` through chains of any form.
    fn pass_gathered(
        &mut self,
        active: &mut Active<L, M>,
        done: usize,
        scratch: &mut Scratch,
    ) -> Result<Single, Broken>;
}

/// Packets to the guest.
struct Sending<'a, P>(&'a P);

impl<L: Layout, M: GuestMemory, P: Outgoing> Passing<L, M> for Sending<'_, P> {
    #[inline(always)]
    fn pass(
        &mut self,
        active: &mut Active<L, M>,
        done: usize,
        chains: Range<usize>,
        scratch: &mut Scratch,
    ) -> Fast {
        active.enqueue_fast(self.0, done, chains, scratch)
    }

    #[inline]
    fn pass_gathered(
        &mut self,
        active: &mut Active<L, M>,
        done: usize,
        scratch: &mut Scratch,
    ) -> Result<Single, Broken> {
        active.enqueue_gathered(self.0, done, scratch)
    }
}

/// Packets from the guest, each of at most `longest` bytes.
struct Receiving<'a, P> {
    room: &'a mut P,
    longest: usize,
    copier: &'a Copier,
}

impl<L: Layout, M: GuestMemory, P: Incoming> Passing<L, M> for Receiving<'_, P> {
    #[inline(always)]
    fn pass(
        &mut self,
        active: &mut Active<L, M>,
        _: usize,
        chains: Range<usize>,
        scratch: &mut Scratch,
    ) -> Fast {
        active.dequeue_fast(self.room, self.longest, chains, scratch)
    }

    #[inline]
    fn pass_gathered(
        &mut self,
        active: &mut Active<L, M>,
        _: usize,
        scratch: &mut Scratch,
    ) -> Result<Single, Broken> {
        active.dequeue_gathered(self.room, self.longest, self.copier, scratch)
    }
}

impl<L: Layout, M: GuestMemory> Active<L, M> {
    /// Polls the ring and passes packets, until `count` have passed, or one has not.
    #[inline(always)]
    fn in_bursts(
        &mut self,
        count: usize,
        scratch: &mut Scratch,
        mut passing: impl Passing<L, M>,
    ) -> Progress {
        scratch.parts.clear();
        self.followed = 0;
        let mut packets = 0;
        while packets < count {
            let wanted = (count - packets).min(scratch.firsts.len());
            let Ok(ready) = self.ring.poll(&mut scratch.firsts[..wanted]) else {
                return Progress { packets, is_stopped: true };
            };
            let mut chains = 0..ready;
            let mut is_end = ready < wanted;
            while !chains.is_empty() && packets < count {
                let fast = passing.pass(self, packets, chains.clone(), scratch);
                packets += fast.packets;
                chains.start += fast.packets;
                if chains.is_empty() {
                    break;
                }
                // The other chains of a guest that makes the longest ones wait for the next burst.
                if !self.may_follow() {
                    return Progress { packets, is_stopped: false };
                }
                match passing.pass_gathered(self, packets, scratch) {
                    Ok(Single::Passed { chains: used }) => {
                        packets += 1;
                        chains.start += used;
                        // A poll may stop behind such a chain.
                        is_end = false;
                    }
                    Ok(Single::Waits) => return Progress { packets, is_stopped: false },
                    Ok(Single::Stops) | Err(Broken) => {
                        return Progress { packets, is_stopped: true };
                    }
                }
            }
            if is_end {
                break;
            }
        }
        Progress { packets, is_stopped: false }
    }

    #[inline]
    fn enqueue_all(
        &mut self,
        packets: &impl Outgoing,
        count: usize,
        copier: &Copier,
        scratch: &mut Scratch,
    ) -> Progress {
        let progress = self.in_bursts(count, scratch, Sending(packets));
        // SAFETY: sources are the caller's packets, and targets were looked up in the guest's
        // memory, which this ring keeps; each is valid for its length.
        unsafe { enqueue::copy(copier, &scratch.parts) };
        progress
    }

    #[inline]
    fn dequeue_all(
        &mut self,
        room: &mut impl Incoming,
        (longest, count): (usize, usize),
        copier: &Copier,
        scratch: &mut Scratch,
    ) -> Progress {
        let progress = self.in_bursts(count, scratch, Receiving { room, longest, copier });
        // SAFETY: sources were looked up in the guest's memory, which this ring keeps, and targets
        // are buffers that were just taken; each is valid for its length.
        unsafe { copier.copy_batch(&scratch.parts) };
        progress
    }
}

#[cfg(test)]
mod tests;
