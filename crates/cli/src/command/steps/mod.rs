//! What measures a list of experiments one after the other, each in its part of the time.
//!
//! From the bottom up:
//!
//! - `schedule`: how much of the time each step gets;
//! - `runner`: what all steps of a command share.

mod runner;
mod schedule;

pub(super) use runner::{OnFailure, Runner, Steps, evenly, measure, this_program};
#[cfg(test)]
pub(super) use schedule::Schedule;
