//! What haul measures: one module a part, subjects in, records out.
//!
//! ```
//! use std::{sync::atomic::AtomicBool, time::Duration};
//! use haul_experiments::{Context, Experiment, memory::{Fault, fault::Touch}};
//! let mut records = Vec::new();
//! let fault = Fault { touch: Touch::Read, budget: Duration::from_millis(20) };
//! fault.measure(&mut Context {
//!     run: "run-1".to_owned(),
//!     machine: "m1".to_owned(),
//!     stop: &AtomicBool::new(false),
//!     caches: haul_measure::Caches::default(),
//!     cpus: Vec::new(),
//!     sink: &mut |record| records.push(record),
//!     progress: &mut |_| (),
//!     warn: &mut |text| eprintln!("{text}"),
//! })?;
//! assert!(records.iter().all(|record| record.experiment == "memory.fault"));
//! # Ok::<(), haul_experiments::Error>(())
//! ```
//!
//! Every experiment is a plain configuration that is an [`Experiment`]: it says what it costs, and
//! is measured with a [`Context`]. Records leave through the context as soon as they are complete,
//! so that an interrupted run keeps what it has. From the bottom up:
//!
//! - [`error`]: the one error of this crate;
//! - [`context`]: which run and machine records are of, where they go, and who may stop it;
//! - [`experiment`]: what every experiment says of itself;
//! - `leave_out`: what becomes of a subject that fails;
//! - [`drive`]: a process as a subject: started, talked with, ended;
//! - `remarks`: what a record says beside its figure;
//! - [`outcome`]: from an interleaved run to its records;
//! - [`copy`]: memcpy, memmove and memset;
//! - [`heap`]: allocation beside libc, the general heaps and DPDK;
//! - [`channel`]: bulk transfer between two processes beside pipes, UCX, MPI and iceoryx2;
//! - [`forward`]: packets through a virtual machine's card beside testpmd and Open vSwitch;
//! - [`memory`]: what memory itself allows: bandwidth, and the price of a page fault;
//! - [`pcie`]: what a running program moves across PCIe, and what a modelled NIC does;
//! - [`sim`]: the simulated server: the paper again, sweeps, other programs.

pub mod channel;
pub mod context;
pub mod copy;
pub mod drive;
pub mod error;
pub mod experiment;
pub mod forward;
pub mod heap;
mod leave_out;
pub mod memory;
pub mod outcome;
pub mod pcie;
mod remarks;
pub mod sim;

pub use context::{Context, Step};
pub use error::Error;
pub use experiment::Experiment;
