//! The heap beside its peers: every heap in a process of its own, all interleaved in one run.
//!
//! From the bottom up:
//!
//! - [`peers`]: which heaps there are, and where they are found;
//! - [`protocol`]: what a run and its drivers say to each other;
//! - `allocator`: a heap as a driver calls it;
//! - `script`: the steps of a replay, as a file between a run and its drivers;
//! - `work`: what a driver's threads do;
//! - [`driver`]: the child process that drives one heap;
//! - `child`: that process as its run sees it;
//! - [`mod@test`]: the tests, their tasks and their figures;
//! - [`mod@bench`]: the run;
//! - `emit`: from a run to its records;
//! - [`trace`]: a recorded history of allocations, read from its file;
//! - [`replay`]: that history on every heap;
//! - [`map`]: what a heap holds.

mod allocator;
pub mod bench;
mod child;
pub mod driver;
mod emit;
pub mod map;
pub mod peers;
pub mod protocol;
pub mod replay;
mod script;
pub mod test;
pub mod trace;
mod work;

pub use bench::{Bench, baseline_first, check_shape};
pub use map::{map_shared, map_trace, operations_until};
pub use peers::{Found, Peer};
pub use protocol::Shape;
pub use replay::Replay;
pub use test::{Extent, Test};
pub use trace::{Part, Trace};
