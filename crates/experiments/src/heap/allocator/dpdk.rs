//! DPDK's `rte_malloc`, from a library that is loaded at run time, so that building haul does not
//! need DPDK.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::{self, NonNull};

use haul_machine::sys::Sys;

use super::Allocator;
use crate::dynamic::Library;
use crate::heap::protocol::Start;

const MIB: usize = 1 << 20;

/// The ratio of DPDK's memory to the payload: a 4 KiB block aligned to 4 KiB uses twice its size
/// in DPDK, and the start of DPDK uses memory as well.
const MEMORY_FACTOR: usize = 3;
const MEMORY_MORE_MIB: usize = 128;

type Malloc = unsafe extern "C" fn(*const c_char, usize, c_uint) -> *mut c_void;
type Realloc = unsafe extern "C" fn(*mut c_void, usize, c_uint) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void);

/// An initialised EAL, and its heap's functions.
pub(in crate::heap) struct Dpdk {
    malloc: Malloc,
    realloc: Realloc,
    free: Free,
    version: String,
    pages: &'static str,
}

impl Dpdk {
    /// Loads the library and initialises it, without devices, files or other processes. DPDK uses
    /// huge pages if they are allowed and enough of them are free.
    ///
    /// # Errors
    /// The library cannot be loaded, lacks a function, or does not start.
    pub(in crate::heap) fn new(start: &Start) -> Result<Self, String> {
        let path = start.library.as_ref().ok_or("no library was named")?;
        let library = Library::load(path.as_os_str())?;
        let memory_mib = start.memory_bytes.div_ceil(MIB) * MEMORY_FACTOR + MEMORY_MORE_MIB;
        let is_huge = start.pool && has_huge_pages(memory_mib);
        initialise(library, memory_mib, is_huge, start.cpus.first().copied().unwrap_or(0))?;
        Ok(Self {
            // SAFETY: rte_malloc.h of every release since 1.0 declares these functions with these
            // types, and a function's address is as large as a data pointer (POSIX).
            malloc: unsafe {
                std::mem::transmute::<*mut c_void, Malloc>(address(library, c"rte_malloc")?)
            },
            // SAFETY: as above.
            realloc: unsafe {
                std::mem::transmute::<*mut c_void, Realloc>(address(library, c"rte_realloc")?)
            },
            // SAFETY: as above.
            free: unsafe {
                std::mem::transmute::<*mut c_void, Free>(address(library, c"rte_free")?)
            },
            version: version(library)?,
            pages: if is_huge { "2 MiB, hugetlb" } else { "4 KiB" },
        })
    }
}

// SAFETY: rte_malloc and rte_realloc promise exactly that (rte_malloc.h).
unsafe impl Allocator for Dpdk {
    #[inline]
    fn allocate(&self, size: usize, align: usize) -> Option<NonNull<u8>> {
        // SAFETY: no type is named, the alignment is a power of two, and every size is allowed.
        NonNull::new(unsafe { (self.malloc)(ptr::null(), size, align as c_uint) }.cast())
    }

    #[inline]
    unsafe fn free(&self, block: NonNull<u8>) {
        // SAFETY: the caller promises that this heap allocated the block and that nothing refers to
        // it.
        unsafe { (self.free)(block.as_ptr().cast()) };
    }

    unsafe fn reallocate(
        &self,
        block: NonNull<u8>,
        _old_size: usize,
        size: usize,
        align: usize,
    ) -> Option<NonNull<u8>> {
        // SAFETY: the caller promises that this heap allocated the block and that nothing refers to
        // it.
        NonNull::new(unsafe { (self.realloc)(block.as_ptr().cast(), size, align as c_uint) }.cast())
    }

    fn version(&self) -> String {
        self.version.clone()
    }

    fn pages(&self) -> Option<String> {
        Some(self.pages.into())
    }
}

fn address(library: Library, name: &CStr) -> Result<*mut c_void, String> {
    library.function(name).map(NonNull::as_ptr)
}

fn has_huge_pages(memory_mib: usize) -> bool {
    let pools = Sys::new().huge_pages().pools;
    pools.iter().any(|pool| {
        pool.page_bytes == 2 * MIB as u64 && pool.free.saturating_mul(2) >= memory_mib as u64
    })
}

/// DPDK's arguments. DPDK pins the calling thread to `cpu`.
fn arguments(memory_mib: usize, is_huge: bool, cpu: usize) -> Vec<String> {
    let mut list: Vec<String> =
        ["haul", "--no-pci", "--no-telemetry", "--iova-mode=va", "--log-level=error", "-l"]
            .map(String::from)
            .into();
    list.push(cpu.to_string());
    // Without huge pages, DPDK uses what it calls legacy memory. In this mode, DPDK refuses
    // --in-memory, with which it leaves no file. --no-shconf has the same effect there.
    let mode = match is_huge {
        true => vec!["--in-memory".into()],
        false => {
            vec!["--no-shconf".into(), "--no-huge".into(), "-m".into(), memory_mib.to_string()]
        }
    };
    list.extend(mode);
    list
}

fn initialise(
    library: Library,
    memory_mib: usize,
    is_huge: bool,
    cpu: usize,
) -> Result<(), String> {
    type Init = unsafe extern "C" fn(c_int, *mut *mut c_char) -> c_int;
    let list = arguments(memory_mib, is_huge, cpu);
    let attempt = list.join(" ");
    // DPDK keeps pointers to its arguments, so they live as long as the process.
    let mut pointers: Vec<*mut c_char> = list
        .into_iter()
        .map(|text| CString::new(text).map(CString::into_raw).map_err(|error| error.to_string()))
        .collect::<Result<_, _>>()?;
    let count = pointers.len() as c_int;
    pointers.push(ptr::null_mut());
    let pointers = pointers.leak();
    // SAFETY: rte_eal.h declares `int rte_eal_init(int, char **)`.
    let init =
        unsafe { std::mem::transmute::<*mut c_void, Init>(address(library, c"rte_eal_init")?) };
    // SAFETY: the arguments are C strings that may be written to and are never freed, with a null
    // after the last. `rte_eal_init` is called once in this process.
    let parsed = unsafe { init(count, pointers.as_mut_ptr()) };
    if parsed >= 0 { Ok(()) } else { Err(format!("rte_eal_init failed, with: {attempt}")) }
}

/// `rte_version` returns `DPDK 22.11.11`.
fn version(library: Library) -> Result<String, String> {
    type Version = unsafe extern "C" fn() -> *const c_char;
    // SAFETY: rte_version.h declares `const char *rte_version(void)`.
    let function =
        unsafe { std::mem::transmute::<*mut c_void, Version>(address(library, c"rte_version")?) };
    // SAFETY: it has no preconditions.
    let text = unsafe { function() };
    // SAFETY: it returns a C string that lives as long as the process.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    Ok(text.strip_prefix("DPDK ").map_or(text.clone(), str::to_owned))
}
