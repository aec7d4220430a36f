//! The operations over buffers: what a program submits, and gets back when it is done.

use crate::buffer::{Buffer, RawBuffer, Target};
use crate::operation::{Operation, Request};
use crate::outcome::Value;
use haul_copy::Hint;

/// An operation over buffers.
///
/// # Safety
/// `request` names only memory of the buffers, or of allocations of the raw form. Another thread
/// may call `from_raw` and drop the result.
pub unsafe trait Task: Sized {
    /// What the operation computes.
    type Output;
    /// The operation while it is pending.
    type Raw: Send;

    /// Takes the buffers apart.
    fn into_raw(self) -> Self::Raw;

    /// What an engine is asked to do.
    fn request(raw: &Self::Raw) -> Request;

    /// Puts the buffers together again.
    ///
    /// # Safety
    /// `raw` is from `into_raw` of this type, is used once, and no engine accesses its memory.
    unsafe fn from_raw(raw: Self::Raw) -> Self;

    /// What the operation computed.
    fn output(value: Value) -> Self::Output;
}

/// The raw form of an operation over at most two buffers.
#[derive(Clone, Copy, Debug)]
pub struct RawTask {
    first: RawBuffer,
    second: RawBuffer,
    /// The byte of a fill, or the seed of a CRC-32C.
    number: u32,
    hint: Hint,
}

// SAFETY: its addresses are those of buffers that may be used by another thread.
unsafe impl Send for RawTask {}

pub(crate) fn assert_same_length(target: usize, source: usize) {
    assert!(
        target == source,
        "cannot submit {source} bytes for {target} bytes: the lengths must be equal"
    );
}

/// Copies `source` to `target`, which must be equally long.
///
/// ```
/// use haul_engine::{Copy, Queue};
/// let queue = Queue::inline();
/// let (copy, result) = queue.submit(Copy::new(vec![0; 3], vec![1; 3])).wait();
/// assert_eq!((copy.target, result), (vec![1; 3], Ok(())));
/// ```
#[derive(Debug)]
pub struct Copy<T, S> {
    /// Where the bytes go.
    pub target: T,
    /// Where the bytes come from.
    pub source: S,
    /// What the caller knows about the use of the target.
    pub hint: Hint,
}

impl<T: Target, S: Buffer> Copy<T, S> {
    /// A copy. [`Queue::submit`](crate::Queue::submit) panics if the lengths differ.
    pub fn new(target: T, source: S) -> Self {
        Self { target, source, hint: Hint::Unknown }
    }

    /// The same copy with this hint.
    #[must_use]
    pub fn hint(self, hint: Hint) -> Self {
        Self { hint, ..self }
    }
}

// SAFETY: the request names the two buffers.
unsafe impl<T: Target, S: Buffer> Task for Copy<T, S> {
    type Output = ();
    type Raw = RawTask;

    fn into_raw(self) -> RawTask {
        let (first, second) = (self.target.into_raw(), self.source.into_raw());
        assert_same_length(first.length, second.length);
        RawTask { first, second, number: 0, hint: self.hint }
    }

    #[inline]
    fn request(raw: &RawTask) -> Request {
        let (target, source) = (raw.first.start, raw.second.start.cast_const());
        let operation = Operation::Copy { target, source, length: raw.first.length };
        Request { operation, hint: raw.hint }
    }

    unsafe fn from_raw(raw: RawTask) -> Self {
        // SAFETY: the caller's promise.
        let target = unsafe { T::from_raw(raw.first) };
        // SAFETY: the caller's promise.
        let source = unsafe { S::from_raw(raw.second) };
        Self { target, source, hint: raw.hint }
    }

    fn output(_: Value) {}
}

/// Sets every byte of `target` to `byte`.
#[derive(Debug)]
pub struct Fill<T> {
    /// The bytes to set.
    pub target: T,
    /// Their new value.
    pub byte: u8,
    /// What the caller knows about the use of the target.
    pub hint: Hint,
}

impl<T: Target> Fill<T> {
    /// A fill.
    pub fn new(target: T, byte: u8) -> Self {
        Self { target, byte, hint: Hint::Unknown }
    }
}

// SAFETY: the request names the buffer.
unsafe impl<T: Target> Task for Fill<T> {
    type Output = ();
    type Raw = RawTask;

    fn into_raw(self) -> RawTask {
        let first = self.target.into_raw();
        RawTask { first, second: first, number: self.byte.into(), hint: self.hint }
    }

    fn request(raw: &RawTask) -> Request {
        let (target, byte, length) = (raw.first.start, raw.number as u8, raw.first.length);
        Request { operation: Operation::Fill { target, byte, length }, hint: raw.hint }
    }

    unsafe fn from_raw(raw: RawTask) -> Self {
        // SAFETY: the caller's promise.
        let target = unsafe { T::from_raw(raw.first) };
        Self { target, byte: raw.number as u8, hint: raw.hint }
    }

    fn output(_: Value) {}
}

