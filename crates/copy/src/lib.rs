//! memcpy, memmove and memset for servers: kernels, dispatch, thresholds.
//!
//! The crate has no dependency, does not use the standard library, allocates nothing and calls no
//! copy function of the C library. The crate can therefore be used below everything else,
//! including an allocator or a preloaded library.
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
//! # Which code a size takes
//!
//! | bytes | code | module |
//! |---|---|---|
//! | 0-64 | no loop, few branches, all loads before all stores; inlined into the caller, or one call of code that uses masks | `small`, `arch` |
//! | 65-256 | two cache lines that overlap up to 128 bytes, four above | `arch::generic`, or `arch` with masks |
//! | 257 and more | up to 512 six or eight lines, then a loop aligned on the target, head and tail saved first | `arch::generic` |
//! | from a threshold on | `rep movsb` or non-temporal stores, by [`Thresholds`] | `dispatch` |
//!
//! One [`Policy`] holds the instruction set, the shape of small copies and the thresholds.
//!
//! Every function here has memmove's semantics, including `memcpy`: source and target may overlap.
//!
//! # Modules, lowest first
//!
//! - [`early`]: copies before the dynamic linker has relocated their library;
//! - `opaque`: values that hide their origin from the compiler;
//! - `small`: up to 64 bytes, inlined;
//! - `arch`: the algorithm, written once over a cache line in registers, and a thin file for each
//!   instruction set;
//! - [`cpu`]: the processor's instruction sets and identity;
//! - `thresholds`: the sizes from which another copying method is used;
//! - `policy`: every choice that depends on the processor, as one value, with a default for each
//!   processor;
//! - [`kernel`]: every kernel by name, for benchmarks and tests;
//! - `dispatch`: the choice of a kernel for each call;
//! - `raw`: the functions that take pointers, re-exported here;
//! - [`c`]: the same functions in C's calling convention;
//! - `safe`: the functions over slices, re-exported here.
#![no_std]
#![no_builtins]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one bound proves all the accesses of a step of a copy; it is argued once, above them"
)]

#[cfg(test)]
extern crate std;

pub mod early;

mod opaque;

mod small;

mod arch;
pub mod cpu;
mod policy;
mod thresholds;

pub mod kernel;

mod dispatch;

mod raw;

pub mod c;

mod safe;

pub use cpu::Isa;
pub use policy::{Lacking, Policy, Small, Strings};
pub use raw::{memcpy, memmove, memset};
pub use safe::{Hint, copy, copy_array, copy_within, fill};
pub use thresholds::{LOOKUP_MIN, NEVER, Thresholds};

/// The example of the crate's README, which must stay true.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Programs that must not compile. Each program fails only for the stated reason.
///
/// A caller must not change a kernel's instruction set, because the instruction set decides
/// whether the kernel runs:
///
/// ```compile_fail,E0616
/// let mut kernel = haul_copy::kernel::copies()[0];
/// kernel.isa = haul_copy::Isa::Scalar;
/// ```
///
/// A caller must not get a kernel that this processor may lack without `unsafe`:
///
/// ```compile_fail,E0133
/// let kernel = haul_copy::kernel::copies()[0];
/// let function = kernel.function_unchecked();
/// ```
#[cfg(doctest)]
struct Refused;
