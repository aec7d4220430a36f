//! How to measure anything fairly: clocks, interleaved runs, statistics.
//!
//! ```
//! use haul_measure::rounds::{Round, evaluate};
//! // A round has a time of each subject, and of the baseline once more. Half of the rounds were
//! // disturbed: what slows the machine slows both sides of a ratio, and drops out.
//! let slowed = [1.0, 2.0, 1.1, 1.9, 1.0, 1.4];
//! let times = |by: f64| vec![80.0 * by, 100.0 * by, 101.0 * by];
//! let rounds = slowed.map(|by| Round { values: times(by), hit: false });
//! let found = evaluate(&rounds, &["haul".to_owned(), "libc".to_owned()], 1, 7);
//! let haul = found.comparisons[0].as_ref().unwrap();
//! assert!((haul.ratio - 0.8).abs() < 1e-9);
//! assert!((haul.floor - 0.01).abs() < 1e-9); // how far the baseline came from itself
//! ```
//!
//! A comparison is *interleaved*: subjects alternate in short samples inside one run, the baseline
//! runs a second time as its own competitor (the A/A pair), and a difference below what that pair
//! shows is no difference. From the bottom up:
//!
//! - [`error`]: the one error of this crate;
//! - [`random`]: a small generator, seeded, so that a run can be repeated;
//! - [`sys`]: the system calls of measuring;
//! - [`signals`]: those that ask a program to end;
//! - [`clock`]: the finest clock of the machine, and how fine it is;
//! - [`statistics`]: median, spread, bootstrap interval, geometric mean;
//! - [`distribution`]: which sizes, alignments and overlaps calls have;
//! - [`memory`]: memory to measure on, mapped, touched and bounded by what the machine has;
//! - [`placement`]: where source and target lie so that they come from L1, L2, LLC or memory;
//! - [`account`]: CPU time, page faults and peak memory of a subject;
//! - [`disturbance`]: what else the machine did meanwhile, and what to do about it;
//! - [`rounds`]: everybody once each, in turn, and what that says;
//! - [`sample`]: one timed piece of work on one thread;
//! - [`crew`]: 1..N pinned threads that start together;
//! - [`interleave`]: rounds of functions that this process calls.

pub mod account;
pub mod clock;
pub mod crew;
pub mod distribution;
pub mod disturbance;
pub mod error;
pub mod interleave;
pub mod memory;
pub mod placement;
pub mod random;
pub mod rounds;
pub mod sample;
pub mod signals;
pub mod statistics;
pub mod sys;

pub use distribution::Distribution;
pub use error::Error;
pub use interleave::{Control, Outcome, Sampling, Subject};
pub use placement::{Caches, Level};
pub use rounds::Progress;
