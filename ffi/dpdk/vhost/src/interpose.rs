//! The functions that programs call. Each calls DPDK's function of the same name, except for the
//! packets that this library moves.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use crate::burst::Burst;
use crate::dpdk::{self, Callbacks, MessageCallbacks, Stat, StatName, functions};
use crate::layout::{Mbuf, Mempool};
use crate::notice::print;
use crate::settings::settings;
use crate::{callbacks, device, paths};

/// DPDK's function of this name and type. Looked up until it is found; then one load.
macro_rules! dpdk {
    ($name:ident: $kind:ty) => {{
        static FOUND: OnceLock<$kind> = OnceLock::new();
        FOUND.get().copied().or_else(|| {
            let symbol = dpdk::function(stringify!($name))?;
            // SAFETY: this is DPDK's function of this name, which has this type in every version.
            let found = unsafe { core::mem::transmute::<*mut c_void, $kind>(symbol) };
            Some(*FOUND.get_or_init(|| found))
        })
    }};
}

/// A burst on a ring that this library may serve.
#[inline]
fn burst(number: c_int, index: u16) -> Option<Burst> {
    Some(Burst { device: device::find(number)?, functions: functions()?, number, index })
}

/// Sends packets to a guest; returns the number of packets that were sent, from the first on.
///
/// # Safety
/// As for DPDK's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_vhost_enqueue_burst(
    number: c_int,
    index: u16,
    packets: *mut *mut Mbuf,
    count: u16,
) -> u16 {
    if let Some(burst) = burst(number, index) {
        // SAFETY: the caller's promise.
        return unsafe { burst.enqueue(packets, count) };
    }
    let call = dpdk!(rte_vhost_enqueue_burst:
        unsafe extern "C" fn(c_int, u16, *mut *mut Mbuf, u16) -> u16);
    // SAFETY: the caller's promise.
    call.map_or(0, |call| unsafe { call(number, index, packets, count) })
}

/// Receives packets of a guest; returns their number.
///
/// # Safety
/// As for DPDK's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_vhost_dequeue_burst(
    number: c_int,
    index: u16,
    pool: *mut Mempool,
    packets: *mut *mut Mbuf,
    count: u16,
) -> u16 {
    if let Some(burst) = burst(number, index) {
        // SAFETY: the caller's promise.
        return unsafe { burst.dequeue(pool, packets, count) };
    }
    let call = dpdk!(rte_vhost_dequeue_burst:
        unsafe extern "C" fn(c_int, u16, *mut Mempool, *mut *mut Mbuf, u16) -> u16);
    // SAFETY: the caller's promise.
    call.map_or(0, |call| unsafe { call(number, index, pool, packets, count) })
}

/// Registers a path, with flags.
///
/// # Safety
/// As for DPDK's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_vhost_driver_register(path: *const c_char, flags: u64) -> c_int {
    if !path.is_null() {
        // SAFETY: the caller passes a C string.
        paths::register(unsafe { CStr::from_ptr(path) }, flags);
    }
    let call = dpdk!(rte_vhost_driver_register: unsafe extern "C" fn(*const c_char, u64) -> c_int);
    // SAFETY: the caller's promise.
    call.map_or(-1, |call| unsafe { call(path, flags) })
}

/// Registers the program's callbacks for a path; DPDK gets this library's in front of them.
///
/// # Safety
/// As for DPDK's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_vhost_driver_callback_register(
    path: *const c_char,
    own: *const Callbacks,
) -> c_int {
    let call = dpdk!(rte_vhost_driver_callback_register:
        unsafe extern "C" fn(*const c_char, *const Callbacks) -> c_int);
    let Some(call) = call else { return -1 };
    let mut given = own;
    if !path.is_null() && !own.is_null() && !settings().is_off {
        if functions().is_some() {
            // SAFETY: the caller passes a C string.
            let path = unsafe { CStr::from_ptr(path) };
            // SAFETY: the caller keeps its callbacks, as DPDK requires.
            given = unsafe { paths::replace(path, own, callbacks::in_front) };
        } else if settings().is_verbose {
            print(format_args!("a function of DPDK 22.11 to 26.07 is missing; DPDK serves all"));
        }
    }
    // SAFETY: the caller's promise; the callbacks in front live as long as the process.
    unsafe { call(path, given) }
}

