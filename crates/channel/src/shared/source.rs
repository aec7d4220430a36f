//! The bytes of a message to send: one slice, or several.

use std::io::IoSlice;
use std::sync::Arc;

use haul_copy::Hint;

use super::beside::{BYTES_MIN, Beside};
use super::checksum::{SUM_BYTES, Sum};
use super::header::SumState;
use haul_peer::region::Region;

/// The bytes of a message, and the number of bytes that were read.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    parts: Parts<'a>,
    /// The size of the whole message in bytes.
    length: u64,
    part: usize,
    within: usize,
    /// The number of bytes read.
    offset: u64,
    /// The checksum of the first `summed` bytes; `None` for a message without a checksum.
    sum: Option<Sum>,
    summed: u64,
}

/// The position of a walk over the parts, so that the next call need not begin at the first part.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Walk {
    part: usize,
    /// The offset of this part in bytes.
    start: u64,
}

#[derive(Debug)]
enum Parts<'a> {
    One([IoSlice<'a>; 1]),
    Many(&'a [IoSlice<'a>]),
    /// The slice is of these bytes, which do not change and do not move while the `Arc` exists.
    Shared([IoSlice<'a>; 1], Arc<Vec<u8>>),
}

impl<'a> Source<'a> {
    pub(crate) fn one(bytes: &'a [u8]) -> Self {
        Self::new(Parts::One([IoSlice::new(bytes)]))
    }

    /// Bytes that an engine may copy while the caller does something else.
    pub(crate) fn shared(bytes: Arc<Vec<u8>>) -> Self {
        // SAFETY: the slice is readable and constant while the `Arc` exists, which is beside it in
        // the same value. No code copies the slice out of it.
        let all = unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) };
        Self::new(Parts::Shared([IoSlice::new(all)], bytes))
    }

    pub(crate) fn many(parts: &'a [IoSlice<'a>]) -> Self {
        Self::new(Parts::Many(parts))
    }

    fn new(parts: Parts<'a>) -> Self {
        let all = match &parts {
            Parts::One(one) | Parts::Shared(one, _) => &one[..],
            Parts::Many(many) => many,
        };
        // Several parts may be the same bytes, so the sum can overflow.
        let length = all.iter().fold(0, |sum: u64, part| sum.saturating_add(part.len() as u64));
        Self { parts, length, part: 0, within: 0, offset: 0, sum: None, summed: 0 }
    }

    /// Computes a checksum from now on.
    pub(crate) fn begin_sum(&mut self) {
        self.sum = Some(Sum::default());
    }

    /// Sets the checksum of bytes that are not in this source.
    pub(crate) fn set_sum(&mut self, sum: Sum) {
        self.sum = Some(sum);
    }

    /// Whether the checksum, if there is one, includes the first `offset` bytes.
    pub(crate) fn is_summed_to(&self, offset: u64) -> bool {
        self.sum.is_none() || self.summed >= offset
    }

    /// The state of the checksum.
    pub(crate) fn sum(&self) -> SumState {
        match self.sum {
            None => SumState::None,
            Some(sum) if self.summed == self.length() => SumState::Known(sum),
            Some(_) => SumState::Due,
        }
    }

    /// Adds the next bytes to the checksum, which is about 0.1 ms of work, for a mechanism that
    /// does not read these bytes here.
    pub(crate) fn sum_some(&mut self) {
        let left = self.length() - self.summed;
        self.seek(self.summed);
        self.pass(left.min(SUM_BYTES as u64) as usize);
    }

    pub(crate) fn parts(&self) -> &[IoSlice<'a>] {
        match &self.parts {
            Parts::One(one) | Parts::Shared(one, _) => one,
            Parts::Many(many) => many,
        }
    }

    /// The bytes of [`shared`](Self::shared).
    pub(crate) fn shared_bytes(&self) -> Option<&Arc<Vec<u8>>> {
        match &self.parts {
            Parts::Shared(_, bytes) => Some(bytes),
            Parts::One(_) | Parts::Many(_) => None,
        }
    }

    /// Bytes of the whole message.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Reads the next `length` bytes and copies them into shared memory at `offset`, together with
    /// the engine if there is one.
    pub(crate) fn write_to(
        &mut self,
        region: &Region,
        offset: usize,
        length: usize,
        hint: Hint,
        beside: Option<&Beside>,
    ) {
        let beside = |piece: &[u8]| beside.filter(|_| piece.len() >= BYTES_MIN);
        self.take(length, |at, piece, sum| match (sum, beside(piece)) {
            (Some((sum, place)), _) => {
                sum.write(place, (region, offset + at), piece, hint == Hint::Streamed)
            }
            (None, Some(beside)) => beside.write(region, offset + at, piece, hint),
            (None, None) => region.write(offset + at, piece, hint),
        });
    }

    /// Reads the next bytes and copies them into `target`.
    pub(crate) fn copy_to(&mut self, target: &mut [u8], hint: Hint) {
        let length = target.len();
        self.take(length, |at, piece, sum| {
            hint.copy(&mut target[at..at + piece.len()], piece);
            if let Some((sum, place)) = sum {
                sum.add(place, piece);
            }
        });
    }

    /// Makes the byte at `offset` the next byte to read, after another mechanism moved the bytes
    /// before it. No byte is added to the checksum twice, and skipped bytes are not added.
    pub(crate) fn seek(&mut self, offset: u64) {
        if offset < self.offset {
            (self.part, self.within, self.offset) = (0, 0, 0);
        }
        let mut left = offset - self.offset;
        while left > 0 {
            let rest = (self.parts()[self.part].len() - self.within) as u64;
            if left < rest {
                self.within += left as usize;
                break;
            }
            (self.part, self.within, left) = (self.part + 1, 0, left - rest);
        }
        self.offset = offset;
    }

    /// The parts of the `length` bytes from `offset` on, at most `parts_max`. The position of the
    /// source neither matters nor changes. `walk` is the result of an earlier call with a lower
    /// offset.
    pub(crate) fn slices(
        &self,
        walk: &mut Walk,
        offset: u64,
        length: usize,
        parts_max: usize,
    ) -> Vec<&[u8]> {
        if walk.start > offset {
            *walk = Walk::default();
        }
        while let Some(part) = self.parts().get(walk.part)
            && walk.start + part.len() as u64 <= offset
        {
            *walk = Walk { part: walk.part + 1, start: walk.start + part.len() as u64 };
        }
        let parts = &self.parts()[walk.part..];
        let (mut start, mut left) = ((offset - walk.start) as usize, length);
        let mut slices = Vec::with_capacity(parts.len().min(parts_max));
        for part in parts {
            if left == 0 || slices.len() == parts_max {
                break;
            }
            let slice = &part[start..][..(part.len() - start).min(left)];
            (start, left) = (0, left - slice.len());
            if !slice.is_empty() {
                slices.push(slice);
            }
        }
        slices
    }

    /// Skips bytes that another mechanism moves, and adds them to the checksum.
    fn pass(&mut self, length: usize) {
        self.take(length, |_, piece, sum| {
            if let Some((sum, place)) = sum {
                sum.add(place, piece);
            }
        });
    }

    /// Reads `length` bytes part by part. Calls `each` with the offset within these bytes, the
    /// bytes, and, if they are to be added to a checksum, the checksum with their offset in the
    /// message.
    fn take(&mut self, length: usize, mut each: impl FnMut(usize, &[u8], Option<(&mut Sum, u64)>)) {
        let mut done = 0;
        let mut sum = self.sum;
        while done < length {
            let (part, within) = (self.part, self.within);
            let rest = &self.parts()[part][within..];
            let mut piece = &rest[..rest.len().min(length - done)];
            let known = self.summed.saturating_sub(self.offset);
            if sum.is_some() && known > 0 {
                piece = &piece[..piece.len().min(usize::try_from(known).unwrap_or(usize::MAX))];
            }
            let sum = sum.as_mut().filter(|_| known == 0).map(|sum| (sum, self.offset));
            each(done, piece, sum);
            let (taken, is_last) = (piece.len(), piece.len() == rest.len());
            done += taken;
            self.offset += taken as u64;
            self.summed = self.summed.max(self.offset);
            if is_last {
                (self.part, self.within) = (part + 1, 0);
            } else {
                self.within += taken;
            }
        }
        self.sum = sum;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_in_order_with_any_cut() {
        let bytes: Vec<u8> = (0..=255).collect();
        let parts = [&bytes[..0], &bytes[..100], &bytes[100..100], &bytes[100..255], &bytes[255..]]
            .map(IoSlice::new);
        for cut in [1, 7, 100, 256] {
            let mut source = Source::many(&parts);
            assert_eq!(source.length(), 256);
            let mut target = vec![0; 256];
            for piece in target.chunks_mut(cut) {
                source.copy_to(piece, Hint::Unknown);
            }
            assert_eq!(target, bytes, "cut {cut}");
            for (offset, length) in [(0, 256), (0, 3), (99, 3), (254, 2), (100, 156), (255, 1)] {
                let slices = source.slices(&mut Walk::default(), offset, length, 9).concat();
                assert_eq!(slices, bytes[offset as usize..][..length]);
            }
            let slices = source.slices(&mut Walk::default(), 99, 157, 2);
            assert_eq!(slices.concat(), bytes[99..255]);
            source.seek(101);
            let mut one = [0];
            source.copy_to(&mut one, Hint::Unknown);
            assert_eq!(one, [101]);
        }
    }

    #[test]
    fn walk_continues_where_it_ended_and_restarts_for_lower_offset() {
        let bytes: Vec<u8> = (0..240).collect();
        let parts: Vec<IoSlice<'_>> = bytes.chunks(3).map(IoSlice::new).collect();
        let source = Source::many(&parts);
        let mut walk = Walk::default();
        let mut offset = 0;
        while offset < 240 {
            let slices = source.slices(&mut walk, offset as u64, 240, 7).concat();
            assert_eq!(slices, bytes[offset..240.min(offset + 21)]);
            assert_eq!(walk.part, offset / 3, "each part is visited once");
            offset += slices.len();
        }
        assert!(source.slices(&mut walk, 240, 9, 7).is_empty());
        assert_eq!(source.slices(&mut walk, 4, 3, 7).concat(), [4, 5, 6]);
    }
}
