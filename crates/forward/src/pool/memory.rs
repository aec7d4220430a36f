//! A memory file with a heap in it: a device's other side maps the file, and blocks are allocated
//! from the heap.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use haul_copy::Hint;
use haul_heap::guard::Guard;
use haul_heap::{EXTENT_BYTES, Extents, External, Heap, Request};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::mm::{MapFlags, ProtFlags};

use haul_peer::error::Error as PeerError;
use haul_peer::memory::{self, Sealed};

/// The largest number of threads that can have a cache of the heap at the same time. Only one
/// worker allocates blocks.
const CACHES: u32 = 8;

/// The memory. Its size is sealed, so that a process that receives the file cannot truncate it.
/// Such a process can still punch holes into it. The memory is therefore guarded against accesses
/// for which the system has no page.
pub(crate) struct Memory {
    heap: ManuallyDrop<Heap>,
    /// Dropped before the mapping.
    guard: ManuallyDrop<Guard>,
    /// The source of the heap's memory, from `Box::into_raw`; dropped after the heap.
    whole: NonNull<Whole>,
    base: NonNull<u8>,
    bytes: usize,
    file: OwnedFd,
    is_huge: bool,
}

// SAFETY: the mapping and the heap's source of memory belong to this value alone.
unsafe impl Send for Memory {}
// SAFETY: threads that share it call the heap, which is `Sync`, and read fields that do not change.
unsafe impl Sync for Memory {}

/// The whole memory, which the heap reserves in one step.
struct Whole {
    base: usize,
    bytes: usize,
    is_taken: AtomicBool,
}

// SAFETY: the whole mapping is the one extent, handed out once; `Memory` unmaps it after its heap.
unsafe impl Extents for Whole {
    fn take(&self, bytes: usize) -> Option<(NonNull<u8>, usize)> {
        if bytes > self.bytes || self.is_taken.swap(true, Ordering::Relaxed) {
            return None;
        }
        NonNull::new(std::ptr::with_exposed_provenance_mut(self.base))
            .map(|base| (base, self.bytes))
    }

    fn give_back(&self, _: NonNull<u8>, _: usize) -> bool {
        false
    }
}

#[allow(dead_code, reason = "a device that shares the memory gets it from here")]
impl Memory {
    /// Populated memory of at least `bytes` bytes: in huge pages of the kernel's pool if it has
    /// them, else in transparent huge pages if they are enabled for shared memory, else in small
    /// pages.
    ///
    /// # Errors
    /// The error of the system or the heap.
    pub(crate) fn new(bytes: usize) -> Result<Self, String> {
        let bytes = bytes.next_multiple_of(EXTENT_BYTES).max(2 * EXTENT_BYTES);
        let (file, is_huge) = match memory::create_filled(bytes, true) {
            Ok(file) => (file, true),
            Err(_) => (memory::create_filled(bytes, false).map_err(said)?, false),
        };
        memory::seal(&file, Sealed::Size).map_err(said)?;
        let base = memory::map_aligned(file.as_fd(), bytes, EXTENT_BYTES).map_err(said)?;
        memory::populate_to_write(base, bytes);
        let guard = match memory::guarded(base, bytes, page_bytes(is_huge)) {
            Ok(guard) => guard,
            Err(error) => {
                // SAFETY: mapped above, and owned by this function. Nothing refers to it yet. It
                // has no guard, as that is the error.
                unsafe { memory::unmap(base, bytes) };
                return Err(said(error));
            }
        };
        let address = base.as_ptr().expose_provenance();
        let whole = Whole { base: address, bytes, is_taken: AtomicBool::new(false) };
        let whole = NonNull::from(Box::leak(Box::new(whole)));
        // SAFETY: it was just made and lives until the heap is dropped, see `drop`.
        let extents: &'static Whole = unsafe { whole.as_ref() };
        let external = External { base, bytes, extents, metadata: None };
        // SAFETY: the range was mapped just now and is unmapped after the heap, see `drop`; only
        // the heap hands out parts of it, and its metadata is its own.
        match unsafe { Heap::builder().caches(CACHES).external(external) } {
            Ok(heap) => {
                let (heap, guard) = (ManuallyDrop::new(heap), ManuallyDrop::new(guard));
                Ok(Self { heap, guard, whole, base, bytes, file, is_huge })
            }
            Err(error) => {
                drop(guard);
                // SAFETY: both were made above and belong to this function. The heap was not made,
                // and the guard was dropped, so that nothing refers to either.
                unsafe { release(whole, base, bytes) };
                Err(error.to_string())
            }
        }
    }