/// Registers callbacks of messages, of which a device has one pair: DPDK serves it from now on.
///
/// # Safety
/// As for DPDK's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_vhost_extern_callback_register(
    number: c_int,
    own: *const MessageCallbacks,
    context: *mut c_void,
) -> c_int {
    callbacks::give_up(number);
    let call = dpdk!(rte_vhost_extern_callback_register:
        unsafe extern "C" fn(c_int, *const MessageCallbacks, *mut c_void) -> c_int);
    // SAFETY: the caller's promise.
    call.map_or(-1, |call| unsafe { call(number, own, context) })
}

/// Registers an engine that copies: DPDK serves the device from now on.
///
/// # Safety
/// As for DPDK's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_vhost_async_channel_register(number: c_int, index: u16) -> c_int {
    callbacks::give_up(number);
    let call = dpdk!(rte_vhost_async_channel_register: unsafe extern "C" fn(c_int, u16) -> c_int);
    // SAFETY: the caller's promise.
    call.map_or(-1, |call| unsafe { call(number, index) })
}

/// As [`rte_vhost_async_channel_register`], for a caller that holds DPDK's lock.
///
/// # Safety
/// As for DPDK's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_vhost_async_channel_register_thread_unsafe(
    number: c_int,
    index: u16,
) -> c_int {
    callbacks::give_up(number);
    let call = dpdk!(rte_vhost_async_channel_register_thread_unsafe:
        unsafe extern "C" fn(c_int, u16) -> c_int);
    // SAFETY: the caller's promise.
    call.map_or(-1, |call| unsafe { call(number, index) })
}

/// Reads the counters of a ring: DPDK's, with this library's added.
///
/// # Safety
/// As for DPDK's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_vhost_vring_stats_get(
    number: c_int,
    index: u16,
    stats: *mut Stat,
    count: c_uint,
) -> c_int {
    let call = dpdk!(rte_vhost_vring_stats_get:
        unsafe extern "C" fn(c_int, u16, *mut Stat, c_uint) -> c_int);
    // SAFETY: the caller's promise.
    let result = call.map_or(-1, |call| unsafe { call(number, index, stats, count) });
    let written = c_uint::try_from(result).unwrap_or(0);
    let (Some(burst), false) = (burst(number, index), stats.is_null()) else { return result };
    let Some(ring) = burst.device.rings.get(usize::from(index)) else { return result };
    if written == 0 || written > count {
        return result;
    }
    let mut names = vec![StatName([0; 64]); written as usize];
    let get_names = burst.functions.rte_vhost_vring_stats_get_names;
    // SAFETY: room for as many names.
    if unsafe { get_names(number, index, names.as_mut_ptr(), written) } != result {
        return result;
    }
    // SAFETY: DPDK has written as many counters.
    let stats = unsafe { std::slice::from_raw_parts_mut(stats, written as usize) };
    for stat in stats {
        let name = usize::try_from(stat.id).ok().and_then(|id| names.get(id));
        let name = name.and_then(|name| CStr::from_bytes_until_nul(&name.0).ok()?.to_str().ok());
        stat.value += name.map_or(0, |name| ring.statistics.named(name));
    }
    result
}

/// Sets the counters of a ring to 0.
///
/// # Safety
/// As for DPDK's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_vhost_vring_stats_reset(number: c_int, index: u16) -> c_int {
    let call = dpdk!(rte_vhost_vring_stats_reset: unsafe extern "C" fn(c_int, u16) -> c_int);
    // SAFETY: the caller's promise.
    let result = call.map_or(-1, |call| unsafe { call(number, index) });
    let ring = device::find(number).and_then(|device| device.rings.get(usize::from(index)));
    if let Some(ring) = ring.filter(|_| result == 0) {
        ring.statistics.reset();
    }
    result
}
