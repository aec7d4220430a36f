//! A client of DPDK's telemetry: what a running, unmodified DPDK program says of itself.
//!
//! DPDK listens on a Unix socket of packets, `/var/run/dpdk/PREFIX/dpdk_telemetry.v2`. It greets
//! with its version, its process and how long an answer may be; a command is a packet, and so is
//! its answer, a JSON object whose only key is the command. The program at the other end may be
//! anything: whatever it does, [`Telemetry::ask`] returns in time, with an answer or an [`Error`].
//! It is of one's own user or root, unless others are allowed ([`Users`]): programs of others are
//! not asked.
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
//! - `error`: what can go wrong;
//! - `answer`: a packet from the program, as a value;
//! - `conversation`: greeting, commands, answers;
//! - `processes`: sockets that processes listen on;
//! - `find`: which programs there are;
//! - `server`: a socket of this process, in the same words;
//! - `forwarder`: what a forwarder answers there: its ports' bursts, as the probe in a DPDK
//!   program.

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
