//! The simulated server: the paper's tables and figures again, sweeps over its settings, and runs
//! of other programs. Figures are modelled; how fast the simulator is, is measured.
//!
//! From the bottom up:
//!
//! - [`settings`]: a machine by names and values;
//! - [`task`]: one run of one program on one machine;
//! - [`program`]: its ELF file, which haul holds or reads;
//! - [`pool`]: tasks on all cores;
//! - [`paper`]: what the paper prints;
//! - [`reproduce`]: its 48 machines, and what they give beside it;
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
