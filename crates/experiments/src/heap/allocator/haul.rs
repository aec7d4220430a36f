//! haul's own heap, called as a Rust program calls it.

use std::ptr::NonNull;
use std::thread;
use std::time::Duration;

use haul_heap::{Heap, Pages, Request};
use haul_measure::sys;

use super::Allocator;
use crate::heap::protocol::Start;

/// How often the housekeeper looks: at a pace of 4 KiB every 5 us less than a megabyte is used up
/// in between.
const HOUSEKEEPING: Duration = Duration::from_millis(1);

/// A heap of this process, for as long as it lives.
pub(in crate::heap) struct Haul {
    heap: &'static Heap,
}

impl Haul {
    /// A heap as the start asks for it, on the best pages that there are.
    ///
    /// # Errors
    /// The heap cannot be built.
    pub(in crate::heap) fn new(start: &Start) -> Result<Self, String> {
        let pages = if start.pool { Pages::Auto } else { Pages::Transparent };
        let builder = Heap::builder().pages(pages).grow_ahead(start.grow_ahead_bytes as u64);
        let builder = builder.ready(start.ready_bytes as u64);
        // A descriptor that nobody is given leaves nothing behind when the process is ended.
        let heap = if start.shared { builder.shared_fd() } else { builder.build() };
        let heap: &Heap = Box::leak(Box::new(heap.map_err(|error| error.to_string())?));
        if start.grow_ahead_bytes > 0 {
            heap.maintain();
            // As a program that pins its threads does it: upkeep runs where they do not. Where they
            // are on every CPU it runs anywhere.
            let busy = &start.cpus[..start.threads.min(start.cpus.len())];
            let free: Vec<usize> =
                sys::affinity().into_iter().filter(|cpu| !busy.contains(cpu)).collect();
            // It ends with the process, as the heap does.
            let housekeeper = move || {
                let _ = sys::set_affinity(&free);
                loop {
                    heap.maintain();
                    thread::sleep(HOUSEKEEPING);
                }
            };
            let spawned = thread::Builder::new().name("housekeeper".into()).spawn(housekeeper);
            spawned.map_err(|error| format!("no thread for housekeeping: {error}"))?;
        }
        Ok(Self { heap })
    }
}

// SAFETY: Heap::alloc and Heap::realloc promise just that.
unsafe impl Allocator for Haul {
    #[inline(always)]
    fn allocate(&self, size: usize, align: usize) -> Option<NonNull<u8>> {
        self.heap.alloc(Request::new(size).aligned(align)).ok()
    }

    fn allocate_zeroed(&self, size: usize, align: usize) -> Option<NonNull<u8>> {
        self.heap.zalloc(Request::new(size).aligned(align)).ok()
    }

    #[inline(always)]
    unsafe fn free(&self, block: NonNull<u8>) {
        // SAFETY: the caller says that nothing refers to the block any more.
        let freed = unsafe { self.heap.free(block) };
        debug_assert!(freed.is_ok(), "{freed:?}");
    }

    unsafe fn reallocate(
        &self,
        block: NonNull<u8>,
        _old_size: usize,
        size: usize,
        align: usize,
    ) -> Option<NonNull<u8>> {
        // SAFETY: the caller says that nothing refers to the block any more.
        unsafe { self.heap.realloc(block, size, align) }.ok()
    }

    fn idle(&self) {
        self.heap.maintain();
    }

    fn give_back(&self) {
        self.heap.maintain();
    }

    fn version(&self) -> String {
        env!("CARGO_PKG_VERSION").into()
    }

    fn pages(&self) -> Option<String> {
        Some(self.heap.pages().to_string())
    }
}
