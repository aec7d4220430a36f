//! Allocates, frees, locates and counts the blocks of a heap.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::{self, NonNull};

use haul_rust::heap::{Fault, Iova, Misuse, Node, Offset, ReallocError, Request, Tag};

use crate::argument::{put, text_of};
use crate::heap::haul_heap;
use crate::status::haul_status;

/// Any NUMA node, for haul_heap_alloc_on().
pub const HAUL_NODE_ANY: c_int = -1;

/// The content of a heap, on one node or on all nodes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct haul_heap_stats {
    /// Live blocks.
    pub live_blocks: u64,
    /// Bytes that the live blocks can hold.
    pub live_bytes: u64,
    /// Free blocks in the caches of threads.
    pub cached_blocks: u64,
    /// Bytes of the cached blocks.
    pub cached_bytes: u64,
    /// Bytes of the pages that have memory.
    pub ready_bytes: u64,
    /// Bytes of the pages with memory that no block or cache uses.
    pub free_bytes: u64,
    /// The limit of the heap in bytes.
    pub limit_bytes: u64,
}

/// Allocates size bytes at a multiple of align, which must be a power of two up to 1 GiB. Returns
/// NULL if the alignment is invalid, the limit is reached or there is no memory. size 0 allocates
/// the smallest block. Most calls take some twenty instructions.
///
/// # Safety
/// heap is NULL or a heap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_heap_alloc(
    heap: *const haul_heap,
    size: usize,
    align: usize,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    let Some(heap) = (unsafe { heap.as_ref() }) else { return ptr::null_mut() };
    given(heap.heap.alloc(Request::new(size).aligned(align)))
}

/// Like haul_heap_alloc(), but on a NUMA node counted from 0 (or HAUL_NODE_ANY), with a tag of
/// haul_heap_tag() (or 0). Returns NULL also if the heap does not have the node.
///
/// # Safety
/// heap is NULL or a heap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_heap_alloc_on(
    heap: *const haul_heap,
    size: usize,
    align: usize,
    node: c_int,
    tag: c_uint,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    let Some(heap) = (unsafe { heap.as_ref() }) else { return ptr::null_mut() };
    let (Some(node), Some(tag)) = (node_of(node), tag_of(tag)) else { return ptr::null_mut() };
    given(heap.heap.alloc(Request::new(size).aligned(align).on_node(node).tagged(tag)))
}

/// Like haul_heap_alloc(), but with all bytes of the block zero.
///
/// # Safety
/// heap is NULL or a heap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_heap_zalloc(
    heap: *const haul_heap,
    size: usize,
    align: usize,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    let Some(heap) = (unsafe { heap.as_ref() }) else { return ptr::null_mut() };
    given(heap.heap.zalloc(Request::new(size).aligned(align)))
}

/// Resizes a block to size bytes at a multiple of align. The block stays at its address if the new
/// size fits there; else its content moves to a new block. Returns NULL on failure, which leaves
/// the block unchanged. If block is NULL, allocates like haul_heap_alloc().
///
/// # Safety
/// heap is NULL or a heap. If block is a live block of the heap, the caller owns it, and after a
/// success uses only the returned pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_heap_realloc(
    heap: *const haul_heap,
    block: *mut c_void,
    size: usize,
    align: usize,
) -> *mut c_void {
    let Some(block) = NonNull::new(block.cast()) else {
        // SAFETY: the caller's promise for heap.
        return unsafe { haul_heap_alloc(heap, size, align) };
    };
    // SAFETY: the caller's promise.
    let Some(heap) = (unsafe { heap.as_ref() }) else { return ptr::null_mut() };
    // SAFETY: the caller's promise for block.
    let moved: Result<_, ReallocError> = unsafe { heap.heap.realloc(block, size, align) };
    given(moved)
}

/// Frees a block. block may be NULL. A pointer that is not a live block is an error and changes
/// nothing, also in release builds.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL if heap is NULL; HAUL_ERROR_DOUBLE_FREE;
/// HAUL_ERROR_WILD_POINTER; HAUL_ERROR_INTERIOR_POINTER; HAUL_ERROR_FOREIGN_POINTER;
/// HAUL_ERROR_DAMAGED.
///
/// # Safety
/// heap is NULL or a heap. If block is a live block of the heap, no thread or process uses it
/// again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_heap_free(heap: *const haul_heap, block: *mut c_void) -> haul_status {
    // SAFETY: the caller's promise.
    let Some(heap) = (unsafe { heap.as_ref() }) else { return haul_status::HAUL_ERROR_NULL };
    let Some(block) = NonNull::new(block.cast()) else { return haul_status::HAUL_OK };
    // SAFETY: the caller's promise for block.
    match unsafe { heap.heap.free(block) } {
        Ok(()) => haul_status::HAUL_OK,
        Err(misuse) => status_of(&misuse),
    }
}

