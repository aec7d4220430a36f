//! An operation that an engine has, as a handle over owned buffers sees it: without the buffers.

use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use crate::inner::{Inner, Place};
use crate::operation::Request;
use crate::outcome::Outcome;

/// An operation that an engine does, or has done.
pub(crate) struct Flight {
    pub(crate) inner: Arc<Inner>,
    pub(crate) place: Place,
}

impl Flight {
    pub(crate) fn wait(&self, deadline: Option<Instant>) -> Option<Outcome> {
        // SAFETY: the place is not released before the result is taken, and the memory is lent.
        unsafe { self.inner.wait(self.place, deadline) }
    }

    pub(crate) fn outcome(&self) -> Option<Outcome> {
        // SAFETY: as in `wait`.
        unsafe { self.inner.poll(self.place) }
    }

    /// What the engine was asked to do.
    pub(crate) fn request(&self) -> Request {
        // SAFETY: the place is not released before the result is taken.
        unsafe { self.inner.slots.request(self.place.index) }
    }

    pub(crate) fn bytes_done(&self) -> usize {
        // SAFETY: lists are lent too.
        let length = unsafe { self.request().operation.length() };
        match self.outcome() {
            Some(Outcome::Done(_)) => length,
            Some(Outcome::Partial { bytes_done, .. }) => bytes_done.min(length),
            Some(_) => 0,
            None => self.inner.slots.bytes_done(self.place.index).min(length),
        }
    }
}

/// Stores a waker for a pending operation. `None` if it ended in `submit`.
pub(crate) struct Armed(pub(crate) Option<(Arc<Inner>, Place)>);

impl Armed {
    /// Stores the waker. Returns false if the operation has ended.
    pub(crate) fn arm(&self, waker: &Waker) -> bool {
        let Some((inner, place)) = &self.0 else { return false };
        if !inner.arm(*place, waker) {
            return false;
        }
        inner.watch(*place);
        true
    }
}
