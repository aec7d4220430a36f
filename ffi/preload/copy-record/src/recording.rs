//! The file that all processes of a run write, as this process has mapped it.

use core::ffi::CStr;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use haul_model::stream::recording::layout::{
    self, BLOCK_BYTES, BLOCK_EVENTS, BLOCK_HEADER_BYTES, EVENT_BYTES, block, head, process,
};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::sys;

/// The mapped file; null if nothing is recorded. The mapping lasts as long as the process.
static FILE: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
static PROCESSES: AtomicU32 = AtomicU32::new(0);
static THREADS: AtomicU32 = AtomicU32::new(0);
static BLOCKS: AtomicU32 = AtomicU32::new(0);

/// The file of the run. A value exists only while it is mapped.
#[derive(Clone, Copy)]
pub(crate) struct Recording(NonNull<u8>);

impl Recording {
    /// The mapped file; `None` if nothing is recorded.
    #[inline(always)]
    pub(crate) fn current() -> Option<Self> {
        NonNull::new(FILE.load(Ordering::Acquire)).map(Self)
    }

    /// Ends the recording of this process and of those that it forks. What was recorded is kept.
    pub(crate) fn stop() {
        FILE.store(ptr::null_mut(), Ordering::Release);
    }

    /// Maps the file with this name. `None` if it is not a recording. Only the constructor calls
    /// it.
    pub(crate) fn map(name: &CStr) -> Option<Self> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rustix::fs::openat(CWD, name, flags, Mode::empty()).ok()?;
        let length = usize::try_from(rustix::fs::fstat(&file).ok()?.st_size).ok()?;
        if length < layout::HEADER_BYTES {
            return None;
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let mapped = unsafe {
            rustix::mm::mmap(ptr::null_mut(), length, protection, MapFlags::SHARED, &file, 0)
        };
        let mapped = Self(NonNull::new(mapped.ok()?.cast())?);
        if mapped.holds_tables(length) {
            FILE.store(mapped.0.as_ptr(), Ordering::Release);
            return Some(mapped);
        }
        // SAFETY: it is the whole mapping that was just created.
        let _ = unsafe { rustix::mm::munmap(mapped.0.as_ptr().cast(), length) };
        None
    }

    /// Whether the file is a recording of this version, with room for its tables and blocks.
    fn holds_tables(self, length: usize) -> bool {
        let magic = self.long_at(0).load(Ordering::Relaxed);
        let number = |at| self.number_at(at).load(Ordering::Relaxed);
        let (processes, threads) = (number(head::PROCESSES), number(head::THREADS));
        let blocks = number(head::BLOCKS);
        let blocks_at = layout::blocks_at(processes as usize, threads as usize);
        let needed = (blocks as usize).checked_mul(BLOCK_BYTES);
        let needed = needed.and_then(|bytes| bytes.checked_add(blocks_at));
        PROCESSES.store(processes, Ordering::Relaxed);
        THREADS.store(threads, Ordering::Relaxed);
        BLOCKS.store(blocks, Ordering::Relaxed);
        magic == u64::from_ne_bytes(layout::MAGIC)
            && number(head::VERSION_AT) == layout::VERSION
            && needed.is_some_and(|needed| needed <= length)
    }

    /// A number of the header.
    #[inline(always)]
    pub(crate) fn setting(self, at: usize) -> u64 {
        self.long_at(at).load(Ordering::Relaxed)
    }

    /// Claims the next process, and returns a reference to it.
    pub(crate) fn claim_process(self) -> Option<u32> {
        self.claim(head::NEXT_PROCESS, PROCESSES.load(Ordering::Relaxed), 1)
    }

    /// Claims the next thread.
    pub(crate) fn claim_thread(self) -> Option<u32> {
        self.claim(head::NEXT_THREAD, THREADS.load(Ordering::Relaxed), 1)
    }

    /// Claims adjacent blocks, and returns a reference to the first.
    pub(crate) fn claim_blocks(self, count: u32) -> Option<u32> {
        self.claim(head::NEXT_BLOCK, BLOCKS.load(Ordering::Relaxed), count)
    }

    fn claim(self, at: usize, room: u32, count: u32) -> Option<u32> {
        let next = self.number_at(at);
        // The counter stops not far beyond the room, so that it never wraps.
        if next.load(Ordering::Relaxed) > room {
            return None;
        }
        let index = next.fetch_add(count, Ordering::Relaxed);
        (index.checked_add(count)? <= room).then_some(index + 1)
    }