/// Returns the number of bytes that a block can hold, at least the requested size. Returns 0 for
/// a pointer that is not a live block.
///
/// # Safety
/// heap is NULL or a heap. If block is a live block of the heap, the caller owns it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_heap_usable_size(
    heap: *const haul_heap,
    block: *const c_void,
) -> usize {
    // SAFETY: the caller's promise.
    let Some(heap) = (unsafe { heap.as_ref() }) else { return 0 };
    let block = NonNull::new(block.cast_mut().cast());
    // SAFETY: the caller's promise.
    block.and_then(|block| unsafe { heap.heap.usable_size(block) }.ok()).unwrap_or(0)
}

/// Returns the tag with this name, which is the same in every process of the heap. Statistics
/// count by tag. Returns 0, which stands for no tag, if all tags are in use or the name is NULL,
/// empty or not UTF-8.
///
/// # Safety
/// heap is NULL or a heap; name is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_heap_tag(heap: *const haul_heap, name: *const c_char) -> c_uint {
    // SAFETY: the caller's promise.
    let Some(heap) = (unsafe { heap.as_ref() }) else { return 0 };
    // SAFETY: the caller's promise.
    unsafe { text_of(name) }.map_or(0, |name| heap.heap.tag(name).number().into())
}

/// Computes the offset of a pointer in the heap and writes it to offset. An offset is valid in
/// every process of the heap.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_FOREIGN_POINTER. offset is written only on
/// HAUL_OK.
///
/// # Safety
/// heap is NULL or a heap; offset is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_heap_offset(
    heap: *const haul_heap,
    pointer: *const c_void,
    offset: *mut u64,
) -> haul_status {
    // SAFETY: the caller's promise.
    let heap = unsafe { heap.as_ref() };
    let pointer = NonNull::new(pointer.cast_mut().cast());
    let (Some(heap), Some(pointer)) = (heap, pointer) else {
        return haul_status::HAUL_ERROR_NULL;
    };
    let found = || heap.heap.offset(pointer).ok_or(haul_status::HAUL_ERROR_FOREIGN_POINTER);
    // SAFETY: the caller's promise for offset.
    unsafe { put(offset, || Ok(found()?.bytes())) }
}

/// Returns the address, in this process, of an offset; NULL if the offset is outside the heap.
///
/// # Safety
/// heap is NULL or a heap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_heap_pointer(heap: *const haul_heap, offset: u64) -> *mut c_void {
    // SAFETY: the caller's promise.
    let Some(heap) = (unsafe { heap.as_ref() }) else { return ptr::null_mut() };
    heap.heap.pointer(Offset::new(offset)).map_or(ptr::null_mut(), |block| block.as_ptr().cast())
}

/// Writes the content of the heap on a node (or HAUL_NODE_ANY) to stats. The numbers are exact if
/// no thread changes the heap meanwhile; the call stops no thread. Reads the metadata of every
/// block.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_ARGUMENT. stats is written only on HAUL_OK.
///
/// # Safety
/// heap is NULL or a heap; stats is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_heap_get_stats(
    heap: *const haul_heap,
    node: c_int,
    stats: *mut haul_heap_stats,
) -> haul_status {
    // SAFETY: the caller's promise.
    let (Some(heap), false) = (unsafe { heap.as_ref() }, stats.is_null()) else {
        return haul_status::HAUL_ERROR_NULL;
    };
    let Some(node) = node_of(node) else { return haul_status::HAUL_ERROR_ARGUMENT };
    let found = heap.heap.stats(node);
    let found = haul_heap_stats {
        live_blocks: found.live.blocks,
        live_bytes: found.live.bytes,
        cached_blocks: found.cached.blocks,
        cached_bytes: found.cached.bytes,
        ready_bytes: found.ready_bytes,
        free_bytes: found.free_bytes,
        limit_bytes: found.limit_bytes,
    };
    // SAFETY: the caller's promise for stats.
    unsafe { put(stats, || Ok(found)) }
}

