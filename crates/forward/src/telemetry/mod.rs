//! A client of DPDK's telemetry, which reads the state of a running, unmodified DPDK program.
//!
//! DPDK listens on a SOCK_SEQPACKET socket, `/var/run/dpdk/PREFIX/dpdk_telemetry.v2`. Its greeting
//! contains its version, its process ID and the longest length of an answer. A command is one
//! packet, and so is its answer, a JSON object whose only key is the command. The program at the
//! other end is not trusted: in any case, [`Telemetry::ask`] returns in time, with an answer or an
//! [`Error`]. The program must run as this user or root, unless other users are allowed
//! ([`Users`]): other programs are not asked.
//!
//! ```no_run
//! # mod haul { pub use haul_forward::telemetry; }
//! use haul::telemetry::{Telemetry, Wish};
//! use std::time::Duration;
//! # fn main() -> Result<(), haul::telemetry::Error> {
//! let mut dpdk = Telemetry::find(&Wish::Any, Duration::from_secs(2))?;
//! let ports = dpdk.ask("/ethdev/list")?;
//! println!("{}: ports {ports}", dpdk.version());
//! # Ok(())
//! # }
//! ```
//!
//! From the bottom up:
//!
//! - `error`: the errors of telemetry;
//! - `answer`: parses a program's packets;
//! - `conversation`: greeting, commands, answers;
//! - `processes`: sockets on which processes listen;
//! - `find`: finds running programs;
//! - `server`: a telemetry socket of this process;
//! - `forwarder`: the answers of a forwarder: its ports' bursts, as the probe in a DPDK program
//!   reports them.

mod error;

mod answer;

mod conversation;

mod processes;

mod find;

mod server;

mod forwarder;

pub use answer::{Greeting, read_answer, read_greeting};
pub use conversation::Telemetry;
pub use error::Error;
pub use find::{Found, Wish, folders, sockets};
pub use forwarder::{PortAbout, serve, serve_for};
pub use haul_peer::users::Users;
pub use server::Server;
