//! Each size as a message: one processor copies it into a buffer, and another one copies it out:
//! `copy.handed`.
//!
//! As in a queue between two processes, each line of the buffer lies in the cache of the processor
//! that used it last, which is always the other one. On such buffers, methods differ that are equal
//! in the own cache: a store waits until the other processor has given the line up, and whether
//! these waits overlap depends on the method.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use haul_machine::sys::Sys;
use haul_measure::memory::{Pages, Region, check_available};
use haul_measure::{Caches, Sampling, Subject};
use haul_model::Bytes;
use haul_model::experiment::{key, name};

use super::subjects::{self, Candidate, Plain, Routine, Selection};
use super::{Function, each_size, proof};
use crate::context::Context;
use crate::error::Error;
use crate::experiment::{Experiment, SMALL};
use crate::outcome::{self, Metric, Template};

/// The buffers that are used in turn, as in a queue.
const BUFFERS: usize = 16;

/// The threads: one that copies in, and one that copies out.
const THREADS: usize = 2;

/// The value of the record parameter `level`.
const LEVEL: &str = "other processor";

/// The intended time of a sample.
const SAMPLE: Duration = Duration::from_micros(200);

/// The smallest number of rounds, independent of the budget.
const ROUNDS_MIN: usize = 9;

/// The distance in bytes of the first byte of source, buffers and target from a multiple of a
/// cache line: that of blocks of malloc.
const OFFSET: usize = 16;

/// The unit of the distance between two buffers, in bytes: a page and a line, so that the buffers
/// lie in different sets of a cache.
const STRIDE: usize = 4096 + LINE;

const LINE: usize = 64;

/// Messages of one size after the other.
#[derive(Clone, Debug)]
pub struct Handed {
    /// The sizes in bytes.
    pub sizes_bytes: Vec<usize>,
    /// The subjects that are measured against libc.
    pub subjects: Selection,
    /// The longest time of the rounds of all sizes.
    pub budget: Duration,
    /// The seed of the order of subjects.
    pub seed: u64,
}

impl Handed {
    /// haul and libc, for half a second per size.
    #[must_use]
    pub fn new(sizes_bytes: Vec<usize>) -> Self {
        let budget = each_size::budget(&sizes_bytes);
        Self { sizes_bytes, subjects: Selection::Products, budget, seed: 1 }
    }
}

impl Experiment for Handed {
    fn name(&self) -> String {
        format!("messages of {} to another processor", each_size::named(&self.sizes_bytes))
    }

    fn budget(&self) -> Duration {
        self.budget
    }

    fn set_budget(&mut self, budget: Duration) {
        self.budget = budget;
    }

    fn overhead(&self, _: &Caches) -> Duration {
        SMALL
    }

    /// Checks whether all buffers of a size fit into memory.
    fn check_memory(&self) -> Result<(), Error> {
        let largest = bytes(each_size::largest(&self.sizes_bytes));
        Ok(check_available(largest as u64, &Sys::new())?)
    }

    /// Emits one record for each size and subject. The time is that of a message: in and out.
    ///
    /// # Errors
    /// A size does not fit into memory, or a subject is unknown or copied wrongly; the records of
    /// the earlier sizes have been emitted. See also [`haul_measure::Error`].
    fn measure(&self, context: &mut Context<'_>) -> Result<(), Error> {
        each_size::measure(&self.sizes_bytes, context, |size, context| {
            measure_size(self, size, context)
        })
    }
}

fn measure_size(config: &Handed, size: usize, context: &mut Context<'_>) -> Result<(), Error> {
    let candidates = subjects::select(Function::Memcpy, &config.subjects, Plain::C)?;
    let exchange = Exchange::new(size)?;
    let on: Vec<Through<'_>> =
        candidates.iter().map(|&candidate| Through { candidate, exchange: &exchange }).collect();
    let entrants: Vec<&dyn Subject> = on.iter().map(|subject| subject as &dyn Subject).collect();
    let sampling = Sampling {
        sample: SAMPLE,
        budget: each_size::share(config.budget, &config.sizes_bytes),
        rounds_min: ROUNDS_MIN,
        threads: THREADS,
        seed: config.seed,
        ..Sampling::default()
    };
    let what = format!("messages of {}", Bytes(size as u64));
    let outcome = outcome::measure(context, &what, &entrants, 0, &sampling)?;
    on.iter().zip(1..).try_for_each(|(subject, seed)| subject.check(seed))?;
    let template = Template {
        experiment: name::COPY_HANDED,
        parameters: [
            (key::FUNCTION, Function::Memcpy.name().into()),
            (key::SIZE_BYTES, size.into()),
            (key::LEVEL, LEVEL.into()),
        ]
        .into_iter()
        .collect(),
        metric: Metric::Time,
        notes: Vec::new(),
    };
    outcome::emit_each(context, &outcome, &template, |_| Vec::new());
    Ok(())
}

