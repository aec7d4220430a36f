//! Copies beside the CPU.
//!
//! - [`dsa`]: DSA.
pub mod dsa;
