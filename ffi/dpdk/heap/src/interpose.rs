//! The functions of rte_malloc's family that programs call. Each function asks the heaps first,
//! and DPDK if no heap serves the call.
//!
//! DPDK calls some of these functions itself, through the loader's table. If DPDK would then look
//! for its own header before a heap's block, [`Inside`] prevents a heap from serving the call.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::ptr::{NonNull, null, null_mut};

use crate::ask::DpdkCall;
use crate::dpdk::{BAD_IOVA, Functions, SOCKET_ANY, SocketStats, functions};
use crate::dropin::{Dropin, Lookup, Owned};
use crate::inside::Inside;
use crate::request::Request;
use crate::{account, iova, lifecycle};

/// Allocates a block from the heaps or from DPDK.
///
/// # Safety
///
/// `name` is NULL or a C string.
#[inline]
unsafe fn allocate(name: *const c_char, bytes: usize, align: c_uint, socket: c_int) -> *mut c_void {
    let request = Request { bytes, align: align as usize, socket };
    if let Some(dropin) = lifecycle::serving() {
        // SAFETY: as the caller promises.
        if let Some(block) = unsafe { dropin.allocate(name, request) } {
            return block.as_ptr().cast();
        }
    }
    ask_dpdk(
        request,
        // SAFETY: as the caller promises.
        |dpdk| unsafe { (dpdk.rte_malloc_socket)(name, bytes, align, socket) },
        // SAFETY: as the caller promises.
        |dropin| unsafe { dropin.allocate_in_backoff(name, request) },
    )
}

/// Like [`allocate`], with all bytes zero.
///
/// # Safety
///
/// The obligations of [`allocate`].
#[inline]
unsafe fn allocate_zeroed(
    name: *const c_char,
    bytes: usize,
    align: c_uint,
    socket: c_int,
) -> *mut c_void {
    let request = Request { bytes, align: align as usize, socket };
    if let Some(dropin) = lifecycle::serving() {
        // SAFETY: as the caller promises.
        if let Some(block) = unsafe { dropin.allocate(name, request) } {
            // SAFETY: the block has `bytes` bytes and no other thread knows it yet.
            unsafe { block.write_bytes(0, bytes) };
            return block.as_ptr().cast();
        }
    }
    ask_dpdk(
        request,
        |dpdk| {
            // The function calls rte_malloc_socket and reads the header before the block.
            let _inside = Inside::enter();
            // SAFETY: as the caller promises.
            unsafe { (dpdk.rte_zmalloc_socket)(name, bytes, align, socket) }
        },
        |dropin| {
            // SAFETY: as the caller promises.
            let block = unsafe { dropin.allocate_in_backoff(name, request) }?;
            // SAFETY: the block has `bytes` bytes and no other thread knows it yet.
            unsafe { block.write_bytes(0, bytes) };
            Some(block)
        },
    )
}

/// Asks DPDK for a block. If DPDK refuses, asks the heaps that are in back-off, and asks DPDK
/// again after the heaps have returned memory.
#[cold]
fn ask_dpdk(
    request: Request,
    ask: impl Fn(&Functions) -> *mut c_void,
    in_backoff: impl Fn(&Dropin) -> Option<NonNull<u8>>,
) -> *mut c_void {
    let Some(dpdk) = functions() else {
        return null_mut();
    };
    let ask_heaps = || {
        let block = lifecycle::serving().and_then(&in_backoff);
        block.map_or(null_mut(), |block| block.as_ptr().cast())
    };
    let block = request.ask(|| ask(dpdk), ask_heaps);
    if !block.is_null() {
        lifecycle::try_build(dpdk);
    }
    block
}

/// `rte_malloc` of rte_malloc.h.
///
/// # Safety
///
/// DPDK's obligations: `name` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_malloc(
    name: *const c_char,
    bytes: usize,
    align: c_uint,
) -> *mut c_void {
    // SAFETY: as the caller promises.
    unsafe { allocate(name, bytes, align, SOCKET_ANY) }
}

/// `rte_malloc_socket` of rte_malloc.h.
///
/// # Safety
///
/// The obligations of [`rte_malloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_malloc_socket(
    name: *const c_char,
    bytes: usize,
    align: c_uint,
    socket: c_int,
) -> *mut c_void {
    // SAFETY: as the caller promises.
    unsafe { allocate(name, bytes, align, socket) }
}

/// `rte_zmalloc` of rte_malloc.h.
///
/// # Safety
///
/// The obligations of [`rte_malloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_zmalloc(
    name: *const c_char,
    bytes: usize,
    align: c_uint,
) -> *mut c_void {
    // SAFETY: as the caller promises.
    unsafe { allocate_zeroed(name, bytes, align, SOCKET_ANY) }
}

