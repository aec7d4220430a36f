//! Moves bulk data on a server for the least cost: copies memory, allocates from huge pages,
//! carries bytes to another process, and forwards packets in bursts.
//!
//! ```
//! use haul::{copy::copy, heap::{Heap, Request}};
//! haul::init();
//! let (source, mut target) = ([7_u8; 300], [0_u8; 300]);
//! copy(&mut target, &source);
//! let heap = Heap::builder().limit(1 << 30).build()?;
//! let block = heap.alloc(Request::new(4096).aligned(4096))?;
//! // SAFETY: the block was allocated right above and is not used again.
//! unsafe { heap.free(block) }?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | what it is | feature |
//! |---|---|---|
//! | [`copy`](mod@copy) | memcpy, memmove and memset | |
//! | [`heap`] | the heap of huge pages, with the thread that maintains one | |
//! | [`channel`] | bulk transfer between two processes | `channel` |
//! | [`engine`] | copies beside the CPU | `engine` |
//! | [`forward`] | packets forwarded in bursts between ports | `forward` |
//! | [`telemetry`] | a client of DPDK's telemetry | `forward` |
//!
//! Each part is a separate crate, which this crate re-exports. The features `channel` and
//! `tuning` are on by default, `engine` and `forward` are not.
//!
//! A Rust program calls [`init`] (feature `tuning`) once, early in `main`, to apply the
//! thresholds that were measured on its machine. Without this call, the defaults for the
//! processor apply. A C program that links `libhaul.so` need not call a function, because the
//! library applies the thresholds when it is loaded.
//!
//! From the bottom up:
//!
//! - `housekeeper`: the thread that maintains a heap;
//! - `zeroing`: blocks that an engine fills with zeros;
//! - [`heap`]: the heap, with its housekeeper.

mod housekeeper;
#[cfg(feature = "engine")]
mod zeroing;

#[cfg(feature = "channel")]
#[doc(inline)]
pub use haul_channel as channel;
#[doc(inline)]
pub use haul_copy as copy;
#[cfg(feature = "engine")]
#[doc(inline)]
pub use haul_engine as engine;
#[cfg(feature = "forward")]
#[doc(inline)]
pub use haul_forward as forward;
#[cfg(feature = "forward")]
#[doc(inline)]
pub use haul_forward::telemetry;

/// The heap of the crate `haul-heap`, the thread that maintains a heap, and blocks that an engine
/// fills with zeros (feature `engine`).
pub mod heap {
    pub use crate::housekeeper::{Housekeeper, PAUSE};
    #[cfg(feature = "engine")]
    pub use crate::zeroing::Zeroing;
    pub use haul_heap::*;
}

/// Applies the choices and thresholds of `haul.toml`, which `haul copy tune` and `haul channel
/// tune` measured on this machine, if the file exists.
///
/// Takes effect once per process, for any number of calls and threads. If the file is invalid or
/// was measured on another machine, the defaults apply, and exactly one line on standard error
/// says so. The call never fails and never blocks on the file, and concurrent copies of other
/// threads stay correct.
///
/// Costs a few system calls without a file, and some 60 more with a file (to identify the
/// machine).
///
/// ```
/// haul::init();
/// ```
#[cfg(feature = "tuning")]
pub fn init() {
    haul_machine::init();
}

/// The example of the README, which must stay true.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The example of the crate's README, which must stay true.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct CrateReadme;

/// The examples of `docs/copy.md`, which must stay true.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/copy.md")]
struct CopyPage;

/// The examples of `docs/channel.md`, which must stay true.
#[cfg(all(doctest, feature = "engine"))]
#[doc = include_str!("../../../docs/channel.md")]
struct ChannelPage;

/// The examples of `docs/engine.md`, which must stay true.
#[cfg(all(doctest, feature = "engine"))]
#[doc = include_str!("../../../docs/engine.md")]
struct EnginePage;

/// The examples of `docs/heap.md`, which must stay true.
#[cfg(all(doctest, feature = "engine"))]
#[doc = include_str!("../../../docs/heap.md")]
struct HeapPage;

/// Programs that must not compile without `unsafe`. Each program fails only for that reason.
///
/// A stopped sender may still write to the target after the call has returned:
///
/// ```compile_fail,E0133
/// fn receive(channel: &mut haul::channel::Channel, target: &mut [u8]) -> bool {
///     channel.recv_into_exposed(target).is_ok()
/// }
/// ```
///
#[cfg(all(doctest, feature = "channel"))]
struct Refused;

/// Like [`Refused`], for copies through pointers.
///
/// ```compile_fail,E0133
/// fn copy(copier: &haul::forward::Copier, parts: &[haul::forward::Part]) {
///     copier.copy_batch(parts);
/// }
/// ```
#[cfg(all(doctest, feature = "forward"))]
struct RefusedByForward;
