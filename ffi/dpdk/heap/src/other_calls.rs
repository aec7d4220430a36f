//! Functions outside rte_malloc's family that the drop-in interposes: those that show when DPDK's
//! memory is mapped and unmapped, and those that allocate much memory.

use core::ffi::{c_char, c_int, c_uint};
use core::ptr::null;

use crate::dpdk::{Functions, Memzone, functions};
use crate::dropin::Dropin;
use crate::request::Request;
use crate::{housekeeping, lifecycle, notice};

/// `rte_memzone_reserve` of rte_memzone.h: calls DPDK, and calls DPDK again after the heaps have
/// returned memory.
///
/// # Safety
///
/// DPDK's obligations: `name` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_memzone_reserve(
    name: *const c_char,
    bytes: usize,
    socket: c_int,
    flags: c_uint,
) -> *const Memzone {
    // SAFETY: as the caller promises.
    ask_for_zone(Request { bytes, align: 0, socket }, |dpdk| unsafe {
        (dpdk.rte_memzone_reserve)(name, bytes, socket, flags)
    })
}

/// `rte_memzone_reserve_aligned` of rte_memzone.h, like [`rte_memzone_reserve`].
///
/// # Safety
///
/// The obligations of [`rte_memzone_reserve`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_memzone_reserve_aligned(
    name: *const c_char,
    bytes: usize,
    socket: c_int,
    flags: c_uint,
    align: c_uint,
) -> *const Memzone {
    // SAFETY: as the caller promises.
    ask_for_zone(Request { bytes, align: align as usize, socket }, |dpdk| unsafe {
        (dpdk.rte_memzone_reserve_aligned)(name, bytes, socket, flags, align)
    })
}

/// `rte_memzone_reserve_bounded` of rte_memzone.h, like [`rte_memzone_reserve`].
///
/// # Safety
///
/// The obligations of [`rte_memzone_reserve`].
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
    ask_for_zone(Request { bytes, align: align as usize, socket }, |dpdk| unsafe {
        (dpdk.rte_memzone_reserve_bounded)(name, bytes, socket, flags, align, bound)
    })
}

fn ask_for_zone(request: Request, ask: impl Fn(&Functions) -> *const Memzone) -> *const Memzone {
    let Some(dpdk) = functions() else {
        return null();
    };
    request.ask_with_errno(|| ask(dpdk).cast_mut())
}

/// `rte_eal_init` of rte_eal.h: calls DPDK, then builds the heaps.
///
/// # Safety
///
/// DPDK's obligations: `arguments` has `count` arguments, which DPDK may rearrange.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_eal_init(count: c_int, arguments: *mut *mut c_char) -> c_int {
    let Some(dpdk) = functions() else {
        notice::print(format_args!("no DPDK is loaded: rte_eal_init fails"));
        return -1;
    };
    // SAFETY: as the caller promises.
    let result = unsafe { (dpdk.rte_eal_init)(count, arguments) };
    if result >= 0 {
        lifecycle::try_build(dpdk);
        if let Some(dropin) = lifecycle::current() {
            housekeeping::start(dropin);
        }
    }
    result
}

/// `rte_trace_save` of rte_trace.h: calls DPDK. `rte_eal_cleanup` calls `rte_trace_save` when all
/// devices are closed, and unmaps DPDK's memory afterwards.
#[unsafe(no_mangle)]
pub extern "C" fn rte_trace_save() -> c_int {
    let save = functions().and_then(|dpdk| dpdk.rte_trace_save);
    // SAFETY: the function has no parameters and may be called at any time.
    let result = save.map_or(0, |save| unsafe { save() });
    lifecycle::return_all();
    result
}

/// `rte_eal_cleanup` of rte_eal.h. Blocks that DPDK frees during this call are freed; later frees
/// do nothing.
///
/// # Safety
///
/// DPDK's obligations: the call is made once, and no thread uses DPDK's memory any more.
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
