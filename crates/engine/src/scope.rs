//! Operations over borrowed buffers, in a scope that returns only when all of them have ended.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::hint::black_box;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::buffer::{Buffer, Target};
use crate::cpu;
use crate::inner::{Inner, Place, Started};
use crate::operation::Operation;
use crate::outcome::{Failed, Outcome};
use crate::pending::Finished;
use crate::queue::Queue;
use crate::slots::DONE;
use crate::task::{Copy, Lent, Task};

/// Starts operations over buffers that are borrowed for the scope. See [`Queue::scope`].
pub struct Scope<'scope, 'env: 'scope> {
    shared: Shared<'env>,
    /// Neither lifetime may shrink.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// What a scope and its handles share.
struct Shared<'a> {
    inner: &'a Inner,
    /// The operations of the engine whose result is not taken. Allocated once, for all slots.
    open: RefCell<Vec<Open>>,
    /// The first failure of an operation whose result was not taken.
    failed: Cell<Option<Outcome>>,
}

/// An operation whose result is not taken.
#[derive(Clone, Copy)]
struct Open {
    place: Place,
    /// Whether its handle was dropped.
    is_alone: bool,
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scope of {} operations", self.shared.open.borrow().len())
    }
}

impl Queue {
    /// Calls `body` with a scope whose operations borrow buffers, and returns when `body` has
    /// returned, or panicked, and all operations have ended. A leaked handle changes nothing.
    ///
    /// If a device hangs, and does not even let itself be closed, this call waits for ever:
    /// returning would give back memory that the device may still write.
    ///
    /// Cost: one allocation, when the engine takes the first operation; none if the CPU does
    /// everything.
    ///
    /// # Errors
    /// The first failure of an operation that ended in `submit`, or whose result `body` did not
    /// take.
    ///
    /// ```
    /// use haul_engine::{Copy, Queue};
    /// let queue = Queue::worker()?;
    /// let (source, mut target) = (vec![7; 1 << 20], vec![0; 1 << 20]);
    /// let sum: u64 = queue.scope(|scope| {
    ///     scope.submit(Copy::new(&mut target[..], &source[..]));
    ///     (0..1000).sum() // meanwhile
    /// })?;
    /// assert_eq!((target, sum), (source, 499_500));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// The borrow lasts until the scope has returned, even if the handle is leaked, kept in a
    /// cycle, or dropped after one poll:
    ///
    /// ```compile_fail,E0502
    /// # use haul_engine::{Copy, Queue};
    /// # let queue = Queue::inline();
    /// let (source, mut target) = (vec![7; 10], vec![0; 10]);
    /// queue.scope(|scope| {
    ///     std::mem::forget(scope.submit(Copy::new(&mut target[..], &source[..])));
    ///     assert_eq!(target[0], 0);
    /// });
    /// ```
    ///
    /// ```compile_fail,E0502
    /// # use haul_engine::{Copy, Queue, Scoped};
    /// # use std::{cell::RefCell, rc::Rc};
    /// # let queue = Queue::inline();
    /// struct Cycle<'a>(RefCell<Option<Rc<Cycle<'a>>>>, Scoped<'a, Copy<&'a mut [u8], &'a [u8]>>);
    /// let (source, mut target) = (vec![7; 10], vec![0; 10]);
    /// queue.scope(|scope| {
    ///     let copy = scope.submit(Copy::new(&mut target[..], &source[..]));
    ///     let cycle = Rc::new(Cycle(RefCell::new(None), copy));
    ///     *cycle.0.borrow_mut() = Some(cycle.clone());
    ///     drop(cycle);
    ///     assert_eq!(target[0], 0);
    /// });
    /// ```
    ///
    /// A handle does not leave the scope, and a buffer does not end before it:
    ///
    /// ```compile_fail,E0521
    /// # use haul_engine::{Copy, Queue};
    /// # let queue = Queue::inline();
    /// let (source, mut target) = (vec![7; 10], vec![0; 10]);
    /// let mut escaped = None;
    /// queue.scope(|scope| {
    ///     escaped = Some(scope.submit(Copy::new(&mut target[..], &source[..])));
    /// });
    /// ```
    ///
    /// ```compile_fail,E0597
    /// # use haul_engine::{Copy, Queue};
    /// # let queue = Queue::inline();
    /// let source = vec![7; 10];
    /// queue.scope(|scope| {
    ///     let mut target = vec![0; 10];
    ///     scope.submit(Copy::new(&mut target[..], &source[..]));
    /// });
    /// ```
    pub fn scope<'env, T>(
        &'env self,
        body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
    ) -> Result<T, Failed> {
        let shared =
            Shared { inner: &self.inner, open: RefCell::new(Vec::new()), failed: Cell::new(None) };
        let scope = Scope { shared, scope: PhantomData, env: PhantomData };
        let returned = catch_unwind(AssertUnwindSafe(|| body(&scope)));
        scope.shared.close();
        match returned {
            Ok(value) => match scope.shared.failed.get() {
                Some(outcome) => self.inner.value(outcome).map(|_| value),
                None => Ok(value),
            },
            Err(panic) => resume_unwind(panic),
        }
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Starts an operation over buffers that live as long as the scope. Never waits: if the engine
    /// cannot take it, this thread does it now.
    ///
    /// Cost: no allocation, but for [`Lists`](crate::Lists) and the scope's own; no system call,
    /// unless a helper thread sleeps or a device is used by `write`.
    ///
    /// # Panics
    /// If the lengths of the buffers do not match.
    pub fn submit<W: Task + 'scope>(&'scope self, task: W) -> Scoped<'scope, W> {
        let (lent, request) = Lent::new(task);
        let shared = &self.shared;
        if shared.open.borrow().len() >= shared.inner.slots.count() {
            shared.sweep();
        }
        // SAFETY: `close` waits for the operation before the borrows of its buffers end, and its
        // other memory is lent, and is leaked, or dropped after the end.
        let started = match unsafe { shared.inner.accept(&request) } {
            Ok(Some(place)) => Started::Pending(place),
            // SAFETY: the operation was accepted, its memory is lent, and no engine has it.
            Ok(None) => shared.ended(unsafe { cpu::execute(&request) }),
            Err(refusal) => shared.ended(Outcome::Refused(refusal)),
        };
        let mut scoped = Scoped { shared, started, lent: Some(lent) };
        if let Started::Pending(place) = started {
            shared.add(place);
            // It is in memory before the launch. See `Inner::accept`.
            black_box(&mut scoped);
            // SAFETY: as above.
            if !unsafe { shared.inner.launch(place.index) } {
                shared.remove(place);
                // It has no slot any more.
                scoped.started = Started::Done;
                // SAFETY: the operation was accepted, its memory is lent, and no engine has it.
                scoped.started = shared.ended(unsafe { cpu::execute(&request) });
            }
        }
        scoped
    }
}

