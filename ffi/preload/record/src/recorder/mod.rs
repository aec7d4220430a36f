//! The state of the recording, and the path of an event from a call to the file.
//!
//! From the bottom up:
//!
//! - `report`: what a person reads;
//! - `slots`: the slots of threads;
//! - `start`: the start of the recording.

mod report;
mod slots;
mod start;

use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use haul_heap::guard;
use haul_model::trace::{Call, Event};

use crate::file::{self, Failure, File, PATH_BYTES};
use crate::filter;
use crate::thread::{THREADS_MAX, Thread};
use crate::tree;
use report::{report, say};
use slots::claim;

/// The number of DPDK's type names that have a separate tag. Later names share the last tag.
const NAMES_MAX: usize = 512;

/// The default of `HAUL_RECORD_LIMIT`, the largest trace of a process in bytes: some 500 million
/// events, and less than a disk.
const LIMIT_BYTES: u64 = 4 << 30;

/// The state of one process, in memory that the kernel sets to zeros in a forked child.
struct State {
    phase: AtomicU32,
    file: File,
    /// A hash of each name; the tag of a name is its index plus 1.
    names: [AtomicU64; NAMES_MAX],
    threads: [Thread; THREADS_MAX],
}

/// The values of `State::phase`. A forked child starts with `UNBEGUN`.
const UNBEGUN: u32 = 0;
const BEGINNING: u32 = 1;
const RECORDING: u32 = 2;
const ENDED: u32 = 3;

/// Null if nothing is recorded.
static STATE: AtomicPtr<State> = AtomicPtr::new(ptr::null_mut());
static KEY: AtomicU32 = AtomicU32::new(0);
static LIMIT: AtomicU64 = AtomicU64::new(LIMIT_BYTES);

/// The process that recorded last. In a forked child, that process is the parent.
static LAST_PROCESS: AtomicU32 = AtomicU32::new(0);

/// The base of the file's name. The base is an absolute path, because programs change their
/// working directory.
struct Base(UnsafeCell<([u8; PATH_BYTES], usize)>);
// SAFETY: only the constructor writes it, before `STATE` is set; it is not read before `STATE` is
// set.
unsafe impl Sync for Base {}
static BASE: Base = Base(UnsafeCell::new(([0; PATH_BYTES], 0)));

/// The destination of a call's events.
#[derive(Clone, Copy)]
pub(crate) struct Recorder {
    state: &'static State,
    pub(crate) thread: &'static Thread,
    number: u32,
}

impl Recorder {
    /// The recorder of the calling thread; `None` if nothing is recorded.
    pub(crate) fn current() -> Option<Self> {
        let state = state()?;
        let phase = state.phase.load(Ordering::Acquire);
        if phase != RECORDING && !begin(state, phase) {
            return None;
        }
        // SAFETY: the key was created before `STATE` was set, and is never deleted.
        let value = unsafe { libc::pthread_getspecific(KEY.load(Ordering::Relaxed)) }.addr() as u64;
        let process = u64::from(state.file.process.load(Ordering::Relaxed));
        let place = (value & 0xffff_ffff) as usize;
        // A forked child has its parent's key values, but its own thread slots are not claimed yet.
        let place = if value >> 32 == process { place } else { claim(state, process)? };
        let thread = state.threads.get(place)?;
        Some(Self { state, thread, number: thread.owner.load(Ordering::Relaxed) })
    }

    /// Maps blocks in advance for a process that will make no more system calls.
    pub(crate) fn reserve() {
        let Some(state) = state() else { return };
        if state.phase.load(Ordering::Acquire) == RECORDING {
            state.file.reserve();
        }
    }

    /// Ends the trace of a thread that may only read, write and exit. Such a thread may not even
    /// read the processor's clock (prctl(2), PR_TSC_SIGSEGV).
    pub(crate) fn stop() {
        let Some(state) = state() else { return };
        if state.phase.swap(ENDED, Ordering::AcqRel) == RECORDING {
            say(&[
                b"the program restricts itself to read and write (seccomp, strict); the trace up \
              to here is kept",
            ]);
        }
    }

    /// Whether a fault at the address came from a trace that was truncated, and will not recur.
    /// If so, the trace ends.
    fn survives_cut(address: usize) -> bool {
        let Some(state) = state() else { return false };
        let (reserve, length) = state.file.reserved();
        let is_in = !reserve.is_null() && address.wrapping_sub(reserve.addr()) < length;
        // SAFETY: the range is the whole reserve.
        let survives = (is_in && unsafe { guard::replace_page(reserve.addr(), length) })
            || state.threads.iter().any(|thread| thread.survives_cut(address));
        if survives {
            end(state, Failure::Cut);
        }
        survives
    }

