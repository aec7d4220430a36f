//! The handle of a pending operation over owned buffers.

use std::fmt;
use std::future::Future;
use std::hint::black_box;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::bell::Bell;
use crate::buffer::{Buffer, Target};
use crate::cpu;
use crate::flight::{Armed, Flight};
use crate::inner::{Inner, Orphan};
use crate::operation::{Operation, Request};
use crate::outcome::{Failed, Outcome, Value};
use crate::queue::Queue;
use crate::slots::DONE;
use crate::task::{Copy, Lent, Task};

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
// The task comes first, at the same place in every state: moving it costs as much as a copy of
// 1 KiB if its place shifts, because a load that reads parts of two younger stores waits for both.
#[repr(C)]
pub struct Pending<W: Task + 'static> {
    lent: Lent<W>,
    state: State,
}

/// As [`Started`](crate::inner::Started), with what a handle needs that may outlive its queue.
enum State {
    /// It ended in `submit`, and its outcome is [`DONE`]. Of this many bytes.
    Done(usize),
    /// It ended in `submit` otherwise.
    Ended(usize, Result<Value, Box<Failed>>),
    Started(Flight),
    /// The result was taken.
    Taken,
}

impl<W: Task + 'static> fmt::Debug for Pending<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tuple = f.debug_tuple("Pending");
        match &self.state {
            State::Done(bytes) => tuple.field(&format_args!("{bytes} bytes done")),
            State::Ended(_, result) => tuple.field(result),
            State::Started(flight) => tuple.field(&flight.place),
            State::Taken => tuple.field(&format_args!("taken")),
        };
        tuple.finish()
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
    #[inline]
    pub fn submit<W: Task + 'static>(&self, task: W) -> Pending<W> {
        let (lent, request) = Lent::new(task);
        let inner = &self.inner;
        // SAFETY: the memory is lent until the operation has ended, or is leaked.
        let state = match unsafe { inner.accept(&request) } {
            Ok(Some(place)) => State::Started(Flight { inner: Arc::clone(inner), place }),
            // SAFETY: the operation was accepted, its memory is lent, and no engine has it.
            Ok(None) => unsafe { State::executed(inner, &request) },
            Err(refusal) => {
                State::Ended(0, inner.value(Outcome::Refused(refusal)).map_err(Box::new))
            }
        };
        let mut pending = Pending { lent, state };
        if let State::Started(Flight { place, .. }) = pending.state {
            // It is in memory before the launch. See `Inner::accept`.
            black_box(&mut pending);
            // SAFETY: as above.
            if !unsafe { inner.launch(place.index) } {
                // It has no slot any more.
                pending.state = State::Taken;
                // SAFETY: the operation was accepted, its memory is lent, and no engine has it.
                pending.state = unsafe { State::executed(inner, &request) };
            }
        }
        pending
    }
}

impl State {
    /// Lets the CPU do an operation.
    ///
    /// # Safety
    /// The operation was accepted, its memory is lent, and no engine has it.
    #[inline]
    unsafe fn executed(inner: &Inner, request: &Request) -> Self {
        // SAFETY: lists are lent too.
        let length = unsafe { request.operation.length() };
        // SAFETY: the caller's promise.
        match unsafe { cpu::execute(request) } {
            DONE => Self::Done(length),
            outcome => Self::Ended(length, inner.value(outcome).map_err(Box::new)),
        }
    }
}