/// Finds the first byte at which two buffers of the same length differ.
///
/// ```
/// use haul_engine::{Compare, Queue};
/// let (_, result) = Queue::inline().submit(Compare::new(&b"abc"[..], &b"abd"[..])).wait();
/// assert_eq!(result, Ok(Some(2)));
/// ```
#[derive(Debug)]
pub struct Compare<L, R> {
    /// One buffer.
    pub left: L,
    /// The other buffer.
    pub right: R,
}

impl<L: Buffer, R: Buffer> Compare<L, R> {
    /// A comparison. [`Queue::submit`](crate::Queue::submit) panics if the lengths differ.
    pub fn new(left: L, right: R) -> Self {
        Self { left, right }
    }
}

// SAFETY: the request names the two buffers.
unsafe impl<L: Buffer, R: Buffer> Task for Compare<L, R> {
    type Output = Option<usize>;
    type Raw = RawTask;

    fn into_raw(self) -> RawTask {
        let (first, second) = (self.left.into_raw(), self.right.into_raw());
        assert_same_length(first.length, second.length);
        RawTask { first, second, number: 0, hint: Hint::Unknown }
    }

    fn request(raw: &RawTask) -> Request {
        let (left, right) = (raw.first.start.cast_const(), raw.second.start.cast_const());
        let operation = Operation::Compare { left, right, length: raw.first.length };
        Request { operation, hint: raw.hint }
    }

    unsafe fn from_raw(raw: RawTask) -> Self {
        // SAFETY: the caller's promise.
        let left = unsafe { L::from_raw(raw.first) };
        // SAFETY: the caller's promise.
        let right = unsafe { R::from_raw(raw.second) };
        Self { left, right }
    }

    fn output(value: Value) -> Option<usize> {
        if let Value::Difference(difference) = value { difference } else { None }
    }
}

/// Copies `source` to `target`, which must be equally long, or only reads `source`, and computes
/// the CRC-32C of the bytes.
///
/// ```
/// use haul_engine::{Crc32c, Queue};
/// let (_, result) = Queue::inline().submit(Crc32c::new(&b"123456789"[..])).wait();
/// assert_eq!(result, Ok(0xe306_9283));
/// ```
#[derive(Debug)]
pub struct Crc32c<S> {
    /// The bytes.
    pub source: S,
    /// The CRC-32C of the bytes before these; 0 at the beginning.
    pub seed: u32,
}

impl<S: Buffer> Crc32c<S> {
    /// The CRC-32C of `source`.
    pub fn new(source: S) -> Self {
        Self { source, seed: 0 }
    }
}

fn crc_of(value: Value) -> u32 {
    if let Value::Crc32c(crc) = value { crc } else { 0 }
}

// SAFETY: the request names the buffer.
unsafe impl<S: Buffer> Task for Crc32c<S> {
    type Output = u32;
    type Raw = RawTask;

    fn into_raw(self) -> RawTask {
        let first = self.source.into_raw();
        RawTask { first, second: first, number: self.seed, hint: Hint::Unknown }
    }

    fn request(raw: &RawTask) -> Request {
        let (source, length) = (raw.first.start.cast_const(), raw.first.length);
        let operation = Operation::Crc32c { source, length, seed: raw.number };
        Request { operation, hint: raw.hint }
    }

    unsafe fn from_raw(raw: RawTask) -> Self {
        // SAFETY: the caller's promise.
        let source = unsafe { S::from_raw(raw.first) };
        Self { source, seed: raw.number }
    }

    fn output(value: Value) -> u32 {
        crc_of(value)
    }
}

/// Copies `source` to `target`, which must be equally long, and computes the CRC-32C of the bytes.
#[derive(Debug)]
pub struct CopyCrc32c<T, S> {
    /// Where the bytes go.
    pub target: T,
    /// Where the bytes come from.
    pub source: S,
    /// The CRC-32C of the bytes before these; 0 at the beginning.
    pub seed: u32,
}

impl<T: Target, S: Buffer> CopyCrc32c<T, S> {
    /// A copy. [`Queue::submit`](crate::Queue::submit) panics if the lengths differ.
    pub fn new(target: T, source: S) -> Self {
        Self { target, source, seed: 0 }
    }
}

// SAFETY: the request names the two buffers.
unsafe impl<T: Target, S: Buffer> Task for CopyCrc32c<T, S> {
    type Output = u32;
    type Raw = RawTask;

    fn into_raw(self) -> RawTask {
        let (first, second) = (self.target.into_raw(), self.source.into_raw());
        assert_same_length(first.length, second.length);
        RawTask { first, second, number: self.seed, hint: Hint::Unknown }
    }

    fn request(raw: &RawTask) -> Request {
        let (target, source) = (raw.first.start, raw.second.start.cast_const());
        let (length, seed) = (raw.first.length, raw.number);
        let operation = Operation::CopyCrc32c { target, source, length, seed };
        Request { operation, hint: raw.hint }
    }

    unsafe fn from_raw(raw: RawTask) -> Self {
        // SAFETY: the caller's promise.
        let target = unsafe { T::from_raw(raw.first) };
        // SAFETY: the caller's promise.
        let source = unsafe { S::from_raw(raw.second) };
        Self { target, source, seed: raw.number }
    }

    fn output(value: Value) -> u32 {
        crc_of(value)
    }
}
