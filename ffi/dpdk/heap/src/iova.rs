//! The IO address of a byte in DPDK's memory, wherever in a block it is.

use crate::dpdk::{BAD_IOVA, Functions, IOVA_VIRTUAL};

/// The address by which a device reaches `address`; `None` where DPDK knows none.
///
/// Cost: a call where IO addresses are virtual ones, else DPDK's search through its page lists.
pub(crate) fn of(functions: &Functions, address: usize) -> Option<u64> {
    // SAFETY: the function reads DPDK's configuration, which is there once DPDK is loaded.
    if unsafe { (functions.rte_eal_iova_mode)() } == IOVA_VIRTUAL {
        return Some(address as u64);
    }
    let pointer = core::ptr::with_exposed_provenance(address);
    // SAFETY: the function compares the address and does not follow it; without a list it searches.
    let page = unsafe { (functions.rte_mem_virt2memseg)(pointer, core::ptr::null()) };
    // SAFETY: DPDK returns NULL or one of its own page descriptors, which stay as long as the page.
    let page = unsafe { page.as_ref() }?;
    // The descriptor is packed in 8-byte fields, so both are aligned and read as they are.
    (page.iova != BAD_IOVA).then(|| page.iova.wrapping_add((address - page.address) as u64))
}
