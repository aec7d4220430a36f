//! The functions beside rte_malloc's family before which the drop-in stands: those that tell when
//! DPDK's memory comes and goes, and those that ask DPDK for much of it.

use core::ffi::{c_char, c_int, c_uint};
use core::ptr::null;

use crate::dpdk::{Functions, Memzone, functions};
use crate::dropin::Dropin;
use crate::wish::Wish;
use crate::{housekeeping, lifecycle, notice};

/// `rte_memzone_reserve` of rte_memzone.h: DPDK's, and again after the heaps gave memory back.
///
/// # Safety
///
/// As DPDK says: `name` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_memzone_reserve(
    name: *const c_char,
    bytes: usize,
    socket: c_int,
    flags: c_uint,
) -> *const Memzone {
    // SAFETY: as the caller promises.
    pass_zone(Wish { bytes, align: 0, socket }, |dpdk| unsafe {
        (dpdk.rte_memzone_reserve)(name, bytes, socket, flags)
    })
}

/// `rte_memzone_reserve_aligned` of rte_memzone.h, likewise.
///
/// # Safety
///
/// As for [`rte_memzone_reserve`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_memzone_reserve_aligned(
    name: *const c_char,
    bytes: usize,
    socket: c_int,
    flags: c_uint,
    align: c_uint,
) -> *const Memzone {
    // SAFETY: as the caller promises.
    pass_zone(Wish { bytes, align: align as usize, socket }, |dpdk| unsafe {
        (dpdk.rte_memzone_reserve_aligned)(name, bytes, socket, flags, align)
    })
}

/// `rte_memzone_reserve_bounded` of rte_memzone.h, likewise.
///
/// # Safety
///
/// As for [`rte_memzone_reserve`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_memzone_reserve_bounded(
    name: *const c_char,
    bytes: usize,
    socket: c_int,
    flags: c_uint,
    align: c_uint,
    bound: c_uint,
) -> *const Memzone {
    // SAFETY: as the caller promises.
    pass_zone(Wish { bytes, align: align as usize, socket }, |dpdk| unsafe {
        (dpdk.rte_memzone_reserve_bounded)(name, bytes, socket, flags, align, bound)
    })
}

fn pass_zone(wish: Wish, ask: impl Fn(&Functions) -> *const Memzone) -> *const Memzone {
    let Some(dpdk) = functions() else {
        return null();
    };
    wish.ask_telling(|| ask(dpdk).cast_mut())
}

/// `rte_eal_init` of rte_eal.h: DPDK's, and then the heaps.
///
/// # Safety
///
/// As DPDK says: `count` arguments, which it may rearrange.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_eal_init(count: c_int, arguments: *mut *mut c_char) -> c_int {
    let Some(dpdk) = functions() else {
        notice::tell(format_args!("no DPDK is loaded: rte_eal_init fails"));
        return -1;
    };
    // SAFETY: as the caller promises.
    let result = unsafe { (dpdk.rte_eal_init)(count, arguments) };
    if result >= 0 {
        lifecycle::consider(dpdk);
        if let Some(dropin) = lifecycle::current() {
            housekeeping::start(dropin);
        }
    }
    result
}

/// `rte_trace_save` of rte_trace.h: DPDK's. `rte_eal_cleanup` calls it when all devices are closed,
/// and unmaps DPDK's memory after it.
#[unsafe(no_mangle)]
pub extern "C" fn rte_trace_save() -> c_int {
    let save = functions().and_then(|dpdk| dpdk.rte_trace_save);
    // SAFETY: it takes nothing, and may be called at any time.
    let result = save.map_or(0, |save| unsafe { save() });
    lifecycle::give_all_back();
    result
}

/// `rte_eal_cleanup` of rte_eal.h: what DPDK frees in it is freed, what comes later is not touched.
///
/// # Safety
///
/// As DPDK says: once, and nobody uses DPDK's memory any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_eal_cleanup() -> c_int {
    housekeeping::stop();
    let leave = lifecycle::current().map(Dropin::leave);
    lifecycle::begin_end();
    let result = match functions() {
        // SAFETY: as the caller promises.
        Some(dpdk) => unsafe { (dpdk.rte_eal_cleanup)() },
        None => -1,
    };
    drop(leave);
    lifecycle::end();
    result
}
