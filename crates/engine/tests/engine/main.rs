//! Engines through their public interface.
//!
//! - `support`: engines that the tests need;
//! - `conformance`: what holds for every engine;
//! - `queue`: full queues, forks, notification;
//! - `idle`: what an idle engine costs.

mod conformance;
mod idle;
mod queue;
mod support;
