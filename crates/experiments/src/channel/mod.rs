//! Transfers between two processes: haul's channels compared with pipes, sockets, UCX, MPI and
//! iceoryx2, interleaved in one run, with every byte verified.
//!
//! From the bottom up:
//!
//! - [`content`]: the content of messages;
//! - [`protocol`]: the lines between a run and its drivers;
//! - [`transport`]: one end of a transport to another process, as a driver uses it;
//! - [`driver`]: the child process at one end;
//! - [`pair`]: the two processes of a transfer, as their run uses them;
//! - [`peers`]: the other transports, and the programs that they need;
//! - `busy`: a thread that keeps a processor busy like another program;
//! - `others`: programs that do not belong to the run;
//! - [`mod@bench`]: what is measured;
//! - `fitting`: the subjects for which the machine has enough memory;
//! - `run`: the loop that takes one sample of every subject in turn;
//! - [`transfer`]: the run and its records;
//! - [`choice`]: turns the run's records into the table with which haul chooses a mechanism.

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
