//! What the tests of this crate share: how much to try, buffers between guard pages, what is
//! called, and the oracle.
#![allow(dead_code, reason = "every test binary uses its own part of it")]

pub(crate) mod effort;
pub(crate) mod guarded;
pub(crate) mod oracle;
pub(crate) mod parallel;
pub(crate) mod subjects;
