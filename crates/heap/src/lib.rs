//! A heap of huge pages. Processes can share it, and a process may be killed at any instruction.
//!
//! ```
//! use haul_heap::{Heap, Request};
//! let heap = Heap::builder().limit(1 << 30).build()?;
//! let block = heap.alloc(Request::new(4096).aligned(4096))?;
//! // SAFETY: allocated right above, and not used again.
//! unsafe { heap.free(block) }?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The one principle
//!
//! **Every resource has one state word, which names its owner and is in metadata that all sharers
//! see. Every transition is one compare-and-swap, or a store by the only owner.** Everything else
//! (counts, bitmaps, the arrays of a thread's cache, cursors) is a hint that can be computed
//! again from the state words. No operation takes a lock or needs a log. Recovery from a death at
//! any instruction is a scan that gives back the dead process's resources.
//!
//! # A first allocation in nine steps
//!
//! `heap.alloc(Request::new(4096).aligned(4096))`, in a thread that never called the heap before:
//!
//! 1. `heap` finds the class: the smallest of 44 block sizes that is not below the requested size
//!    and is divisible by the alignment. Here the class is 4096, with 16 blocks and no gap in a
//!    slice of 64 KiB.
//! 2. It looks up the thread's cache in its directory. There is none, so the call continues on the
//!    slow path: `local` gives the thread a number, and `cache` claims a cache record for it with
//!    one compare-and-swap of its word.
//! 3. The bin of the class is empty, so `cache` searches for slots: first in the span of the
//!    previous slots, then with a bitmap in other spans that have free slots. It finds none and
//!    builds a span.
//! 4. `memory` finds the lowest page of 2 MiB with a free slice. No page was used before, so
//!    `memory` adds one page to the used pages.
//! 5. `slice` claims the slice: the slice word changes from "free" to "claimed by this cache".
//! 6. `region` gets memory for the page, and the page word changes from "mapping" to "ready". In
//!    a private heap of plain or transparent huge pages, the kernel provides the memory at the
//!    first access.
//! 7. The slice word changes to "run", then to "span of the class". From now on, caches can claim
//!    its slots.
//! 8. `slot` claims sixteen slots for the cache, each with one compare-and-swap of 16 bits, and
//!    `cache` puts them into the bin. Then `cache` reads the span's word again; if the word has
//!    changed, it gives the slots back.
//! 9. `heap` removes a slot from the bin, checks that the slot word says "cached by me", stores
//!    "live, process, tag", and returns the slot's address.
//!
//! Each of the next fifteen calls performs step 1, a lookup in the directory, and step 9. A free
//! is step 9 in reverse. A process that is killed between two steps leaves words that name its
//! cache or itself. `reap` scans for these words and gives back the resources that they describe.
//!
//! # What a shared heap is safe from
//!
//! Every process that shares the heap can write to the metadata, even a faulty process. So a
//! process checks each index and length that it reads there against the heap's shape. The shape
//! is checked on attach and kept in the process's own memory. So a corrupted word can lose blocks
//! or hand out one block twice, but causes no access outside the heap; [`Heap::validate`] reports
//! it.
//!
//! # Modules, lowest first
//!
//! - `sync`: the atomics;
//! - `protocol`: the state words, which name owners, and the transitions between owners;
//! - `layout`: pages, nodes, and the offset of every table;
//! - `fault`: errors of a request or a pointer;
//! - `bin`: the blocks of one class that a thread holds;
//! - `tables`: the metadata as typed tables;
//! - `sys`: system calls, and facts of the machine;
//! - [`guard`]: a SIGBUS handler for mapped files that other processes can truncate;
//! - `searches`: limits how often all slots of a class are searched;
//! - `crowd`: limits how many threads build spans at once;
//! - `error`: why a heap could not be built or attached to;
//! - `region`: the mappings of data and metadata;
//! - `memory`: the search for free slices;
//! - `member`: processes of a heap;
//! - `local`: the number of a thread, and its caches;
//! - `cache`: moves slots between a thread's bins and the spans;
//! - `request`: the parameters of a request;
//! - `heap`: alloc, free, realloc, and the builder;
//! - `inspect`: statistics, maps and checks of a heap;
//! - `reap`: gives back the resources of dead processes;
//! - `maintain`: work outside requests;
//! - `iova`: addresses for devices;
//! - `global`: the heap as Rust's allocator.
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
mod maintain;
mod member;
mod memory;
mod protocol;
mod reap;
mod region;
mod request;
mod searches;
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
    backing::{Backing, Pages, PagesReport, Reason},
    external::{EXTENT_BYTES, EXTENT_STEP, Extents, External},
};
pub use request::{Node, Offset, Request, Tag};

/// Uses that must not compile without `unsafe`. Each example fails only because `unsafe` is
/// missing.
///
/// Asking for the size of a block. In debug mode the call reads memory that another thread may be
/// writing:
///
/// ```compile_fail,E0133
/// fn ask(heap: &haul_heap::Heap, block: core::ptr::NonNull<u8>) -> bool {
///     heap.usable_size(block).is_ok()
/// }
/// ```
///
/// Building a heap in the caller's memory. The caller must promise that the memory is valid:
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

/// Tests the example in the crate's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
