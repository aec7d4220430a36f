//! Follows a chain of the guest's descriptors with every check: the slow path of
//! [`enqueue`](super::enqueue) and [`dequeue`](super::dequeue).

use std::ptr::NonNull;

use super::layout::{Bad, Broken, Chain, First, Layout, Walk};
use super::vring::Active;
use crate::copy::Part;
use crate::counters::DropReason;
use crate::packets::GuestMemory;
use crate::ring::split::{DESCRIPTOR_BYTES, Descriptor, INDIRECT, NEXT, WRITE};

/// Contiguous bytes of the guest's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) at: NonNull<u8>,
    pub(super) length: usize,
}

/// Longest chain that is followed: far more than a packet of 64 KiB in pieces of a page, and its
/// header. A driver's chain may have as many descriptors as the ring, which usually has fewer
/// than this.
const LENGTH_MAX: u32 = 1024;

/// The number of followed descriptors after which a call starts no further chain: the remaining
/// chains wait for the next call. Including the last packet, such a call needs about 0.1 ms;
/// without a limit, a ring of 32,768 such chains needed 0.3 s. A burst of 32 packets may have 256
/// descriptors each.
const FOLLOWED_MAX: usize = 8192;

/// The largest number of descriptors per packet, over all of its chains: 256 chains, the limit of
/// `enqueue`, of eight descriptors each.
pub(super) const PACKET_DESCRIPTORS_MAX: usize = 2048;

/// The largest number of bytes per chain: 1 MiB, about a hundred times the longest packet.
const BYTES_MAX: usize = 1 << 20;

/// A chain that was followed to its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gathered<P> {
    pub(super) chain: Chain,
    /// The number of bytes of its pieces.
    pub(super) bytes: Result<usize, Bad>,
    /// The location behind the chain.
    pub(super) next: P,
}

impl<L: Layout, M: GuestMemory> Active<L, M> {
    /// Appends the pieces of the chain at a location to `pieces`; `None` if no chain is available
    /// there. `writes` selects the required kind of descriptors. For a [`Bad`] chain, `pieces`
    /// stays unchanged.
    ///
    /// This function and those of the layout are inlined, so that a chain is followed in registers.
    /// Returned through memory, in small stores that are read by larger loads, it waited for the
    /// stores of the last packet's copy: packets of 2500 and 4000 B from testpmd passed at 1.11 and
    /// 1.05 of DPDK's rate, and pass at 1.26
    /// (`bench/record/2026-11-28-emerald-rapids-2cpu-forward-turns`).
    ///
    /// # Errors
    /// [`Broken`].
    #[inline(always)]
    pub(super) fn gather(
        &mut self,
        location: L::Location,
        writes: bool,
        pieces: &mut Vec<Piece>,
    ) -> Result<Option<Gathered<L::Location>>, Broken> {
        let Some(mut walk) = self.ring.open(location)? else { return Ok(None) };
        let before = pieces.len();
        let (bytes, descriptors) = self.follow(&mut walk, writes, pieces);
        if bytes.is_err() {
            pieces.truncate(before);
        }
        let (chain, next) = self.ring.close(location, &walk)?;
        self.followed += descriptors.max(usize::from(chain.descriptors));
        Ok(Some(Gathered { chain, bytes, next }))
    }

    /// Whether another chain may be followed in this call.
    pub(super) fn may_follow(&self) -> bool {
        self.followed < FOLLOWED_MAX
    }

    /// The number of bytes in the chain, and the number of descriptors that were followed.
    #[inline(always)]
    fn follow(
        &mut self,
        walk: &mut Walk,
        writes: bool,
        pieces: &mut Vec<Piece>,
    ) -> (Result<usize, Bad>, usize) {
        let mut left = LENGTH_MAX;
        let bytes = self.follow_up_to(&mut left, walk, writes, pieces);
        (bytes, 1 + (LENGTH_MAX - left) as usize)
    }

    #[inline(always)]
    fn follow_up_to(
        &mut self,
        left: &mut u32,
        walk: &mut Walk,
        writes: bool,
        pieces: &mut Vec<Piece>,
    ) -> Result<usize, Bad> {
        if !self.ring.has_id(walk.id) {
            return Err(Bad);
        }
        let mut descriptor = walk.descriptor;
        let mut table = None;
        if descriptor.flags & INDIRECT != 0 {
            let (start, count) = self.table(&descriptor)?;
            table = Some((start, count));
            descriptor = at::<L>(start, 0);
        }
        let (mut bytes, mut number) = (0, 0);
        loop {
            // DPDK's driver marks the header in a packed ring's table as one to write, although the
            // device reads it (vring_desc_init_indirect_packed).
            let is_marked = L::HAS_PACKED_TABLES
                && !writes
                && number == 0
                && table.is_some_and(|(_, count)| count > 1);
            let is_kind = is_marked || (descriptor.flags & WRITE != 0) == writes;
            if !is_kind || descriptor.flags & INDIRECT != 0 || *left == 0 {
                return Err(Bad);
            }
            *left -= 1;
            bytes += descriptor.length as usize;
            if bytes > BYTES_MAX {
                return Err(Bad);
            }
            self.append_pieces(&descriptor, pieces)?;
            number += 1;
            // The descriptors of a packed ring's table are consecutive, regardless of their flags.
            let goes_on = match table {
                Some((_, count)) if L::HAS_PACKED_TABLES => number < count,
                _ => descriptor.flags & NEXT != 0,
            };
            if !goes_on {
                return Ok(bytes);
            }
            descriptor = match table {
                Some((start, _)) if L::HAS_PACKED_TABLES => at::<L>(start, number),
                Some((start, count)) if descriptor.next < count => at::<L>(start, descriptor.next),
                Some(_) => return Err(Bad),
                None => {
                    self.ring.step(walk)?;
                    walk.descriptor
                }
            };
        }
    }

