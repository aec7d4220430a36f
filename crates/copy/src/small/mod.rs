//! Copies and fills of up to 64 bytes with general registers and registers of 16 bytes. They are
//! inlined into the caller, and into the functions that C calls.
//!
//! # Idea
//!
//! ```text
//! n <= 3:        1 byte at n-1, 2 at 0   to a scratch where n has no room for them
//! 4-7, 8-16,     two pieces, at 0 and at the end
//! 17-32:
//! 33-64:         four pieces of 16 bytes, at 0, 16, n-32 and n-16
//! ```
//!
//! Most calls of memcpy are short: in a large fleet, 63.5% of the calls move at most 16 bytes. If a
//! branch predictor does not know the sizes, each branch on the size costs some calls 10 to 20
//! cycles. If it knows them, branches are free and each unnecessary store costs up to a cycle, and
//! more if the target is not in L1. The memcpy here therefore has a branch for each class of sizes,
//! except up to 3 bytes. Code without a branch, with four stores from 17 bytes on and three from 4
//! bytes on, takes 0.84 of the C library's time instead of 0.92 for a service's sizes in a random
//! order, but up to 1.2 instead of 0.6 to 1.0 for one size at a time, and 1.15 instead of 0.95 if
//! the data is not in L1 (Zen 4, called through C).
//!
//! All loads precede all stores, so overlap is harmless. In code that computes addresses, the
//! widest store is the last one: if a program loads the target's first 2, 4 or 8 bytes right
//! after the copy, one store provides them (store-to-load forwarding).
//!
//! On processors with AVX-512, `arch::x86_64::masked` copies these sizes with fewer branches. The
//! [`Policy`](crate::Policy) says whether that is faster, including the loads that follow the
//! copy.
//!
//! # What was tried
//!
//! More stores instead of a branch cost time beyond L2, more branches cost time in L1, and no other
//! shape was better in both. Masks are faster in L1, and slower if the first 8 bytes are read next.
//! `bench/record/2026-11-22-zen4-2cpu-copy` has the tables.
//!
//! From the bottom up:
//!
//! - `word`: loads and stores of 1 to 16 bytes;
//! - `piece`: one function for each class of sizes;
//! - `inlined`: up to 64 bytes, inlined into the caller.

mod word;

mod piece;

pub(crate) mod inlined;

pub(crate) use inlined::{memcpy as copy, memset as fill};

/// The largest size in bytes that is copied without a call.
pub(crate) const SMALL_MAX: usize = 64;

/// The offset of the second of four equal pieces of `HALF / 2` bytes that together cover `length`
/// bytes, where `HALF / 2 < length <= 2 * HALF`: `HALF / 2` if `length` is above `HALF`, else 0.
/// `HALF` must be a power of two.
#[inline(always)]
pub(crate) fn inner_offset<const HALF: usize>(length: usize) -> usize {
    debug_assert!(length > HALF / 2 && length <= 2 * HALF);
    ((length - 1) & HALF) >> 1
}
