//! The operations over buffers: what a program submits, and gets back when it is done.

use std::mem::{ManuallyDrop, MaybeUninit};

use crate::buffer::{Buffer, Target};
use crate::operation::{Operation, Request};
use crate::outcome::Value;
use haul_copy::Hint;

/// An operation over buffers.
///
/// # Safety
/// The request names only memory of the buffers, or of the second value. As long as neither the
/// task nor this value is used or dropped, the memory stays at its address, wherever they are moved
/// to, and no other code accesses it. As the second value moves after the request has its
/// addresses, it has no `Box` or `&mut`, whose moves invalidate pointers; a `Vec` or a raw pointer
/// is right. Another thread may drop both.
pub unsafe trait Task: Sized {
    /// What the operation computes.
    type Output;
    /// Memory besides the buffers that an engine reads, such as a list.
    type Memory: Send;

    /// What an engine is asked to do, and the memory that the request names besides the buffers.
    fn request(&mut self) -> (Request, Self::Memory);

    /// What the operation computed.
    fn output(value: Value) -> Self::Output;
}

/// Drops a task whose `request` panics.
struct Guard<W>(MaybeUninit<W>);

impl<W> Drop for Guard<W> {
    fn drop(&mut self) {
        // SAFETY: the value was written, and no engine has it.
        unsafe { self.0.assume_init_drop() };
    }
}

/// A task whose memory an engine may access. The task is not a value of its type meanwhile, because
/// the compiler may assume that nothing else writes what a value of some types refers to.
#[repr(C)]
pub(crate) struct Lent<W: Task> {
    task: MaybeUninit<W>,
    memory: MaybeUninit<W::Memory>,
}

impl<W: Task> Lent<W> {
    /// Lends the task, and returns what an engine is asked to do.
    #[inline]
    pub(crate) fn new(task: W) -> (Self, Request) {
        let mut guard = Guard(MaybeUninit::new(task));
        // SAFETY: the value was just written. From here on, it moves only as bytes of
        // `MaybeUninit`, so that no move invalidates the pointers of the request.
        let (request, memory) = unsafe { guard.0.assume_init_mut() }.request();
        let guard = ManuallyDrop::new(guard);
        // SAFETY: the guard is not used or dropped afterwards.
        let task = unsafe { std::ptr::read(&raw const guard.0) };
        (Self { task, memory: MaybeUninit::new(memory) }, request)
    }

    /// No task.
    pub(crate) fn nothing() -> Self {
        Self { task: MaybeUninit::uninit(), memory: MaybeUninit::uninit() }
    }

    /// The task.
    ///
    /// # Safety
    /// It was not taken, and no engine accesses its memory.
    pub(crate) unsafe fn get(&self) -> &W {
        // SAFETY: it was written in `new`, and the caller's promise.
        unsafe { self.task.assume_init_ref() }
    }

    /// Hands back the task.
    ///
    /// # Safety
    /// It was not taken, and no engine accesses its memory any more.
    #[inline]
    pub(crate) unsafe fn take(self) -> W {
        // SAFETY: it was written in `new`, and the caller's promise.
        drop(unsafe { self.memory.assume_init() });
        // SAFETY: as above.
        unsafe { self.task.assume_init() }
    }
}

#[inline]
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
    /// A copy. Its submission panics if the lengths differ.
    pub fn new(target: T, source: S) -> Self {
        Self { target, source, hint: Hint::Unknown }
    }

    /// The same copy with this hint.
    #[must_use]
    pub fn hint(self, hint: Hint) -> Self {
        Self { hint, ..self }
    }
}

// SAFETY: the request names the two buffers, which promise the rest.
unsafe impl<T: Target, S: Buffer> Task for Copy<T, S> {
    type Output = ();
    type Memory = ();

    #[inline]
    fn request(&mut self) -> (Request, ()) {
        let (target, source) = (self.target.bytes_mut(), self.source.bytes());
        assert_same_length(target.len(), source.len());
        let (length, source) = (target.len(), source.as_ptr());
        let operation = Operation::Copy { target: target.as_mut_ptr(), source, length };
        (Request { operation, hint: self.hint }, ())
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

// SAFETY: the request names the buffer, which promises the rest.
unsafe impl<T: Target> Task for Fill<T> {
    type Output = ();
    type Memory = ();

    #[inline]
    fn request(&mut self) -> (Request, ()) {
        let (target, byte) = (self.target.bytes_mut(), self.byte);
        let (target, length) = (target.as_mut_ptr(), target.len());
        (Request { operation: Operation::Fill { target, byte, length }, hint: self.hint }, ())
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
    /// A comparison. Its submission panics if the lengths differ.
    pub fn new(left: L, right: R) -> Self {
        Self { left, right }
    }
}

// SAFETY: the request names the two buffers, which promise the rest.
unsafe impl<L: Buffer, R: Buffer> Task for Compare<L, R> {
    type Output = Option<usize>;
    type Memory = ();

    #[inline]
    fn request(&mut self) -> (Request, ()) {
        let (left, right) = (self.left.bytes(), self.right.bytes());
        assert_same_length(left.len(), right.len());
        let (left, right, length) = (left.as_ptr(), right.as_ptr(), left.len());
        let operation = Operation::Compare { left, right, length };
        (Request { operation, hint: Hint::Unknown }, ())
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

// SAFETY: the request names the buffer, which promises the rest.
unsafe impl<S: Buffer> Task for Crc32c<S> {
    type Output = u32;
    type Memory = ();

    #[inline]
    fn request(&mut self) -> (Request, ()) {
        let (source, seed) = (self.source.bytes(), self.seed);
        let (source, length) = (source.as_ptr(), source.len());
        let operation = Operation::Crc32c { source, length, seed };
        (Request { operation, hint: Hint::Unknown }, ())
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
    /// A copy. Its submission panics if the lengths differ.
    pub fn new(target: T, source: S) -> Self {
        Self { target, source, seed: 0 }
    }
}

// SAFETY: the request names the two buffers, which promise the rest.
unsafe impl<T: Target, S: Buffer> Task for CopyCrc32c<T, S> {
    type Output = u32;
    type Memory = ();

    #[inline]
    fn request(&mut self) -> (Request, ()) {
        let (target, source) = (self.target.bytes_mut(), self.source.bytes());
        assert_same_length(target.len(), source.len());
        let (length, source, seed) = (target.len(), source.as_ptr(), self.seed);
        let operation = Operation::CopyCrc32c { target: target.as_mut_ptr(), source, length, seed };
        (Request { operation, hint: Hint::Unknown }, ())
    }

    fn output(value: Value) -> u32 {
        crc_of(value)
    }
}
