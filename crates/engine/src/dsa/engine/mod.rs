//! The engine over one queue of a DSA, or of a fake.
//!
//! Each slot has a completion record, and a word that says how far its operation is:
//!
//! ```text
//! IDLE -> SUBMITTED -> CLAIMED -> IDLE     the record is written, the slot ends
//!             ^           |
//!             +-----------+                a page fault: touched, and the rest submitted
//! ```
//!
//! A thread that sees a record claims the slot before it reads the record again, because the slot
//! may have ended and started once more meanwhile.
//!
//! From the bottom up:
//!
//! - `operations`: operations as descriptors, and completions as values;
//! - `lane`: an open queue;
//! - `opening`: how a queue is found, and how an engine over it begins;
//! - `closing`: what a close does with pending operations.

mod closing;
mod lane;
mod opening;
mod operations;

use std::fmt;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use self::lane::{Lane, Source};
use self::operations::{Batches, Done};
use super::completion::{Completion, Record};
use super::fake::{Fake, Settings};
use super::portal::{Mechanism, Unsubmitted};
use super::status::Status;
use crate::contract::{Engine, Facts};
use crate::operation::Request;
use crate::outcome::{Outcome, Refusal, Trouble};
use crate::slots::{Index, Slots};

/// How often the rest of an operation is submitted after a page fault. A copy into untouched pages
/// faults in each of them, and the CPU is then faster.
const RESUMES_MAX: u64 = 2;

/// Slots that a poll of another slot checks in addition.
const OTHERS_MAX: usize = 8;

/// Polls without a completion after which the device's state is read. A wait that sleeps needs some
/// 0.1 ms for a poll.
const POLLS_OF_SILENCE: u32 = 1 << 8;

/// The shortest time between two reads of the device's state.
const STATE_INTERVAL: Duration = Duration::from_millis(10);

/// The default of [`Options::patience`]: hundreds of the largest transfers.
const PATIENCE: Duration = Duration::from_secs(10);

/// The bits of a slot's word that hold its state.
const STATE: u64 = 0xff;

const IDLE: u64 = 0;
const SUBMITTED: u64 = 1;
const CLAIMED: u64 = 2;

/// How an engine uses its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Submit by `write`, even if a portal can be mapped.
    pub only_write: bool,
    /// Let the device wait for the kernel at a page fault, instead of reporting it.
    pub block_on_fault: bool,
    /// After this time without an end, a wait closes the queue.
    pub patience: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { only_write: false, block_on_fault: false, patience: PATIENCE }
    }
}

/// The engine over one queue.
///
/// Start: no allocation, but for lists. MOVDIR64B waits for no answer, ENQCMD waits for the
/// device's, and `write` is a system call. A full queue, a device that is gone, and a kernel that
/// refuses are refusals, after which the CPU copies.
pub struct Dsa {
    facts: Facts,
    slots: Arc<Slots>,
    records: Box<[Line]>,
    source: Source,
    options: Options,
    /// The descriptors that may be pending: the size of the queue.
    capacity: u32,
    lane: AtomicPtr<Lane>,
    turn: AtomicU32,
    troubles: Box<[AtomicU64]>,
    batches: Batches,
}

/// A completion record alone in its cache line, so that the device and two pollers do not contend.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Line(Record);

impl Dsa {
    /// How this process submits; `None` after the queue was closed.
    #[must_use]
    pub fn mechanism(&self) -> Option<Mechanism> {
        let portal = self.lane().portal.lock().unwrap_or_else(PoisonError::into_inner);
        portal.as_ref().map(|portal| portal.mechanism())
    }

    fn lane(&self) -> &Lane {
        // SAFETY: the pointer comes from Box::into_raw. A lane that was replaced, in a child of
        // fork, is never freed; the present one is freed when the engine is dropped.
        unsafe { &*self.lane.load(Ordering::Acquire) }
    }

    fn record(&self, index: Index) -> &Record {
        &self.records[index.number()].0
    }

