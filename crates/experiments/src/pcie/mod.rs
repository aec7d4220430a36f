//! What a running program moves across PCIe: its bursts, an estimate from them, and counters.
//!
//! From the bottom up:
//!
//! - [`source`]: whatever counts, behind one trait;
//! - [`probe`]: the burst probe in a DPDK program, asked over its telemetry;
//! - [`place`]: which NIC, driver, mode and link a port is;
//! - [`watch`]: all of it, an interval at a time;
//! - [`records`]: what was watched, as records;
//! - [`sweep`]: a modelled NIC forwarded by one core, at one rate after the other.

pub mod source;

pub mod probe;

pub mod place;

pub mod watch;

pub mod records;

pub mod sweep;

pub use sweep::Sweep;
