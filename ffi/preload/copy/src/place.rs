//! The module of a call site, and its offset there.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::{file, sys};

/// `struct dl_find_object` of `dlfcn.h` (glibc 2.35), as far as it is used.
#[repr(C)]
struct Found {
    flags: u64,
    map_start: usize,
    map_end: usize,
    link_map: *const LinkMap,
    /// The fields that follow; glibc's have 64 bytes on x86-64 and aarch64.
    unused: [u64; 16],
}

/// `struct link_map` of `link.h`, as far as it is used.
#[repr(C)]
struct LinkMap {
    address: usize,
    name: *const c_char,
}

type Find = unsafe extern "C" fn(address: usize, found: *mut Found) -> i32;

core::arch::global_asm!(".weak _dl_find_object");

/// glibc's function that finds the module of an address without a lock or an allocation, in signal
/// handlers too; `None` before glibc 2.35.
fn finder() -> Option<Find> {
    let address: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the table of the library has the address, or 0 for a missing weak symbol.
    unsafe {
        core::arch::asm!(
            "mov {address}, qword ptr [rip + _dl_find_object@GOTPCREL]",
            address = out(reg) address,
            options(nostack, readonly, pure)
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as on x86-64.
    unsafe {
        core::arch::asm!(
            "adrp {address}, :got:_dl_find_object",
            "ldr {address}, [{address}, :got_lo12:_dl_find_object]",
            address = out(reg) address,
            options(nostack, readonly, pure)
        );
    }
    // SAFETY: an address that is not 0 is that of the function.
    unsafe { core::mem::transmute::<usize, Option<Find>>(address) }
}

/// The path of the program, for which the dynamic linker has no name.
struct Path(UnsafeCell<[u8; 512]>);
// SAFETY: only the constructor writes it, before any thread reads it.
unsafe impl Sync for Path {}
static PROGRAM: Path = Path(UnsafeCell::new([0; 512]));
static PROGRAM_LENGTH: AtomicU32 = AtomicU32::new(0);

/// Notes the path of the program. Only the constructor calls it.
pub(crate) fn begin() {
    // SAFETY: only the constructor runs.
    let memory = unsafe { &mut *PROGRAM.0.get() };
    let length = sys::read_link(c"/proc/self/exe", memory).len();
    PROGRAM_LENGTH.store(length as u32, Ordering::Release);
}

/// The offset in the file of the entry of a call site. Code that belongs to no file has one entry
/// for all of it, in the module "(no file)".
pub(crate) fn entry(site: usize) -> usize {
    let mut found = MaybeUninit::<Found>::uninit();
    let is_found = finder().is_some_and(|find| {
        // SAFETY: the function writes at most the structure, which is larger than glibc's.
        unsafe { find(site, found.as_mut_ptr()) == 0 }
    });
    if !is_found {
        return file::site(file::module(b"(no file)"), 0);
    }
    let found = found.as_ptr();
    // SAFETY: the function has succeeded, so it has written the field.
    let link_map = unsafe { (*found).link_map };
    // SAFETY: as above.
    let map_start = unsafe { (*found).map_start };
    // SAFETY: the module contains the caller of this call, so it stays loaded meanwhile.
    let name = unsafe { link_map.as_ref() }.map_or(core::ptr::null(), |map| map.name);
    let name = match name.is_null() {
        true => b"",
        // SAFETY: the dynamic linker's names are C strings.
        false => unsafe { CStr::from_ptr(name) }.to_bytes(),
    };
    let name = if name.is_empty() { program() } else { name };
    file::site(file::module(name), site.wrapping_sub(map_start))
}

fn program() -> &'static [u8] {
    let length = PROGRAM_LENGTH.load(Ordering::Acquire) as usize;
    // SAFETY: after the constructor, it is only read.
    let memory = unsafe { &*PROGRAM.0.get() };
    memory.get(..length).unwrap_or_default()
}
