//! PCIe traffic of a packet workload that really runs.
//!
//! - [`sweep`]: a modelled NIC forwarded by one core, at one rate after the other.

pub mod sweep;

pub use sweep::Sweep;
