//! Checks that a copy between separate buffers writes its target and nothing else.
//!
//! # How a grid of 4097 * 64 * 64 calls is checked in seconds
//!
//! For each two alignments, the sizes ascend, and two sources alternate, one of which is the
//! complement of the other. The bytes that the previous size left in the target are therefore all
//! wrong for the next size, the bytes beyond the previous target are untouched, and the buffers
//! need no reset between two calls. Each grid runs twice: next to the guard page before the
//! buffers, growing up, and next to the guard page after the buffers, growing down. The second
//! run aligns the ends, which for a given size also covers every combination of starts.

use super::guarded::Guarded;
use super::oracle::{self, first_difference, first_touched};
use super::subjects::Copier;

/// The bytes on either side of the target that are checked after each call. The rest of the buffer
/// is checked after the last size.
const CHECKED: usize = 128;

/// The location of a range of bytes in its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// The range starts this many bytes after the guard page before the buffer.
    Start(usize),
    /// The range ends this many bytes before the guard page after the buffer.
    End(usize),
}

impl At {
    /// The index of the first of `length` bytes at this location.
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

    /// Copies each of the ascending sizes and checks the target and the bytes around it.
    pub(crate) fn check(&mut self, copier: &Copier, from: At, to: At, sizes: &[usize]) {
        for (turn, &length) in sizes.iter().enumerate() {
            let source = &self.sources[turn % 2];
            let (from_index, to_index) =
                (from.index(source, length), to.index(&self.target, length));
            let target = self.target.start().wrapping_add(to_index);
            // SAFETY: both buffers hold `length` bytes there and are separate.
            let returned =
                unsafe { (copier.call)(target, source.start().wrapping_add(from_index), length) };
            let description =
                || format!("{} of {length} bytes from {from:?} to {to:?}", copier.name);
            assert_eq!(returned, target, "{}: the returned pointer", description());
            let (target, source) = (self.target.as_slice(), source.as_slice());
            let (before, rest) = target.split_at(to_index);
            let (copied, after) = rest.split_at(length);
            if let Some(index) = first_difference(copied, &source[from_index..from_index + length])
            {
                panic!("{}: byte {index} of the target is wrong", description());
            }
            let close = before.len().saturating_sub(CHECKED);
            if let Some(index) = first_touched(&before[close..]) {
                let distance = before.len() - close - index;
                panic!("{}: wrote {distance} bytes before the target", description());
            }
            if let Some(index) = first_touched(&after[..after.len().min(CHECKED)]) {
                panic!("{}: wrote {index} bytes past the target's end", description());
            }
        }
        self.check_rest(copier, to, sizes.last().copied().unwrap_or(0));
    }

    /// Checks all bytes that no size should have changed, and resets the target for the next
    /// alignments.
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
