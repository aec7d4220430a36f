//! The handle of a pending operation over owned buffers.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::bell::Bell;
use crate::buffer::{Buffer, Target};
use crate::inner::{Inner, Orphan, Started};
use crate::operation::Operation;
use crate::outcome::{Failed, Outcome, Value};
use crate::queue::Queue;
use crate::slots::DONE;
use crate::task::{Copy, Task};

/// An operation over owned buffers, which it hands back when it has ended: by [`wait`](Self::wait),
/// [`try_wait`](Self::try_wait), as a [`Future`], through a [`Bell`] or through
/// [`Callbacks`](crate::Callbacks).
///
/// The buffers belong to the operation, so no code can touch them early. If the handle is dropped,
/// the operation goes on, and its buffers are dropped after it has ended. If the handle is leaked,
/// its buffers are leaked too. In a child of fork, a handle of an operation that was pending at the
/// fork does it with the CPU when the child asks for the end, and does nothing if it is dropped.
///
/// A buffer that is lent for a while is refused, because the handle could be leaked:
///
/// ```compile_fail,E0597
/// # use haul_engine::{Copy, Queue};
/// # let queue = Queue::inline();
/// let mut target = [0; 10];
/// std::mem::forget(queue.submit(Copy::new(&mut target[..], &[1; 10][..])));
/// ```
///
/// A buffer that was handed over cannot be read before it is handed back:
///
/// ```compile_fail,E0382
/// # use haul_engine::{Copy, Queue};
/// # let queue = Queue::inline();
/// let target = vec![0; 10];
/// let copy = queue.submit(Copy::new(target, vec![1; 10]));
/// assert_eq!(target[0], 1);
/// ```
///
/// A source that another copy writes cannot be read by this one:
///
/// ```compile_fail,E0382
/// # use haul_engine::{Copy, Queue};
/// # let queue = Queue::inline();
/// let (first, second) = (vec![0; 10], vec![0; 10]);
/// let one = queue.submit(Copy::new(first, vec![1; 10]));
/// let two = queue.submit(Copy::new(second, first));
/// ```
#[must_use = "the result says whether all bytes are there"]
pub struct Pending<W: Task + 'static> {
    /// `None` if the operation was done at once.
    inner: Option<Arc<Inner>>,
    started: Started,
    /// `None` after the result was taken.
    raw: Option<W::Raw>,
    of: PhantomData<W>,
}

impl<W: Task + 'static> fmt::Debug for Pending<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("started", &self.started).finish_non_exhaustive()
    }
}

impl<W: Task + 'static> Unpin for Pending<W> {}

/// What an operation hands back: its buffers, and its result.
pub type Finished<W> = (W, Result<<W as Task>::Output, Failed>);

impl Queue {
    /// Starts an operation over owned or `'static` buffers. Never waits: if the engine cannot take
    /// it, this thread does it now.
    ///
    /// Cost: no allocation, but for [`Lists`](crate::Lists) and [`Batch`](crate::Batch); no system
    /// call, unless a helper thread sleeps or a device is used by `write`.
    ///
    /// # Panics
    /// If the lengths of the buffers do not match.
    ///
    /// ```
    /// use haul_engine::{Copy, Queue};
    /// let queue = Queue::worker()?;
    /// let copy = queue.submit(Copy::new(vec![0; 1 << 20], vec![7; 1 << 20]));
    /// while !copy.is_done() {
    ///     // The first bytes are there before the last ones.
    ///     assert!(copy.ready().iter().all(|byte| *byte == 7));
    /// }
    /// let (copy, result) = copy.wait();
    /// assert_eq!((copy.target.len(), result), (1 << 20, Ok(())));
    /// # Ok::<(), haul_engine::Error>(())
    /// ```
    pub fn submit<W: Task + 'static>(&self, task: W) -> Pending<W> {
        let raw = task.into_raw();
        // SAFETY: the buffers belong to the raw form, which is kept until the operation has ended,
        // or leaked.
        let begun = unsafe { self.inner.begin_with(W::request(&raw), || Arc::clone(&self.inner)) };
        let (started, inner) = match begun {
            (Started::Done, _) => (Started::Done, None),
            (started, None) => (started, Some(Arc::clone(&self.inner))),
            pending => pending,
        };
        Pending { inner, started, raw: Some(raw), of: PhantomData }
    }
}

