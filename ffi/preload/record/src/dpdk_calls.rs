//! `rte_malloc` and related functions, under DPDK's names. Each of these functions calls the real
//! function and records the call. The type of the block becomes the tag of the event. A program
//! without DPDK never calls these functions. Signatures are those of `rte_malloc.h` in DPDK
//! 22.11, unchanged since 2.0.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::sync::atomic::Ordering;

use haul_model::trace::{Call, NAME_BYTES_MAX};

use crate::real::next;
use crate::recorder::Recorder;

type Block = *mut c_void;
type Type = *const c_char;

mod next_of {
    use super::{Block, Type, c_int, c_uint, next};

    next!(RTE_MALLOC = rte_malloc(kind: Type, size: usize, align: c_uint) -> Block, else core::ptr::null_mut());
    next!(RTE_ZMALLOC = rte_zmalloc(kind: Type, size: usize, align: c_uint) -> Block, else core::ptr::null_mut());
    next!(RTE_CALLOC = rte_calloc(kind: Type, count: usize, size: usize, align: c_uint) -> Block, else core::ptr::null_mut());
    next!(RTE_REALLOC = rte_realloc(block: Block, size: usize, align: c_uint) -> Block, else core::ptr::null_mut());
    next!(RTE_MALLOC_SOCKET = rte_malloc_socket(kind: Type, size: usize, align: c_uint, socket: c_int) -> Block, else core::ptr::null_mut());
    next!(RTE_ZMALLOC_SOCKET = rte_zmalloc_socket(kind: Type, size: usize, align: c_uint, socket: c_int) -> Block, else core::ptr::null_mut());
    next!(RTE_CALLOC_SOCKET = rte_calloc_socket(kind: Type, count: usize, size: usize, align: c_uint, socket: c_int) -> Block, else core::ptr::null_mut());
    next!(RTE_REALLOC_SOCKET = rte_realloc_socket(block: Block, size: usize, align: c_uint, socket: c_int) -> Block, else core::ptr::null_mut());
    next!(RTE_FREE = rte_free(block: Block) -> (), else Default::default());
}

/// The tag of blocks without a type.
const NO_TYPE: &[u8] = b"rte_malloc";

/// The outermost of nested DPDK calls: `rte_malloc` may call `rte_malloc_socket`.
struct Outermost(Recorder);

impl Outermost {
    fn enter() -> Option<Self> {
        let recorder = Recorder::current()?;
        let is_inner = recorder.thread.in_dpdk.swap(1, Ordering::Relaxed) != 0;
        // Only the outermost call creates a value, because the drop of the value marks the thread
        // as outside.
        (!is_inner).then(|| Self(recorder))
    }
}

impl Drop for Outermost {
    fn drop(&mut self) {
        self.0.thread.in_dpdk.store(0, Ordering::Relaxed);
    }
}

fn allocation(
    kind: Type,
    size: usize,
    align: c_uint,
    zeroed: bool,
    real: impl FnOnce() -> Block,
) -> Block {
    let Some(outermost) = Outermost::enter() else { return real() };
    let start = Recorder::now();
    let block = real();
    let tag = outermost.0.tag(name(kind));
    let (address, size, align_log2) = (block.addr() as u64, size as u64, log2(align));
    outermost.0.record_since(start, Call::Allocate { address, size, align_log2, zeroed, tag });
    block
}

fn reallocation(block: Block, size: usize, align: c_uint, real: impl FnOnce() -> Block) -> Block {
    if block.is_null() {
        return allocation(core::ptr::null(), size, align, false, real);
    }
    let Some(outermost) = Outermost::enter() else { return real() };
    let start = Recorder::now();
    let new = real();
    let (old, address, align_log2) = (block.addr() as u64, new.addr() as u64, log2(align));
    let call = if size == 0 {
        Call::Free { address: old }
    } else {
        // The block keeps its tag, because this call has no type.
        Call::Reallocate { old, new: address, size: size as u64, align_log2, tag: 0 }
    };
    outermost.0.record_since(start, call);
    new
}

/// The type's name, cut off at the longest length.
fn name<'a>(kind: Type) -> &'a [u8] {
    if kind.is_null() {
        return NO_TYPE;
    }
    // SAFETY: DPDK's callers pass a C string or null, which outlives the call.
    let name = unsafe { CStr::from_ptr(kind) }.to_bytes();
    let name = name.get(..name.len().min(NAME_BYTES_MAX)).unwrap_or_default();
    if name.is_empty() { NO_TYPE } else { name }
}

fn log2(align: c_uint) -> u8 {
    if align > 1 { align.trailing_zeros() as u8 } else { 0 }
}

/// # Safety
/// The obligations of DPDK's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_malloc(kind: Type, size: usize, align: c_uint) -> Block {
    // SAFETY: the caller's promise.
    allocation(kind, size, align, false, || unsafe { next_of::rte_malloc(kind, size, align) })
}

/// # Safety
/// The obligations of DPDK's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_zmalloc(kind: Type, size: usize, align: c_uint) -> Block {
    // SAFETY: the caller's promise.
    allocation(kind, size, align, true, || unsafe { next_of::rte_zmalloc(kind, size, align) })
}

/// # Safety
/// The obligations of DPDK's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_calloc(kind: Type, count: usize, size: usize, align: c_uint) -> Block {
    allocation(kind, count.saturating_mul(size), align, true, || {
        // SAFETY: the caller's promise.
        unsafe { next_of::rte_calloc(kind, count, size, align) }
    })
}

/// # Safety
/// The obligations of DPDK's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_realloc(block: Block, size: usize, align: c_uint) -> Block {
    // SAFETY: the caller's promise.
    reallocation(block, size, align, || unsafe { next_of::rte_realloc(block, size, align) })
}

/// # Safety
/// The obligations of DPDK's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_malloc_socket(
    kind: Type,
    size: usize,
    align: c_uint,
    socket: c_int,
) -> Block {
    allocation(kind, size, align, false, || {
        // SAFETY: the caller's promise.
        unsafe { next_of::rte_malloc_socket(kind, size, align, socket) }
    })
}

/// # Safety
/// The obligations of DPDK's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_zmalloc_socket(
    kind: Type,
    size: usize,
    align: c_uint,
    socket: c_int,
) -> Block {
    allocation(kind, size, align, true, || {
        // SAFETY: the caller's promise.
        unsafe { next_of::rte_zmalloc_socket(kind, size, align, socket) }
    })
}

/// # Safety
/// The obligations of DPDK's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_calloc_socket(
    kind: Type,
    count: usize,
    size: usize,
    align: c_uint,
    socket: c_int,
) -> Block {
    allocation(kind, count.saturating_mul(size), align, true, || {
        // SAFETY: the caller's promise.
        unsafe { next_of::rte_calloc_socket(kind, count, size, align, socket) }
    })
}

/// # Safety
/// The obligations of DPDK's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_realloc_socket(
    block: Block,
    size: usize,
    align: c_uint,
    socket: c_int,
) -> Block {
    reallocation(block, size, align, || {
        // SAFETY: the caller's promise.
        unsafe { next_of::rte_realloc_socket(block, size, align, socket) }
    })
}

/// # Safety
/// The obligations of DPDK's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_free(block: Block) {
    let outermost = if block.is_null() { None } else { Outermost::enter() };
    if let Some(outermost) = &outermost {
        outermost.0.record(Call::Free { address: block.addr() as u64 });
    }
    // SAFETY: the caller's promise.
    unsafe { next_of::rte_free(block) };
}
