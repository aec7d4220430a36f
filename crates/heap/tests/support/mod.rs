//! Code that the tests of this crate share: children, and pseudo-random numbers.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod child;
pub(crate) mod random;
