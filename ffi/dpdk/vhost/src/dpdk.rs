//! DPDK's functions, and the structures of librte_vhost's public interface. The functions are
//! looked up when they are first needed. Nothing of DPDK is linked or included.
//!
//! The layouts are those of DPDK's stable ABI from 22.11 to 26.07, for 64-bit little-endian
//! machines: lib/vhost/rte_vhost.h.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::mem::offset_of;
use std::ffi::CString;
use std::sync::OnceLock;

use crate::layout::{Mbuf, Mempool, OpsTable};

/// `struct rte_vhost_device_ops`: callbacks of a program, with room for those that DPDK added.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Callbacks {
    pub(crate) new_device: Option<unsafe extern "C" fn(c_int) -> c_int>,
    pub(crate) destroy_device: Option<unsafe extern "C" fn(c_int)>,
    pub(crate) vring_state_changed: Option<unsafe extern "C" fn(c_int, u16, c_int) -> c_int>,
    pub(crate) features_changed: *const c_void,
    pub(crate) new_connection: Option<unsafe extern "C" fn(c_int) -> c_int>,
    pub(crate) destroy_connection: Option<unsafe extern "C" fn(c_int)>,
    pub(crate) guest_notified: *const c_void,
    pub(crate) guest_notify: *const c_void,
}

/// `struct rte_vhost_user_extern_ops`.
#[repr(C)]
pub(crate) struct MessageCallbacks {
    pub(crate) before: unsafe extern "C" fn(c_int, *mut c_void) -> c_int,
    pub(crate) after: unsafe extern "C" fn(c_int, *mut c_void) -> c_int,
}

/// RTE_VHOST_MSG_RESULT_NOT_HANDLED: DPDK goes on with the message.
pub(crate) const NOT_HANDLED: c_int = 2;

/// The first fields of a message that DPDK passes to these callbacks (vhost_user.h). Bytes 12 to
/// 20 hold the ring's index and a number in the messages that are read here.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct MessageStart {
    pub(crate) request: u32,
    flags: u32,
    size: u32,
    pub(crate) ring: u32,
    pub(crate) number: u32,
}

/// `struct rte_vhost_mem_region`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct MemoryRegion {
    pub(crate) guest: u64,
    peer: u64,
    pub(crate) here: u64,
    pub(crate) bytes: u64,
    mapped: *mut c_void,
    mapped_bytes: u64,
    file: c_int,
}

/// `struct rte_vhost_memory`: a number of regions, which follow it.
#[repr(C)]
pub(crate) struct MemoryTable {
    pub(crate) count: u32,
    pub(crate) regions: [MemoryRegion; 0],
}

/// `struct rte_vhost_vring`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Vring {
    pub(crate) areas: [*mut u8; 3],
    log_address: u64,
    call: c_int,
    kick: c_int,
    pub(crate) size: u16,
}

/// `struct rte_vhost_stat`.
#[repr(C)]
pub(crate) struct Stat {
    pub(crate) id: u64,
    pub(crate) value: u64,
}

/// `struct rte_vhost_stat_name`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct StatName(pub(crate) [u8; 64]);

/// `struct rte_net_hdr_lens`: the lengths of a packet's headers, of which those of an inner packet
/// are not used.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeaderBytes {
    link: u8,
    inner_link: u8,
    network: u16,
    inner_network: u16,
    tunnel: u16,
    transport: u8,
    inner_transport: u8,
}

impl HeaderBytes {
    /// The length of all outer headers.
    pub(crate) fn sum(self) -> u32 {
        u32::from(self.link) + u32::from(self.network) + u32::from(self.transport)
    }
}

const _: () = {
    assert!(size_of::<HeaderBytes>() == 10 && offset_of!(HeaderBytes, transport) == 8);
    assert!(cfg!(target_pointer_width = "64") && cfg!(target_endian = "little"));
    assert!(size_of::<Callbacks>() == 64 && offset_of!(Callbacks, new_connection) == 32);
    assert!(offset_of!(MessageStart, ring) == 12);
    assert!(size_of::<MemoryRegion>() == 56 && offset_of!(MemoryTable, regions) == 8);
    assert!(size_of::<Vring>() == 48 && offset_of!(Vring, size) == 40);
};

/// The largest number of devices (rte_vhost.h: RTE_MAX_VHOST_DEVICE).
pub(crate) const DEVICES_MAX: usize = 1024;

