//! The functions of rte_malloc's family that programs call. Each asks the heaps first, and DPDK
//! where these do not serve.
//!
//! DPDK calls some of them itself, through the loader's table. Where it would then look for its own
//! header before a block of ours, [`Inside`] keeps the heaps out.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::ptr::{NonNull, null, null_mut};

use crate::ask::Passing;
use crate::dpdk::{BAD_IOVA, Functions, SOCKET_ANY, SocketStats, functions};
use crate::dropin::{Brought, Dropin, Owned};
use crate::inside::Inside;
use crate::wish::Wish;
use crate::{account, iova, lifecycle};

/// A block of the heaps or of DPDK's.
///
/// # Safety
///
/// `name` is NULL or a C string.
#[inline]
unsafe fn allocate(name: *const c_char, bytes: usize, align: c_uint, socket: c_int) -> *mut c_void {
    let wish = Wish { bytes, align: align as usize, socket };
    if let Some(dropin) = lifecycle::serving() {
        // SAFETY: as the caller promises.
        if let Some(block) = unsafe { dropin.allocate(name, wish) } {
            return block.as_ptr().cast();
        }
    }
    pass(
        wish,
        // SAFETY: as the caller promises.
        |dpdk| unsafe { (dpdk.rte_malloc_socket)(name, bytes, align, socket) },
        // SAFETY: as the caller promises.
        |dropin| unsafe { dropin.allocate_after_all(name, wish) },
    )
}

/// The same, all zeros.
///
/// # Safety
///
/// As for [`allocate`].
#[inline]
unsafe fn allocate_zeroed(
    name: *const c_char,
    bytes: usize,
    align: c_uint,
    socket: c_int,
) -> *mut c_void {
    let wish = Wish { bytes, align: align as usize, socket };
    if let Some(dropin) = lifecycle::serving() {
        // SAFETY: as the caller promises.
        if let Some(block) = unsafe { dropin.allocate(name, wish) } {
            // SAFETY: the block has `bytes` bytes and nobody else knows it yet.
            unsafe { block.write_bytes(0, bytes) };
            return block.as_ptr().cast();
        }
    }
    pass(
        wish,
        |dpdk| {
            // It calls rte_malloc_socket and reads the header before the block.
            let _inside = Inside::enter();
            // SAFETY: as the caller promises.
            unsafe { (dpdk.rte_zmalloc_socket)(name, bytes, align, socket) }
        },
        |dropin| {
            // SAFETY: as the caller promises.
            let block = unsafe { dropin.allocate_after_all(name, wish) }?;
            // SAFETY: the block has `bytes` bytes and nobody else knows it yet.
            unsafe { block.write_bytes(0, bytes) };
            Some(block)
        },
    )
}

/// Asks DPDK for a block; where it has none, the heaps that were not asked before, and DPDK again
/// after the heaps gave memory back.
#[cold]
fn pass(
    wish: Wish,
    ask: impl Fn(&Functions) -> *mut c_void,
    after_all: impl Fn(&Dropin) -> Option<NonNull<u8>>,
) -> *mut c_void {
    let Some(dpdk) = functions() else {
        return null_mut();
    };
    let ask_heaps = || {
        let block = lifecycle::serving().and_then(&after_all);
        block.map_or(null_mut(), |block| block.as_ptr().cast())
    };
    let block = wish.ask(|| ask(dpdk), ask_heaps);
    if !block.is_null() {
        lifecycle::consider(dpdk);
    }
    block
}

/// `rte_malloc` of rte_malloc.h.
///
/// # Safety
///
/// As DPDK says: `name` is NULL or a C string.
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
/// As for [`rte_malloc`].
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
/// As for [`rte_malloc`].
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
/// As for [`rte_malloc`].
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

/// `rte_calloc` of rte_malloc.h; NULL where the product overflows, which DPDK does not look for.
///
/// # Safety
///
/// As for [`rte_malloc`].
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

/// `rte_calloc_socket` of rte_malloc.h; NULL where the product overflows, which DPDK does not look
/// for.
///
/// # Safety
///
/// As for [`rte_malloc`].
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
/// As for [`rte_realloc_socket`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_realloc(
    block: *mut c_void,
    bytes: usize,
    align: c_uint,
) -> *mut c_void {
    // SAFETY: as the caller promises.
    unsafe { rte_realloc_socket(block, bytes, align, SOCKET_ANY) }
}

/// `rte_realloc_socket` of rte_malloc.h. A size of 0 frees the block, as its documentation says.
///
/// # Safety
///
/// As DPDK says: `block` is NULL or came from this family and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_realloc_socket(
    block: *mut c_void,
    bytes: usize,
    align: c_uint,
    socket: c_int,
) -> *mut c_void {
    let Some(pointer) = NonNull::new(block.cast::<u8>()) else {
        // SAFETY: no name is a name.
        return unsafe { allocate(null(), bytes, align, socket) };
    };
    let found = lifecycle::current().map(|dropin| (dropin, dropin.find("rte_realloc", pointer)));
    match found {
        Some((dropin, Brought::Ours(owned))) => {
            // SAFETY: as the caller promises; the block is live and ours.
            unsafe { resize(dropin, &owned, bytes, align, socket) }
        }
        Some((_, Brought::Wrong)) => null_mut(),
        _ => functions().map_or(null_mut(), |dpdk| {
            let _passing = Passing::begin();
            // SAFETY: as the caller promises. What it calls of ours meanwhile may serve it: it
            // looks at the header of the old block only, which is its own.
            unsafe { (dpdk.rte_realloc_socket)(block, bytes, align, socket) }
        }),
    }
}

