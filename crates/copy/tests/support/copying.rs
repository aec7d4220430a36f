//! Copies between separate buffers, checked for everything that a copy may and may not do.
//!
//! # How a grid of 4097 * 64 * 64 calls is checked in seconds
//!
//! The sizes of a pair of alignments ascend, and two sources take turns, one the complement of the
//! other. So what the target holds from the size before is wrong in every byte, what lies beyond it
//! is untouched, and nothing is cleaned between two calls. Each grid runs twice: close to the guard
//! page before the buffers, growing up, and close to the one after them, growing down. The latter
//! aligns the ends, which for a given size is every pair of starts as well.

use super::guarded::Guarded;
use super::oracle::{self, first_difference, first_touched};
use super::subjects::Copier;

/// Bytes on either side of the target that are looked at after each call. The rest of the buffer is
/// looked at after the last size.
const LOOKED_AT: usize = 128;

/// Where a piece of memory lies in its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// So many bytes after the guard page before the buffer.
    Start(usize),
    /// Its end so many bytes before the guard page after the buffer.
    End(usize),
}

impl At {
    /// The index of the first of `length` bytes there.
    fn index(self, buffer: &Guarded, length: usize) -> usize {
        match self {
            Self::Start(offset) => offset,
            Self::End(offset) => buffer.bytes() - offset - length,
        }
    }
}

/// Two sources and a target.
pub(crate) struct Room {
    sources: [Guarded; 2],
    target: Guarded,
    painted: [Vec<u8>; 2],
}

impl Room {
    pub(crate) fn new(size_max: usize) -> Self {
        let room = || Guarded::new(size_max + 64);
        let mut sources = [room(), room()];
        oracle::paint(sources[0].as_mut_slice(), 1);
        let complement: Vec<u8> = sources[0].as_slice().iter().map(|byte| !byte).collect();
        sources[1].as_mut_slice().copy_from_slice(&complement);
        let painted = [sources[0].as_slice().to_vec(), sources[1].as_slice().to_vec()];
        Self { sources, target: room(), painted }
    }

    /// Copies each of the ascending sizes and checks everything that a copy may and may not do.
    pub(crate) fn check(&mut self, copier: &Copier, from: At, to: At, sizes: &[usize]) {
        for (turn, &length) in sizes.iter().enumerate() {
            let source = &self.sources[turn % 2];
            let (from_index, to_index) =
                (from.index(source, length), to.index(&self.target, length));
            let target = self.target.start().wrapping_add(to_index);
            // SAFETY: both buffers hold `length` bytes there, and are not one.
            let returned =
                unsafe { (copier.call)(target, source.start().wrapping_add(from_index), length) };
            let what = || format!("{} of {length} bytes from {from:?} to {to:?}", copier.name);
            assert_eq!(returned, target, "{}: the returned pointer", what());
            let (target, source) = (self.target.as_slice(), source.as_slice());
            let (before, rest) = target.split_at(to_index);
            let (copied, after) = rest.split_at(length);
            if let Some(index) = first_difference(copied, &source[from_index..from_index + length])
            {
                panic!("{}: byte {index} of the target is wrong", what());
            }
            let close = before.len().saturating_sub(LOOKED_AT);
            if let Some(index) = first_touched(&before[close..]) {
                let distance = before.len() - close - index;
                panic!("{}: wrote {distance} bytes before the target", what());
            }
            if let Some(index) = first_touched(&after[..after.len().min(LOOKED_AT)]) {
                panic!("{}: wrote {index} bytes past the target's end", what());
            }
        }
        self.check_rest(copier, to, sizes.last().copied().unwrap_or(0));
    }

    /// Looks at everything that no size of a pair wanted to change, and cleans up for the next.
    fn check_rest(&mut self, copier: &Copier, to: At, size_max: usize) {
        for (source, painted) in self.sources.iter().zip(&self.painted) {
            let changed = first_difference(source.as_slice(), painted);
            assert_eq!(changed, None, "{} changed its source", copier.name);
        }
        let first = to.index(&self.target, size_max);
        let target = self.target.as_mut_slice();
        target[first..first + size_max].fill(oracle::UNTOUCHED);
        let touched = first_touched(target);
        assert_eq!(touched, None, "{} wrote far outside its target at {to:?}", copier.name);
    }
}
