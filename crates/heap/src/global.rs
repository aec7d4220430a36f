//! The heap as Rust's allocator: for a whole program ([`Global`]), or for one collection. For a
//! collection, the feature `allocator-api2` adds the trait of that crate, because the trait of
//! the standard library is unstable.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU64, Ordering};

use crate::heap::Heap;

use crate::sys;

/// Rust's global allocator that uses a private heap. The first allocation builds the heap with
/// the defaults of [`Heap::builder`]. If it cannot be built, every allocation fails.
///
/// `dealloc` ignores a wrong pointer, because it cannot return an error.
///
/// ```
/// #[global_allocator]
/// static GLOBAL: haul_heap::Global = haul_heap::Global;
///
/// let squares: Vec<u64> = (0..1000).map(|n| n * n).collect();
/// assert_eq!(squares[999], 998_001);
/// let heap = haul_heap::Global::heap().expect("the vector is in it");
/// assert!(heap.stats(haul_heap::Node::ANY).live.bytes >= 8000);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Global;

/// The heap and its state: [`EMPTY`], [`READY`], [`FAILED`], or the process that builds it.
struct Instance {
    state: AtomicU64,
    heap: UnsafeCell<MaybeUninit<Heap>>,
}

const EMPTY: u64 = 0;
const READY: u64 = 1;
const FAILED: u64 = 2;

/// Added to the PID of the process that builds the heap, so that the state differs from the other
/// states.
const BUILDING: u64 = 1 << 32;

static INSTANCE: Instance =
    Instance { state: AtomicU64::new(EMPTY), heap: UnsafeCell::new(MaybeUninit::uninit()) };

// SAFETY: only the thread that set the state to building writes the heap, and threads read it
// only after the state is ready; `Heap` itself is `Sync`.
unsafe impl Sync for Instance {}

impl Global {
    /// The process's heap; `None` if it cannot be built. The first call builds it.
    #[inline]
    pub fn heap() -> Option<&'static Heap> {
        if INSTANCE.state.load(Ordering::Acquire) != READY && !build() {
            return None;
        }
        let heap = INSTANCE.heap.get();
        // SAFETY: the state is ready, so the heap was written and is not written again.
        let heap = unsafe { &*heap };
        // SAFETY: as above.
        Some(unsafe { heap.assume_init_ref() })
    }
}

/// Builds the heap, or waits while another thread builds it. About twenty system calls.
#[cold]
fn build() -> bool {
    let mine = BUILDING + u64::from(sys::process::own_pid());
    loop {
        let state = INSTANCE.state.load(Ordering::Acquire);
        match state {
            READY => return true,
            FAILED => return false,
            // Another thread of this process is building the heap.
            state if state == mine => sys::yield_now(),
            // No thread builds the heap. Or a thread of the parent process built it when the
            // parent forked; that thread does not exist here.
            state => {
                let order = (Ordering::Acquire, Ordering::Relaxed);
                if INSTANCE.state.compare_exchange(state, mine, order.0, order.1).is_ok() {
                    return build_here();
                }
            }
        }
    }
}

fn build_here() -> bool {
    let heap = Heap::builder().build();
    let is_built = heap.is_ok();
    if let Ok(heap) = heap {
        let target = INSTANCE.heap.get();
        // SAFETY: this thread set the state to building, so no other thread accesses the heap.
        unsafe { target.write(MaybeUninit::new(heap)) };
    }
    INSTANCE.state.store(if is_built { READY } else { FAILED }, Ordering::Release);
    is_built
}

// SAFETY: blocks have the size and alignment that the layout requires, belong to one owner, and
// keep their content when they are resized; nothing here unwinds.
unsafe impl GlobalAlloc for Global {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let block = Self::heap().and_then(|heap| heap.alloc(layout.into()).ok());
        block.map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let block = Self::heap().and_then(|heap| heap.zalloc(layout.into()).ok());
        block.map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        if let (Some(heap), Some(block)) = (Self::heap(), NonNull::new(block)) {
            // SAFETY: the caller owns the block and does not use it any more.
            let _ = unsafe { heap.free(block) };
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let (Some(heap), Some(block)) = (Self::heap(), NonNull::new(block)) else {
            return ptr::null_mut();
        };
        // SAFETY: the caller owns the block. If a block is returned, the caller uses only the
        // returned block.
        let block = unsafe { heap.realloc(block, size, layout.align()) };
        block.map_or(ptr::null_mut(), NonNull::as_ptr)
    }
}

/// Blocks for one collection: `Vec::new_in(&heap)` of the crate `allocator-api2`, and other users
/// of its trait, get blocks of a private heap only. In a shared heap, other processes could write
/// to the memory of a safe collection, so every allocation through the trait fails. Use
/// [`Heap::alloc`] for blocks of a shared heap.
#[cfg(feature = "allocator-api2")]
// SAFETY: only its owner writes a block, and a block stays in place and valid until it is freed,
// even if the reference to the heap is copied. Any copy of the reference can free a block that
// another copy allocated.
unsafe impl allocator_api2::alloc::Allocator for &Heap {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, allocator_api2::alloc::AllocError> {
        if self.memory.region.is_shared() {
            return Err(allocator_api2::alloc::AllocError);
        }
        let block = self.alloc(layout.into());
        let block = block.map_err(|_| allocator_api2::alloc::AllocError)?;
        Ok(NonNull::slice_from_raw_parts(block, layout.size()))
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, _: Layout) {
        // SAFETY: the caller owns the block and does not use it any more. `deallocate` cannot
        // return an error for a wrong pointer; the heap's `on_misuse` gets it.
        let _ = unsafe { self.free(block) };
    }
}
