//! The state of this process, in memory that the kernel sets to zeros in a forked child.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use haul_model::stream::recording::layout::process;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::recording::Recording;
use crate::sample::Samples;
use crate::{filter, sys};

/// The state of one process.
pub(crate) struct State {
    phase: AtomicU32,
    /// A reference to the process's entry; 0 if it has none.
    process: AtomicU32,
    pub(crate) samples: Samples,
}

/// The values of `State::phase`. A forked child starts with 0.
const UNBEGUN: u32 = 0;
const BEGUN: u32 = 1;

/// Null if nothing is recorded.
static STATE: AtomicPtr<State> = AtomicPtr::new(ptr::null_mut());

/// The process that recorded last. In a forked child, this is its parent.
static LAST_PROCESS: AtomicU32 = AtomicU32::new(0);

impl State {
    /// Maps the state. Only the constructor calls it.
    pub(crate) fn create() -> Option<&'static Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let length = size_of::<Self>();
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let mapped = unsafe {
            rustix::mm::mmap_anonymous(ptr::null_mut(), length, protection, MapFlags::PRIVATE)
        };
        let state = mapped.ok()?;
        // SAFETY: it is the whole mapping that was just created. Only a forked child sees it wiped.
        unsafe { rustix::mm::madvise(state, length, Advice::LinuxWipeOnFork) }.ok()?;
        STATE.store(state.cast(), Ordering::Release);
        Self::current()
    }

    /// The state; `None` if nothing is recorded.
    #[inline(always)]
    pub(crate) fn current() -> Option<&'static Self> {
        // SAFETY: the pointer is null, or leads to a mapping that lasts as long as the process, all
        // of whose fields are atomic, and for which zeros are valid.
        unsafe { STATE.load(Ordering::Acquire).as_ref() }
    }

    /// A reference to the entry of this process.
    #[inline(always)]
    pub(crate) fn process(&self, recording: Recording) -> Option<u32> {
        match self.process.load(Ordering::Acquire) {
            0 => self.begin(recording),
            process => Some(process),
        }
    }

    /// Claims an entry. A forked child does so in its first call.
    #[cold]
    fn begin(&self, recording: Recording) -> Option<u32> {
        let (order, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
        self.phase.compare_exchange(UNBEGUN, BEGUN, order, relaxed).ok()?;
        let reference = recording.claim_process()?;
        // Under a filter, the kernel cannot be asked.
        let id = if filter::is_on() { 0 } else { sys::process_id() };
        recording.process_number(reference, process::ID).store(id, relaxed);
        let parent = LAST_PROCESS.swap(reference, relaxed);
        if parent != 0 {
            recording.process_number(reference, process::PARENT).store(parent, relaxed);
            recording.copy_texts(parent, reference);
        }
        recording.note_time(reference);
        self.process.store(reference, Ordering::Release);
        Some(reference)
    }
}

const _: () = assert!(align_of::<State>() <= 4096);