impl<W: Task + 'static> Pending<W> {
    /// Whether the operation has ended. Does bounded work.
    #[inline]
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.is_written()
            || match &self.state {
                State::Started(flight) => flight.outcome().is_some(),
                _ => true,
            }
    }

    /// Waits for the end, and hands back the buffers. This thread takes part in a copy of a helper
    /// thread, then polls some hundred times, then sleeps. A signal does not end the wait.
    #[inline]
    pub fn wait(self) -> Finished<W> {
        if self.is_written() { self.written() } else { self.wait_longer() }
    }

    fn wait_longer(self) -> Finished<W> {
        let State::Started(flight) = &self.state else { return self.at_once() };
        let outcome = flight.wait(None);
        self.finished(outcome.expect("a wait without a deadline returns at the end"))
    }

    /// Like [`wait`](Self::wait), at most for this time.
    ///
    /// # Errors
    /// This handle, if the time is over.
    pub fn wait_for(self, time: Duration) -> Result<Finished<W>, Self> {
        let State::Started(flight) = &self.state else { return Ok(self.at_once()) };
        match flight.wait(Instant::now().checked_add(time)) {
            Some(outcome) => Ok(self.finished(outcome)),
            None => Err(self),
        }
    }

    /// Hands back the buffers if the operation has ended. Does bounded work.
    ///
    /// # Errors
    /// This handle, if it has not.
    pub fn try_wait(self) -> Result<Finished<W>, Self> {
        let State::Started(flight) = &self.state else { return Ok(self.at_once()) };
        match flight.outcome() {
            Some(outcome) => Ok(self.finished(outcome)),
            None => Err(self),
        }
    }

    /// Whether the operation has ended, and its outcome is [`DONE`]: most operations, without a
    /// call.
    #[inline]
    fn is_written(&self) -> bool {
        match &self.state {
            State::Done(_) => true,
            State::Started(flight) => flight.inner.slots.is_written(flight.place.index),
            _ => false,
        }
    }

    /// The result of an operation whose outcome is [`DONE`].
    #[inline]
    fn written(self) -> Finished<W> {
        let kept = ManuallyDrop::new(self);
        if let State::Started(flight) = &kept.state {
            flight.inner.slots.release(flight.place.index);
            // SAFETY: the value is not used or dropped afterwards.
            drop(unsafe { std::ptr::read(&raw const flight.inner) });
        }
        // SAFETY: as above.
        let lent = unsafe { std::ptr::read(&raw const kept.lent) };
        // SAFETY: the operation has ended, and the result is taken once.
        (unsafe { lent.take() }, Ok(W::output(Value::Written)))
    }

    /// The result of an operation that ended in `submit`.
    fn at_once(self) -> Finished<W> {
        if self.is_written() {
            return self.written();
        }
        let (lent, state) = self.into_parts();
        let State::Ended(_, result) = state else { panic!("a result is taken once") };
        // SAFETY: the operation has ended, and the result is taken once.
        (unsafe { lent.take() }, result.map(W::output).map_err(|failed| *failed))
    }

    /// The result of an operation that an engine has ended.
    fn finished(self, outcome: Outcome) -> Finished<W> {
        let (lent, state) = self.into_parts();
        let State::Started(Flight { inner, place }) = state else {
            unreachable!("only an engine's operation is pending")
        };
        // SAFETY: the place is not released before.
        let request = unsafe { inner.slots.request(place.index) };
        inner.slots.release(place.index);
        // SAFETY: the operation has ended, and its memory is lent.
        let outcome = unsafe { inner.finish(&request, outcome) };
        let result = inner.value(outcome).map(W::output);
        // SAFETY: the operation has ended, and the result is taken once.
        (unsafe { lent.take() }, result)
    }

    fn into_parts(self) -> (Lent<W>, State) {
        let kept = ManuallyDrop::new(self);
        // SAFETY: the value is not used or dropped afterwards.
        let lent = unsafe { std::ptr::read(&raw const kept.lent) };
        // SAFETY: as above.
        (lent, unsafe { std::ptr::read(&raw const kept.state) })
    }

    /// How many bytes at the beginning of the target are written.
    #[must_use]
    pub fn bytes_done(&self) -> usize {
        match &self.state {
            State::Done(length) | State::Ended(length, Ok(_)) => *length,
            State::Started(flight) => flight.bytes_done(),
            State::Ended(_, Err(_)) | State::Taken => 0,
        }
    }

    /// Makes the bell readable when the operation has ended. A handle rings one bell.
    pub fn ring(&self, bell: &Bell) {
        let waker = bell.waker();
        if !self.armed().arm(&waker) {
            waker.wake();
        }
    }

    /// What stores a waker for this handle's operation.
    pub(crate) fn armed(&self) -> Armed {
        let State::Started(flight) = &self.state else { return Armed(None) };
        Armed(Some((Arc::clone(&flight.inner), flight.place)))
    }
}

impl<T: Target + 'static, S: Buffer + 'static> Pending<Copy<T, S>> {
    /// The bytes of the target that are written already, while the copy goes on.
    #[must_use]
    pub fn ready(&self) -> &[u8] {
        let flight = match &self.state {
            // SAFETY: the operation has ended, and its result is not taken.
            State::Done(_) => return unsafe { self.lent.get() }.target.bytes(),
            State::Started(flight) => flight,
            State::Ended(..) | State::Taken => return &[],
        };
        let count = flight.bytes_done();
        match flight.request().operation {
            // SAFETY: the engine writes the first `count` bytes no more, and the target lives as
            // long as this handle.
            Operation::Copy { target, .. } if count > 0 => unsafe {
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
        assert!(
            !matches!(self.state, State::Taken),
            "a future is not polled after it has resolved"
        );
        // The operation may end between the first question and the waker's arrival.
        if self.is_done() || !self.armed().arm(context.waker()) && self.is_done() {
            let taken = Self { lent: Lent::nothing(), state: State::Taken };
            return Poll::Ready(std::mem::replace(&mut *self, taken).wait());
        }
        Poll::Pending
    }
}

/// A task that was lent, which is dropped with this value.
struct Kept<W: Task>(Option<Lent<W>>);

// SAFETY: a task allows every thread to drop it.
unsafe impl<W: Task> Send for Kept<W> {}

impl<W: Task> Drop for Kept<W> {
    fn drop(&mut self) {
        if let Some(lent) = self.0.take() {
            // SAFETY: the value is dropped when no engine can access the memory any more.
            drop(unsafe { lent.take() });
        }
    }
}

impl<W: Task + 'static> Drop for Pending<W> {
    fn drop(&mut self) {
        if matches!(self.state, State::Taken) {
            return;
        }
        // SAFETY: the result is not taken, and the value is not used afterwards.
        let lent = unsafe { std::ptr::read(&raw const self.lent) };
        if let State::Started(Flight { inner, place }) = &self.state {
            // If this panics, the task is leaked, as its memory may be in use.
            // SAFETY: a handle that is dropped has not released its place.
            if !unsafe { inner.has_ended_unasked(*place) } {
                inner.keep(Orphan { place: *place, buffers: Box::new(Kept(Some(lent))) });
                return;
            }
            inner.slots.release(place.index);
        }
        // SAFETY: the operation has ended.
        drop(unsafe { lent.take() });
    }
}
