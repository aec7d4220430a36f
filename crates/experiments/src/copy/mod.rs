//! memcpy, memmove and memset: the installed C library, haul, and each of haul's kernels side by
//! side, on the same operations in the same memory.
//!
//! From the bottom up:
//!
//! - [`function`]: which of the three;
//! - [`then_read`]: who reads a target right after the call;
//! - [`subjects`]: what is compared, each called through the same C signature;
//! - [`operations`]: lists of operations packed tightly, and the loop over them that is timed;
//! - [`workload`]: memory and lists of each thread, and the subject that runs on them;
//! - [`under`]: a subject under a policy of its own;
//! - [`proof`]: what a subject copied, compared with what it should have;
//! - [`drawn`]: operations of drawn sizes: `copy.distribution` and `copy.size_class`;
//! - [`sizes`]: one size after the other: `copy.size`;
//! - [`mod@tune`]: the policy for this machine: `copy.tune`.

pub mod drawn;
pub mod function;
pub mod operations;
pub mod proof;
pub mod sizes;
pub mod subjects;
pub mod then_read;
pub mod tune;
pub mod under;
pub mod workload;

pub use drawn::{Drawn, Shape};
pub use function::Function;
pub use sizes::Sizes;
pub use subjects::{Plain, Selection, available};
pub use then_read::ThenRead;
pub use tune::{Tune, Tuned, tune};