impl Shared<'_> {
    /// Takes the results of operations that have ended and whose handles were dropped.
    fn sweep(&self) {
        let is_over = |open: &Open| {
            // SAFETY: the place is released only in `end`, after it was removed from the list.
            open.is_alone && unsafe { self.inner.poll(open.place) }.is_some()
        };
        loop {
            let found = self.open.borrow().iter().position(is_over);
            let Some(number) = found else { return };
            let open = self.open.borrow_mut().swap_remove(number);
            self.end(open.place);
        }
    }

    fn add(&self, place: Place) {
        let mut open = self.open.borrow_mut();
        if open.capacity() == 0 {
            open.reserve_exact(self.inner.slots.count());
        }
        open.push(Open { place, is_alone: false });
    }

    /// An operation that ended in `submit`.
    fn ended(&self, outcome: Outcome) -> Started {
        self.note(outcome);
        Started::ended(outcome)
    }

    /// Waits for all operations.
    fn close(&self) {
        for open in self.open.take() {
            self.end(open.place);
        }
    }

    /// Waits for an operation that was removed from the list, and notes its failure.
    fn end(&self, place: Place) {
        // SAFETY: the place is not released before, and the scope has not returned.
        let outcome = unsafe { self.inner.result(place) };
        self.note(outcome);
    }

    fn note(&self, outcome: Outcome) {
        if !matches!(outcome, Outcome::Done(_)) && self.failed.get().is_none() {
            self.failed.set(Some(outcome));
        }
    }

    fn remove(&self, place: Place) {
        self.open.borrow_mut().retain(|open| open.place.index != place.index);
    }
}