    /// Submits the part of an operation from byte `done` on. The slot is SUBMITTED before, so that
    /// a close of the queue finds it.
    ///
    /// # Errors
    /// The device has not received it, and the slot is `before` again. If the queue was closed
    /// meanwhile and the slot has ended so, this is no error.
    ///
    /// # Safety
    /// As for [`Engine::start`], until the operation has ended. This thread owns the slot.
    unsafe fn submit(
        &self,
        index: Index,
        request: &Request,
        done: Done,
        before: u64,
    ) -> Result<(), Refusal> {
        let (record, word) = (self.record(index), self.slots.word(index));
        let blocks = self.options.block_on_fault;
        // SAFETY: the caller's promise holds for the lists too, and the slot is this thread's.
        let descriptor = unsafe { self.batches.describe(index.number(), request, done, blocks) }?;
        let descriptor = descriptor.record(record.address());
        record.reset();
        let submitted = done.word(SUBMITTED);
        word.store(submitted, Ordering::Release);
        let lane = self.lane();
        // SAFETY: the record lives as long as the engine, which ends its operations before. The
        // rest is the caller's promise.
        let Err(reason) = (unsafe { lane.submit(&descriptor) }) else { return Ok(()) };
        loop {
            match word.compare_exchange(submitted, before, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break,
                // A poll has claimed the slot for a moment, to read its record again.
                Err(now) if now & STATE == CLAIMED => std::hint::spin_loop(),
                Err(_) => return Ok(()),
            }
        }
        Err(match reason {
            Unsubmitted::Full => Refusal::Full,
            Unsubmitted::Foreign if !lane.owner.is_here() => Refusal::Forked,
            Unsubmitted::Foreign | Unsubmitted::Refused(Errno::NOSYS) => Refusal::Permission,
            Unsubmitted::Gone => {
                lane.is_gone.store(true, Ordering::Relaxed);
                Refusal::Gone
            }
            Unsubmitted::Refused(_) => Refusal::Unsupported,
        })
    }

    /// Ends or resumes the slot if its record is written. Returns whether it was.
    fn check(&self, index: Index) -> bool {
        let word = self.slots.word(index);
        let now = word.load(Ordering::Acquire);
        if now & STATE != SUBMITTED || self.record(index).poll().is_none() {
            return false;
        }
        let claimed = now & !STATE | CLAIMED;
        if word.compare_exchange(now, claimed, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        let Some(completion) = self.record(index).poll() else {
            // The slot was started again between the two checks.
            word.store(now, Ordering::Release);
            return false;
        };
        self.lane().silence.store(0, Ordering::Relaxed);
        self.finish(index, Done::of(now), &completion);
        true
    }

    /// Ends or resumes a claimed slot.
    fn finish(&self, index: Index, before: Done, completion: &Completion) {
        // SAFETY: the slot was started and has not ended: this thread has claimed it.
        let request = unsafe { self.slots.request(index) };
        // SAFETY: the lists of a pending operation are in place.
        let length = unsafe { request.operation.length() };
        // A device that reports more than there is must not move the rest behind the end.
        let bytes = before.bytes.saturating_add(completion.completed as usize).min(length);
        let status = completion.status;
        if status.is_success() {
            let value = operations::value(&request.operation, before, completion);
            self.end(index, Outcome::Done(value));
            return;
        }
        if !status.is_fault() {
            self.troubles[usize::from(status.number())].fetch_add(1, Ordering::Relaxed);
            self.end(index, Outcome::Refused(Refusal::Status(status.number())));
            return;
        }
        let crc = if operations::has_crc(&request.operation) { completion.crc } else { before.crc };
        let done = Done { bytes, resumes: before.resumes + 1, crc };
        self.slots.report(index, bytes);
        let address = completion.fault_address;
        let can_resume = before.resumes < RESUMES_MAX && operations::can_resume(&request.operation);
        let touch = || {
            // SAFETY: the operation has not ended: this thread has claimed its slot.
            unsafe { operations::touch(&request.operation, bytes, address, completion.access) }
        };
        if can_resume && bytes < length && touch() {
            // SAFETY: the operation has not ended, so its memory is valid. This thread has claimed
            // the slot.
            if unsafe { self.submit(index, &request, done, done.word(CLAIMED)) }.is_ok() {
                return;
            }
        }
        let address = usize::try_from(address).unwrap_or(usize::MAX);
        self.end(index, Outcome::Partial { bytes_done: bytes, address, access: completion.access });
    }

    /// Ends a claimed slot.
    fn end(&self, index: Index, outcome: Outcome) {
        self.batches.forget(index.number());
        self.slots.word(index).store(IDLE, Ordering::Release);
        self.lane().pending.fetch_sub(1, Ordering::AcqRel);
        // SAFETY: the operation was accepted, this thread has claimed its slot, and the device has
        // written its record or was stopped, so that nothing accesses the memory.
        unsafe { self.slots.end(index, outcome) };
    }

    /// Reads the device's state after a long silence, and gives up a device that is gone.
    fn watch(&self) {
        let lane = self.lane();
        let silence = lane.silence.fetch_add(1, Ordering::Relaxed);
        if !silence.wrapping_add(1).is_multiple_of(POLLS_OF_SILENCE) {
            return;
        }
        let Ok(mut last) = lane.state_read.try_lock() else { return };
        if last.elapsed() < STATE_INTERVAL {
            return;
        }
        *last = Instant::now();
        drop(last);
        let is_alive = match lane.portal.try_lock() {
            Ok(portal) => portal.as_ref().is_some_and(|portal| portal.is_alive()),
            Err(_) => return,
        };
        if !is_alive {
            // The kernel has disabled the queue, so a close does not wait for the device.
            self.close(true);
        }
    }

    fn index(&self, number: usize) -> Index {
        Index(number as u32)
    }
}

// SAFETY: a slot ends once, because its word goes from SUBMITTED to CLAIMED in one thread. It ends
// when the device has written its record, or after the queue was closed, if the kernel then says
// that the device executes nothing. A refused start leaves no descriptor in the device. Drop
// closes the queue.
unsafe impl Engine for Dsa {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    unsafe fn start(&self, index: Index) -> Result<(), Refusal> {
        let lane = self.lane();
        if !lane.owner.is_here() {
            return Err(Refusal::Forked);
        }
        if lane.is_gone.load(Ordering::Relaxed) {
            return Err(Refusal::Gone);
        }
        if lane.pending.fetch_add(1, Ordering::AcqRel) >= self.capacity {
            lane.pending.fetch_sub(1, Ordering::AcqRel);
            // Operations that have ended hold their places until a poll ends them.
            (0..self.slots.count()).for_each(|number| {
                self.check(self.index(number));
            });
            if lane.pending.fetch_add(1, Ordering::AcqRel) >= self.capacity {
                lane.pending.fetch_sub(1, Ordering::AcqRel);
                return Err(Refusal::Full);
            }
        }
        // SAFETY: the slot holds a request that is being started.
        let request = unsafe { self.slots.request(index) };
        let done = Done { crc: request.operation.seed(), ..Done::default() };
        // SAFETY: the caller's promise; the slot is this thread's until it is submitted.
        let submitted = unsafe { self.submit(index, &request, done, IDLE) };
        if submitted.is_err() {
            self.batches.forget(index.number());
            lane.pending.fetch_sub(1, Ordering::AcqRel);
        }
        submitted
    }