impl<W: Task + 'static> Pending<W> {
    /// Whether the operation has ended. Does bounded work.
    #[must_use]
    pub fn is_done(&self) -> bool {
        if self.is_written() {
            return true;
        }
        self.outcome().is_some()
    }

    /// Waits for the end, and hands back the buffers. This thread takes part in a copy of a helper
    /// thread, then polls some hundred times, then sleeps. A signal does not end the wait.
    pub fn wait(mut self) -> Finished<W> {
        if self.is_written() {
            return self.take_written();
        }
        let outcome = match self.started {
            Started::Done => DONE,
            Started::Ended(outcome) => outcome,
            // SAFETY: the place is not released before `take`, and the buffers are in `raw`.
            Started::Pending(place) => unsafe { self.inner().wait(place, None) }
                .expect("a wait without a deadline returns at the end"),
        };
        self.take(outcome)
    }

    /// Like [`wait`](Self::wait), at most for this time.
    ///
    /// # Errors
    /// This handle, if the time is over.
    pub fn wait_for(mut self, time: Duration) -> Result<Finished<W>, Self> {
        let outcome = match self.started {
            Started::Done => Some(DONE),
            Started::Ended(outcome) => Some(outcome),
            // SAFETY: as in `wait`.
            Started::Pending(place) => unsafe {
                self.inner().wait(place, Instant::now().checked_add(time))
            },
        };
        match outcome {
            Some(outcome) => Ok(self.take(outcome)),
            None => Err(self),
        }
    }

    /// Hands back the buffers if the operation has ended. Does bounded work.
    ///
    /// # Errors
    /// This handle, if it has not.
    pub fn try_wait(mut self) -> Result<Finished<W>, Self> {
        match self.outcome() {
            Some(outcome) => Ok(self.take(outcome)),
            None => Err(self),
        }
    }

    /// How many bytes at the beginning of the target are written.
    #[must_use]
    pub fn bytes_done(&self) -> usize {
        let Some(raw) = &self.raw else { return 0 };
        // SAFETY: lists are in place while the raw form exists.
        let length = unsafe { W::request(raw).operation.length() };
        match (self.outcome(), self.started) {
            (Some(Outcome::Done(_)), _) => length,
            (Some(Outcome::Partial { bytes_done, .. }), _) => bytes_done.min(length),
            (None, Started::Pending(place)) => {
                self.inner().slots.bytes_done(place.index).min(length)
            }
            _ => 0,
        }
    }

    /// Makes the bell readable when the operation has ended. A handle rings one bell.
    pub fn ring(&self, bell: &Bell) {
        let waker = bell.waker();
        if !self.armed().arm(&waker) {
            waker.wake();
        }
    }

    fn outcome(&self) -> Option<Outcome> {
        match self.started {
            Started::Done => Some(DONE),
            Started::Ended(outcome) => Some(outcome),
            // SAFETY: the place is not released before `take`, and the buffers are in `raw`.
            Started::Pending(place) => unsafe { self.inner().poll(place) },
        }
    }

    /// The queue of an operation that was not done at once.
    fn inner(&self) -> &Inner {
        self.inner.as_deref().expect("only an operation that was done at once has no queue")
    }

    /// Whether the operation has ended, and its outcome is [`DONE`]: most operations, without a
    /// call.
    #[inline]
    fn is_written(&self) -> bool {
        match self.started {
            Started::Done => true,
            Started::Pending(place) => self.inner().slots.is_written(place.index),
            Started::Ended(_) => false,
        }
    }

    /// The result of an operation whose outcome is [`DONE`].
    #[inline]
    fn take_written(&mut self) -> Finished<W> {
        let raw = self.release();
        // SAFETY: `raw` is this task's, and its operation has ended.
        (unsafe { W::from_raw(raw) }, Ok(W::output(Value::Written)))
    }

    /// Takes the result of an operation that has ended.
    fn take(&mut self, outcome: Outcome) -> Finished<W> {
        let raw = self.release();
        let result = match outcome {
            Outcome::Done(value) => Ok(value),
            outcome => {
                // SAFETY: the operation has ended, and its buffers are in `raw`.
                let outcome = unsafe { self.inner().finish(&W::request(&raw), outcome) };
                self.inner().value(outcome)
            }
        };
        let result = result.map(W::output);
        // SAFETY: `raw` is this task's, and its operation has ended.
        (unsafe { W::from_raw(raw) }, result)
    }

    /// The buffers of an operation that has ended.
    #[inline]
    fn release(&mut self) -> W::Raw {
        let raw = self.raw.take().expect("a result is taken once");
        if let Started::Pending(place) = self.started {
            self.inner().slots.release(place.index);
        }
        raw
    }

    /// What stores a waker for this handle's operation.
    pub(crate) fn armed(&self) -> Armed {
        Armed { inner: self.inner.clone(), started: self.started }
    }
}

