//! The operations over lists of buffers: gather and scatter, and batches of copies.

use haul_copy::Hint;

use crate::buffer::{Buffer, RawBuffer, Target};
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

/// The raw form of [`Lists`].
#[derive(Debug)]
pub struct RawLists {
    targets: Vec<RawBuffer>,
    sources: Vec<RawBuffer>,
    /// The regions of the targets, then those of the sources.
    regions: RawList<Region>,
}

impl<T: Target, S: Buffer> Lists<T, S> {
    /// A gather and scatter. [`Queue::submit`](crate::Queue::submit) panics if the sums differ.
    pub fn new(targets: Vec<T>, sources: Vec<S>) -> Self {
        Self { targets, sources }
    }
}

// SAFETY: the request names the buffers and the regions.
unsafe impl<T: Target, S: Buffer> Task for Lists<T, S> {
    type Output = ();
    type Raw = RawLists;

    fn into_raw(self) -> RawLists {
        let targets: Vec<_> = self.targets.into_iter().map(Buffer::into_raw).collect();
        let sources: Vec<_> = self.sources.into_iter().map(Buffer::into_raw).collect();
        let sum = |list: &[RawBuffer]| list.iter().map(|buffer| buffer.length).sum();
        assert_same_length(sum(&targets), sum(&sources));
        let all = targets.iter().chain(&sources);
        let regions: Box<[Region]> =
            all.map(|buffer| Region { start: buffer.start, length: buffer.length }).collect();
        RawLists { targets, sources, regions: RawList::of(regions) }
    }

    fn request(raw: &RawLists) -> Request {
        let targets = raw.regions.start.cast_const();
        let operation = Operation::Lists {
            targets,
            target_count: raw.targets.len(),
            sources: targets.wrapping_add(raw.targets.len()),
            source_count: raw.sources.len(),
        };
        Request { operation, hint: Hint::Unknown }
    }

    unsafe fn from_raw(raw: RawLists) -> Self {
        // SAFETY: the raw form is used once, and no engine reads the list.
        unsafe { raw.regions.free() };
        // SAFETY: the caller's promise.
        let targets = raw.targets.into_iter().map(|raw| unsafe { T::from_raw(raw) }).collect();
        // SAFETY: the caller's promise.
        let sources = raw.sources.into_iter().map(|raw| unsafe { S::from_raw(raw) }).collect();
        Self { targets, sources }
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

/// The raw form of [`Batch`].
#[derive(Debug)]
pub struct RawBatch {
    buffers: Vec<(RawBuffer, RawBuffer)>,
    pairs: RawList<Pair>,
    hint: Hint,
}

impl<T: Target, S: Buffer> Batch<T, S> {
    /// A batch of copies. [`Queue::submit`](crate::Queue::submit) panics if the lengths of a pair
    /// differ.
    pub fn new(copies: Vec<(T, S)>) -> Self {
        Self { copies, hint: Hint::Unknown }
    }
}

// SAFETY: the request names the buffers and the list of pairs.
unsafe impl<T: Target, S: Buffer> Task for Batch<T, S> {
    type Output = ();
    type Raw = RawBatch;

    fn into_raw(self) -> RawBatch {
        let raw = |(target, source): (T, S)| (target.into_raw(), source.into_raw());
        let buffers: Vec<_> = self.copies.into_iter().map(raw).collect();
        let pair = |(target, source): &(RawBuffer, RawBuffer)| {
            assert_same_length(target.length, source.length);
            Pair { target: target.start, source: source.start, length: target.length }
        };
        let pairs = buffers.iter().map(pair).collect();
        RawBatch { buffers, pairs: RawList::of(pairs), hint: self.hint }
    }

    fn request(raw: &RawBatch) -> Request {
        let RawList { start, length } = raw.pairs;
        Request { operation: Operation::Batch { pairs: start, count: length }, hint: raw.hint }
    }

    unsafe fn from_raw(raw: RawBatch) -> Self {
        // SAFETY: the raw form is used once, and no engine reads the list.
        unsafe { raw.pairs.free() };
        let copy = |(target, source)| {
            // SAFETY: the caller's promise.
            let target = unsafe { T::from_raw(target) };
            // SAFETY: the caller's promise.
            (target, unsafe { S::from_raw(source) })
        };
        Self { copies: raw.buffers.into_iter().map(copy).collect(), hint: raw.hint }
    }

    fn output(_: Value) {}
}

/// An allocation that is not borrowed while an engine reads it.
#[derive(Debug)]
struct RawList<T> {
    start: *mut T,
    length: usize,
}

// SAFETY: only an engine reads the list, and `free` frees it once.
unsafe impl<T> Send for RawList<T> {}

impl<T> RawList<T> {
    fn of(list: Box<[T]>) -> Self {
        let length = list.len();
        Self { start: Box::into_raw(list).cast(), length }
    }

    /// # Safety
    /// It is called once, and nothing reads the list any more.
    unsafe fn free(self) {
        let list = std::ptr::slice_from_raw_parts_mut(self.start, self.length);
        // SAFETY: the parts are those of the box in `of`.
        drop(unsafe { Box::from_raw(list) });
    }
}
