//! The operations over lists of buffers: gather and scatter, and batches of copies.

use haul_copy::Hint;

use crate::buffer::{Buffer, Target};
use crate::operation::{Operation, Pair, Region, Request};
use crate::outcome::Value;
use crate::task::{Task, assert_same_length};

/// Gathers the bytes of all sources, in order, and scatters them to the targets, in order. Both
/// lists must have the same sum of lengths.
///
/// ```
/// use haul_engine::{Lists, Queue};
/// let lists = Lists::new(vec![vec![0; 4], vec![0; 1]], vec![&b"ab"[..], &b"cde"[..]]);
/// let (lists, result) = Queue::inline().submit(lists).wait();
/// assert_eq!((result, lists.targets.concat()), (Ok(()), b"abcde".to_vec()));
/// ```
#[derive(Debug)]
pub struct Lists<T, S> {
    /// Where the bytes go.
    pub targets: Vec<T>,
    /// Where the bytes come from.
    pub sources: Vec<S>,
}

impl<T: Target, S: Buffer> Lists<T, S> {
    /// A gather and scatter. Its submission panics if the sums differ.
    pub fn new(targets: Vec<T>, sources: Vec<S>) -> Self {
        Self { targets, sources }
    }
}

// SAFETY: the request names the buffers, which promise the rest, and the regions, whose list only
// an engine reads until it is dropped.
unsafe impl<T: Target, S: Buffer> Task for Lists<T, S> {
    type Output = ();
    type Memory = List<Region>;

    fn request(&mut self) -> (Request, List<Region>) {
        let targets = self.targets.iter_mut().map(|target| {
            let bytes = target.bytes_mut();
            Region { start: bytes.as_mut_ptr(), length: bytes.len() }
        });
        let sources = self.sources.iter().map(|source| {
            let bytes = source.bytes();
            Region { start: bytes.as_ptr().cast_mut(), length: bytes.len() }
        });
        let regions: Box<[Region]> = targets.chain(sources).collect();
        let (to, from) = regions.split_at(self.targets.len());
        let sum = |list: &[Region]| list.iter().map(|region| region.length).sum();
        assert_same_length(sum(to), sum(from));
        let (target_count, source_count) = (to.len(), from.len());
        let regions = List::of(regions);
        let targets = regions.start.cast_const();
        let sources = targets.wrapping_add(target_count);
        let operation = Operation::Lists { targets, target_count, sources, source_count };
        (Request { operation, hint: Hint::Unknown }, regions)
    }

    fn output(_: Value) {}
}

/// Does several copies as one operation, with one completion, in any order. In each pair, target
/// and source must be equally long.
///
/// ```
/// use haul_engine::{Batch, Queue};
/// let batch = Batch::new(vec![(vec![0; 2], &b"ab"[..]), (vec![0; 3], &b"cde"[..])]);
/// let (batch, result) = Queue::inline().submit(batch).wait();
/// assert_eq!((result, &batch.copies[1].0[..]), (Ok(()), &b"cde"[..]));
/// ```
#[derive(Debug)]
pub struct Batch<T, S> {
    /// The copies: each target with its source.
    pub copies: Vec<(T, S)>,
    /// What the caller knows about the use of the targets.
    pub hint: Hint,
}

impl<T: Target, S: Buffer> Batch<T, S> {
    /// A batch of copies. Its submission panics if the lengths of a pair differ.
    pub fn new(copies: Vec<(T, S)>) -> Self {
        Self { copies, hint: Hint::Unknown }
    }
}

// SAFETY: the request names the buffers, which promise the rest, and the list of pairs, which only
// an engine reads until it is dropped.
unsafe impl<T: Target, S: Buffer> Task for Batch<T, S> {
    type Output = ();
    type Memory = List<Pair>;

    fn request(&mut self) -> (Request, List<Pair>) {
        let pair = |(target, source): &mut (T, S)| {
            let (target, source) = (target.bytes_mut(), source.bytes());
            assert_same_length(target.len(), source.len());
            let length = target.len();
            Pair { target: target.as_mut_ptr(), source: source.as_ptr(), length }
        };
        let list = List::of(self.copies.iter_mut().map(pair).collect());
        let operation = Operation::Batch { pairs: list.start, count: list.length };
        (Request { operation, hint: self.hint }, list)
    }

    fn output(_: Value) {}
}

/// An allocation that is not borrowed while an engine reads it.
#[derive(Debug)]
pub struct List<T> {
    start: *mut T,
    length: usize,
}

// SAFETY: only an engine reads the list, and it is freed once.
unsafe impl<T> Send for List<T> {}

impl<T> List<T> {
    fn of(list: Box<[T]>) -> Self {
        let length = list.len();
        Self { start: Box::into_raw(list).cast(), length }
    }
}

impl<T> Drop for List<T> {
    fn drop(&mut self) {
        let list = std::ptr::slice_from_raw_parts_mut(self.start, self.length);
        // SAFETY: the parts are those of the box in `of`.
        drop(unsafe { Box::from_raw(list) });
    }
}
