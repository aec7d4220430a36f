//! What a running program moves across PCIe: its bursts, an estimate from them, and counters.
//!
//! From the bottom up:
//!
//! - [`source`]: whatever counts, behind one trait;
//! - [`probe`]: the burst probe in a DPDK program, asked over its telemetry;
//! - [`place`]: which NIC, driver, mode and link a port is;
//! - [`watch`]: all of it, an interval at a time;
//! - [`records`]: what was watched, as records.

pub mod source;

pub mod probe;

pub mod place;

pub mod watch;

pub mod records;
