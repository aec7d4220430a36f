//! What is sent: one slice, or several that make one message.

use std::io::IoSlice;

use haul_copy::Hint;

use super::region::Region;

/// The bytes of a message, and how far they have been taken.
#[derive(Debug)]
pub(super) struct Source<'a> {
    parts: Parts<'a>,
    part: usize,
    within: usize,
}

#[derive(Debug)]
enum Parts<'a> {
    One([IoSlice<'a>; 1]),
    Many(&'a [IoSlice<'a>]),
}

impl<'a> Source<'a> {
    pub(super) fn one(bytes: &'a [u8]) -> Self {
        Self { parts: Parts::One([IoSlice::new(bytes)]), part: 0, within: 0 }
    }

    pub(super) fn many(parts: &'a [IoSlice<'a>]) -> Self {
        Self { parts: Parts::Many(parts), part: 0, within: 0 }
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
        self.take(length, |at, piece| region.write(offset + at, piece, hint));
    }

    /// Takes the next `length` bytes and copies them into `target`.
    pub(super) fn copy_to(&mut self, target: &mut [u8], hint: Hint) {
        let length = target.len();
        self.take(length, |at, piece| {
            haul_copy::copy_hinted(&mut target[at..at + piece.len()], piece, hint);
        });
    }

    /// Leaves out what has arrived another way: the next byte is the one at `offset`.
    pub(super) fn seek(&mut self, offset: u64) {
        (self.part, self.within) = (0, 0);
        let mut left = offset;
        while left > 0 {
            let step = left.min(usize::MAX as u64) as usize;
            self.take(step, |_, _| {});
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

    /// Calls `each` with the place in this taking and the bytes, part by part.
    fn take(&mut self, length: usize, mut each: impl FnMut(usize, &[u8])) {
        let mut done = 0;
        while done < length {
            let (part, within) = (self.part, self.within);
            let rest = &self.parts()[part][within..];
            let piece = &rest[..rest.len().min(length - done)];
            each(done, piece);
            let (taken, is_last) = (piece.len(), piece.len() == rest.len());
            done += taken;
            if is_last {
                (self.part, self.within) = (part + 1, 0);
            } else {
                self.within += taken;
            }
        }
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
