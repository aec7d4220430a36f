//! A program's request for memory.

use core::ffi::c_int;

/// Memory that a program requests from DPDK.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) bytes: usize,
    /// The alignment; 0 for the default.
    pub(crate) align: usize,
    pub(crate) socket: c_int,
}