/// Stores a waker for a pending operation.
pub(crate) struct Armed {
    /// `None` if the operation was done at once.
    inner: Option<Arc<Inner>>,
    started: Started,
}

impl Armed {
    /// Stores the waker. Returns false if the operation has ended.
    pub(crate) fn arm(&self, waker: &Waker) -> bool {
        let (Some(inner), Started::Pending(place)) = (&self.inner, self.started) else {
            return false;
        };
        if !inner.arm(place, waker) {
            return false;
        }
        inner.watch(place);
        true
    }
}

impl<T: Target + 'static, S: Buffer + 'static> Pending<Copy<T, S>> {
    /// The bytes of the target that are written already, while the copy goes on.
    #[must_use]
    pub fn ready(&self) -> &[u8] {
        let count = self.bytes_done();
        let start = self.raw.as_ref().map(|raw| <Copy<T, S> as Task>::request(raw).operation);
        match start {
            // SAFETY: the engine writes the first `count` bytes no more, and the target lives as
            // long as this handle.
            Some(Operation::Copy { target, .. }) if count > 0 => unsafe {
                std::slice::from_raw_parts(target, count)
            },
            _ => &[],
        }
    }
}

/// Resolves to the buffers and the result. A future that is dropped after a poll keeps its buffers
/// alive until the operation has ended.
impl<W: Task + 'static> Future for Pending<W> {
    type Output = Finished<W>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        assert!(self.raw.is_some(), "a future is not polled after it has resolved");
        if let Some(outcome) = self.outcome() {
            return Poll::Ready(self.take(outcome));
        }
        if self.armed().arm(context.waker()) {
            return Poll::Pending;
        }
        match self.outcome() {
            Some(outcome) => Poll::Ready(self.take(outcome)),
            None => Poll::Pending,
        }
    }
}

/// Buffers in their raw form, which are dropped with this value.
struct Buffers<W: Task>(Option<W::Raw>);

// SAFETY: the raw form may be sent, and a task allows every thread to make it from the raw form and
// to drop it.
unsafe impl<W: Task> Send for Buffers<W> {}

impl<W: Task> Drop for Buffers<W> {
    fn drop(&mut self) {
        if let Some(raw) = self.0.take() {
            // SAFETY: the value is dropped only after the operation has ended.
            drop(unsafe { W::from_raw(raw) });
        }
    }
}

impl<W: Task + 'static> Drop for Pending<W> {
    fn drop(&mut self) {
        let Some(raw) = self.raw.take() else { return };
        let buffers = Buffers::<W>(Some(raw));
        let (Some(inner), Started::Pending(place)) = (&self.inner, self.started) else { return };
        // SAFETY: the place is released only here, and `buffers` exists.
        if unsafe { inner.has_ended_unasked(place) } {
            inner.slots.release(place.index);
        } else {
            inner.keep(Orphan { place, buffers: Box::new(buffers) });
        }
    }
}