    /// A number of a process.
    pub(crate) fn process_number(self, reference: u32, field: usize) -> &'static AtomicU32 {
        self.number_at(Self::process_at(reference) + field)
    }

    /// Writes a text of a process, which a forked child gets from its parent.
    pub(crate) fn set_text(self, reference: u32, field: usize, bytes: usize, text: &[u8]) {
        let at = Self::process_at(reference) + field;
        for (index, word) in text.chunks(8).take(bytes / 8).enumerate() {
            let mut padded = [0; 8];
            padded.iter_mut().zip(word).for_each(|(place, byte)| *place = *byte);
            self.long_at(at + index * 8).store(u64::from_ne_bytes(padded), Ordering::Relaxed);
        }
    }

    /// Copies the texts of one process to another.
    pub(crate) fn copy_texts(self, from: u32, to: u32) {
        let texts =
            [(process::PROGRAM, process::PROGRAM_BYTES), (process::LIBC, process::LIBC_BYTES)];
        for (field, bytes) in texts {
            for at in (field..field + bytes).step_by(8) {
                let word = self.long_at(Self::process_at(from) + at).load(Ordering::Relaxed);
                self.long_at(Self::process_at(to) + at).store(word, Ordering::Relaxed);
            }
        }
    }

    /// Notes the times of both clocks: the first time as the early ones, later as the late ones.
    pub(crate) fn note_time(self, reference: u32) {
        let at = Self::process_at(reference);
        let is_first = self.long_at(at + process::EARLY_NS).load(Ordering::Relaxed) == 0;
        let (ticks, ns) = match is_first {
            true => (process::EARLY_TICKS, process::EARLY_NS),
            false => (process::LATE_TICKS, process::LATE_NS),
        };
        self.long_at(at + ticks).store(sys::ticks(), Ordering::Relaxed);
        self.long_at(at + ns).store(sys::clock_ns(), Ordering::Relaxed);
    }

    /// The first byte of the entry of a claimed thread.
    #[inline(always)]
    pub(crate) fn thread(self, reference: u32) -> *const u8 {
        let tables = PROCESSES.load(Ordering::Relaxed) as usize * layout::PROCESS_BYTES;
        let at = layout::HEADER_BYTES + tables + (reference as usize - 1) * layout::THREAD_BYTES;
        // SAFETY: the entry lies in the mapping, because the reference was claimed.
        unsafe { self.0.as_ptr().add(at) }
    }

    /// The first byte of a claimed block.
    fn block(self, reference: u32) -> *mut u8 {
        let [processes, threads] =
            [&PROCESSES, &THREADS].map(|count| count.load(Ordering::Relaxed) as usize);
        let at = layout::blocks_at(processes, threads) + (reference as usize - 1) * BLOCK_BYTES;
        // SAFETY: the block lies in the mapping, because the reference was claimed.
        unsafe { self.0.as_ptr().add(at) }
    }

    /// Writes an event into a block, at an index below the number of its events, and counts it.
    #[inline(always)]
    pub(crate) fn put(self, reference: u32, index: u32, words: [u64; 3]) {
        debug_assert!((index as usize) < BLOCK_EVENTS);
        let at = BLOCK_HEADER_BYTES + index as usize * EVENT_BYTES;
        // SAFETY: the index is below the number of events of a block.
        let event = unsafe { self.block(reference).add(at) }.cast::<u64>();
        for (at, word) in words.iter().enumerate() {
            // SAFETY: an event has three words.
            let place = unsafe { event.add(at) };
            // SAFETY: events are aligned to words, and only the thread of the block writes it.
            unsafe { place.write(*word) };
        }
        // The count is stored after the event, so that all counted events are complete, however
        // this process ends.
        self.block_number(reference, block::USED).store(index + 1, Ordering::Release);
    }

    /// Appends a block to a list.
    pub(crate) fn link(self, last: u32, next: u32) {
        self.block_number(last, block::NEXT).store(next, Ordering::Release);
    }

    /// Writes text into claimed blocks, from the first byte of the first.
    pub(crate) fn put_text(self, reference: u32, text: &[u8]) {
        let target = self.block(reference);
        // SAFETY: the caller claimed as many blocks as the text needs, and nothing else writes
        // them.
        unsafe { crate::plain::copy(target, text.as_ptr(), text.len()) };
    }

    fn block_number(self, reference: u32, field: usize) -> &'static AtomicU32 {
        // SAFETY: the field lies in the block.
        let place = unsafe { self.block(reference).add(field) };
        // SAFETY: it is aligned, and the mapping lasts as long as the process.
        unsafe { AtomicU32::from_ptr(place.cast()) }
    }

    fn process_at(reference: u32) -> usize {
        layout::HEADER_BYTES + (reference as usize - 1) * layout::PROCESS_BYTES
    }

    fn number_at(self, at: usize) -> &'static AtomicU32 {
        // SAFETY: the callers' offsets lie in the tables, which are mapped.
        let place = unsafe { self.0.as_ptr().add(at) };
        // SAFETY: the layout aligns numbers, and the mapping lasts as long as the process.
        unsafe { AtomicU32::from_ptr(place.cast()) }
    }

    #[inline(always)]
    fn long_at(self, at: usize) -> &'static AtomicU64 {
        // SAFETY: the callers' offsets lie in the tables, which are mapped.
        let place = unsafe { self.0.as_ptr().add(at) };
        // SAFETY: the layout aligns numbers, and the mapping lasts as long as the process.
        unsafe { AtomicU64::from_ptr(place.cast()) }
    }
}
