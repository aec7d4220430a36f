//! What a program asks for.

use core::ffi::c_int;

/// Memory that a program asks DPDK for.
#[derive(Clone, Copy)]
pub(crate) struct Wish {
    pub(crate) bytes: usize,
    /// 0 for the least.
    pub(crate) align: usize,
    pub(crate) socket: c_int,
}
