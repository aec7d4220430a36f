//! Packets through a virtual machine's network card: haul's forwarder beside DPDK's testpmd, all
//! restarted and interleaved in one run.
//!
//! From the bottom up:
//!
//! - [`flow`]: what packets go through;
//! - [`testpmd`]: DPDK's testpmd as switch and as guest.

pub mod flow;
pub mod testpmd;

pub use flow::{Flow, Layout};
pub use testpmd::Testpmd;