/// `rte_zmalloc_socket` of rte_malloc.h.
///
/// # Safety
///
/// The obligations of [`rte_malloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_zmalloc_socket(
    name: *const c_char,
    bytes: usize,
    align: c_uint,
    socket: c_int,
) -> *mut c_void {
    // SAFETY: as the caller promises.
    unsafe { allocate_zeroed(name, bytes, align, socket) }
}

/// `rte_calloc` of rte_malloc.h. Returns NULL if the product overflows, which DPDK does not check.
///
/// # Safety
///
/// The obligations of [`rte_malloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_calloc(
    name: *const c_char,
    count: usize,
    bytes: usize,
    align: c_uint,
) -> *mut c_void {
    // SAFETY: as the caller promises.
    unsafe { rte_calloc_socket(name, count, bytes, align, SOCKET_ANY) }
}

/// `rte_calloc_socket` of rte_malloc.h. Returns NULL if the product overflows, which DPDK does not
/// check.
///
/// # Safety
///
/// The obligations of [`rte_malloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_calloc_socket(
    name: *const c_char,
    count: usize,
    bytes: usize,
    align: c_uint,
    socket: c_int,
) -> *mut c_void {
    match count.checked_mul(bytes) {
        // SAFETY: as the caller promises.
        Some(product) => unsafe { allocate_zeroed(name, product, align, socket) },
        None => null_mut(),
    }
}

/// `rte_realloc` of rte_malloc.h.
///
/// # Safety
///
/// The obligations of [`rte_realloc_socket`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_realloc(
    block: *mut c_void,
    bytes: usize,
    align: c_uint,
) -> *mut c_void {
    // SAFETY: as the caller promises.
    unsafe { rte_realloc_socket(block, bytes, align, SOCKET_ANY) }
}

/// `rte_realloc_socket` of rte_malloc.h. A size of 0 frees the block, as DPDK's documentation
/// says.
///
/// # Safety
///
/// DPDK's obligations: `block` is NULL or came from this family and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_realloc_socket(
    block: *mut c_void,
    bytes: usize,
    align: c_uint,
    socket: c_int,
) -> *mut c_void {
    let Some(pointer) = NonNull::new(block.cast::<u8>()) else {
        // SAFETY: the name may be NULL.
        return unsafe { allocate(null(), bytes, align, socket) };
    };
    let found = lifecycle::current().map(|dropin| (dropin, dropin.find("rte_realloc", pointer)));
    match found {
        Some((dropin, Lookup::Ours(owned))) => {
            // SAFETY: as the caller promises; the block is a live block of a heap.
            unsafe { resize(dropin, &owned, bytes, align, socket) }
        }
        Some((_, Lookup::Misuse)) => null_mut(),
        _ => functions().map_or(null_mut(), |dpdk| {
            let _call = DpdkCall::begin();
            // SAFETY: as the caller promises. A heap may serve the calls that DPDK makes meanwhile:
            // DPDK reads only the header of the old block, which is its own.
            unsafe { (dpdk.rte_realloc_socket)(block, bytes, align, socket) }
        }),
    }
}

/// # Safety
///
/// The caller owns the block and may move it.
#[cold]
unsafe fn resize(
    dropin: &Dropin,
    owned: &Owned<'_>,
    bytes: usize,
    align: c_uint,
    socket: c_int,
) -> *mut c_void {
    if bytes == 0 {
        // SAFETY: as the caller promises.
        unsafe { dropin.free(owned.pointer()) };
        return null_mut();
    }
    if align != 0 && !align.is_power_of_two() {
        return null_mut();
    }
    if owned.is_on(dropin, socket) {
        // SAFETY: as the caller promises.
        if let Some(resized) = unsafe { owned.resize(bytes, align as usize) } {
            return resized.as_ptr().cast();
        }
    }
    // SAFETY: the name may be NULL.
    let target = unsafe { allocate(null(), bytes, align, socket) };
    if !target.is_null() {
        let kept = owned.bytes().min(bytes);
        // SAFETY: both blocks have at least `kept` bytes, and the new block is a different one.
        unsafe { target.cast::<u8>().copy_from_nonoverlapping(owned.pointer().as_ptr(), kept) };
        // SAFETY: as the caller promises.
        unsafe { dropin.free(owned.pointer()) };
    }
    target
}

/// `rte_free` of rte_malloc.h. A pointer into a heap that is not a live block is reported and
/// changes nothing.
///
/// # Safety
///
/// DPDK's obligations: `block` is NULL or came from this family, and no thread uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_free(block: *mut c_void) {
    let Some(pointer) = NonNull::new(block.cast::<u8>()) else {
        return;
    };
    if let Some(dropin) = lifecycle::current() {
        if lifecycle::is_over() && dropin.is_in_range(pointer) {
            return;
        }
        // SAFETY: as the caller promises.
        if !matches!(unsafe { dropin.free(pointer) }, Lookup::NotOurs) {
            return;
        }
    }
    let _call = DpdkCall::begin();
    if let Some(dpdk) = functions() {
        // SAFETY: as the caller promises; the block is not a heap's.
        unsafe { (dpdk.rte_free)(block) };
    }
}

