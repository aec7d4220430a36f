//! `libhaul_rte_malloc.so`: haul's heap under an unmodified DPDK program.
//!
//! `LD_PRELOAD=libhaul_rte_malloc.so program`: this library receives the program's calls of
//! `rte_malloc` and its family. One [`haul_heap::Heap`] per socket serves blocks of up to 256
//! KiB. A heap takes its memory in extents from DPDK's own heap, so that devices and secondary
//! processes reach the blocks like those of DPDK. A heap serves a larger block if it has idle
//! memory for it. All other calls, and all calls in an unexpected situation, go to DPDK.
//!
//! The build needs no DPDK. Modules, lowest first:
//!
//! - `notice`: lines on standard error;
//! - `futex`: waiting for another process;
//! - `dpdk`: DPDK's functions and structures;
//! - `inside`: calls that DPDK makes to itself through the drop-in's functions;
//! - `memory`: the address ranges of DPDK's memory;
//! - `extent`: a block of DPDK as pages;
//! - `location`: the location of each heap;
//! - `leaving`: secondary processes that leave;
//! - `mailbox`: the requests of secondary processes to the primary process;
//! - `directory`: a memzone with the locations of the heaps and their extents;
//! - `metadata`: the file with the heaps' metadata;
//! - `iova`: IO addresses;
//! - `extents`: DPDK's memory as the heaps' extents;
//! - `names`: types as tags;
//! - `request`: a program's request for memory;
//! - `backoff`: the time in which an exhausted heap is not asked again;
//! - `dropin`: the heaps, and DPDK's functions implemented with them;
//! - `account`: statistics;
//! - `lifecycle`: the start and the end of the heaps;
//! - `ask`: requests that DPDK refused, and the idle memory that the heaps return for them;
//! - `housekeeping`: a thread that grows heaps ahead, returns memory, and reclaims blocks of dead
//!   processes;
//! - `interpose`: the functions of rte_malloc's family that programs call;
//! - `other_calls`: functions of other families that the drop-in needs to see.

mod account;
mod ask;
mod backoff;
mod directory;
mod dpdk;
mod dropin;
mod extent;
mod extents;
mod futex;
mod housekeeping;
mod inside;
#[expect(unreachable_pub, reason = "the loader finds these functions by their names")]
mod interpose;
mod iova;
mod leaving;
mod lifecycle;
mod location;
mod mailbox;
mod memory;
mod metadata;
mod names;
mod notice;
#[expect(unreachable_pub, reason = "the loader finds these functions by their names")]
mod other_calls;
mod request;