    /// The address of an indirect table, and the number of its descriptors.
    #[inline]
    fn table(&mut self, descriptor: &Descriptor) -> Result<(NonNull<u8>, u16), Bad> {
        let bytes = descriptor.length as usize;
        let count = bytes / DESCRIPTOR_BYTES;
        let is_whole = bytes.is_multiple_of(DESCRIPTOR_BYTES) && count > 0;
        // A table, and thus a chain in it, has at most as many descriptors as the ring, section
        // 2.7.5.3.1.
        if !self.has_indirect || descriptor.flags & NEXT != 0 || !is_whole || count > 32_768 {
            return Err(Bad);
        }
        let start =
            self.memory.at(&mut self.cached, descriptor.address, bytes as u64).ok_or(Bad)?;
        if !start.cast::<u64>().is_aligned() {
            return Err(Bad);
        }
        Ok((start, count as u16))
    }

    /// Appends the pieces of a descriptor: one, or several if it spans adjacent regions.
    #[inline]
    fn append_pieces(
        &mut self,
        descriptor: &Descriptor,
        pieces: &mut Vec<Piece>,
    ) -> Result<(), Bad> {
        let (mut address, mut left) = (descriptor.address, u64::from(descriptor.length));
        while left > 0 {
            let here = self.memory.at(&mut self.cached, address, left);
            let (at, bytes) = match here {
                Some(at) => (at, left),
                None => self.memory.part(&mut self.cached, address).ok_or(Bad)?,
            };
            let length = bytes.min(left);
            pieces.push(Piece { at, length: length as usize });
            left -= length;
            address = address.checked_add(length).ok_or(Bad)?;
        }
        Ok(())
    }
}

/// The descriptor of this index in an indirect table.
fn at<L: Layout>(start: NonNull<u8>, index: u16) -> Descriptor {
    // SAFETY: callers keep the index below the table's count, and the whole table was found in the
    // guest's memory.
    let at = unsafe { start.add(usize::from(index) * DESCRIPTOR_BYTES) };
    // SAFETY: as above; the table's beginning was checked to be aligned.
    let descriptor = unsafe { Descriptor::read(at.cast()) };
    // A packed ring's table holds flags where a split ring's table holds `next`.
    let flags = if L::HAS_PACKED_TABLES { descriptor.next } else { descriptor.flags };
    Descriptor { flags, ..descriptor }
}

/// Walks two lists of pieces in parallel, and calls `act` with each run of bytes that lies in one
/// piece of either list, until one list ends. Skips the first `skip` bytes of the first list.
pub(super) fn zip(
    first: impl IntoIterator<Item = (NonNull<u8>, usize)>,
    skip: usize,
    second: impl IntoIterator<Item = (NonNull<u8>, usize)>,
    mut act: impl FnMut(NonNull<u8>, NonNull<u8>, usize),
) {
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let (mut a, mut b) = ((NonNull::dangling(), 0), (NonNull::dangling(), 0));
    let mut skip = skip;
    loop {
        while a.1 == 0 {
            let Some((at, length)) = first.next() else { return };
            let here = skip.min(length);
            skip -= here;
            // SAFETY: `here` is at most the piece's length.
            a = (unsafe { at.add(here) }, length - here);
        }
        while b.1 == 0 {
            let Some(piece) = second.next() else { return };
            b = piece;
        }
        let length = a.1.min(b.1);
        act(a.0, b.0, length);
        // SAFETY: `length` is at most the piece's length.
        a = (unsafe { a.0.add(length) }, a.1 - length);
        // SAFETY: as above.
        b = (unsafe { b.0.add(length) }, b.1 - length);
    }
}

/// Reusable space for one burst, so that no burst allocates.
#[derive(Debug)]
pub(super) struct Scratch {
    pub(super) firsts: Vec<First>,
    pub(super) targets: Vec<NonNull<u8>>,
    pub(super) parts: Vec<Part>,
    pub(super) pieces: Vec<Piece>,
    /// The reason for each drop in the burst. The drops are counted after the burst.
    pub(super) drops: Vec<DropReason>,
}

// SAFETY: the pointers belong to one burst, and nothing reads them after it.
unsafe impl Send for Scratch {}

impl Scratch {
    pub(super) fn new(packets: usize) -> Self {
        Self {
            firsts: vec![First::default(); packets],
            targets: vec![NonNull::dangling(); packets],
            parts: Vec::with_capacity(8 * packets),
            pieces: Vec::with_capacity(64),
            drops: Vec::with_capacity(packets),
        }
    }
}
