//! DPDK's functions, found by name in the running program. Nothing of DPDK is linked or included.
//!
//! Signatures and the few offsets are those of the stable ABI, unchanged from 22.11 to 26.07, for
//! 64-bit little-endian machines: lib/ethdev/rte_ethdev.h, lib/telemetry/rte_telemetry.h,
//! lib/mbuf/rte_mbuf_core.h.

use core::ffi::{CStr, c_char, c_int, c_void};
use std::ffi::CString;
use std::sync::OnceLock;

/// A reply under construction: `struct rte_tel_data`, which is opaque.
#[repr(C)]
pub(crate) struct TelData {
    inside: [u8; 0],
}

/// A command's handler (`telemetry_cb`).
pub(crate) type Handler = unsafe extern "C" fn(*const c_char, *const c_char, *mut TelData) -> c_int;
/// `rte_rx_callback_fn`.
pub(crate) type RxCallback =
    unsafe extern "C" fn(u16, u16, *const *const Mbuf, u16, u16, *mut c_void) -> u16;
/// `rte_tx_callback_fn`.
pub(crate) type TxCallback =
    unsafe extern "C" fn(u16, u16, *const *const Mbuf, u16, *mut c_void) -> u16;
/// `rte_eth_dev_cb_fn`.
pub(crate) type PortEvent = unsafe extern "C" fn(u16, c_int, *mut c_void, *mut c_void) -> c_int;

/// The first fields of `struct rte_mbuf`.
#[repr(C)]
pub(crate) struct Mbuf {
    front: [u8; 36],
    /// Bytes of the packet, in all its segments.
    pub(crate) packet_bytes: u32,
}

/// `struct rte_eth_burst_mode`.
#[repr(C)]
pub(crate) struct BurstMode {
    pub(crate) flags: u64,
    pub(crate) info: [u8; 1024],
}

/// `struct rte_eth_dev_info`, with room for fields that later releases add.
#[repr(C)]
pub(crate) struct DeviceInfo {
    device: *const c_void,
    pub(crate) driver: *const c_char,
    rest: [u64; 1022],
}

const _: () = {
    assert!(cfg!(target_pointer_width = "64") && cfg!(target_endian = "little"));
    assert!(core::mem::offset_of!(Mbuf, packet_bytes) == 36);
    assert!(size_of::<BurstMode>() == 1032 && size_of::<DeviceInfo>() == 8192);
};

#[cfg(test)]
impl Mbuf {
    pub(crate) fn of(packet_bytes: u32) -> Self {
        Self { front: [0; 36], packet_bytes }
    }
}

impl BurstMode {
    pub(crate) const EMPTY: Self = Self { flags: 0, info: [0; 1024] };
}

impl DeviceInfo {
    pub(crate) const EMPTY: Self =
        Self { device: core::ptr::null(), driver: core::ptr::null(), rest: [0; 1022] };
}

/// An array of strings (rte_telemetry.h: RTE_TEL_STRING_VAL).
pub(crate) const STRING_VALUES: c_int = 0;
/// An array of unsigned numbers (RTE_TEL_U64_VAL, from 23.03 on RTE_TEL_UINT_VAL).
pub(crate) const UNSIGNED_VALUES: c_int = 2;
/// The event of a released port (rte_ethdev.h: RTE_ETH_EVENT_DESTROY).
pub(crate) const EVENT_DESTROY: c_int = 8;
/// Room for the longest name of a port and its NUL (RTE_ETH_NAME_MAX_LEN is 64).
pub(crate) const NAME_BYTES: usize = 256;

