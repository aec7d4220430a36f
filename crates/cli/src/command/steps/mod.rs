//! Measures a list of experiments in sequence, each in its share of the time.
//!
//! From the bottom up:
//!
//! - `schedule`: the time of each step;
//! - `runner`: the state that all steps of a command share.

mod runner;
mod schedule;

pub(super) use runner::{OnFailure, Runner, Steps, evenly, measure, this_program};
#[cfg(test)]
pub(super) use schedule::Schedule;
