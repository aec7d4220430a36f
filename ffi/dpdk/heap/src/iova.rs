//! The IO address of any byte in DPDK's memory.

use crate::dpdk::{BAD_IOVA, Functions, IOVA_VIRTUAL};

/// The address with which a device reaches `address`; `None` if DPDK knows no such address.
///
/// Cost: one call if IO addresses are virtual addresses, else DPDK's search through its page lists.
pub(crate) fn of(functions: &Functions, address: usize) -> Option<u64> {
    // SAFETY: the function reads DPDK's configuration, which exists once DPDK is loaded.
    if unsafe { (functions.rte_eal_iova_mode)() } == IOVA_VIRTUAL {
        return Some(address as u64);
    }
    let pointer = core::ptr::with_exposed_provenance(address);
    // SAFETY: the function compares the address and does not dereference it; without a list it
    // searches for the list.
    let page = unsafe { (functions.rte_mem_virt2memseg)(pointer, core::ptr::null()) };
    // SAFETY: DPDK returns NULL or one of its page descriptors, which live as long as the page.
    let page = unsafe { page.as_ref() }?;
    // The packed descriptor consists of 8-byte fields, so both fields are aligned.
    (page.iova != BAD_IOVA).then(|| page.iova.wrapping_add((address - page.address) as u64))
}
