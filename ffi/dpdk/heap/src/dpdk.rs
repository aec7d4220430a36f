//! DPDK's functions, and the few structures of its interface. The drop-in's functions hide
//! DPDK's functions, which are looked up when they are first needed. Nothing of DPDK is linked or
//! included.
//!
//! The layouts are those of DPDK's stable ABI, unchanged from 18.11 to 26.07, for 64-bit
//! little-endian machines: lib/eal/include/rte_memory.h, rte_memzone.h, rte_malloc.h.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::mem::offset_of;
use std::sync::OnceLock;

/// Any socket (rte_memory.h: SOCKET_ID_ANY).
pub(crate) const SOCKET_ANY: c_int = -1;

/// No IO address (rte_common.h: RTE_BAD_IOVA).
pub(crate) const BAD_IOVA: u64 = u64::MAX;

/// The IO addresses are virtual addresses (rte_bus.h: RTE_IOVA_VA, a bit of `enum rte_iova_mode`).
pub(crate) const IOVA_VIRTUAL: c_int = 2;

/// The process that owns DPDK's memory (rte_eal.h: RTE_PROC_PRIMARY).
pub(crate) const PROCESS_PRIMARY: c_int = 0;

/// `struct rte_malloc_socket_stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct SocketStats {
    pub(crate) total_bytes: usize,
    pub(crate) free_bytes: usize,
    pub(crate) greatest_free_bytes: usize,
    pub(crate) free_count: c_uint,
    pub(crate) allocated_count: c_uint,
    pub(crate) allocated_bytes: usize,
}

/// The first fields of `struct rte_memseg_list`: pages of one size on one socket, in one range of
/// addresses.
#[repr(C)]
pub(crate) struct MemsegList {
    pub(crate) base: usize,
    pub(crate) page_bytes: u64,
    pub(crate) socket: c_int,
    version: u32,
    pub(crate) bytes: usize,
    pub(crate) is_external: c_uint,
}

/// The first fields of `struct rte_memseg`: one page.
#[repr(C)]
pub(crate) struct Memseg {
    pub(crate) iova: u64,
    pub(crate) address: usize,
}

/// The first fields of `struct rte_memzone`.
#[repr(C)]
pub(crate) struct Memzone {
    name: [c_char; 32],
    iova: u64,
    pub(crate) address: *mut c_void,
    pub(crate) bytes: usize,
}

const _: () = {
    assert!(cfg!(target_pointer_width = "64") && cfg!(target_endian = "little"));
    assert!(size_of::<SocketStats>() == 40 && offset_of!(SocketStats, allocated_bytes) == 32);
    assert!(offset_of!(MemsegList, socket) == 16 && offset_of!(MemsegList, bytes) == 24);
    assert!(offset_of!(MemsegList, is_external) == 32);
    assert!(offset_of!(Memseg, address) == 8);
    assert!(offset_of!(Memzone, address) == 40 && offset_of!(Memzone, bytes) == 48);
};

/// The callback of `rte_memseg_list_walk`. A result other than 0 ends the walk.
pub(crate) type WalkLists = extern "C" fn(*const MemsegList, *mut c_void) -> c_int;

/// The main function of a POSIX thread.
pub(crate) type ThreadMain = extern "C" fn(*mut c_void) -> *mut c_void;

/// The main function of a DPDK thread since 23.11.
pub(crate) type ControlMain = extern "C" fn(*mut c_void) -> u32;

