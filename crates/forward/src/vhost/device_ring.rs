//! A ring of a device that another program manages, such as DPDK's vhost library. The program
//! keeps the progress of the ring between two bursts, calls the guest, and handles every packet
//! that is not a plain copy into one buffer or from one.

use std::ptr::NonNull;
use std::sync::Arc;

use super::chain::Scratch;
use super::enqueue::{self, Fast};
use super::layout::Layout;
use super::layout::packed::PackedRing;
use super::layout::split::SplitRing;
use super::vring::Active;
use crate::copy::{Copier, CopyMethod};
use crate::packets::{GuestMemory, Incoming, Outgoing};
use crate::pool::BURST_MAX;
use crate::ring::features;
use crate::ring::packed::{self, Packed};
use crate::ring::split::{self, Split};

/// One ring of a device that another program manages.
///
/// A burst has three steps: [`DeviceRing::resume`] at the program's progress,
/// [`DeviceRing::enqueue`] or [`DeviceRing::dequeue`], and [`DeviceRing::publish`], whose result
/// is the program's new progress. The guest is hostile: each of its words is read once and
/// checked before it is used.
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
    /// Whether the burst stopped at a packet or chain that needs more than a copy into one buffer
    /// or from one: the program must go on there. Otherwise the ring has no further chain, or the
    /// burst is complete.
    pub is_stopped: bool,
}

/// The result of [`DeviceRing::publish`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// The program's new progress, in the encoding of [`DeviceRing::resume`].
    pub next: u16,
    /// Whether the guest may want a call, which the program then decides. False only if the guest
    /// has certainly said that it wants none.
    pub may_want_call: bool,
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
    /// The guest sees them after [`DeviceRing::publish`].
    #[inline]
    pub fn enqueue(&mut self, packets: &impl Outgoing, count: usize) -> Progress {
        let Self { active, copier, scratch } = self;
        match active {
            AnyActive::Split(active) => active.enqueue_plain(packets, count, copier, scratch),
            AnyActive::Packed(active) => active.enqueue_plain(packets, count, copier, scratch),
        }
    }

    /// Receives up to `count` packets of the guest, each of at most `longest` bytes. The guest
    /// sees the used chains after [`DeviceRing::publish`].
    #[inline]
    pub fn dequeue(&mut self, room: &mut impl Incoming, longest: usize, count: usize) -> Progress {
        let Self { active, copier, scratch } = self;
        match active {
            AnyActive::Split(active) => {
                active.dequeue_plain(room, (longest, count), copier, scratch)
            }
            AnyActive::Packed(active) => {
                active.dequeue_plain(room, (longest, count), copier, scratch)
            }
        }
    }

    /// Publishes the used chains to the guest. `None` if no chain was used.
    #[inline]
    pub fn publish(&mut self) -> Option<Published> {
        let (next, may_want_call) = match &mut self.active {
            AnyActive::Split(Active { ring, .. }) => {
                ring.publish_only().then(|| (ring.next(), ring.may_want_call()))
            }
            AnyActive::Packed(Active { ring, .. }) => {
                ring.publish_only().then(|| (ring.next(), true))
            }
        }?;
        Some(Published { next, may_want_call })
    }
}

impl<L: Layout, M: GuestMemory> Active<L, M> {
    /// Polls the ring and calls `fast` with the number of packets before these and the number of
    /// chains, until `count` packets are done, or one is not.
    #[inline(always)]
    fn in_bursts(
        &mut self,
        count: usize,
        scratch: &mut Scratch,
        mut fast: impl FnMut(&mut Self, usize, usize, &mut Scratch) -> Fast,
    ) -> Progress {
        scratch.parts.clear();
        let (mut done, mut is_stopped) = (0, false);
        while done < count {
            let wanted = (count - done).min(scratch.firsts.len());
            let Ok(ready) = self.ring.poll(&mut scratch.firsts[..wanted]) else {
                is_stopped = true;
                break;
            };
            let fast = fast(self, done, ready, scratch);
            done += fast.packets;
            is_stopped = fast.packets < ready;
            if fast.packets < wanted {
                break;
            }
        }
        Progress { packets: done, is_stopped }
    }

