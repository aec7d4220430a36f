//! DPDK's packets (mbufs) and their pools in memory. The fields that are used here have the same
//! offsets in every release from 22.11 to 26.07, unless DPDK was built without IO addresses in its
//! mbufs: lib/mbuf/rte_mbuf_core.h, lib/mempool/rte_mempool.h.

use core::ffi::{c_int, c_uint, c_void};
use core::mem::offset_of;
use core::sync::atomic::{AtomicU16, AtomicU32};

/// `struct rte_mbuf`.
#[repr(C, align(64))]
pub(crate) struct Mbuf {
    pub(crate) buffer: *mut u8,
    pub(crate) io_address: u64,
    pub(crate) data_offset: u16,
    /// Other threads may change it.
    pub(crate) references: AtomicU16,
    pub(crate) segments: u16,
    pub(crate) port: u16,
    pub(crate) flags: u64,
    pub(crate) packet_type: u32,
    pub(crate) packet_bytes: u32,
    pub(crate) data_bytes: u16,
    pub(crate) vlan: u16,
    pub(crate) hash: [u32; 2],
    pub(crate) outer_vlan: u16,
    pub(crate) buffer_bytes: u16,
    pub(crate) pool: *mut Mempool,
    pub(crate) next: *mut Mbuf,
    pub(crate) transmit: u64,
    pub(crate) shared: *mut c_void,
    pub(crate) private_bytes: u16,
    pub(crate) time_flags: u16,
    pub(crate) dynamic: [u32; 9],
}

/// The first fields of `struct rte_mempool`.
#[repr(C)]
pub(crate) struct Mempool {
    pub(crate) name: [u8; 32],
    pub(crate) data: *mut c_void,
    pub(crate) configuration: *mut c_void,
    pub(crate) zone: *const c_void,
    pub(crate) flags: c_uint,
    pub(crate) socket: c_int,
    pub(crate) size: u32,
    pub(crate) cache_size: u32,
    pub(crate) element_bytes: u32,
    pub(crate) header_bytes: u32,
    pub(crate) trailer_bytes: u32,
    pub(crate) private_bytes: c_uint,
    pub(crate) operations: i32,
    pub(crate) caches: *mut Cache,
}

/// The largest cache of a pool (rte_mempool.h: RTE_MEMPOOL_CACHE_MAX_SIZE).
pub(crate) const CACHE_MAX: usize = 512;

/// `struct rte_mempool_cache`: the free packets that a core holds.
#[repr(C, align(64))]
pub(crate) struct Cache {
    pub(crate) size: u32,
    pub(crate) threshold: u32,
    pub(crate) length: u32,
    pub(crate) statistics: [u32; 13],
    pub(crate) packets: [*mut Mbuf; 2 * CACHE_MAX],
}

/// `struct rte_mempool_ops`.
#[repr(C, align(64))]
pub(crate) struct Operations {
    pub(crate) name: [u8; 32],
    pub(crate) start: [*const c_void; 3],
    pub(crate) take: Option<unsafe extern "C" fn(*mut Mempool, *mut *mut Mbuf, c_uint) -> c_int>,
    pub(crate) end: [*const c_void; 5],
}

/// `struct rte_mempool_ops_table`.
#[repr(C, align(64))]
pub(crate) struct OpsTable {
    pub(crate) lock: u32,
    pub(crate) count: AtomicU32,
    pub(crate) operations: [Operations; 16],
}

// SAFETY: the entries up to `count` do not change once a pool uses them.
unsafe impl Sync for OpsTable {}

const _: () = {
    assert!(size_of::<Mbuf>() == 128 && offset_of!(Mbuf, data_offset) == 16);
    assert!(offset_of!(Mbuf, flags) == 24 && offset_of!(Mbuf, packet_bytes) == 36);
    assert!(offset_of!(Mbuf, data_bytes) == 40 && offset_of!(Mbuf, outer_vlan) == 52);
    assert!(offset_of!(Mbuf, buffer_bytes) == 54 && offset_of!(Mbuf, shared) == 80);
    assert!(offset_of!(Mbuf, pool) == 56 && offset_of!(Mbuf, next) == 64);
    assert!(offset_of!(Mbuf, transmit) == 72 && offset_of!(Mbuf, private_bytes) == 88);
    assert!(offset_of!(Mempool, cache_size) == 68 && offset_of!(Mempool, operations) == 88);
    assert!(offset_of!(Mempool, caches) == 96);
    assert!(size_of::<Cache>() == 64 + 8 * 2 * CACHE_MAX && offset_of!(Cache, packets) == 64);
    assert!(size_of::<Operations>() == 128 && offset_of!(Operations, take) == 56);
    assert!(offset_of!(OpsTable, operations) == 64);
};