/// Declares the table of functions. Each is looked up by its name.
macro_rules! functions {
    ($($(#[$text:meta])* $name:ident: $kind:ty,)*) => {
        /// DPDK's functions and tables. The table exists only if all were found.
        pub(crate) struct Functions {
            $($(#[$text])* pub(crate) $name: $kind,)*
            pub(crate) rte_mempool_ops_table: &'static OpsTable,
        }

        impl Functions {
            fn find(libraries: &[Library]) -> Result<Self, &'static str> {
                Ok(Self {
                    $($name: {
                        let name = stringify!($name);
                        let symbol = symbol(libraries, name).ok_or(name)?;
                        // SAFETY: `symbol` is the address of DPDK's function or table of this
                        // name, which has this type in every version from 22.11 on.
                        unsafe { core::mem::transmute::<*mut c_void, $kind>(symbol) }
                    },)*
                    rte_mempool_ops_table: find_table(libraries).ok_or("rte_mempool_ops_table")?,
                })
            }
        }
    };
}

functions! {
    rte_vhost_enqueue_burst: unsafe extern "C" fn(c_int, u16, *mut *mut Mbuf, u16) -> u16,
    rte_vhost_dequeue_burst:
        unsafe extern "C" fn(c_int, u16, *mut Mempool, *mut *mut Mbuf, u16) -> u16,
    rte_vhost_extern_callback_register:
        unsafe extern "C" fn(c_int, *const MessageCallbacks, *mut c_void) -> c_int,
    rte_vhost_get_ifname: unsafe extern "C" fn(c_int, *mut c_char, usize) -> c_int,
    rte_vhost_get_negotiated_features: unsafe extern "C" fn(c_int, *mut u64) -> c_int,
    rte_vhost_get_vdpa_device: unsafe extern "C" fn(c_int) -> *mut c_void,
    rte_vhost_get_vring_num: unsafe extern "C" fn(c_int) -> u16,
    rte_vhost_get_mem_table: unsafe extern "C" fn(c_int, *mut *mut MemoryTable) -> c_int,
    rte_vhost_get_vhost_vring: unsafe extern "C" fn(c_int, u16, *mut Vring) -> c_int,
    rte_vhost_get_vring_base: unsafe extern "C" fn(c_int, u16, *mut u16, *mut u16) -> c_int,
    rte_vhost_set_vring_base: unsafe extern "C" fn(c_int, u16, u16, u16) -> c_int,
    /// Since 22.11.
    rte_vhost_vring_call_nonblock: unsafe extern "C" fn(c_int, u16) -> c_int,
    rte_vhost_vring_stats_get_names:
        unsafe extern "C" fn(c_int, u16, *mut StatName, c_uint) -> c_int,
    rte_pktmbuf_free_bulk: unsafe extern "C" fn(*mut *mut Mbuf, c_uint),
    rte_net_get_ptype: unsafe extern "C" fn(*const Mbuf, *mut HeaderBytes, u32) -> u32,
    rte_net_make_rarp_packet: unsafe extern "C" fn(*mut Mempool, *const [u8; 6]) -> *mut Mbuf,
    rte_mempool_walk:
        unsafe extern "C" fn(unsafe extern "C" fn(*mut Mempool, *mut c_void), *mut c_void),
}

/// The table of the pools' functions. A program that refers to it has a copy of the table, which
/// then takes the place of the one in DPDK's library.
fn find_table(libraries: &[Library]) -> Option<&'static OpsTable> {
    let name = "rte_mempool_ops_table";
    let program = [Library(libc::RTLD_DEFAULT)];
    let table = symbol(&program, name).or_else(|| symbol(libraries, name))?;
    // SAFETY: this is DPDK's table, which has this type in every version from 22.11 on and is
    // never freed.
    Some(unsafe { &*table.cast::<OpsTable>() })
}

/// DPDK's functions, or `None` while a function is missing in this process.
///
/// Cost: a lookup per call until they are found; then one load.
pub(crate) fn functions() -> Option<&'static Functions> {
    static FUNCTIONS: OnceLock<Functions> = OnceLock::new();
    if let Some(found) = FUNCTIONS.get() {
        return Some(found);
    }
    let found = Functions::find(&libraries()).ok()?;
    Some(FUNCTIONS.get_or_init(|| found))
}

/// One function of DPDK, for calls that this library forwards before it has found all.
pub(crate) fn function(name: &str) -> Option<*mut c_void> {
    symbol(&libraries(), name)
}

/// The calling thread's DPDK core (rte_lcore.h: rte_lcore_id); `None` for a thread without one.
#[inline]
pub(crate) fn core() -> Option<usize> {
    thread_local! {
        static CORE: *const u32 = find_core();
    }
    let core = CORE.with(|core| *core);
    // SAFETY: the address of this thread's own variable, or of a constant.
    let number = unsafe { core.read() };
    (number != NO_CORE).then_some(number as usize)
}

/// rte_lcore.h: LCORE_ID_ANY.
const NO_CORE: u32 = u32::MAX;

fn find_core() -> *const u32 {
    static NONE: u32 = NO_CORE;
    // dlsym returns the address of the calling thread's variable.
    symbol(&libraries(), "per_lcore__lcore_id").map_or(&raw const NONE, |at| at.cast())
}

/// A handle of dlopen in which names are looked up.
struct Library(*mut c_void);

/// The libraries behind this one in the loader's order, and DPDK's if the program loaded them
/// with dlopen and local names.
fn libraries() -> Vec<Library> {
    let mut libraries = vec![Library(libc::RTLD_NEXT)];
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for name in ["vhost", "mbuf", "net", "mempool", "eal"] {
        let part = format!("/librte_{name}.so");
        let path = maps.lines().find_map(|line| {
            let path = &line[line.find('/')?..];
            path.contains(&part).then(|| CString::new(path).ok()).flatten()
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

fn symbol(libraries: &[Library], name: &str) -> Option<*mut c_void> {
    let name = CString::new(name).ok()?;
    let name: &CStr = &name;
    libraries.iter().find_map(|library| {
        // SAFETY: the handle is RTLD_NEXT or one of dlopen that is never closed; `name` is a C
        // string.
        let symbol = unsafe { libc::dlsym(library.0, name.as_ptr()) };
        (!symbol.is_null()).then_some(symbol)
    })
}
