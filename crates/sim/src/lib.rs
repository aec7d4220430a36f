//! The simulated server: a processor, its memory system, and its copy engines.
//!
//! ```
//! use haul_sim::{Configuration, Image, Job, isa::encode, run};
//! // 1: addi a0, a0, -1; bnez a0, 1b; li a7, 93; li a0, 0; ecall
//! let words = [0xfff5_0513, 0xfe05_1ee3, 0x05d0_0893, 0x0000_0513, encode::ECALL];
//! let image = Image::from_words(0x8000_0000, &words, 0)?;
//! let job = Job { arguments: vec![1000], instructions_max: 10_000, ..Job::default() };
//! let outcome = run(&Configuration::default(), &image, &job)?;
//! assert_eq!(outcome.instructions, 2003);
//! assert!(outcome.cycles > 1000);
//! # Ok::<(), haul_sim::Error>(())
//! ```
//!
//! The crate is pure: it has no unsafe code, no input or output, no clock and no thread. A run is
//! a function of a program and a configuration, and gives the same result on every host. From the
//! bottom up:
//!
//! - [`error`]: the errors of programs, configurations and runs;
//! - [`configuration`]: the settings of the machine, each with its source;
//! - [`isa`]: RV64IM and the copy instructions, decoded;
//! - [`image`]: a program, loaded and checked, page by page;
//! - [`nic`]: the network device and its sending peer;
//! - [`interpreter`]: the effect of each instruction, without timing;
//! - [`statistics`]: counters with names and meanings;
//! - [`memory`]: caches, bus and memory, and their interface to the processor;
//! - [`engine`]: copy engines, one file per policy;
//! - [`system`]: the memory system built from these parts, driven by events;
//! - [`core`](mod@core): the timing core, in order and out of order, one file per stage;
//! - [`platform`]: a whole run: program, processor, memory, engines;
//! - [`workload`]: the programs that are part of haul.
#![forbid(unsafe_code)]

pub mod configuration;
pub mod core;
pub mod engine;
pub mod error;
pub mod image;
pub mod interpreter;
pub mod isa;
pub mod memory;
pub mod nic;
pub mod platform;
pub mod statistics;
pub mod system;
pub mod workload;

pub use configuration::{Configuration, Cycle};
pub use error::{Error, Failure};
pub use image::Image;
pub use interpreter::Interpreter;
pub use nic::Traffic;
pub use platform::{Job, Outcome, run, run_until};
pub use system::MemorySystem;
