//! What one thread has of the trace: a block that it alone writes.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use haul_heap::guard;
use haul_model::trace::{BLOCK_HEADER_BYTES, BlockHeader, Call, Coder, EVENT_BYTES_MAX, Event};

use crate::file::{self, BLOCK_BYTES, Failure, File};
use crate::filter;

/// The most threads of a process that are recorded at the same time.
pub(crate) const THREADS_MAX: usize = 2048;

/// A thread's place. Zeros stand for one that nobody has, as a forked child finds it.
#[repr(align(64))]
pub(crate) struct Thread {
    /// The kernel's number of the thread; 0 for none. Only a change from 0 takes the place.
    pub(crate) owner: AtomicU32,
    /// Whether an event is on its way: a signal handler that allocates finds it set.
    busy: AtomicU32,
    /// Whether a call of DPDK's heap is under way, which may call itself by another name.
    pub(crate) in_dpdk: AtomicU32,
    /// Calls that could not be recorded.
    lost: AtomicU64,
    block: AtomicPtr<u8>,
    /// What `block` holds, where there is one.
    writing: UnsafeCell<MaybeUninit<Writing>>,
}

/// How far a block was written.
#[derive(Clone, Copy)]
struct Writing {
    coder: Coder,
    used_bytes: u32,
}

impl Thread {
    /// Puts memory in place of the block, where the address is in it: for a file that was cut.
    pub(crate) fn survives_cut(&self, address: usize) -> bool {
        let block = self.block.load(Ordering::Acquire);
        let is_in = !block.is_null() && address.wrapping_sub(block.addr()) < BLOCK_BYTES as usize;
        // SAFETY: the block is this thread's mapping, whose stores need not come to the file any
        // more.
        is_in && unsafe { guard::replace_page(block.addr(), BLOCK_BYTES as usize) }
    }

    /// As a new owner finds it: no call under way. The block stays, to be gone on with.
    pub(crate) fn reset(&self) {
        self.in_dpdk.store(0, Ordering::Relaxed);
        self.busy.store(0, Ordering::Release);
    }

    /// Writes an event. What cannot be written is counted, and told with the next that can.
    ///
    /// # Errors
    /// There is no room for more: nothing can be recorded from here on.
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
        // An event fits an empty block: const-asserted below.
        self.put_into(block, event);
        Ok(())
    }

    /// Whether the event fitted.
    fn put_into(&self, block: NonNull<u8>, event: &Event<'_>) -> bool {
        // SAFETY: `busy` is ours, so that nobody else reads or writes it.
        let writing = unsafe { &mut *self.writing.get() };
        // SAFETY: with a block it was written.
        let writing = unsafe { writing.assume_init_mut() };
        let start = BLOCK_HEADER_BYTES + writing.used_bytes as usize;
        let mut room = [0; EVENT_BYTES_MAX];
        let Some(length) = writing.coder.put(event, &mut room) else { return true };
        if start + length > BLOCK_BYTES as usize {
            return false;
        }
        // SAFETY: the mapping is BLOCK_BYTES long.
        let target = unsafe { block.as_ptr().add(start) };
        // SAFETY: `length` bytes from `target` lie in the mapping, which this thread alone writes,
        // and `room` has as many.
        unsafe { ptr::copy_nonoverlapping(room.as_ptr(), target, length) };
        writing.used_bytes += length as u32;
        // SAFETY: the mapping begins on a page, so that the field is aligned and lies in it.
        let used = unsafe { block.as_ptr().add(BlockHeader::USED_AT) };
        // SAFETY: as above; whoever reads the file meanwhile is another process.
        let used = unsafe { AtomicU32::from_ptr(used.cast()) };
        // After the event's bytes: whatever ends this process, what is counted is whole.
        used.store(writing.used_bytes.to_le(), Ordering::Release);
        true
    }

    fn begin_block(&self, file: &File, event: &Event<'_>) -> Result<NonNull<u8>, Failure> {
        let block = file.map_block()?;
        // Known before anything is stored into it, so that a fault of it is known to be of the
        // trace.
        let last = self.block.swap(block.as_ptr(), Ordering::Release);
        let header = BlockHeader { used_bytes: 0, thread: event.thread, time_ns: event.time_ns };
        let bytes = header.to_bytes();
        // SAFETY: the mapping is longer than its header, and this thread alone writes it.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), block.as_ptr(), bytes.len()) };
        let writing = Writing { coder: Coder::new(&header), used_bytes: 0 };
        // SAFETY: `busy` is ours, so that nobody else reads or writes it.
        unsafe { &mut *self.writing.get() }.write(writing);
        let is_done = |last: &NonNull<u8>| !filter::is_on() && !file.is_reserved(*last);
        if let Some(last) = NonNull::new(last).filter(is_done) {
            // SAFETY: it came from `map_block`, and nothing leads to it any more.
            unsafe { file::unmap_block(last) };
        }
        Ok(block)
    }
}

const _: () = assert!(BLOCK_BYTES as usize >= BLOCK_HEADER_BYTES + EVENT_BYTES_MAX);
