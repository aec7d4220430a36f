//! The forwarder through its public interface.
//!
//! - `support`: ports that are connected, and waiting for what has to happen;
//! - `conformance`: what holds for every port;
//! - `flow`: whole flows, in which nothing is lost.

mod conformance;
mod flow;
mod support;