    fn poll(&self, index: Index) {
        let mut has_ended = self.check(index);
        let count = self.slots.count();
        let first = self.turn.fetch_add(OTHERS_MAX as u32, Ordering::Relaxed) as usize;
        for offset in 0..OTHERS_MAX.min(count) {
            has_ended |= self.check(self.index((first + offset) % count));
        }
        if !has_ended {
            self.watch();
        }
    }

    fn revoke(&self) {
        self.close(false);
    }

    fn troubles(&self) -> Vec<Trouble> {
        let counts = self.troubles.iter().map(|count| count.load(Ordering::Relaxed));
        let trouble = |(number, count): (usize, u64)| {
            let status = Status::of(number as u8).0;
            Trouble {
                engine: Arc::clone(&self.facts.name),
                status: status.number(),
                count,
                cause: status.cause(),
                remedy: status.remedy(),
            }
        };
        counts.enumerate().filter(|(_, count)| *count > 0).map(trouble).collect()
    }

    fn reopen(&self) -> Result<(), Refusal> {
        let refusal = |_| Refusal::Forked;
        if let Source::Fake(fake, _) = &self.source {
            let settings = self.fake_settings(fake);
            let started = Fake::new(settings).map_err(refusal)?;
            // The parent's fake has no threads here.
            let Ok(mut fake) = fake.try_lock() else { return Err(Refusal::Forked) };
            std::mem::forget(std::mem::replace(&mut *fake, Arc::new(started)));
        }
        let lane = Lane::over(self.source.open(self.options).map_err(refusal)?);
        for number in 0..self.slots.count() {
            self.slots.word(self.index(number)).store(IDLE, Ordering::Release);
        }
        // The parent's lane is left as it is: another thread may have used it during the fork.
        self.lane.store(Box::into_raw(lane), Ordering::Release);
        Ok(())
    }
}

impl Dsa {
    fn fake_settings(&self, fake: &Mutex<Arc<Fake>>) -> Settings {
        match fake.try_lock() {
            Ok(fake) => fake.settings().clone(),
            Err(_) => Settings::default(),
        }
    }
}

impl Drop for Dsa {
    fn drop(&mut self) {
        if !self.lane().owner.is_here() {
            // The queue is the parent's.
            return;
        }
        self.revoke();
        // SAFETY: the pointer comes from Box::into_raw, and nothing else uses the engine any more.
        drop(unsafe { Box::from_raw(*self.lane.get_mut()) });
    }
}

impl fmt::Debug for Dsa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dsa").field("facts", &self.facts).finish_non_exhaustive()
    }
}