/// The distance between two buffers.
fn stride(size: usize) -> usize {
    (OFFSET + size).div_ceil(STRIDE) * STRIDE
}

/// The bytes of all buffers, the source and the target.
fn bytes(size: usize) -> usize {
    (BUFFERS + 2) * stride(size)
}

/// A word on a line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Apart(AtomicU64);

/// The buffers, and how many messages were copied in and out. One message is under way at a time,
/// so that its time is the sum of both copies.
#[derive(Debug)]
struct Exchange {
    region: Region,
    size: usize,
    sent: Apart,
    received: Apart,
}

// SAFETY: the two threads access a buffer in turn, which `sent` and `received` order; the source
// belongs to the first thread, and the target to the second one.
unsafe impl Sync for Exchange {}

impl Exchange {
    fn new(size: usize) -> Result<Self, Error> {
        let region = Region::new(bytes(size), Pages::Huge)?;
        Ok(Self { region, size, sent: Apart::default(), received: Apart::default() })
    }

    /// The buffer of a message.
    fn buffer(&self, message: u64) -> *mut u8 {
        self.at((message % BUFFERS as u64) as usize)
    }

    fn source(&self) -> *mut u8 {
        self.at(BUFFERS)
    }

    fn target(&self) -> *mut u8 {
        self.at(BUFFERS + 1)
    }

    fn at(&self, index: usize) -> *mut u8 {
        self.region.pointer().wrapping_add(index * stride(self.size) + OFFSET)
    }
}

/// A subject that copies messages in and out.
#[derive(Debug)]
struct Through<'a> {
    candidate: Candidate,
    exchange: &'a Exchange,
}

impl Through<'_> {
    /// Sends a message of known bytes, and compares what arrives.
    fn check(&self, seed: u8) -> Result<(), Error> {
        let size = self.exchange.size;
        // SAFETY: the source has the size, and no thread uses it now.
        proof::pattern(
            unsafe { std::slice::from_raw_parts_mut(self.exchange.source(), size) },
            seed,
        );
        std::thread::scope(|scope| {
            scope.spawn(|| self.run(1, 1));
            self.run(0, 1);
        });
        // SAFETY: as above; the thread has ended.
        let source = unsafe { std::slice::from_raw_parts(self.exchange.source(), size) };
        // SAFETY: as above.
        let found = unsafe { std::slice::from_raw_parts(self.exchange.target(), size) };
        proof::equal(self.candidate, Function::Memcpy, size, (found, source), 0)
    }

    /// # Safety
    /// Both areas have the size and belong to this thread.
    #[inline]
    unsafe fn copy(&self, target: *mut u8, source: *const u8) {
        let size = self.exchange.size;
        if let Routine::Copy(copy) = self.candidate.routine {
            // SAFETY: the caller's promise.
            unsafe { copy(target, source, size) };
        } else {
            // SAFETY: the caller's promise.
            unsafe { haul_copy::memcpy(target, source, size) }
        }
    }
}

impl Subject for Through<'_> {
    fn name(&self) -> &str {
        self.candidate.name
    }

    /// The first thread copies into the buffers, and the second one out of them.
    fn run(&self, thread: usize, iterations: u64) {
        let Exchange { sent, received, .. } = self.exchange;
        let (own, others) = if thread == 0 { (sent, received) } else { (received, sent) };
        let first = own.0.load(Ordering::Relaxed);
        for message in first..first + iterations {
            let wanted = message + thread as u64;
            // SYNC: message handed
            while others.0.load(Ordering::Acquire) != wanted {
                std::hint::spin_loop();
            }
            let buffer = self.exchange.buffer(message);
            let (target, source) = match thread {
                0 => (buffer, self.exchange.source()),
                _ => (self.exchange.target(), buffer),
            };
            // SAFETY: the counters show that it is this thread's turn for the buffer.
            unsafe { self.copy(target, source) };
            // SYNC: message handed
            own.0.store(message + 1, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_every_subject_arrive_whole() {
        for size in [0, 1, 63, 64, 4096, 70_000] {
            let exchange = Exchange::new(size).unwrap();
            let all = subjects::available(Function::Memcpy, Plain::C);
            for (candidate, seed) in all.into_iter().zip(1..) {
                Through { candidate, exchange: &exchange }.check(seed).unwrap();
            }
        }
    }

    #[test]
    fn subject_that_copies_nothing_is_found() {
        unsafe extern "C" fn nothing(target: *mut u8, _: *const u8, _: usize) -> *mut u8 {
            target
        }
        let exchange = Exchange::new(100).unwrap();
        let candidate = Candidate { name: "nothing", routine: Routine::Copy(nothing) };
        let error = Through { candidate, exchange: &exchange }.check(1).unwrap_err();
        assert!(error.to_string().contains("nothing"), "{error}");
    }
}