    /// The time of the clock that times events.
    pub(crate) fn now() -> u64 {
        file::clock_ns(libc::CLOCK_MONOTONIC)
    }

    /// Records a call that began at `start`, a time of [`now`](Self::now), and ends now.
    pub(crate) fn record_since(self, start: u64, call: Call<'_>) {
        self.put(start, Self::now().saturating_sub(start), call);
    }

    /// Records a call that begins now.
    pub(crate) fn record(self, call: Call<'_>) {
        self.put(Self::now(), 0, call);
    }

    /// The tag of a DPDK type. The first use of a name records it.
    pub(crate) fn tag(self, name: &[u8]) -> u16 {
        // FNV-1a, 64 bits (RFC draft-eastlake-fnv). This hash is sufficient, because names are
        // few and short.
        let hash = name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let hash = hash.max(1);
        for (index, slot) in self.state.names.iter().enumerate() {
            let tag = index as u16 + 1;
            let found = match slot.load(Ordering::Relaxed) {
                0 => slot.compare_exchange(0, hash, Ordering::Relaxed, Ordering::Relaxed),
                taken => Err(taken),
            };
            match found {
                Ok(_) => {
                    self.record(Call::Name { tag, name });
                    return tag;
                }
                Err(other) if other == hash => return tag,
                Err(_) => {}
            }
        }
        NAMES_MAX as u16
    }

    fn put(self, start: u64, took_ns: u64, call: Call<'_>) {
        let time_ns = self.state.file.since_start_ns(start);
        let event = Event { time_ns, took_ns, thread: self.number, call };
        if let Err(failure) = self.thread.record(&self.state.file, &event) {
            end(self.state, failure);
        }
    }
}

/// The state; `None` if nothing is recorded.
#[inline]
fn state() -> Option<&'static State> {
    // SAFETY: the pointer is null, or leads to a mapping that lasts as long as the process.
    unsafe { STATE.load(Ordering::Acquire).as_ref() }
}

/// Begins the trace of this process. A forked child begins its trace in its first call.
#[cold]
fn begin(state: &State, phase: u32) -> bool {
    let (order, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
    if phase != UNBEGUN || state.phase.compare_exchange(UNBEGUN, BEGINNING, order, relaxed).is_err()
    {
        return false;
    }
    if filter::is_on() {
        // The parent filters its system calls, and the child inherits the filter.
        state.phase.store(ENDED, Ordering::Release);
        return false;
    }
    let base = base();
    let parent = LAST_PROCESS.load(Ordering::Relaxed);
    match state.file.create(base, parent, LIMIT.load(Ordering::Relaxed)) {
        Ok(()) => {
            LAST_PROCESS.store(state.file.process.load(Ordering::Relaxed), Ordering::Relaxed);
            // A child inherits the handler. If the handler cannot be installed, truncating the
            // trace ends the program.
            if !guard::is_on() {
                let _ = guard::install_for(Recorder::survives_cut);
            }
            state.phase.store(RECORDING, Ordering::Release);
            true
        }
        Err(failure) => {
            end(state, failure);
            false
        }
    }
}

fn base() -> &'static [u8] {
    // SAFETY: the constructor wrote it before `STATE` was set.
    let (path, length) = unsafe { &*BASE.0.get() };
    path.get(..*length).unwrap_or_default()
}

/// Ends the trace of this process permanently, and reports it once.
#[cold]
fn end(state: &State, failure: Failure) {
    if state.phase.swap(ENDED, Ordering::AcqRel) == ENDED || filter::is_on() {
        return;
    }
    let number = match failure {
        Failure::System(errno) => errno.raw_os_error().unsigned_abs(),
        // These numbers are above every errno (MAX_ERRNO, 4095).
        Failure::Limit => 10_000,
        Failure::Replaced => 10_001,
        Failure::Cut => 10_002,
        Failure::Filtered => return,
    };
    // A truncated trace is reported in a signal handler, whose stack may have no room for a path.
    // A truncated trace is therefore reported once for each process.
    if matches!(failure, Failure::Cut) || tree::is_first(base(), number) {
        report(failure);
    }
}
