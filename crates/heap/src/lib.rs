//! A huge-page heap: flat, shared between processes, and safe to die in.
//!
//! ```
//! use haul_heap::{Heap, Node};
//! let heap = Heap::builder().limit(1 << 30).build()?;
//! let block = heap.alloc(4096, 4096, Node::ANY)?;
//! // SAFETY: allocated right above, and not used again.
//! unsafe { heap.free(block) }?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The one principle
//!
//! **Every resource has one state word, in metadata that all sharers see, that names its owner;
//! every transition is one compare-and-swap, or a store by the only owner.** Everything else
//! (counts, bitmaps, the arrays of a thread's cache, cursors) is a hint that can be made again from
//! the state words. So nothing takes a lock, nothing needs a log, and recovery from a death at any
//! instruction is a scan that gives back what the dead one owned.
//!
//! # A first allocation in nine steps
//!
//! `heap.alloc(4096, 4096, Node::ANY)`, in a thread that never called the heap before:
//!
//! 1. `heap` finds the class: the smallest of 44 that holds the size and is divisible by the
//!    alignment. Here 4096, whose blocks pack 16 to a slice of 64 KiB without a gap.
//! 2. It looks up the thread's cache in its directory. There is none, and that is the slow path:
//!    `local` gives the thread a number, and `cache` claims a cache record for it, by one swap of
//!    its word.
//! 3. The bin of the class is empty, so `cache` looks for slots: in the span of the last ones, else
//!    in one with free slots, by a bitmap. There is neither, so it builds one.
//! 4. `memory` finds a page of 2 MiB with a free slice, the lowest there is. None was used yet, so
//!    it moves the frontier by one page.
//! 5. `slice` claims the slice: its word goes from free to claimed by this cache.
//! 6. `region` gets memory for the page, between the page's words "mapping" and "ready". For
//!    plain and transparent huge pages of a private heap there is nothing to do: the first touch
//!    does it.
//! 7. The slice's word goes to run, then to span of the class. From here on its slots can be
//!    claimed.
//! 8. `slot` claims sixteen slots for the cache, by one swap of 16 bits each, into the bin. The
//!    span's word is read again: if it changed meanwhile the slots go back.
//! 9. `heap` pops one from the bin, sees that its word says "cached by me", stores "live,
//!    process, tag", and returns its address.
//!
//! The next fifteen calls are step 1, a look into the directory, and step 9. A free is step 9
//! backwards. Who is killed between any two of them leaves words that name its cache or its
//! process: `reap` finds them by a scan, and gives back what they name.
//!
//! # What a shared heap is safe from
//!
//! The metadata can be written by every process that shares the heap, and so by one that has gone
//! wrong. Each index and length that is read there is checked against the heap's shape, which is
//! checked when a process attaches and kept in its own memory. So a scribble can lose blocks, or
//! hand one out twice, but leads to no access outside the heap; [`Heap::validate`] tells of it.
//!
//! # Modules, lowest first
//!
//! - `sync`: the atomics;
//! - `protocol`: who owns what, and how it changes hands;
//! - `layout`: pages, nodes, and where every table is;
//! - `fault`: what goes wrong with a request or a pointer;
//! - `bin`: the blocks of one class that a thread holds;
//! - `tables`: the metadata as typed tables;
//! - `sys`: system calls, and facts of the machine;
//! - [`guard`]: SIGBUS, caught where memory of a file is touched that others can take away;
//! - `looks`: how often all slots of a class are searched;
//! - `crowd`: how many threads of many build at once;
//! - `error`: why there is no heap;
//! - `region`: the mappings of data and metadata;
//! - `memory`: which slices are free, and how they are found;
//! - `member`: processes of a heap;
//! - `local`: which thread this is, and where its caches are;
//! - `cache`: a thread's bins, filled from spans and emptied into them;
//! - `request`: what a caller says with a request;
//! - `heap`: alloc, free, realloc, and the builder;
//! - `inspect`: what a heap holds;
//! - `reap`: what the dead leave behind, taken back;
//! - `maintain`: what nobody should wait for;
//! - `iova`: addresses for devices;
//! - `global`: the heap behind Rust's own allocations.
#![no_std]

extern crate std;

mod bin;
mod cache;
mod crowd;
mod error;
mod fault;
mod global;
#[doc(hidden)]
pub mod guard;
mod heap;
mod inspect;
mod iova;
mod layout;
mod local;
mod looks;
mod maintain;
mod member;
mod memory;
mod protocol;
mod reap;
mod region;
mod request;
mod sync;
mod sys;
mod tables;

pub use error::{Attempt, Error, Limit, NAME_BYTES_MAX, Name, NameProblem};
pub use fault::{AllocError, Fault, Misuse, Owner};
pub use global::Global;
pub use heap::{Builder, Handle, Heap, ReallocError};
pub use inspect::{
    Block, Count, Damage, DamageKind, PageState, PageView, SliceView, Stats, TAG_NAME_MAX, TagName,
};
pub use iova::Iova;
pub use maintain::Maintenance;
#[cfg(feature = "steps")]
pub use protocol::step;
pub use reap::Reaped;
pub use region::{
    NAMES_FOLDER, NAMES_PREFIX,
    backing::{Backing, Pages, PagesTold, Reason},
    external::{EXTENT_BYTES, EXTENT_STEP, Extents, External},
};
pub use request::{Node, Offset, Tag};

/// What is refused without `unsafe`, so that it stays so: each fails for that reason alone.
///
/// The size of a block that another thread may just be given, which debug mode reads:
///
/// ```compile_fail,E0133
/// fn ask(heap: &haul_heap::Heap, block: core::ptr::NonNull<u8>) -> bool {
///     heap.usable_size(block).is_ok()
/// }
/// ```
///
/// Memory that nobody vouches for:
///
/// ```compile_fail,E0133
/// fn build(external: haul_heap::External) -> bool {
///     haul_heap::Heap::builder().external(external).is_ok()
/// }
/// ```
///
/// ```compile_fail,E0200
/// struct Liar;
/// impl haul_heap::Extents for Liar {
///     fn take(&self, _: usize) -> Option<(core::ptr::NonNull<u8>, usize)> {
///         None
///     }
///     fn give_back(&self, _: core::ptr::NonNull<u8>, _: usize) -> bool {
///         false
///     }
/// }
/// ```
#[cfg(doctest)]
struct Refused;

/// The example of the crate's README, which must stay true.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
