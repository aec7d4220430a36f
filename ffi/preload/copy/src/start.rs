//! The constructor: the policy, and the file of a profile. It is the only code that makes system
//! calls.

use core::mem::MaybeUninit;

use crate::{environment, file, policy, profile, ready, sys};

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C-unwind" fn() = constructor;

/// Runs after libc's constructors and before the program's own code. Its convention is that of
/// `calls`.
extern "C-unwind" fn constructor() {
    // The user who starts a set-user-ID program must not choose the files that it reads or writes.
    if environment::is_privileged() {
        let _ = haul_kernels::Policy::current();
        ready::begin(false);
        return;
    }
    let is_from_file = policy::install();
    let name = environment::variable(b"HAUL_COPY_PROFILE");
    let name = name.filter(|name| !name.is_empty() && !is_filtered());
    let is_profiled = name.and_then(file::map).is_some_and(|()| profile::begin(is_from_file));
    ready::begin(is_profiled);
}

/// Whether the process inherited a filter of system calls. The filter may end a process that makes
/// a call which the dynamic linker would not make.
fn is_filtered() -> bool {
    let mut memory = MaybeUninit::<[u8; 4096]>::uninit();
    let Ok(status) = sys::read(c"/proc/self/status", sys::zeroed(&mut memory)) else { return true };
    let mut lines = status.split(|byte| *byte == b'\n');
    let mode = lines.find_map(|line| line.strip_prefix(b"Seccomp:\t"));
    mode.is_some_and(|mode| mode != b"0")
}
