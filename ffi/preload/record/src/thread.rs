//! The part of the trace that one thread writes: a separate block.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use haul_heap::guard;
use haul_model::trace::{BLOCK_HEADER_BYTES, BlockHeader, Call, Coder, EVENT_BYTES_MAX, Event};

use crate::file::{self, BLOCK_BYTES, Failure, File};
use crate::filter;

/// The largest number of threads of a process that are recorded at the same time.
pub(crate) const THREADS_MAX: usize = 2048;

/// The slot of a thread. All zeros mean that the slot is free; a forked child starts in this
/// state.
#[repr(align(64))]
pub(crate) struct Thread {
    /// The kernel's thread ID of the owner; 0 if the slot is free. Only a change from 0 claims the
    /// slot.
    pub(crate) owner: AtomicU32,
    /// Whether the thread is writing an event. A signal handler that allocates finds this flag
    /// set.
    busy: AtomicU32,
    /// Whether the thread is in a call of DPDK's heap, which may call other functions of that
    /// heap.
    pub(crate) in_dpdk: AtomicU32,
    /// The number of calls that could not be recorded.
    lost: AtomicU64,
    block: AtomicPtr<u8>,
    /// The writing state of `block`, if there is a block.
    writing: UnsafeCell<MaybeUninit<Writing>>,
}

/// The writing state of a block.
#[derive(Clone, Copy)]
struct Writing {
    coder: Coder,
    used_bytes: u32,
}

impl Thread {
    /// If the address is in the block of a truncated file, replaces the block with memory.
    /// Returns whether the block was replaced.
    pub(crate) fn survives_cut(&self, address: usize) -> bool {
        let block = self.block.load(Ordering::Acquire);
        let is_in = !block.is_null() && address.wrapping_sub(block.addr()) < BLOCK_BYTES as usize;
        // SAFETY: the block is this thread's mapping, and its stores need no longer reach the
        // file.
        is_in && unsafe { guard::replace_page(block.addr(), BLOCK_BYTES as usize) }
    }

    /// Resets the slot for a new owner, which is not inside a call. The block stays, and the new
    /// owner continues in it.
    pub(crate) fn reset(&self) {
        self.in_dpdk.store(0, Ordering::Relaxed);
        self.busy.store(0, Ordering::Release);
    }

    /// Writes an event. Events that cannot be written are counted, and the next written event
    /// reports their number.
    ///
    /// # Errors
    /// Returns an error if there is no room for another block. Nothing more can be recorded then.
    pub(crate) fn record(&self, file: &File, event: &Event<'_>) -> Result<(), Failure> {
        if self.busy.swap(1, Ordering::Acquire) != 0 {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        let written = self.write(file, event);
        if written.is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        self.busy.store(0, Ordering::Release);
        written
    }

    fn write(&self, file: &File, event: &Event<'_>) -> Result<(), Failure> {
        let count = self.lost.load(Ordering::Relaxed);
        if count > 0 {
            self.put(file, &Event { call: Call::Lost { count }, ..*event })?;
            self.lost.fetch_sub(count, Ordering::Relaxed);
        }
        self.put(file, event)
    }

    fn put(&self, file: &File, event: &Event<'_>) -> Result<(), Failure> {
        if let Some(block) = NonNull::new(self.block.load(Ordering::Relaxed))
            && self.put_into(block, event)
        {
            return Ok(());
        }
        let block = self.begin_block(file, event)?;
        // An event fits into an empty block, which the assertion below ensures.
        self.put_into(block, event);
        Ok(())
    }

    /// Writes the event into the block. Returns `false` if the event does not fit.
    fn put_into(&self, block: NonNull<u8>, event: &Event<'_>) -> bool {
        // SAFETY: this thread has set `busy`, so nothing else reads or writes it.
        let writing = unsafe { &mut *self.writing.get() };
        // SAFETY: the writing state was initialized together with the block.
        let writing = unsafe { writing.assume_init_mut() };
        let start = BLOCK_HEADER_BYTES + writing.used_bytes as usize;
        let mut room = [0; EVENT_BYTES_MAX];
        let Some(length) = writing.coder.put(event, &mut room) else { return true };
        if start + length > BLOCK_BYTES as usize {
            return false;
        }
        // SAFETY: the mapping is BLOCK_BYTES long, and `start` is below that.
        let target = unsafe { block.as_ptr().add(start) };
        // SAFETY: `length` bytes from `target` on lie in the mapping, which only this thread
        // writes, and `room` has at least `length` bytes.
        unsafe { ptr::copy_nonoverlapping(room.as_ptr(), target, length) };
        writing.used_bytes += length as u32;
        // SAFETY: the mapping starts at a page boundary, so the field is aligned and lies in it.
        let used = unsafe { block.as_ptr().add(BlockHeader::USED_AT) };
        // SAFETY: as above; only other processes may read the file meanwhile.
        let used = unsafe { AtomicU32::from_ptr(used.cast()) };
        // The count is stored after the event's bytes, so that all counted events are complete,
        // however this process ends.
        used.store(writing.used_bytes.to_le(), Ordering::Release);
        true
    }

    fn begin_block(&self, file: &File, event: &Event<'_>) -> Result<NonNull<u8>, Failure> {
        let block = file.map_block()?;
        // The block is published before the first store into it, so that a fault in the block is
        // recognized as a fault in the trace.
        let last = self.block.swap(block.as_ptr(), Ordering::Release);
        let header = BlockHeader { used_bytes: 0, thread: event.thread, time_ns: event.time_ns };
        let bytes = header.to_bytes();
        // SAFETY: the mapping is longer than its header, and only this thread writes it.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), block.as_ptr(), bytes.len()) };
        let writing = Writing { coder: Coder::new(&header), used_bytes: 0 };
        // SAFETY: this thread has set `busy`, so nothing else reads or writes it.
        unsafe { &mut *self.writing.get() }.write(writing);
        let is_done = |last: &NonNull<u8>| !filter::is_on() && !file.is_reserved(*last);
        if let Some(last) = NonNull::new(last).filter(is_done) {
            // SAFETY: it came from `map_block`, and nothing refers to it.
            unsafe { file::unmap_block(last) };
        }
        Ok(block)
    }
}

const _: () = assert!(BLOCK_BYTES as usize >= BLOCK_HEADER_BYTES + EVENT_BYTES_MAX);
