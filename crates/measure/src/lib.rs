//! Fair measurement: clocks, interleaved runs, statistics.
//!
//! ```
//! use haul_measure::rounds::{Round, evaluate};
//! // A round has a time of each subject, and a second one of the baseline. Half of the rounds were
//! // disturbed: a disturbance slows both sides of a ratio and cancels out.
//! let slowed = [1.0, 2.0, 1.1, 1.9, 1.0, 1.4];
//! let times = |by: f64| vec![80.0 * by, 100.0 * by, 101.0 * by];
//! let rounds = slowed.map(|by| Round { values: times(by), hit: false });
//! let found = evaluate(&rounds, &["haul".to_owned(), "libc".to_owned()], 1, 7);
//! let haul = found.comparisons[0].as_ref().unwrap();
//! assert!((haul.ratio - 0.8).abs() < 1e-9);
//! assert!((haul.floor - 0.01).abs() < 1e-9); // the baseline's distance from itself
//! ```
//!
//! A comparison is *interleaved*: subjects alternate in short samples within one run, the baseline
//! runs a second time as its own competitor (A/A), and a difference below the A/A difference
//! counts as no difference. From the bottom up:
//!
//! - [`error`]: the error of this crate;
//! - [`random`]: a small random number generator with a seed, so that a run can be repeated
//!   exactly;
//! - [`sys`]: the system calls for measurement;
//! - [`signals`]: signals that ask a program to end;
//! - [`clock`]: the finest clock of the machine, and its precision;
//! - [`statistics`]: median, spread, bootstrap interval, geometric mean;
//! - [`distribution`]: the sizes, alignments and overlaps of calls;
//! - [`memory`]: memory for measurements, mapped, touched and limited to the machine's available
//!   memory;
//! - [`placement`]: locations of source and target in L1, L2, LLC or memory;
//! - [`account`]: CPU time, page faults and peak memory of a subject;
//! - [`disturbance`]: disturbances by the machine, and their remedies;
//! - [`rounds`]: rounds in which every subject runs once, and their evaluation;
//! - [`sample`]: one timed piece of work on one thread, with the kernel's counters;
//! - [`crew`]: pinned threads that start together;
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
