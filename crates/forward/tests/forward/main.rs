//! The forwarder through its public interface.
//!
//! - `support`: connected ports, and waiting for conditions;
//! - `network`: pairs of virtual interfaces;
//! - `conformance`: the properties of every port;
//! - `divided`: parts of long packets, for a port with several queue pairs;
//! - `flow`: whole flows, in which no packet is lost;
//! - `interfaces`: ports on interfaces of this machine;
//! - `merged`: work that a kernel leaves to a device;
//! - `pools`: a port and the pool that holds its rings.

mod conformance;
mod divided;
mod flow;
mod interfaces;
mod ledger;
mod merged;
mod network;
mod paths;
mod pools;
mod support;
