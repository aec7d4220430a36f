//! The simulated server: the paper's tables and figures, sweeps over its settings, and runs of
//! other programs. Figures are modelled; only the simulator's speed is measured.
//!
//! From the bottom up:
//!
//! - [`settings`]: a machine, described by names and values;
//! - [`task`]: one run of one program on one machine;
//! - [`program`]: the program's ELF file, which is part of haul or is read;
//! - [`pool`]: tasks on all cores;
//! - [`paper`]: the paper's published figures;
//! - [`reproduce`]: the paper's 48 machines, and their figures compared with the published ones;
//! - [`sweep`]: plans of tasks that any array engine can run.

pub mod paper;
pub mod pool;
pub mod program;
pub mod reproduce;
pub mod settings;
pub mod sweep;
pub mod task;

pub use reproduce::Reproduce;
pub use settings::Setting;
pub use task::{Simulated, Task};
