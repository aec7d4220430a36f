//! Tests of the fake, and of the engine over it.
//!
//! - `fake`: the fake as a device, by its descriptors and records;
//! - `engine`: the engine's rules;
//! - `reports`: what others have reported about DSA, each as a test;
//! - `children`: forks;
//! - `device`: the engine over the device file, under `libhaul_engine_fake.so`.

mod children;
mod device;
mod engine;
mod fake;
mod reports;

use core::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use haul_copy::Hint;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use super::fake::{Fake, Settings};
use super::{Dsa, Options};
use crate::contract::Engine as _;
use crate::operation::{Operation, Request};
use crate::outcome::{Outcome, Refusal, Value};
use crate::slots::{Index, Slots};

pub(crate) const PAGE_BYTES: usize = 4096;

/// Longer than any operation of these tests lasts.
const LIMIT: Duration = Duration::from_secs(60);

/// An engine over a queue of a fake.
struct Rig {
    fake: Arc<Fake>,
    slots: Arc<Slots>,
    engine: Dsa,
}

impl Rig {
    fn new(settings: Settings) -> Self {
        Self::with(settings, 0, Options::default(), 128)
    }

    fn with(settings: Settings, queue: usize, options: Options, slots: usize) -> Self {
        let fake = Arc::new(Fake::new(settings).unwrap());
        let slots = Slots::new(slots);
        let engine = Dsa::of_fake(&fake, queue, options, Arc::clone(&slots)).unwrap();
        Self { fake, slots, engine }
    }

    /// Starts an operation on memory that outlives it, as every test here keeps it.
    fn start(&self, operation: Operation) -> Result<Index, Refusal> {
        let index = self.slots.take().ok_or(Refusal::Full)?;
        // SAFETY: the slot was just taken.
        unsafe { self.slots.put(index, Request { operation, hint: Hint::Unknown }) };
        // SAFETY: the slot holds a request, and the tests keep its memory.
        let started = unsafe { self.engine.start(index) };
        match started {
            Ok(()) => Ok(index),
            Err(refusal) => {
                self.slots.release(index);
                Err(refusal)
            }
        }
    }

    fn poll(&self, index: Index) -> Option<Outcome> {
        self.engine.poll(index);
        self.slots.outcome(index)
    }

    fn wait(&self, index: Index) -> Outcome {
        let end = Instant::now() + LIMIT;
        loop {
            if let Some(outcome) = self.poll(index) {
                self.slots.release(index);
                return outcome;
            }
            assert!(Instant::now() < end, "the operation does not end: {:?}", self.fake);
            thread::yield_now();
        }
    }

    fn run(&self, operation: Operation) -> Outcome {
        let index = self.start(operation).expect("the queue has room");
        self.wait(index)
    }
}

const WRITTEN: Outcome = Outcome::Done(Value::Written);

/// A copy of the first `length` bytes.
fn copy(source: &Pages, target: &Pages, length: usize) -> Operation {
    Operation::Copy { target: target.start, source: source.start, length }
}

/// Pages at an address of their own.
pub(crate) struct Pages {
    start: *mut u8,
    count: usize,
}

impl Pages {
    pub(crate) fn new(count: usize) -> Self {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses touches no other memory.
        let start = unsafe {
            mmap_anonymous(ptr::null_mut(), count * PAGE_BYTES, access, MapFlags::PRIVATE)
        };
        Self { start: start.unwrap().cast(), count }
    }

    pub(crate) fn address(&self) -> u64 {
        self.start.addr() as u64
    }

    fn len(&self) -> usize {
        self.count * PAGE_BYTES
    }

    /// Pages with bytes that differ from one another and from zero.
    fn filled(count: usize) -> Self {
        let pages = Self::new(count);
        pages.fill(|index| (index % 251 + 1) as u8);
        pages
    }

    /// Sets each byte from its index.
    pub(crate) fn fill(&self, byte: impl Fn(usize) -> u8) {
        for index in 0..self.len() {
            // SAFETY: the byte is within the mapping.
            let target = unsafe { self.start.add(index) };
            // SAFETY: the tests call this while all pages are writable.
            unsafe { target.write_volatile(byte(index)) };
        }
    }

    /// A copy of the bytes; pages must be readable.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let read = |index: usize| {
            // SAFETY: the byte is within the mapping.
            let source = unsafe { self.start.add(index) };
            // SAFETY: the tests call this while all pages are readable.
            unsafe { source.read_volatile() }
        };
        (0..self.len()).map(read).collect()
    }

    /// Changes the access to the pages from `page` on.
    pub(crate) fn protect_from(&self, page: usize, flags: MprotectFlags) {
        let (start, length) = self.tail(page);
        // SAFETY: the range is this mapping's own; the tests access it no more than it allows.
        unsafe { mprotect(start, length, flags) }.unwrap();
    }

    /// Removes the memory from `page` on. Its addresses stay reserved, because the kernel would
    /// give them to another test.
    pub(crate) fn unmap_from(&self, page: usize) {
        self.protect_from(page, MprotectFlags::empty());
    }

    fn tail(&self, page: usize) -> (*mut c_void, usize) {
        // SAFETY: the page is within the mapping.
        let start = unsafe { self.start.add(page * PAGE_BYTES) };
        (start.cast(), (self.count - page) * PAGE_BYTES)
    }
}

// SAFETY: the tests that share pages use distinct bytes of them.
unsafe impl Sync for Pages {}

impl Drop for Pages {
    fn drop(&mut self) {
        let (start, length) = self.tail(0);
        // SAFETY: the range is this mapping's own, or was removed, and no test uses it any more.
        let _ = unsafe { munmap(start, length) };
    }
}
