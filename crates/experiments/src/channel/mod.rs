//! Transfers between two processes: haul's channels beside pipes, sockets, UCX, MPI and iceoryx2,
//! all interleaved in one run, every byte verified.
//!
//! From the bottom up:
//!
//! - [`content`]: what messages hold;
//! - [`protocol`]: what a run and its drivers say to each other;
//! - [`transport`]: what moves bytes to another process, as a driver has it at its end;
//! - [`driver`]: the child process at one end;
//! - [`pair`]: two of them, as their run sees them;
//! - [`peers`]: which others there are, and how they are had;
//! - `busy`: another program on a processor;
//! - `others`: programs that have nothing to do with the run;
//! - [`mod@bench`]: what is measured;
//! - `fitting`: which subjects have the memory that they need;
//! - `run`: one sample of every subject in turn;
//! - [`transfer`]: the run and its records;
//! - [`choice`]: from its records to the table by which haul chooses.

pub mod bench;
mod busy;
pub mod choice;
pub mod content;
pub mod driver;
mod fitting;
mod others;
pub mod pair;
pub mod peers;
pub mod protocol;
mod run;
pub mod transfer;
pub mod transport;

pub use bench::{Bench, Subject, Target, baseline_first, can_move};
pub use pair::Launch;
pub use peers::{Found, Peer};