/// An operation over borrowed buffers, which it hands back when it has ended. If it is dropped or
/// leaked, the scope waits for the operation; a drop waits itself if there are buffers to drop.
pub struct Scoped<'scope, W: Task> {
    shared: &'scope Shared<'scope>,
    started: Started,
    /// `None` after the result was taken.
    lent: Option<Lent<W>>,
}

impl<W: Task> fmt::Debug for Scoped<'_, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scoped").field("started", &self.started).finish_non_exhaustive()
    }
}

impl<W: Task> Scoped<'_, W> {
    /// Whether the operation has ended. Does bounded work.
    #[must_use]
    pub fn is_done(&self) -> bool {
        match self.started {
            Started::Done | Started::Ended(_) => true,
            // SAFETY: the place is released only when this handle ends.
            Started::Pending(place) => unsafe { self.shared.inner.poll(place) }.is_some(),
        }
    }

    /// Waits for the end, and hands back the buffers. See [`Pending::wait`](crate::Pending::wait).
    pub fn wait(mut self) -> Finished<W> {
        self.take().expect("a result is taken once")
    }

    fn take(&mut self) -> Option<Finished<W>> {
        let lent = self.lent.take()?;
        let outcome = match self.started {
            Started::Done => DONE,
            Started::Ended(outcome) => outcome,
            Started::Pending(place) => {
                self.shared.remove(place);
                // SAFETY: the place is not released before, and the scope has not returned.
                unsafe { self.shared.inner.result(place) }
            }
        };
        let result = self.shared.inner.value(outcome).map(W::output);
        // SAFETY: the operation has ended.
        Some((unsafe { lent.take() }, result))
    }
}

impl<T: Target, S: Buffer> Scoped<'_, Copy<T, S>> {
    /// The bytes of the target that are written already, while the copy goes on.
    #[must_use]
    pub fn ready(&self) -> &[u8] {
        let inner = self.shared.inner;
        let place = match (self.started, &self.lent) {
            (Started::Done | Started::Ended(Outcome::Done(_)), Some(lent)) => {
                // SAFETY: no engine has the operation.
                return unsafe { lent.get() }.target.bytes();
            }
            (Started::Pending(place), Some(_)) => place,
            _ => return &[],
        };
        // SAFETY: the place is released only when this handle ends.
        let request = unsafe { inner.slots.request(place.index) };
        let Operation::Copy { target, length, .. } = request.operation else { return &[] };
        // An operation that has ended has not always written all: the scope's end finishes it.
        let count = match inner.slots.outcome(place.index) {
            Some(Outcome::Done(_)) => length,
            Some(Outcome::Partial { bytes_done, .. }) => bytes_done.min(length),
            Some(_) => 0,
            None => inner.slots.bytes_done(place.index).min(length),
        };
        if count == 0 {
            return &[];
        }
        // SAFETY: the engine writes the first `count` bytes no more, and the scope has not
        // returned.
        unsafe { std::slice::from_raw_parts(target, count) }
    }
}

impl<W: Task> Drop for Scoped<'_, W> {
    fn drop(&mut self) {
        // Both are dropped here, or never.
        if std::mem::needs_drop::<W>() || std::mem::needs_drop::<W::Memory>() {
            drop(self.take());
        } else if let (Some(_), Started::Pending(place)) = (&self.lent, self.started) {
            let mut open = self.shared.open.borrow_mut();
            let own = open.iter_mut().find(|open| open.place.index == place.index);
            own.into_iter().for_each(|open| open.is_alone = true);
        }
    }
}
