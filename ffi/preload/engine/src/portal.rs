//! Portals: pages without access. The two instructions trap on them, and the handler of SIGSEGV
//! and SIGILL executes them. Every other signal goes to the handler that was there before.

use core::ffi::c_void;
use std::io;
use std::ptr;
use std::sync::{Arc, Once};

use crate::device::{self, Open, PORTAL_BYTES};
#[cfg(target_arch = "x86_64")]
use crate::handler;
use crate::real::real;

/// Maps a portal.
///
/// # Errors
/// The device may not be mapped, or there is no memory.
pub(crate) fn map(open: Arc<Open>) -> io::Result<*mut c_void> {
    static HANDLER: Once = Once::new();
    open.check_map()?;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // A new mapping at an address that the kernel chooses touches no other memory.
    let start = real!(mmap(
        ptr::null_mut() => *mut c_void,
        PORTAL_BYTES => usize,
        libc::PROT_NONE => libc::c_int,
        flags => libc::c_int,
        -1 => libc::c_int,
        0 => libc::off_t
    ) -> *mut c_void, else libc::MAP_FAILED);
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    #[cfg(target_arch = "x86_64")]
    HANDLER.call_once(handler::install);
    #[cfg(not(target_arch = "x86_64"))]
    HANDLER.call_once(|| {});
    device::add_portal(start.addr(), open);
    Ok(start)
}
