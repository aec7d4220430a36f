//! The constructor: registers the commands and keeps the library loaded.

use core::ffi::c_void;

use crate::commands::COMMANDS;
use crate::dpdk;
use crate::notice::warn;

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    let Some(register) = dpdk::register() else {
        warn(format_args!(
            "no rte_telemetry_register_cmd in this program: it is no DPDK program, or is linked \
             statically without exported functions (link it with -Wl,--export-dynamic); bursts are \
             not counted"
        ));
        return;
    };
    stay_loaded();
    for (name, handler, help) in COMMANDS {
        // SAFETY: both are C strings, which DPDK copies; the handler has its type and stays loaded.
        let result = unsafe { register(name.as_ptr(), handler, help.as_ptr()) };
        if result != 0 {
            warn(format_args!(
                "DPDK refuses the command {}: {}",
                name.to_string_lossy(),
                std::io::Error::from_raw_os_error(-result)
            ));
        }
    }
}

/// Prevents the program from unloading this library, which would leave DPDK with dangling
/// handlers.
fn stay_loaded() {
    // SAFETY: all bytes zero are a value of this structure of pointers.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    let address = (start as extern "C" fn()) as *const c_void;
    // SAFETY: the call accepts any address, and the structure is a local variable.
    if unsafe { libc::dladdr(address, &raw mut found) } == 0 {
        return;
    }
    let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
    // SAFETY: the loader's own name of this library, a C string; no constructor runs again.
    unsafe { libc::dlopen(found.dli_fname, flags) };
}
