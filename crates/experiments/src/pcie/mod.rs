//! The PCIe traffic of a running program: its bursts, an estimate from them, and counters.
//!
//! From the bottom up:
//!
//! - [`source`]: the counters of a machine, through one trait;
//! - [`probe`]: the burst probe in a DPDK program, through its telemetry;
//! - [`profile`]: the NIC, driver, mode and link of a port;
//! - [`watch`]: bursts, estimate and counters of a running program, one interval at a time;
//! - [`records`]: from intervals to records;
//! - [`sweep`]: one core that forwards a modelled NIC's packets, at one rate after the other.

pub mod source;

pub mod probe;

pub mod profile;

pub mod watch;

pub mod records;

pub mod sweep;

pub use sweep::Sweep;
