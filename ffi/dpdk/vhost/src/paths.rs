//! The program's callbacks, by the path of a device: DPDK's callbacks name only a device, and
//! `rte_vhost_get_ifname` names its path.

use core::ffi::{CStr, c_char, c_int};
use core::ptr::null;
use std::sync::{Mutex, PoisonError};

use crate::dpdk::{Callbacks, Functions};

/// Room for the longest path (the kernel's PATH_MAX).
const PATH_BYTES: usize = 4096;

/// The registered paths. Entries are never removed: DPDK keeps the pointers.
static PATHS: Mutex<Vec<Path>> = Mutex::new(Vec::new());

struct Path {
    name: Vec<u8>,
    /// The callbacks of the program.
    own: *const Callbacks,
    /// The callbacks that DPDK was given instead, which live as long as the process.
    given: Option<&'static Callbacks>,
    flags: Flags,
}

// SAFETY: the callbacks are read only, and the program keeps them as long as DPDK may call them.
unsafe impl Send for Path {}

/// Flags with which a program registers a path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flags(u64);

impl Flags {
    /// The device collects statistics (rte_vhost.h: RTE_VHOST_USER_NET_STATS_ENABLE).
    pub(crate) fn has_statistics(self) -> bool {
        self.0 & 1 << 9 != 0
    }

    /// A packet without a checksum gets the flags of a received packet
    /// (RTE_VHOST_USER_NET_COMPLIANT_OL_FLAGS).
    pub(crate) fn is_compliant(self) -> bool {
        self.0 & 1 << 8 != 0
    }
}

fn with<T>(name: &[u8], act: impl FnOnce(&mut Path) -> T) -> T {
    let mut paths = PATHS.lock().unwrap_or_else(PoisonError::into_inner);
    let index = paths.iter().position(|path| path.name == name).unwrap_or_else(|| {
        paths.push(Path { name: name.into(), own: null(), given: None, flags: Flags(0) });
        paths.len() - 1
    });
    act(&mut paths[index])
}

/// Records the flags with which a path was registered.
pub(crate) fn register(name: &CStr, flags: u64) {
    with(name.to_bytes(), |path| path.flags = Flags(flags));
}

/// Records the program's callbacks of a path. Returns those for DPDK: `changed` copies.
///
/// # Safety
/// `own` is valid as long as DPDK may call the callbacks.
pub(crate) unsafe fn replace(
    name: &CStr,
    own: *const Callbacks,
    changed: impl FnOnce(Callbacks) -> Callbacks,
) -> *const Callbacks {
    // SAFETY: the caller's promise.
    let copy = changed(unsafe { *own });
    with(name.to_bytes(), |path| {
        // A program that adds a path again and again passes the same callbacks.
        if path.own != own || path.given.is_none() {
            path.given = Some(Box::leak(Box::new(copy)));
        }
        path.own = own;
        path.given.map_or(own, std::ptr::from_ref)
    })
}

/// A device's path.
pub(crate) fn name(functions: &Functions, device: c_int) -> Vec<u8> {
    let mut name = vec![0; PATH_BYTES];
    // SAFETY: the buffer has the length, and DPDK ends the name with NUL.
    let result = unsafe {
        (functions.rte_vhost_get_ifname)(device, name.as_mut_ptr().cast::<c_char>(), name.len())
    };
    let length = name.iter().position(|byte| *byte == 0).unwrap_or(0);
    name.truncate(if result == 0 { length } else { 0 });
    name
}

/// The program's callbacks for a device's path, and the path's flags.
pub(crate) fn of(name: &[u8]) -> (Option<Callbacks>, Flags) {
    with(name, |path| {
        // SAFETY: the program keeps its callbacks as long as DPDK may call them.
        let own = (!path.own.is_null()).then(|| unsafe { *path.own });
        (own, path.flags)
    })
}