/// Checks the heap's metadata. Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_DAMAGED if a process
/// has written outside its own blocks.
///
/// # Safety
/// heap is NULL or a heap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_heap_validate(heap: *const haul_heap) -> haul_status {
    // SAFETY: the caller's promise.
    let Some(heap) = (unsafe { heap.as_ref() }) else { return haul_status::HAUL_ERROR_NULL };
    match heap.heap.validate() {
        Ok(()) => haul_status::HAUL_OK,
        Err(_) => haul_status::HAUL_ERROR_DAMAGED,
    }
}

/// The devices that an address is for. New kinds are added at the end; no kind changes its
/// number.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum haul_iova_kind {
    /// A physical address as the kernel reports it: DPDK's IOVA as PA. In memory from the pool of
    /// huge pages, the address is valid as long as the block lives. The kernel may move other
    /// pages unless they are locked.
    HAUL_IOVA_PHYSICAL = 1,
    /// The process's own address, because no other is known: a physical address requires
    /// CAP_SYS_ADMIN and a page that was touched. This address is valid behind an IOMMU that maps
    /// this process's addresses (DPDK's IOVA as VA) and for an emulated device. This address must
    /// not be used for a device that uses physical addresses, which would write to memory of
    /// other processes.
    HAUL_IOVA_VIRTUAL = 2,
    /// An address that the provider of the memory reports.
    HAUL_IOVA_PROVIDED = 3,
}

/// An address for devices.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct haul_iova {
    /// The address.
    pub address: u64,
    /// A haul_iova_kind: the devices that the address is for.
    pub kind: u32,
    /// Always 0.
    pub reserved: u32,
}

const _: () = assert!(size_of::<haul_iova>() == 16);

/// Writes to iova the address that devices use for a byte of the heap, and the kind of that
/// address. Makes three system calls.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_FOREIGN_POINTER. iova is written only on HAUL_OK.
///
/// # Safety
/// heap is NULL or a heap; iova is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_heap_iova(
    heap: *const haul_heap,
    pointer: *const c_void,
    iova: *mut haul_iova,
) -> haul_status {
    // SAFETY: the caller's promise.
    let Some(heap) = (unsafe { heap.as_ref() }) else { return haul_status::HAUL_ERROR_NULL };
    let Some(pointer) = NonNull::new(pointer.cast_mut().cast()) else {
        return haul_status::HAUL_ERROR_NULL;
    };
    let make = || {
        heap.heap.offset(pointer).ok_or(haul_status::HAUL_ERROR_FOREIGN_POINTER)?;
        let found = heap.heap.iova(pointer);
        let kind = match found {
            Iova::Physical(_) => haul_iova_kind::HAUL_IOVA_PHYSICAL,
            Iova::Provided(_) => haul_iova_kind::HAUL_IOVA_PROVIDED,
            _ => haul_iova_kind::HAUL_IOVA_VIRTUAL,
        };
        Ok(haul_iova { address: found.address(), kind: kind as u32, reserved: 0 })
    };
    // SAFETY: the caller's promise.
    unsafe { put(iova, make) }
}

fn given<E>(block: Result<NonNull<u8>, E>) -> *mut c_void {
    block.map_or(ptr::null_mut(), |block| block.as_ptr().cast())
}

fn node_of(node: c_int) -> Option<Node> {
    match node {
        HAUL_NODE_ANY => Some(Node::ANY),
        number => u8::try_from(number).ok().filter(|number| *number < u8::MAX).map(Node::new),
    }
}

fn tag_of(tag: c_uint) -> Option<Tag> {
    u8::try_from(tag).ok().map(Tag::new)
}

fn status_of(misuse: &Misuse) -> haul_status {
    match misuse.fault {
        Fault::Double => haul_status::HAUL_ERROR_DOUBLE_FREE,
        Fault::Interior => haul_status::HAUL_ERROR_INTERIOR_POINTER,
        Fault::Foreign => haul_status::HAUL_ERROR_FOREIGN_POINTER,
        Fault::Scribbled => haul_status::HAUL_ERROR_DAMAGED,
        _ => haul_status::HAUL_ERROR_WILD_POINTER,
    }
}
