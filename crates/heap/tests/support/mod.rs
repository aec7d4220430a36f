//! What the tests of this crate share: children, and numbers without a pattern.
#![allow(dead_code, reason = "every test binary uses its own part of it")]

pub(crate) mod child;
pub(crate) mod random;
