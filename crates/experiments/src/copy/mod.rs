//! memcpy, memmove and memset: the installed C library, haul, and each of haul's kernels, on the
//! same operations in the same memory.
//!
//! From the bottom up:
//!
//! - [`function`]: the three functions;
//! - [`then_read`]: the reader of a target right after the call;
//! - [`subjects`]: the candidates, each called through the same C signature;
//! - [`operations`]: lists of densely packed operations, and the timed loop over them;
//! - [`workload`]: memory and lists of each thread, and the subject that runs on them;
//! - [`under`]: a subject under a separate policy;
//! - [`proof`]: the comparison of a subject's bytes with the expected ones;
//! - [`cost`]: the time of a profiled program's calls;
//! - [`drawn`]: operations of random sizes: `copy.distribution` and `copy.size_class`;
//! - `each_size`: the loop over sizes;
//! - [`sizes`]: one size after the other: `copy.size`;
//! - [`handed`]: each size as a message to another processor: `copy.handed`;
//! - [`stream`]: the calls of a program in their order: `copy.stream`;
//! - [`advise`]: the best copy for a call site: `copy.advise`;
//! - [`mod@tune`]: the policy for this machine: `copy.tune`.

pub mod advise;
pub mod cost;
pub mod drawn;
mod each_size;
pub mod function;
pub mod handed;
pub mod operations;
pub mod proof;
pub mod sizes;
pub mod stream;
pub mod subjects;
pub mod then_read;
pub mod tune;
pub mod under;
pub mod workload;

pub use advise::Advise;
pub use drawn::{Drawn, Shape};
pub use function::Function;
pub use handed::Handed;
pub use sizes::Sizes;
pub use subjects::{Plain, Selection, available};
pub use then_read::ThenRead;
pub use tune::{Tune, Tuned, tune};
