//! `libhaul_rte_malloc.so`: haul's heap under an unmodified DPDK program.
//!
//! `LD_PRELOAD=libhaul_rte_malloc.so program`: the program's calls of `rte_malloc` and its family
//! come here. Blocks up to 256 KiB are served by a [`haul_heap::Heap`] a socket, whose memory is
//! taken in extents from DPDK's own heap, so that devices and secondary processes reach it as
//! before; larger ones where it has idle memory for them. Everything else, and everything where
//! something is not as expected, goes on to DPDK.
//!
//! Nothing of DPDK is needed to build this. Modules, lowest first:
//!
//! - `notice`: lines on standard error;
//! - `futex`: waiting for another process;
//! - `dpdk`: DPDK's functions and structures;
//! - `inside`: calls that DPDK makes to itself through our functions;
//! - `memory`: where DPDK's memory is;
//! - `extent`: a block of DPDK's as pages;
//! - `place`: where each heap is;
//! - `leaving`: secondary processes that leave;
//! - `counter`: where secondary processes ask the primary one for extents;
//! - `directory`: a memzone that says where the heaps are and which extents they have;
//! - `metadata`: the file with the heaps' metadata;
//! - `iova`: IO addresses;
//! - `extents`: DPDK's memory as the heaps' extents;
//! - `names`: types as tags;
//! - `wish`: what a program asks for;
//! - `rest`: when a heap that has nothing left is not asked;
//! - `dropin`: the heaps, and what DPDK's functions mean for them;
//! - `account`: statistics;
//! - `lifecycle`: when all of this begins and ends;
//! - `ask`: what DPDK could not give, and what the heaps can give back for it;
//! - `housekeeping`: a thread that grows ahead, gives back, and cleans up after the dead;
//! - `interpose`: the functions of rte_malloc's family that programs call;
//! - `beside`: those of other families.

mod account;
mod ask;
#[expect(unreachable_pub, reason = "the loader finds these functions by their names")]
mod beside;
mod counter;
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
mod memory;
mod metadata;
mod names;
mod notice;
mod place;
mod rest;
mod wish;
