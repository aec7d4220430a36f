//! Copies beside the CPU: what a caller pays, and what an engine hides.
//!
//! From the bottom up:
//!
//! - [`subject`]: what is compared;
//! - [`thread`]: a thread that receives copies from a channel;
//! - [`library`]: peers outside this program, each a shared library;
//! - [`copier`]: one interface over all of it;
//! - `place`: the processors of a measurement;
//! - `group`: copies that are submitted together;
//! - `memory`: what one subject does in one round;
//! - [`mod@bench`]: submission, latency, throughput and overlap by size;
//! - [`mod@break_even`]: the size from which an engine pays;
//! - [`tail`]: small requests beside large copies.

pub mod bench;
pub mod break_even;
pub mod copier;
mod group;
pub mod library;
mod memory;
mod place;
pub mod subject;
pub mod tail;
pub mod thread;

pub use bench::Bench;
pub use break_even::break_even;
pub use subject::Subject;
pub use tail::Tail;
