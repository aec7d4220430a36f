//! Engines through their public interface.
//!
//! - `support`: engines that the tests need;
//! - `conformance`: what holds for every engine;
//! - `fake`: the same over a fake DSA;
//! - `panics`: callbacks and wakers that panic;
//! - `queue`: reports of full and failing engines, settings, signals;
//! - `forks`: children of fork;
//! - `filters`: system calls that a filter refuses, and killed processes;
//! - `ordered`: operations by address, and their order;
//! - `memory`: a task with memory that the engine reads;
//! - `idle`: what an idle engine costs;
//! - `whereabouts`: the processor of the helper thread.

mod conformance;
mod fake;
mod filters;
mod forks;
mod idle;
mod memory;
mod ordered;
mod panics;
mod queue;
mod series;
mod support;
mod whereabouts;
