//! What an engine implements. A [`Queue`](crate::Queue) is the front for callers: it checks
//! ranges, keeps the slots, copies with the CPU where an engine refuses, and waits.
//!
//! # What holds for every engine
//!
//! - If [`start`](Engine::start) accepts an operation, the engine calls [`Slots::end`] exactly
//!   once. Before that call it may access the operation's memory at any time, afterwards never.
//! - [`Slots::end`] calls wakers, and a waker may submit again. So the engine holds no lock that
//!   [`start`](Engine::start) or [`poll`](Engine::poll) takes when it calls it.
//! - If it refuses, it has not accessed the memory and will not.
//! - No method unwinds: a caller that waits would give back memory that the engine may access. So a
//!   wait for borrowed memory that unwinds ends the process.
//! - **A wedged device.** Nothing but the end of an operation makes its memory safe to reuse. If a
//!   device does not end an operation within [`Facts::patience`], a wait calls
//!   [`revoke`](Engine::revoke), which returns only when the device can no longer access any
//!   memory; it may block for ever. A scope and [`Queue::execute`](crate::Queue::execute) then wait
//!   for ever with it, because returning would be unsound. Buffers of an owned operation whose
//!   handle is dropped are kept until the operation has ended, and leaked if it never does.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::outcome::{Refusal, Trouble};
use crate::slots::Index;
#[cfg(doc)]
use crate::slots::Slots;

/// What an engine is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A processor core.
    Software,
    /// A device.
    Hardware,
    /// A program that behaves like a device.
    Fake,
}

impl Kind {
    /// The kind as records and commands spell it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Software => "software",
            Self::Hardware => "hardware",
            Self::Fake => "fake",
        }
    }
}

/// What does not change while an engine lives.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The engine's name, for example `worker` or `dsa:wq0.1`.
    pub name: Arc<str>,
    /// What it is made of.
    pub kind: Kind,
    /// The operations that it has: the sum of [`Verb::bit`](crate::Verb::bit).
    pub verbs: u32,
    /// The longest operation in bytes.
    pub length_max: usize,
    /// Whether the engine calls [`Slots::end`] without a call of [`poll`](Engine::poll). If not,
    /// a queue with futures, events or callbacks polls from a thread of its own.
    pub ends_unpolled: bool,
    /// After this time without an end, a wait calls [`revoke`](Engine::revoke); `None` if the
    /// engine always ends its operations.
    pub patience: Option<Duration>,
}

/// An engine behind a [`Queue`](crate::Queue). It was given its [`Slots`] when it was opened, and
/// may be used by all threads at the same time.
///
/// # Safety
/// The implementation must keep the rules of the module. When its `Drop` returns, it must
/// not access the memory of any operation any more.
pub unsafe trait Engine: Send + Sync + fmt::Debug {
    /// The engine's facts. Cost: none.
    fn facts(&self) -> &Facts;

    /// Starts the operation in the slot, or refuses. Does not wait. If it accepts, the slot
    /// belongs to the engine until it calls [`Slots::end`]. The length is neither 0 nor above
    /// [`Facts::length_max`], the verb is one of [`Facts::verbs`], and source and target do not
    /// overlap.
    ///
    /// # Errors
    /// The reason for which nothing was started. The queue then lets the CPU do it.
    ///
    /// # Safety
    /// The slot holds a request, no other thread uses it, and the memory of its operation is
    /// valid until it has ended.
    unsafe fn start(&self, index: Index) -> Result<(), Refusal>;

    /// Looks once for operations that have ended, this one above all, and ends their slots. Does
    /// bounded work, never waits. `index` may have ended already.
    fn poll(&self, index: Index);

    /// Whether [`start`](Self::start) is cheap now. False if it has to wake a thread first.
    fn is_ready(&self) -> bool {
        true
    }

    /// Makes [`is_ready`](Self::is_ready) true soon, because operations are expected. Returns
    /// whether this call wakes the engine: it slept, and no other call was about to wake it. Does
    /// not wait.
    fn rouse(&self) -> bool {
        false
    }

    /// Whether the engine lately lost its processor, so that the CPU should do some operations
    /// before it is tried again. Each call counts as one of them, with this many bytes.
    fn skips_one(&self, bytes: usize) -> bool {
        let _ = bytes;
        false
    }

    /// A caller waits for this operation: it may take part. Returns whether it did some of it, so
    /// that the caller should check again before it sleeps.
    fn help(&self, index: Index) -> bool {
        let _ = index;
        false
    }

    /// Makes the device give up everything that is pending. Each slot ends with what the device has
    /// completed, or with [`Outcome::Gone`](crate::Outcome::Gone). Returns only when the device can
    /// no longer access memory, so it may block for ever.
    fn revoke(&self) {}

    /// What the device has reported besides successes and page faults. The CPU may have finished
    /// these operations, so that no result shows them.
    fn troubles(&self) -> Vec<Trouble> {
        Vec::new()
    }

    /// Makes the engine usable in a child of fork. What was pending in the parent at the time of
    /// the fork is not this process's: the queue does it with the CPU. The queue calls this once in
    /// each child, before its first `start` there.
    ///
    /// # Errors
    /// [`Refusal::Forked`] if it cannot be used there; the CPU then does everything.
    fn reopen(&self) -> Result<(), Refusal> {
        Err(Refusal::Forked)
    }
}
