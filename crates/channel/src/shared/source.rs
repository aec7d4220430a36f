//! What is sent: one slice, or several that make one message.

use std::io::IoSlice;

use haul_copy::Hint;

use super::checksum::{SUM_BYTES, Sum};
use super::header::SumState;
use haul_peer::region::Region;

/// The bytes of a message, and how far they have been taken.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    parts: Parts<'a>,
    /// Bytes of the whole message.
    length: u64,
    part: usize,
    within: usize,
    /// Bytes taken.
    offset: u64,
    /// The checksum of the first bytes, where one is asked for, and how many those are.
    sum: Option<Sum>,
    summed: u64,
}

/// Where a walk over the parts has come to: so that what follows need not begin at the first.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Walk {
    part: usize,
    /// Bytes before that part.
    start: u64,
}

#[derive(Debug)]
enum Parts<'a> {
    One([IoSlice<'a>; 1]),
    Many(&'a [IoSlice<'a>]),
}

impl<'a> Source<'a> {
    pub(crate) fn one(bytes: &'a [u8]) -> Self {
        Self::new(Parts::One([IoSlice::new(bytes)]))
    }

    pub(crate) fn many(parts: &'a [IoSlice<'a>]) -> Self {
        Self::new(Parts::Many(parts))
    }

    fn new(parts: Parts<'a>) -> Self {
        let all = match &parts {
            Parts::One(one) => &one[..],
            Parts::Many(many) => many,
        };
        // Parts may be the same bytes many times over.
        let length = all.iter().fold(0, |sum: u64, part| sum.saturating_add(part.len() as u64));
        Self { parts, length, part: 0, within: 0, offset: 0, sum: None, summed: 0 }
    }

    /// From here on a checksum is kept.
    pub(crate) fn begin_sum(&mut self) {
        self.sum = Some(Sum::default());
    }

    /// The checksum is this, of bytes that are not here.
    pub(crate) fn set_sum(&mut self, sum: Sum) {
        self.sum = Some(sum);
    }

    /// Whether the first so many bytes are in the checksum, if one is kept.
    pub(crate) fn is_summed_to(&self, offset: u64) -> bool {
        self.sum.is_none() || self.summed >= offset
    }

    /// What is known of the checksum.
    pub(crate) fn sum(&self) -> SumState {
        match self.sum {
            None => SumState::None,
            Some(sum) if self.summed == self.length() => SumState::Known(sum),
            Some(_) => SumState::Due,
        }
    }

    /// Adds the next bytes to the checksum, some 0.1 ms of them, where they go another way than
    /// through here.
    pub(crate) fn sum_some(&mut self) {
        let left = self.length() - self.summed;
        self.seek(self.summed);
        self.pass(left.min(SUM_BYTES as u64) as usize);
    }

    pub(crate) fn parts(&self) -> &[IoSlice<'a>] {
        match &self.parts {
            Parts::One(one) => one,
            Parts::Many(many) => many,
        }
    }

    /// Bytes of the whole message.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Takes the next `length` bytes and copies them into shared memory at `offset`.
    pub(crate) fn write_to(&mut self, region: &Region, offset: usize, length: usize, hint: Hint) {
        self.take(length, |at, piece, sum| match sum {
            Some((sum, place)) => {
                sum.write(place, (region, offset + at), piece, hint == Hint::Streamed)
            }
            None => region.write(offset + at, piece, hint),
        });
    }

    /// Takes the next `length` bytes and copies them into `target`.
    pub(crate) fn copy_to(&mut self, target: &mut [u8], hint: Hint) {
        let length = target.len();
        self.take(length, |at, piece, sum| {
            hint.copy(&mut target[at..at + piece.len()], piece);
            if let Some((sum, place)) = sum {
                sum.add(place, piece);
            }
        });
    }

    /// Leaves out what has arrived another way: the next byte is the one at `offset`. No byte is
    /// added to the checksum twice, and none that is passed over is.
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

    /// The parts of the `length` bytes from `offset` on, as many as `parts_max`; how far the bytes
    /// have been taken does not matter and does not change. The walk is where the call before it,
    /// of a lower offset, ended.
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

    /// Takes bytes that go another way than through here.
    fn pass(&mut self, length: usize) {
        self.take(length, |_, piece, sum| {
            if let Some((sum, place)) = sum {
                sum.add(place, piece);
            }
        });
    }

    /// Calls `each` with the place in this taking and the bytes, part by part, and with the
    /// checksum that the bytes are to be added to, and their place in the message.
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
    fn parts_are_taken_in_order_whatever_the_cuts() {
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
    fn a_walk_goes_on_where_it_ended_and_back_if_it_must() {
        let bytes: Vec<u8> = (0..240).collect();
        let parts: Vec<IoSlice<'_>> = bytes.chunks(3).map(IoSlice::new).collect();
        let source = Source::many(&parts);
        let mut walk = Walk::default();
        let mut offset = 0;
        while offset < 240 {
            let slices = source.slices(&mut walk, offset as u64, 240, 7).concat();
            assert_eq!(slices, bytes[offset..240.min(offset + 21)]);
            assert_eq!(walk.part, offset / 3, "each part is looked at once");
            offset += slices.len();
        }
        assert!(source.slices(&mut walk, 240, 9, 7).is_empty());
        assert_eq!(source.slices(&mut walk, 4, 3, 7).concat(), [4, 5, 6]);
    }
}
