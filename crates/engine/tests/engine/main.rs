//! Engines through their public interface.
//!
//! - `support`: engines that the tests need;
//! - `conformance`: what holds for every engine;
//! - `fake`: the same over a fake DSA;
//! - `queue`: full queues, forks, notification;
//! - `idle`: what an idle engine costs.

mod conformance;
mod fake;
mod idle;
mod queue;
mod support;
