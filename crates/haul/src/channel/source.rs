//! What is sent: one slice, or several that make one message.

use std::io::IoSlice;

use haul_copy::Hint;

use super::checksum::Sum;
use super::layout::SumState;
use super::region::Region;

/// Bytes that are added to a checksum at a time, between two looks at the peer.
const SUM_BYTES: u64 = 1 << 20;

/// The bytes of a message, and how far they have been taken.
#[derive(Debug)]
pub(super) struct Source<'a> {
    parts: Parts<'a>,
    part: usize,
    within: usize,
    /// Bytes taken.
    offset: u64,
    /// The checksum of what was taken, where one is asked for.
    sum: Option<Sum>,
}

#[derive(Debug)]
enum Parts<'a> {
    One([IoSlice<'a>; 1]),
    Many(&'a [IoSlice<'a>]),
}

impl<'a> Source<'a> {
    pub(super) fn one(bytes: &'a [u8]) -> Self {
        Self::new(Parts::One([IoSlice::new(bytes)]))
    }

    pub(super) fn many(parts: &'a [IoSlice<'a>]) -> Self {
        Self::new(Parts::Many(parts))
    }

    fn new(parts: Parts<'a>) -> Self {
        Self { parts, part: 0, within: 0, offset: 0, sum: None }
    }

    /// From here on a checksum is kept, beginning with this one.
    pub(super) fn begin_sum(&mut self, sum: Sum) {
        self.sum = Some(sum);
    }

    /// What is known of the checksum.
    pub(super) fn sum(&self) -> SumState {
        match self.sum {
            None => SumState::None,
            Some(sum) if self.offset == self.length() => SumState::Known(sum),
            Some(_) => SumState::Due,
        }
    }

    /// Adds the next bytes to the checksum, some 0.1 ms of them, where they go another way than
    /// through here.
    pub(super) fn sum_some(&mut self) {
        let left = self.length() - self.offset;
        self.pass(left.min(SUM_BYTES) as usize);
    }

    pub(super) fn parts(&self) -> &[IoSlice<'a>] {
        match &self.parts {
            Parts::One(one) => one,
            Parts::Many(many) => many,
        }
    }

    /// Bytes of the whole message.
    pub(super) fn length(&self) -> u64 {
        self.parts().iter().map(|part| part.len() as u64).sum()
    }

    /// Takes the next `length` bytes and copies them into shared memory at `offset`.
    pub(super) fn write_to(&mut self, region: &Region, offset: usize, length: usize, hint: Hint) {
        self.take(length, |at, piece, sum| match sum {
            Some(sum) => region.write_summed(offset + at, piece, hint == Hint::Streamed, sum),
            None => region.write(offset + at, piece, hint),
        });
    }

    /// Takes the next `length` bytes and copies them into `target`.
    pub(super) fn copy_to(&mut self, target: &mut [u8], hint: Hint) {
        let length = target.len();
        self.take(length, |at, piece, sum| {
            haul_copy::copy_hinted(&mut target[at..at + piece.len()], piece, hint);
            if let Some((sum, place)) = sum {
                sum.add(place, piece);
            }
        });
    }

    /// Leaves out what has arrived another way: the next byte is the one at `offset`.
    pub(super) fn seek(&mut self, offset: u64) {
        (self.part, self.within, self.offset) = (0, 0, 0);
        self.sum = self.sum.map(|_| Sum::default());
        let mut left = offset;
        while left > 0 {
            let step = left.min(usize::MAX as u64) as usize;
            self.pass(step);
            left -= step as u64;
        }
    }

    /// The parts of the `length` bytes from `offset` on, as many as `parts_max`; how far the bytes
    /// have been taken does not matter and does not change.
    pub(super) fn slices(&self, offset: u64, length: usize, parts_max: usize) -> Vec<&[u8]> {
        let (mut skip, mut left) = (offset, length);
        let mut slices = Vec::with_capacity(self.parts().len().min(parts_max));
        for part in self.parts() {
            if left == 0 || slices.len() == parts_max {
                break;
            }
            let start = skip.min(part.len() as u64) as usize;
            skip -= start as u64;
            let slice = &part[start..][..(part.len() - start).min(left)];
            left -= slice.len();
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

    /// Calls `each` with the place in this taking and the bytes, part by part, and with the checksum
    /// that the bytes are to be added to, and their place in the message.
    fn take(&mut self, length: usize, mut each: impl FnMut(usize, &[u8], Option<(&mut Sum, u64)>)) {
        let mut done = 0;
        let mut sum = self.sum;
        while done < length {
            let (part, within) = (self.part, self.within);
            let rest = &self.parts()[part][within..];
            let piece = &rest[..rest.len().min(length - done)];
            let sum = sum.as_mut().map(|sum| (sum, self.offset));
            each(done, piece, sum);
            let (taken, is_last) = (piece.len(), piece.len() == rest.len());
            done += taken;
            self.offset += taken as u64;
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
                let slices = source.slices(offset, length, 9).concat();
                assert_eq!(slices, bytes[offset as usize..][..length]);
            }
            assert_eq!(source.slices(99, 157, 2).concat(), bytes[99..255]);
            source.seek(101);
            let mut one = [0];
            source.copy_to(&mut one, Hint::Unknown);
            assert_eq!(one, [101]);
        }
    }
}