/// `rte_free_sensitive` of rte_malloc.h (25.03): the block is overwritten before it is freed.
///
/// # Safety
///
/// The obligations of [`rte_free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_free_sensitive(block: *mut c_void) {
    let pointer = NonNull::new(block.cast::<u8>());
    if let (Some(dropin), Some(pointer)) = (lifecycle::current(), pointer) {
        match dropin.find("rte_free_sensitive", pointer) {
            Lookup::Ours(owned) => {
                // SAFETY: the block has that many bytes, and the caller owns it.
                unsafe { pointer.write_bytes(0, owned.bytes()) };
                // For the compiler the block is still in use here, so it cannot remove the
                // writes.
                core::hint::black_box(pointer);
                // SAFETY: as the caller promises.
                unsafe { dropin.free(pointer) };
                return;
            }
            Lookup::Misuse => return,
            Lookup::NotOurs => {}
        }
    }
    let _call = DpdkCall::begin();
    if let Some(dpdk) = functions() {
        // SAFETY: as the caller promises; the block is not a heap's. A program for a DPDK without
        // this function does not call it.
        unsafe { dpdk.rte_free_sensitive.unwrap_or(dpdk.rte_free)(block) };
    }
}

/// `rte_malloc_validate` of rte_malloc.h: 0 for a live block, with its size; else -1.
///
/// # Safety
///
/// DPDK's obligations: `bytes` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_malloc_validate(block: *const c_void, bytes: *mut usize) -> c_int {
    let pointer = NonNull::new(block.cast_mut().cast::<u8>());
    if let (Some(dropin), Some(pointer)) = (lifecycle::current(), pointer) {
        match dropin.find("rte_malloc_validate", pointer) {
            Lookup::Ours(owned) => {
                // SAFETY: as the caller promises.
                if let Some(bytes) = unsafe { bytes.as_mut() } {
                    *bytes = owned.bytes();
                }
                return 0;
            }
            Lookup::Misuse => return -1,
            Lookup::NotOurs => {}
        }
    }
    // SAFETY: as the caller promises.
    functions().map_or(-1, |dpdk| unsafe { (dpdk.rte_malloc_validate)(block, bytes) })
}

/// `rte_malloc_virt2iova` of rte_malloc.h, also for addresses within a block.
///
/// # Safety
///
/// DPDK's obligations: `address` came from this family.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_malloc_virt2iova(address: *const c_void) -> u64 {
    let Some(dpdk) = functions() else {
        return BAD_IOVA;
    };
    match lifecycle::current() {
        Some(dropin) if dropin.covers(address.addr()) => {
            iova::of(dpdk, address.addr()).unwrap_or(BAD_IOVA)
        }
        // SAFETY: as the caller promises; the block is not a heap's.
        _ => unsafe { (dpdk.rte_malloc_virt2iova)(address) },
    }
}

/// `rte_malloc_get_socket_stats` of rte_malloc.h: counts the program's blocks in DPDK and in the
/// heaps.
///
/// # Safety
///
/// DPDK's obligations: `stats` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_malloc_get_socket_stats(
    socket: c_int,
    stats: *mut SocketStats,
) -> c_int {
    let Some(dpdk) = functions() else {
        return -1;
    };
    // SAFETY: as the caller promises.
    let ask = |stats: *mut _| unsafe { (dpdk.rte_malloc_get_socket_stats)(socket, stats) };
    // SAFETY: as the caller promises.
    match (lifecycle::current(), unsafe { stats.as_mut() }) {
        (Some(dropin), Some(stats)) => account::count(dropin, socket, stats, |stats| ask(stats)),
        _ => ask(stats),
    }
}

/// `rte_malloc_dump_stats` of rte_malloc.h: DPDK's own statistics, in which extents are blocks, and
/// then the heaps' statistics.
///
/// # Safety
///
/// DPDK's obligations: `file` is open for writing, `name` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_malloc_dump_stats(file: *mut libc::FILE, name: *const c_char) {
    if let Some(dpdk) = functions() {
        // SAFETY: as the caller promises.
        unsafe { (dpdk.rte_malloc_dump_stats)(file, name) };
    }
    if let Some(dropin) = lifecycle::current() {
        let text = account::describe(dropin);
        // SAFETY: the text has that many bytes; the file is open for writing, as the caller
        // promises.
        unsafe { libc::fwrite(text.as_ptr().cast(), 1, text.len(), file) };
    }
}
