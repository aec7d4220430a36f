//! A chain of descriptors of the guest's, followed with every check: what the fast paths of
//! [`enqueue`](super::enqueue) and [`dequeue`](super::dequeue) do not take.

use std::ptr::NonNull;

use super::super::copy::Part;
use super::super::counters::DropReason;
use super::super::ring::split::{DESCRIPTOR_BYTES, Descriptor, INDIRECT, NEXT, WRITE};
use super::layout::{Bad, Broken, Chain, First, Layout, Walk};
use super::vring::Active;

/// Bytes of the guest's memory that lie together here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) at: NonNull<u8>,
    pub(super) length: usize,
}

/// Longest chain that is followed: a packet of 64 KiB in pieces of a page, and its header, many
/// times over. A chain of a device may have as many descriptors as the ring, which is less.
const LENGTH_MAX: u32 = 1024;

/// Descriptors after which a call follows no other chain: the rest waits for the next call. With
/// those of one packet more, some 0.1 ms; without a limit a ring of 32,768 such chains took 0.3 s.
/// A burst of 32 packets may have 256 descriptors each.
const FOLLOWED_MAX: usize = 8192;

/// Most descriptors of the chains that one packet is written to: as many chains as it may have,
/// with eight each.
pub(super) const PACKET_DESCRIPTORS_MAX: usize = 2048;

/// Most bytes of a chain that are looked at: 1 MiB; the longest packet has a hundredth of it.
const BYTES_MAX: usize = 1 << 20;

/// A chain that was followed to its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gathered<P> {
    pub(super) chain: Chain,
    /// How many bytes its pieces have.
    pub(super) bytes: Result<usize, Bad>,
    /// The place behind it.
    pub(super) next: P,
}

impl<L: Layout> Active<L> {
    /// Appends the pieces of the chain at a place to `pieces`; `None` where none is available.
    /// `writes` says which kind of descriptors it has to be of. Of one that is [`Bad`], `pieces`
    /// has nothing.
    ///
    /// # Errors
    /// [`Broken`].
    #[cold]
    pub(super) fn gather(
        &mut self,
        place: L::Place,
        writes: bool,
        pieces: &mut Vec<Piece>,
    ) -> Result<Option<Gathered<L::Place>>, Broken> {
        let Some(mut walk) = self.ring.open(place)? else { return Ok(None) };
        let before = pieces.len();
        let (bytes, descriptors) = self.follow(&mut walk, writes, pieces);
        if bytes.is_err() {
            pieces.truncate(before);
        }
        let (chain, next) = self.ring.close(place, &walk)?;
        self.followed += descriptors.max(usize::from(chain.descriptors));
        Ok(Some(Gathered { chain, bytes, next }))
    }

    /// Whether another chain may be followed in this call.
    pub(super) fn may_follow(&self) -> bool {
        self.followed < FOLLOWED_MAX
    }

    /// How many bytes the chain has, and descriptors that were followed.
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
            let is_kind = (descriptor.flags & WRITE != 0) == writes;
            if !is_kind || descriptor.flags & INDIRECT != 0 || *left == 0 {
                return Err(Bad);
            }
            *left -= 1;
            bytes += descriptor.length as usize;
            if bytes > BYTES_MAX {
                return Err(Bad);
            }
            self.place(&descriptor, pieces)?;
            number += 1;
            // The descriptors of a packed ring's table follow each other, whatever their flags.
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

    /// Where an indirect table is, and how many descriptors it has.
    fn table(&mut self, descriptor: &Descriptor) -> Result<(NonNull<u8>, u16), Bad> {
        let bytes = descriptor.length as usize;
        let count = bytes / DESCRIPTOR_BYTES;
        let is_whole = bytes.is_multiple_of(DESCRIPTOR_BYTES) && count > 0;
        // A table has no more descriptors than the ring, section 2.7.5.3.1; a chain of it not
        // either.
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

    /// Appends where a descriptor's bytes are: in one piece, or in several where regions adjoin.
    fn place(&mut self, descriptor: &Descriptor, pieces: &mut Vec<Piece>) -> Result<(), Bad> {
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

/// The descriptor of this number in an indirect table.
fn at<L: Layout>(start: NonNull<u8>, index: u16) -> Descriptor {
    // SAFETY: callers keep the index below the table's count, and the whole table was found in the
    // guest's memory.
    let at = unsafe { start.add(usize::from(index) * DESCRIPTOR_BYTES) };
    // SAFETY: as above; the table's beginning was seen to be aligned.
    let descriptor = unsafe { Descriptor::read(at.cast()) };
    // A packed ring has the flags where others have the number of the next.
    let flags = if L::HAS_PACKED_TABLES { descriptor.next } else { descriptor.flags };
    Descriptor { flags, ..descriptor }
}

/// Goes along two lists of pieces at once, and calls `act` with the part that both have together,
/// until one ends. `skip` bytes of the first list are left out.
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
            // SAFETY: no more than the piece's length.
            a = (unsafe { at.add(here) }, length - here);
        }
        while b.1 == 0 {
            let Some(piece) = second.next() else { return };
            b = piece;
        }
        let length = a.1.min(b.1);
        act(a.0, b.0, length);
        // SAFETY: no more than the piece's length.
        a = (unsafe { a.0.add(length) }, a.1 - length);
        // SAFETY: as above.
        b = (unsafe { b.0.add(length) }, b.1 - length);
    }
}

/// Space for one burst, kept so that no burst allocates.
#[derive(Debug)]
pub(super) struct Scratch {
    pub(super) firsts: Vec<First>,
    pub(super) places: Vec<NonNull<u8>>,
    pub(super) parts: Vec<Part>,
    pub(super) pieces: Vec<Piece>,
    /// Why packets of the burst are dropped; counted when the burst has gone through.
    pub(super) drops: Vec<DropReason>,
}

// SAFETY: the pointers are of one burst, and nothing reads them after it.
unsafe impl Send for Scratch {}

impl Scratch {
    pub(super) fn new(packets: usize) -> Self {
        Self {
            firsts: vec![First::default(); packets],
            places: vec![NonNull::dangling(); packets],
            parts: Vec::with_capacity(8 * packets),
            pieces: Vec::with_capacity(64),
            drops: Vec::with_capacity(packets),
        }
    }
}