/// Declares the table of functions. Each function is looked up by its name. The result is the
/// function to which the program's reference to the name would resolve without this library.
macro_rules! functions {
    (
        required { $($(#[$text:meta])* $name:ident: $kind:ty,)* }
        optional { $($(#[$optional_text:meta])* $optional:ident: $optional_kind:ty,)* }
    ) => {
        /// DPDK's functions. The table exists only if all of `required` were found.
        pub(crate) struct Functions {
            $($(#[$text])* pub(crate) $name: $kind,)*
            $($(#[$optional_text])* pub(crate) $optional: Option<$optional_kind>,)*
        }

        impl Functions {
            fn find(library: &Library) -> Option<Self> {
                Some(Self {
                    $($name: {
                        let symbol = library.symbol(name(concat!(stringify!($name), "\0")))?;
                        // SAFETY: `symbol` is the address of DPDK's function of this name, which
                        // has this signature in every version since 18.11.
                        unsafe { core::mem::transmute::<*mut c_void, $kind>(symbol) }
                    },)*
                    $($optional: library.symbol(name(concat!(stringify!($optional), "\0"))).map(|symbol| {
                        // SAFETY: as above.
                        unsafe { core::mem::transmute::<*mut c_void, $optional_kind>(symbol) }
                    }),)*
                })
            }
        }
    };
}

functions! {
    required {
        rte_malloc_socket: unsafe extern "C" fn(*const c_char, usize, c_uint, c_int) -> *mut c_void,
        rte_zmalloc_socket: unsafe extern "C" fn(*const c_char, usize, c_uint, c_int) -> *mut c_void,
        rte_realloc_socket: unsafe extern "C" fn(*mut c_void, usize, c_uint, c_int) -> *mut c_void,
        rte_free: unsafe extern "C" fn(*mut c_void),
        rte_malloc_validate: unsafe extern "C" fn(*const c_void, *mut usize) -> c_int,
        rte_malloc_get_socket_stats: unsafe extern "C" fn(c_int, *mut SocketStats) -> c_int,
        rte_malloc_dump_stats: unsafe extern "C" fn(*mut libc::FILE, *const c_char),
        rte_malloc_virt2iova: unsafe extern "C" fn(*const c_void) -> u64,
        rte_eal_init: unsafe extern "C" fn(c_int, *mut *mut c_char) -> c_int,
        rte_eal_cleanup: unsafe extern "C" fn() -> c_int,
        rte_eal_process_type: unsafe extern "C" fn() -> c_int,
        rte_eal_has_hugepages: unsafe extern "C" fn() -> c_int,
        rte_eal_iova_mode: unsafe extern "C" fn() -> c_int,
        rte_eal_get_runtime_dir: unsafe extern "C" fn() -> *const c_char,
        rte_socket_id: unsafe extern "C" fn() -> c_uint,
        rte_memseg_list_walk: unsafe extern "C" fn(WalkLists, *mut c_void) -> c_int,
        rte_mem_virt2memseg: unsafe extern "C" fn(*const c_void, *const MemsegList) -> *const Memseg,
        rte_memzone_reserve: unsafe extern "C" fn(*const c_char, usize, c_int, c_uint) -> *const Memzone,
        rte_memzone_reserve_aligned: unsafe extern "C" fn(*const c_char, usize, c_int, c_uint, c_uint) -> *const Memzone,
        rte_memzone_reserve_bounded: unsafe extern "C" fn(*const c_char, usize, c_int, c_uint, c_uint, c_uint) -> *const Memzone,
        rte_memzone_free: unsafe extern "C" fn(*const Memzone) -> c_int,
        rte_memzone_lookup: unsafe extern "C" fn(*const c_char) -> *const Memzone,
    }
    optional {
        /// Since 25.03.
        rte_free_sensitive: unsafe extern "C" fn(*mut c_void),
        /// Since 20.05.
        rte_trace_save: unsafe extern "C" fn() -> c_int,
        /// Until 23.07.
        rte_ctrl_thread_create: unsafe extern "C" fn(
            *mut libc::pthread_t, *const c_char, *const libc::pthread_attr_t, ThreadMain, *mut c_void,
        ) -> c_int,
        /// Since 23.11.
        rte_thread_create_control: unsafe extern "C" fn(
            *mut libc::pthread_t, *const c_char, ControlMain, *mut c_void,
        ) -> c_int,
    }
}

/// The literal, which the macro has ended with a NUL.
const fn name(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("the macro ends every name with one NUL"),
    }
}

/// DPDK's functions, or `None` while no DPDK is loaded in this process.
///
/// Cost: a lookup per call until they are found; then one load.
pub(crate) fn functions() -> Option<&'static Functions> {
    static FUNCTIONS: OnceLock<Functions> = OnceLock::new();
    if let Some(found) = FUNCTIONS.get() {
        return Some(found);
    }
    let found =
        Functions::find(&Library::next()).or_else(|| Functions::find(&Library::loaded()?))?;
    Some(FUNCTIONS.get_or_init(|| found))
}

/// The calling thread's `rte_errno` (rte_errno.h), which is a thread-local variable; `None` if it
/// is not found. Each call looks the variable up, because only failures need it.
pub(crate) fn error_number() -> Option<c_int> {
    const NAME: &CStr = c"per_lcore__rte_errno";
    let number = Library::next().symbol(NAME).or_else(|| Library::loaded()?.symbol(NAME))?;
    // SAFETY: the variable of this thread is an `int` in every version since 18.11.
    Some(unsafe { number.cast::<c_int>().read() })
}

/// A handle of dlopen in which names are looked up.
struct Library(*mut c_void);

impl Library {
    /// The libraries after this one in the loader's order.
    fn next() -> Self {
        Self(libc::RTLD_NEXT)
    }

    /// DPDK, if the program loaded it with dlopen and local names.
    fn loaded() -> Option<Self> {
        let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
        let path = maps.lines().find_map(|line| {
            let path = &line[line.find('/')?..];
            path.contains("/librte_eal.so").then_some(path)
        })?;
        let path = std::ffi::CString::new(path).ok()?;
        // SAFETY: `path` is a C string; with RTLD_NOLOAD no constructor runs, because the library
        // is loaded already.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        (!handle.is_null()).then_some(Self(handle))
    }

    fn symbol(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the handle is RTLD_NEXT or one of dlopen that is never closed; `name` is a C
        // string.
        let symbol = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!symbol.is_null()).then_some(symbol)
    }
}
