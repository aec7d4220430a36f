//! The constructor: registers the commands, and keeps the library where it is.

use core::ffi::c_void;

use crate::commands::COMMANDS;
use crate::dpdk;
use crate::notice::tell;

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    let Some(register) = dpdk::register() else {
        tell(format_args!(
            "no rte_telemetry_register_cmd in this program: it is no DPDK program, or one that is \
             linked statically and shows its functions to nobody (-Wl,--export-dynamic); bursts are \
             not counted"
        ));
        return;
    };
    stay();
    for (name, handler, help) in COMMANDS {
        // SAFETY: both are C strings, which DPDK copies; the handler has its type, and stays.
        let result = unsafe { register(name.as_ptr(), handler, help.as_ptr()) };
        if result != 0 {
            tell(format_args!(
                "DPDK refuses the command {}: {}",
                name.to_string_lossy(),
                std::io::Error::from_raw_os_error(-result)
            ));
        }
    }
}

/// Whoever unloads this library would leave DPDK with functions that are not there.
fn stay() {
    // SAFETY: all bytes zero are a value of this structure of pointers.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    let address = (start as extern "C" fn()) as *const c_void;
    // SAFETY: any address may be asked for, and the structure is ours.
    if unsafe { libc::dladdr(address, &raw mut found) } == 0 {
        return;
    }
    let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
    // SAFETY: the loader's own name of this library, a C string; it runs no constructor again.
    unsafe { libc::dlopen(found.dli_fname, flags) };
}
