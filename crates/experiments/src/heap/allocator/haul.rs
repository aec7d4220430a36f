//! haul's own heap, called in the same way as by a Rust program.

use std::ptr::NonNull;
use std::thread;
use std::time::Duration;

use haul::engine::Queue;
use haul::heap::Zeroing;
use haul_heap::{Heap, Pages, Request};
use haul_measure::sys;

use super::Allocator;
use super::zeroing::Started;
use crate::heap::protocol::Start;

/// The time between two runs of the housekeeping thread. At a rate of 4 KiB per 5 us, less than a
/// megabyte is allocated between two runs.
const HOUSEKEEPING: Duration = Duration::from_millis(1);

/// A heap that lives as long as this process.
pub(in crate::heap) struct Haul {
    heap: &'static Heap,
}

impl Haul {
    /// A heap with the settings of the start message, on the best available pages.
    ///
    /// # Errors
    /// The heap cannot be built.
    pub(in crate::heap) fn new(start: &Start) -> Result<Self, String> {
        let pages = if start.pool { Pages::Auto } else { Pages::Transparent };
        let builder = Heap::builder().pages(pages).grow_ahead(start.grow_ahead_bytes as u64);
        let builder = builder.ready(start.ready_bytes as u64);
        // Only this process holds the descriptor of the shared memory, so nothing is left when
        // the process ends.
        let heap = if start.shared { builder.shared_fd() } else { builder.build() };
        let heap: &Heap = Box::leak(Box::new(heap.map_err(|error| error.to_string())?));
        if start.grow_ahead_bytes > 0 {
            heap.maintain();
            // Housekeeping runs on the CPUs without pinned threads, as in a program that pins its
            // threads. If every CPU has a pinned thread, housekeeping runs on any CPU.
            let busy = &start.cpus[..start.threads.min(start.cpus.len())];
            let free: Vec<usize> =
                sys::affinity().into_iter().filter(|cpu| !busy.contains(cpu)).collect();
            // The thread ends with the process, like the heap.
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

// SAFETY: Heap::alloc and Heap::realloc promise exactly that.
unsafe impl Allocator for Haul {
    #[inline(always)]
    fn allocate(&self, size: usize, align: usize) -> Option<NonNull<u8>> {
        self.heap.alloc(Request::new(size).aligned(align)).ok()
    }

    fn allocate_zeroed(&self, size: usize, align: usize) -> Option<NonNull<u8>> {
        self.heap.zalloc(Request::new(size).aligned(align)).ok()
    }

    fn start_zeroed(&self, size: usize, align: usize, queue: &Queue) -> Option<Started> {
        let request = Request::new(size).aligned(align);
        Zeroing::start(self.heap, request, queue).ok().map(Started::Haul)
    }

    #[inline(always)]
    unsafe fn free(&self, block: NonNull<u8>) {
        // SAFETY: the caller promises that nothing refers to the block any more.
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
        // SAFETY: the caller promises that nothing refers to the block any more.
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
