//! `libhaul_rte_vhost.so`: haul's rings and copy under an unmodified DPDK program's vhost.
//!
//! `LD_PRELOAD=libhaul_rte_vhost.so program`: this library receives the program's calls of
//! `rte_vhost_enqueue_burst` and `rte_vhost_dequeue_burst`. It moves the packets that need only
//! copies and the flag of a checksum, and hands all others to DPDK, in order. It keeps no progress
//! of a ring: it reads DPDK's before a burst and sets it after the burst, so that DPDK can go on
//! at any burst. It uses the public interface of librte_vhost only.
//!
//! A message of the front end may change everything: rings, memory, features. The library is
//! notified before and after each message, and DPDK serves a device in between.
//!
//! The build needs no DPDK. Modules, lowest first:
//!
//! - `notice`: lines on standard error;
//! - `layout`: DPDK's packets and pools in memory;
//! - `dpdk`: DPDK's functions and structures;
//! - `settings`: the environment;
//! - `checksum`: packets of a guest that lack a checksum;
//! - `mbuf`: DPDK's packets and their pools;
//! - `gate`: whether this library or DPDK accesses a ring;
//! - `turns`: this library and DPDK in turns;
//! - `life`: what a device's events mean for its rings;
//! - `statistics`: counters, as librte_vhost counts;
//! - `paths`: the program's callbacks, by the path of a device;
//! - `device`: devices, and the configuration of their rings;
//! - `callbacks`: the functions that DPDK calls;
//! - `burst`: packets;
//! - `interpose`: the functions that programs call.

mod burst;
mod callbacks;
mod checksum;
mod device;
mod dpdk;
mod gate;
#[expect(unreachable_pub, reason = "the loader finds these functions by their names")]
mod interpose;
mod layout;
mod life;
mod mbuf;
mod notice;
mod paths;
mod settings;
mod statistics;
mod turns;