    #[inline]
    fn enqueue_plain(
        &mut self,
        packets: &impl Outgoing,
        count: usize,
        copier: &Copier,
        scratch: &mut Scratch,
    ) -> Progress {
        let progress = self.in_bursts(count, scratch, |active, done, ready, scratch| {
            active.enqueue_fast(packets, done, ready, scratch)
        });
        // SAFETY: sources are the caller's packets, and targets were looked up in the guest's
        // memory, which this ring keeps; each is valid for its length.
        unsafe { enqueue::copy(copier, &scratch.parts) };
        progress
    }

    #[inline]
    fn dequeue_plain(
        &mut self,
        room: &mut impl Incoming,
        (longest, count): (usize, usize),
        copier: &Copier,
        scratch: &mut Scratch,
    ) -> Progress {
        let progress = self.in_bursts(count, scratch, |active, _, ready, scratch| {
            active.dequeue_fast(room, longest, ready, scratch)
        });
        // SAFETY: sources were looked up in the guest's memory, which this ring keeps, and targets
        // are buffers that were just taken; each is valid for its length.
        unsafe { copier.copy_batch(&scratch.parts) };
        progress
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Segment;

    /// A guest's memory: addresses are offsets.
    #[derive(Debug)]
    struct Flat(NonNull<u8>, u64);

    // SAFETY: the bytes are never freed.
    unsafe impl GuestMemory for Flat {
        type Cached = ();

        fn at(&self, _: &mut (), guest: u64, bytes: u64) -> Option<NonNull<u8>> {
            let is_inside = guest < self.1 && bytes <= self.1 - guest;
            // SAFETY: inside the bytes.
            is_inside.then(|| unsafe { self.0.add(guest as usize) })
        }
    }

    struct Packets(Vec<Vec<u8>>);

    // SAFETY: the vectors are not changed.
    unsafe impl Outgoing for Packets {
        fn length(&self, index: usize) -> usize {
            self.0[index].len()
        }

        fn is_one(&self, index: usize) -> bool {
            self.0[index][0] != 0xEE
        }

        fn first(&self, index: usize) -> Segment {
            let bytes = &self.0[index];
            Segment { pointer: NonNull::from(&bytes[0]), length: bytes.len() }
        }
    }

    struct Room(Vec<Box<[u8]>>, usize);

    // SAFETY: the boxes do not move their bytes.
    unsafe impl Incoming for Room {
        const CHECKS_HEADERS: bool = true;

        fn take(&mut self, length: usize) -> Option<NonNull<u8>> {
            if self.0.len() == self.1 {
                return None;
            }
            self.0.push(vec![0; length].into());
            self.0.last_mut().map(|bytes| NonNull::from(&mut bytes[0]))
        }
    }

    fn zeros(bytes: usize) -> NonNull<u8> {
        NonNull::new(vec![0_u64; bytes.div_ceil(8) + 1].leak().as_mut_ptr().cast()).unwrap()
    }

    const BUFFER: u64 = 256;

    /// A device's ring of 8, the driver's side of the same ring, and the guest's memory.
    fn ring() -> (DeviceRing<Flat>, Split, NonNull<u8>) {
        let areas = split::area_bytes(8).map(|bytes| zeros(bytes as usize + 16));
        // The descriptors are aligned to 16.
        let areas = areas.map(|at| {
            // SAFETY: there are 16 more bytes.
            unsafe { at.add(at.as_ptr().align_offset(16)) }
        });
        let memory = zeros(8 * BUFFER as usize);
        let flat = Flat(memory, 8 * BUFFER);
        // SAFETY: the areas are never freed.
        let ring =
            unsafe { DeviceRing::new(areas, 8, features::VERSION_1, flat, CopyMethod::Haul) };
        // SAFETY: as above.
        (ring.unwrap(), unsafe { Split::new(areas, 8) }, memory)
    }

    fn offer(driver: &Split, at: u16, flags: u16, length: u32) {
        let address = u64::from(at) * BUFFER;
        driver.set_descriptor(at, split::Descriptor { address, length, flags, next: 0 });
        driver.put_available(at, at);
        driver.publish_available(at + 1);
    }

    fn bytes(memory: NonNull<u8>, at: usize, length: usize) -> Vec<u8> {
        // SAFETY: inside the guest's memory, which nothing writes meanwhile.
        let slice = unsafe { std::slice::from_raw_parts(memory.as_ptr().wrapping_add(at), length) };
        slice.to_vec()
    }

    #[test]
    fn enqueue_stops_at_packet_that_needs_more_than_a_copy() {
        let (mut ring, driver, memory) = ring();
        (0..4).for_each(|at| offer(&driver, at, split::WRITE, BUFFER as u32));
        let mut packets = vec![vec![1; 60], vec![2; 60], vec![3; 60]];
        packets.push(vec![0xEE; 60]);
        assert!(ring.resume(0));
        let progress = ring.enqueue(&Packets(packets), 4);
        assert_eq!(progress, Progress { packets: 3, is_stopped: true });
        assert_eq!(driver.used_index(), 0);
        assert_eq!(ring.publish(), Some(Published { next: 3, may_want_call: true }));
        driver.set_driver_polls();
        assert_eq!((driver.used_index(), driver.used(2)), (3, (2, 72)));
        assert_eq!(bytes(memory, 512 + 12, 60), [3; 60]);
        assert_eq!(bytes(memory, 512, 12), features::header(1));
        assert!(ring.resume(3));
        // The buffer of another direction, one that is too small, one outside the memory.
        for (at, flags, length) in [(3, 0, 256), (4, split::WRITE, 71), (15, split::WRITE, 256)] {
            assert!(ring.resume(at));
            offer(&driver, at, flags, length);
            let progress = ring.enqueue(&Packets(vec![vec![4; 60]]), 1);
            assert_eq!(progress, Progress { packets: 0, is_stopped: true }, "{at}");
            assert_eq!(ring.publish(), None);
        }
        let more = ring.resume(3);
        driver.publish_available(3);
        assert!(more && !ring.enqueue(&Packets(vec![vec![4; 60]]), 1).is_stopped);
        driver.publish_available(40);
        let broken = ring.enqueue(&Packets(vec![vec![4; 60]]), 1);
        assert_eq!(broken, Progress { packets: 0, is_stopped: true });
    }

    #[test]
    fn dequeue_stops_at_offload_and_without_buffer() {
        let (mut ring, driver, memory) = ring();
        for at in 0..4_u16 {
            offer(&driver, at, 0, 72);
            // SAFETY: inside the guest's memory.
            unsafe { memory.as_ptr().wrapping_add(usize::from(at) * 256 + 12).write(at as u8) };
        }
        // The third packet's header asks for a checksum.
        // SAFETY: inside the guest's memory.
        unsafe { memory.as_ptr().wrapping_add(512).write(1) };
        let mut room = Room(Vec::new(), 1);
        assert!(ring.resume(0));
        assert_eq!(ring.dequeue(&mut room, 2048, 4), Progress { packets: 1, is_stopped: true });
        room.1 = 4;
        assert_eq!(ring.dequeue(&mut room, 2048, 4), Progress { packets: 1, is_stopped: true });
        driver.set_driver_polls();
        let published = Published { next: 2, may_want_call: false };
        assert_eq!((ring.publish(), driver.used_index()), (Some(published), 2));
        assert_eq!(room.0.iter().map(|packet| packet[0]).collect::<Vec<_>>(), [0, 1]);
        assert!(ring.resume(3));
        assert_eq!(ring.dequeue(&mut room, 59, 4), Progress { packets: 0, is_stopped: true });
        assert_eq!(ring.dequeue(&mut room, 60, 4), Progress { packets: 1, is_stopped: false });
        assert_eq!(ring.dequeue(&mut room, 60, 4), Progress { packets: 0, is_stopped: false });
        assert_eq!(room.0.last().map(|packet| (packet[0], packet.len())), Some((3, 60)));
    }

    #[test]
    fn new_refuses_impossible_rings() {
        let areas = [(); 3].map(|()| zeros(4096));
        let new = |size, features| {
            let flat = Flat(areas[0], 8);
            // SAFETY: the areas are large enough and never freed.
            unsafe { DeviceRing::new(areas, size, features, flat, CopyMethod::Haul) }.is_some()
        };
        assert!(!new(0, 0) && !new(3, 0) && !new(0, features::PACKED));
        assert!(!new(32_769, features::PACKED) && !new(65_535, 0));
    }
}
