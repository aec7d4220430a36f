//! The shared code of this crate's tests: the effort, buffers between guard pages, the functions
//! under test, and the oracle.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::multiple_unsafe_ops_per_block,
    reason = "a test's buffers are sized right above the calls that use them"
)]
#![allow(dead_code, reason = "every test binary uses its own part of it")]

pub(crate) mod copying;
#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) mod dispatching;
pub(crate) mod effort;
pub(crate) mod filling;
pub(crate) mod guarded;
pub(crate) mod moving;
pub(crate) mod oracle;
pub(crate) mod parallel;
pub(crate) mod subjects;
