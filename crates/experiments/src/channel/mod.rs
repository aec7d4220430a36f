//! Transfers between two processes: haul's channels compared with pipes, sockets, UCX, MPI and
//! iceoryx2, interleaved in one run, with every byte verified.
//!
//! From the bottom up:
//!
//! - [`content`]: the content of messages;
//! - [`protocol`]: the lines between a run and its drivers;
//! - [`transport`]: the interface through which a driver uses one end of a transport;
//! - [`driver`]: the child process at one end;
//! - [`pair`]: controls the two processes of a transfer on behalf of their run;
//! - [`peers`]: the other transports, and the programs that they need;
//! - `others`: programs that do not belong to the run;
//! - [`mod@bench`]: what is measured;
//! - `fitting`: the subjects for which the machine has enough memory;
//! - `run`: the loop that takes one sample of every subject in turn;
//! - [`transfer`]: the run and its records;
//! - [`choice`]: turns the run's records into the table with which haul chooses a mechanism.

pub mod bench;
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
