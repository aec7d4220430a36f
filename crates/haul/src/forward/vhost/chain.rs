//! A chain of descriptors of the guest's, followed with every check: what the fast paths of
//! [`enqueue`](super::enqueue) and [`dequeue`](super::dequeue) do not take.

use std::ptr::NonNull;

use super::super::copy::Part;
use super::super::ring::split::{DESCRIPTOR_BYTES, Descriptor, INDIRECT, NEXT, WRITE};
use super::device::Active;

/// Bytes of the guest's memory that lie together here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) at: NonNull<u8>,
    pub(super) length: usize,
}

/// The chain is no good: it loops, is too long, lies outside the guest's memory, or has descriptors
/// of the wrong kind. It ends here; what the guest gets back of it is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bad;

/// Longest chain that is followed: a packet of 64 KiB in pieces of a page, and its header, many
/// times over. A chain of a device may have as many descriptors as the ring, which is less.
const LENGTH_MAX: u32 = 1024;

/// Most bytes of a chain that are looked at: 1 MiB; the longest packet has a hundredth of it.
const BYTES_MAX: usize = 1 << 20;

impl Active {
    /// Appends the pieces of the chain that begins with `head` to `pieces`, and says how many bytes
    /// they have. `writes` says which kind of descriptors it has to be of.
    ///
    /// # Errors
    /// [`Bad`]; `pieces` is then as it was.
    #[cold]
    pub(super) fn gather(
        &mut self,
        head: u16,
        writes: bool,
        pieces: &mut Vec<Piece>,
    ) -> Result<usize, Bad> {
        let before = pieces.len();
        let result = self.follow(head, writes, pieces);
        if result.is_err() {
            pieces.truncate(before);
        }
        result
    }

    fn follow(&mut self, head: u16, writes: bool, pieces: &mut Vec<Piece>) -> Result<usize, Bad> {
        if head >= self.ring.size() {
            return Err(Bad);
        }
        let mut descriptor = self.ring.descriptor(head);
        let mut table = None;
        if descriptor.flags & INDIRECT != 0 {
            let (start, count) = self.table(&descriptor)?;
            table = Some((start, count));
            descriptor = at(start, 0);
        }
        let (mut left, mut bytes) = (LENGTH_MAX, 0);
        loop {
            let is_kind = (descriptor.flags & WRITE != 0) == writes;
            if !is_kind || descriptor.flags & INDIRECT != 0 || left == 0 {
                return Err(Bad);
            }
            left -= 1;
            bytes += descriptor.length as usize;
            if bytes > BYTES_MAX {
                return Err(Bad);
            }
            self.place(&descriptor, pieces)?;
            if descriptor.flags & NEXT == 0 {
                return Ok(bytes);
            }
            let next = descriptor.next;
            descriptor = match table {
                Some((start, count)) if next < count => at(start, next),
                None if next < self.ring.size() => self.ring.descriptor(next),
                _ => return Err(Bad),
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
fn at(start: NonNull<u8>, index: u16) -> Descriptor {
    // SAFETY: callers keep the index below the table's count, and the whole table was found in the
    // guest's memory.
    let at = unsafe { start.add(usize::from(index) * DESCRIPTOR_BYTES) };
    // SAFETY: as above; the table's beginning was seen to be aligned.
    unsafe { Descriptor::read(at.cast()) }
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
    pub(super) heads: Vec<u16>,
    pub(super) places: Vec<NonNull<u8>>,
    pub(super) parts: Vec<Part>,
    pub(super) pieces: Vec<Piece>,
}

// SAFETY: the pointers are of one burst, and nothing reads them after it.
unsafe impl Send for Scratch {}

impl Scratch {
    pub(super) fn new(packets: usize) -> Self {
        Self {
            heads: vec![0; packets],
            places: vec![NonNull::dangling(); packets],
            parts: Vec::with_capacity(8 * packets),
            pieces: Vec::with_capacity(64),
        }
    }
}