/// # Safety
///
/// The block is the caller's to move.
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
    // SAFETY: no name is a name.
    let target = unsafe { allocate(null(), bytes, align, socket) };
    if !target.is_null() {
        let kept = owned.bytes().min(bytes);
        // SAFETY: both have as many bytes, and the new block is another one.
        unsafe { target.cast::<u8>().copy_from_nonoverlapping(owned.pointer().as_ptr(), kept) };
        // SAFETY: as the caller promises.
        unsafe { dropin.free(owned.pointer()) };
    }
    target
}

/// `rte_free` of rte_malloc.h. A pointer into a heap that is no live block is told, and nothing is
/// changed.
///
/// # Safety
///
/// As DPDK says: `block` is NULL or came from this family, and nobody uses it any more.
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
        if !matches!(unsafe { dropin.free(pointer) }, Brought::NotOurs) {
            return;
        }
    }
    let _passing = Passing::begin();
    if let Some(dpdk) = functions() {
        // SAFETY: as the caller promises; the block is none of ours.
        unsafe { (dpdk.rte_free)(block) };
    }
}

/// `rte_free_sensitive` of rte_malloc.h (25.03): the block is overwritten before it is freed.
///
/// # Safety
///
/// As for [`rte_free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_free_sensitive(block: *mut c_void) {
    let pointer = NonNull::new(block.cast::<u8>());
    if let (Some(dropin), Some(pointer)) = (lifecycle::current(), pointer) {
        match dropin.find("rte_free_sensitive", pointer) {
            Brought::Ours(owned) => {
                // SAFETY: the block has that many bytes and is its owner's.
                unsafe { pointer.write_bytes(0, owned.bytes()) };
                // The block is still live for the compiler here: the zeros are written.
                core::hint::black_box(pointer);
                // SAFETY: as the caller promises.
                unsafe { dropin.free(pointer) };
                return;
            }
            Brought::Wrong => return,
            Brought::NotOurs => {}
        }
    }
    let _passing = Passing::begin();
    if let Some(dpdk) = functions() {
        // SAFETY: as the caller promises; the block is none of ours. A DPDK without this function
        // has no caller of it.
        unsafe { dpdk.rte_free_sensitive.unwrap_or(dpdk.rte_free)(block) };
    }
}

/// `rte_malloc_validate` of rte_malloc.h: 0 for a live block, with its size; else -1.
///
/// # Safety
///
/// As DPDK says: `bytes` is NULL or takes a size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_malloc_validate(block: *const c_void, bytes: *mut usize) -> c_int {
    let pointer = NonNull::new(block.cast_mut().cast::<u8>());
    if let (Some(dropin), Some(pointer)) = (lifecycle::current(), pointer) {
        match dropin.find("rte_malloc_validate", pointer) {
            Brought::Ours(owned) => {
                // SAFETY: as the caller promises.
                if let Some(bytes) = unsafe { bytes.as_mut() } {
                    *bytes = owned.bytes();
                }
                return 0;
            }
            Brought::Wrong => return -1,
            Brought::NotOurs => {}
        }
    }
    // SAFETY: as the caller promises.
    functions().map_or(-1, |dpdk| unsafe { (dpdk.rte_malloc_validate)(block, bytes) })
}

/// `rte_malloc_virt2iova` of rte_malloc.h, also for addresses within a block.
///
/// # Safety
///
/// As DPDK says: `address` came from this family.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_malloc_virt2iova(address: *const c_void) -> u64 {
    let Some(dpdk) = functions() else {
        return BAD_IOVA;
    };
    match lifecycle::current() {
        Some(dropin) if dropin.covers(address.addr()) => {
            iova::of(dpdk, address.addr()).unwrap_or(BAD_IOVA)
        }
        // SAFETY: as the caller promises; the block is none of ours.
        _ => unsafe { (dpdk.rte_malloc_virt2iova)(address) },
    }
}

/// `rte_malloc_get_socket_stats` of rte_malloc.h: what the program allocated, whoever served it.
///
/// # Safety
///
/// As DPDK says: `stats` takes the structure.
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

/// `rte_malloc_dump_stats` of rte_malloc.h: DPDK's own view, in which extents are blocks, and then
/// the heaps'.
///
/// # Safety
///
/// As DPDK says: `file` is open for writing, `name` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_malloc_dump_stats(file: *mut libc::FILE, name: *const c_char) {
    if let Some(dpdk) = functions() {
        // SAFETY: as the caller promises.
        unsafe { (dpdk.rte_malloc_dump_stats)(file, name) };
    }
    if let Some(dropin) = lifecycle::current() {
        let text = account::describe(dropin);
        // SAFETY: the text has as many bytes; the file is as the caller promises.
        unsafe { libc::fwrite(text.as_ptr().cast(), 1, text.len(), file) };
    }
}
