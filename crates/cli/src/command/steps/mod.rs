//! A plan of steps: how long each takes, who gets how much of the time, and who runs them.
//!
//! From the bottom up:
//!
//! - `schedule`: how much of the time each step gets;
//! - `stage`: a plan as data, and what runs it;
//! - `cost`: what a step takes beside its rounds;
//! - `plan`: what a survey measures, in which order.

pub(super) mod cost;
pub(super) mod plan;
mod schedule;
pub(super) mod stage;
