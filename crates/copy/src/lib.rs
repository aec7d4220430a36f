//! memcpy, memmove and memset for servers: kernels, dispatch, thresholds.
//!
//! No dependency, no standard library, no allocation, and no call of the C library's own copies:
//! this crate can stand below everything else, an allocator or a preload included.
//!
//! ```
//! let source = [7_u8; 300];
//! let mut target = [0_u8; 300];
//! haul_copy::copy(&mut target, &source);
//! assert_eq!(target, source);
//! haul_copy::fill(&mut target[..10], 0);
//! haul_copy::copy_within(&mut target, 0..200, 50);
//! assert_eq!(target[50..60], [0; 10]);
//! ```
//!
//! # Which copy happens
//!
//! | bytes | what | where |
//! |---|---|---|
//! | 0-64 | no loop, few branches, all loads before all stores; inlined into the caller, or one call of masked code | `small`, `arch` |
//! | 65-256 | four cache lines that overlap, no branch on the size; 65-128 two, where an inlined copy calls | `arch::generic` |
//! | 257 and more | up to 512 six or eight lines, then a loop aligned on the target, head and tail saved first | `arch::generic` |
//! | from a threshold on | `rep movsb` or non-temporal stores, by [`Thresholds`] | `dispatch` |
//!
//! Which instruction set, which shape of small copies and which thresholds is one [`Policy`].
//!
//! Every function here has memmove's semantics, `memcpy` too: a caller that got away with an
//! overlap under one C library gets away with it here.
//!
//! # Modules, lowest first
//!
//! - `opaque`: values that the compiler can't see through;
//! - `small`: up to 64 bytes, inlined;
//! - `arch`: the algorithm once over a cache line in registers, thin files for each instruction
//!   set;
//! - [`cpu`]: which instruction sets this processor has, asked once;
//! - [`thresholds`]: the sizes at which the way to copy changes;
//! - [`policy`]: all that is a matter of the processor as one value, with its default for this one;
//! - [`kernel`]: every way to copy by name, for benchmarks and tests;
//! - `dispatch`: the way that is taken;
//! - [`raw`] and [`c`]: pointers in Rust's and in C's calling convention;
//! - `safe`: slices, re-exported here.
#![no_std]
#![no_builtins]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one bound proves all the accesses of a step of a copy; it is argued once, above them"
)]

#[cfg(test)]
extern crate std;

mod opaque;

mod small;

mod arch;
pub mod cpu;
pub mod policy;
pub mod thresholds;

pub mod kernel;

mod dispatch;

pub mod raw;

pub mod c;

mod safe;

pub use cpu::Isa;
pub use policy::Policy;
pub use raw::{memcpy, memmove, memset};
pub use safe::{
    Hint, copy, copy_hinted, copy_hinted_raw, copy_within, fill, fill_hinted, fill_hinted_raw,
};
pub use thresholds::Thresholds;

/// What is refused, so that it stays so: each fails for that reason alone.
///
/// A kernel whose instruction set somebody else says, which decides whether it runs:
///
/// ```compile_fail,E0616
/// let mut kernel = haul_copy::kernel::copies()[0];
/// kernel.isa = haul_copy::Isa::Scalar;
/// ```
///
/// A kernel that this processor may not have:
///
/// ```compile_fail,E0133
/// let kernel = haul_copy::kernel::copies()[0];
/// let function = kernel.function_unchecked();
/// ```
#[cfg(doctest)]
struct Refused;