/// Declares the table of functions. Each function is found by its name or by an older name.
macro_rules! functions {
    ($($(#[$text:meta])* $name:ident: $kind:ty = $($symbol:literal)|+,)*) => {
        /// DPDK's functions. The table exists only if all functions were found.
        pub(crate) struct Functions {
            $($(#[$text])* pub(crate) $name: $kind,)*
        }

        impl Functions {
            /// # Errors
            /// The name of the first function that this program lacks.
            fn find(libraries: &[Library]) -> Result<Self, &'static str> {
                Ok(Self {
                    $($name: {
                        let symbol = None$(.or_else(|| symbol(libraries, $symbol)))+;
                        let symbol = symbol.ok_or(stringify!($name))?;
                        // SAFETY: this is the address of DPDK's function of this name, which has
                        // this signature in every version that has the name.
                        unsafe { core::mem::transmute::<*mut c_void, $kind>(symbol) }
                    },)*
                })
            }
        }
    };
}

functions! {
    add_rx: unsafe extern "C" fn(u16, u16, RxCallback, *mut c_void) -> *const c_void
        = c"rte_eth_add_first_rx_callback",
    add_tx: unsafe extern "C" fn(u16, u16, TxCallback, *mut c_void) -> *const c_void
        = c"rte_eth_add_tx_callback",
    remove_rx: unsafe extern "C" fn(u16, u16, *const c_void) -> c_int
        = c"rte_eth_remove_rx_callback",
    remove_tx: unsafe extern "C" fn(u16, u16, *const c_void) -> c_int
        = c"rte_eth_remove_tx_callback",
    is_port: unsafe extern "C" fn(u16) -> c_int = c"rte_eth_dev_is_valid_port",
    /// Writes at most [`NAME_BYTES`] bytes.
    port_name: unsafe extern "C" fn(u16, *mut c_char) -> c_int = c"rte_eth_dev_get_name_by_port",
    device_info: unsafe extern "C" fn(u16, *mut DeviceInfo) -> c_int = c"rte_eth_dev_info_get",
    rx_mode: unsafe extern "C" fn(u16, u16, *mut BurstMode) -> c_int
        = c"rte_eth_rx_burst_mode_get",
    tx_mode: unsafe extern "C" fn(u16, u16, *mut BurstMode) -> c_int
        = c"rte_eth_tx_burst_mode_get",
    on_event: unsafe extern "C" fn(u16, c_int, PortEvent, *mut c_void) -> c_int
        = c"rte_eth_dev_callback_register",
    free: unsafe extern "C" fn(*mut c_void) = c"rte_free",
    tsc_hz: unsafe extern "C" fn() -> u64 = c"rte_get_tsc_hz",
    start_dict: unsafe extern "C" fn(*mut TelData) -> c_int = c"rte_tel_data_start_dict",
    start_array: unsafe extern "C" fn(*mut TelData, c_int) -> c_int
        = c"rte_tel_data_start_array",
    alloc: unsafe extern "C" fn() -> *mut TelData = c"rte_tel_data_alloc",
    free_data: unsafe extern "C" fn(*mut TelData) = c"rte_tel_data_free",
    add_string: unsafe extern "C" fn(*mut TelData, *const c_char, *const c_char) -> c_int
        = c"rte_tel_data_add_dict_string",
    /// `_uint` since 23.03; `_u64` until 25.07.
    add_unsigned: unsafe extern "C" fn(*mut TelData, *const c_char, u64) -> c_int
        = c"rte_tel_data_add_dict_uint" | c"rte_tel_data_add_dict_u64",
    add_container: unsafe extern "C" fn(*mut TelData, *const c_char, *mut TelData, c_int) -> c_int
        = c"rte_tel_data_add_dict_container",
    /// `_uint` since 23.03; `_u64` until 25.07.
    push_unsigned: unsafe extern "C" fn(*mut TelData, u64) -> c_int
        = c"rte_tel_data_add_array_uint" | c"rte_tel_data_add_array_u64",
    push_string: unsafe extern "C" fn(*mut TelData, *const c_char) -> c_int
        = c"rte_tel_data_add_array_string",
}

/// DPDK's functions, or the name of the first missing one. The functions are looked up once, at
/// the first command, because by then the program has loaded every part of DPDK that it uses.
pub(crate) fn functions() -> Result<&'static Functions, &'static str> {
    static FUNCTIONS: OnceLock<Result<Functions, &'static str>> = OnceLock::new();
    FUNCTIONS.get_or_init(|| Functions::find(&libraries())).as_ref().map_err(|missing| *missing)
}

/// `rte_telemetry_register_cmd`.
pub(crate) type Register = unsafe extern "C" fn(*const c_char, Handler, *const c_char) -> c_int;

/// The function that registers a command, if this program has it.
pub(crate) fn register() -> Option<Register> {
    let symbol = symbol(&libraries(), c"rte_telemetry_register_cmd")?;
    // SAFETY: this is the address of DPDK's function of this name, which has this signature in
    // every version since 20.05.
    Some(unsafe { core::mem::transmute::<*mut c_void, Register>(symbol) })
}

/// The calling thread's `rte_errno` (rte_errno.h), which is a thread-local variable.
pub(crate) fn error_number() -> Option<c_int> {
    let number = symbol(&libraries(), c"per_lcore__rte_errno")?;
    // SAFETY: the variable of this thread is an `int` in every version.
    Some(unsafe { number.cast::<c_int>().read() })
}

/// A handle of dlopen in which names are looked up.
struct Library(*mut c_void);

/// The program with the libraries that it is linked to, and DPDK's libraries if the program loaded
/// them with dlopen and local names.
fn libraries() -> Vec<Library> {
    let mut libraries = vec![Library(libc::RTLD_DEFAULT)];
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for name in ["/librte_eal.so", "/librte_ethdev.so", "/librte_telemetry.so"] {
        let path = maps.lines().find_map(|line| {
            let path = &line[line.find('/')?..];
            path.contains(name).then(|| CString::new(path).ok()).flatten()
        });
        let Some(path) = path else { continue };
        // SAFETY: `path` is a C string; with RTLD_NOLOAD no constructor runs, because the library
        // is loaded already.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if !handle.is_null() {
            libraries.push(Library(handle));
        }
    }
    libraries
}

fn symbol(libraries: &[Library], name: &CStr) -> Option<*mut c_void> {
    libraries.iter().find_map(|library| {
        // SAFETY: the handle is RTLD_DEFAULT or one of dlopen that is never closed; `name` is a C
        // string.
        let symbol = unsafe { libc::dlsym(library.0, name.as_ptr()) };
        (!symbol.is_null()).then_some(symbol)
    })
}
