//! Copies beside the CPU: what a caller pays, and what an engine hides.
//!
//! From the bottom up:
//!
//! - [`subject`]: engines, and a thread behind a channel, behind one interface;
//! - [`mod@bench`]: submission, latency, throughput and overlap by size;
//! - [`tail`]: small requests beside large copies.

pub mod bench;
pub mod subject;
pub mod tail;

pub use bench::Bench;
pub use subject::Subject;
pub use tail::Tail;