    /// A block of the memory, which is valid as long as the memory.
    pub(crate) fn block(&self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        self.heap.alloc(Request::new(bytes).aligned(align)).ok()
    }

    /// Frees a block.
    pub(crate) fn free(&self, block: NonNull<u8>) {
        // SAFETY: callers pass a block that `block` returned, and do not use it again; the heap
        // refuses every other address.
        let result = unsafe { self.heap.free(block) };
        debug_assert!(result.is_ok(), "{result:?}");
    }

    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether pages were missing when they were accessed. The guard replaced them by private
    /// pages of this process: packets still use them, but no other process sees their bytes.
    #[inline]
    pub(crate) fn is_broken(&self) -> bool {
        self.guard.is_broken()
    }

    /// Allocates the missing pages of the file and maps it again, with the present content of the
    /// memory. The caller is the pool's worker, so that meanwhile only processes that hold the
    /// file write to it. This takes as long as a copy of the whole memory.
    ///
    /// # Errors
    /// The system's error if it has no such pages. In this case, nothing has changed.
    pub(crate) fn mend(&self) -> Result<(), String> {
        let file = self.file.as_fd();
        memory::reserve(file, 0, self.bytes).map_err(said)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let copy = memory::map_file(file, self.bytes, access, MapFlags::SHARED).map_err(said)?;
        let copied = memory::guarded(copy, self.bytes, page_bytes(self.is_huge));
        let is_whole = copied.is_ok_and(|guard| {
            // SAFETY: both are mappings of `bytes` bytes. If they share pages, their addresses are
            // still disjoint, and each byte is read before it is written.
            unsafe { Hint::Unknown.copy_raw(copy.as_ptr(), self.base.as_ptr(), self.bytes) };
            !guard.is_broken()
        });
        // SAFETY: mapped above, and owned by this function. No reference to it was made. Its
        // guard was dropped at the end of the closure.
        unsafe { memory::unmap(copy, self.bytes) };
        if !is_whole {
            return Err("its pages were taken away again".into());
        }
        let (at, flags) = (self.base.as_ptr().cast(), MapFlags::SHARED | MapFlags::FIXED);
        // SAFETY: replaces this value's mapping by one of the same length and access, with the same
        // bytes in it; pointers into it stay valid.
        let mapped = unsafe { rustix::mm::mmap(at, self.bytes, access, flags, file, 0) };
        mapped.map_err(|error| format!("cannot map it: {error}"))?;
        self.guard.mended();
        Ok(())
    }

    /// Whether the memory's pages are huge pages of the kernel's pool.
    pub(crate) fn is_huge(&self) -> bool {
        self.is_huge
    }
}

/// Bytes of a page.
fn page_bytes(is_huge: bool) -> usize {
    if is_huge { 2 << 20 } else { memory::PAGE_BYTES }
}

/// The message for an error of these calls.
fn said(error: PeerError) -> String {
    match error {
        PeerError::System { attempt, reason } => format!("cannot {attempt}: {reason}"),
        other => format!("{other:?}"),
    }
}

/// Frees the source of the heap's memory and unmaps the range.
///
/// # Safety
/// - `whole` comes from a box, and nothing uses it after this call.
/// - The promises of [`memory::unmap`] for the range.
unsafe fn release(whole: NonNull<Whole>, base: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller's first promise.
    drop(unsafe { Box::from_raw(whole.as_ptr()) });
    // SAFETY: the caller's second promise.
    unsafe { memory::unmap(base, bytes) };
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the heap is not used again.
        unsafe { ManuallyDrop::drop(&mut self.heap) };
        // SAFETY: likewise.
        unsafe { ManuallyDrop::drop(&mut self.guard) };
        // SAFETY: both belong to this value. The heap and the guard were dropped above, and blocks
        // are valid only as long as this value, so that nothing refers to either.
        unsafe { release(self.whole, self.base, self.bytes) };
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut value = f.debug_struct("Memory");
        value.field("bytes", &self.bytes).field("is_huge", &self.is_huge).finish_non_exhaustive()
    }
}
