//! The forwarder through its public interface.
//!
//! - `support`: ports that are connected, and waiting for what has to happen;
//! - `network`: pairs of virtual interfaces;
//! - `conformance`: what holds for every port;
//! - `flow`: whole flows, in which nothing is lost;
//! - `interfaces`: ports on interfaces of this machine;
//! - `merged`: what a kernel leaves to a device;
//! - `pools`: a port and the pool that its rings lie in.

mod conformance;
mod flow;
mod interfaces;
mod ledger;
mod merged;
mod network;
mod paths;
mod pools;
mod support;
