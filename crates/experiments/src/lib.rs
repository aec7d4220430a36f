//! The experiments of haul, with a module for each part: they measure subjects and emit records.
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
//! Every experiment is a plain configuration that implements [`Experiment`]: it estimates its cost,
//! and is measured with a [`Context`]. The context receives records as soon as they are complete,
//! so that an interrupted run keeps them. From the bottom up:
//!
//! - [`error`]: the error of this crate;
//! - [`context`]: the names of run and machine in records, the records' receiver, and the stop
//!   flag;
//! - [`experiment`]: the interface of every experiment;
//! - `leave_out`: the handling of a subject that fails;
//! - `busy`: a thread that keeps a processor busy like another program;
//! - `dynamic`: functions that are found by name at run time;
//! - [`drive`]: a process as a subject: its start, the conversation with it, and its end;
//! - `remarks`: the remarks of a record in addition to its figure;
//! - [`outcome`]: turns the outcome of an interleaved run into records;
//! - [`copy`]: memcpy, memmove and memset;
//! - [`heap`]: allocation, compared with libc, the general heaps and DPDK;
//! - [`engine`]: copies beside the CPU, compared with a copy, DPDK, rayon and tokio;
//! - [`channel`]: bulk transfer between two processes, compared with pipes, UCX, MPI and iceoryx2;
//! - [`forward`]: packets through a virtual machine's card, compared with testpmd and Open vSwitch;
//! - [`field`]: whole programs, with a change and without;
//! - [`memory`]: the limits of memory itself: bandwidth, and the cost of a page fault;
//! - [`pcie`]: the PCIe traffic of a running program, and of a modelled NIC;
//! - [`sim`]: the simulated server: the paper's experiment, sweeps, other programs.

mod busy;
pub mod channel;
pub mod context;
pub mod copy;
pub mod drive;
mod dynamic;
pub mod engine;
pub mod error;
pub mod experiment;
pub mod field;
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
